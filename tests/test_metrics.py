"""Measures of balance: the numbers of the papers, and the laws that hold for all loads."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from equipoise.errors import InvalidArgumentError
from equipoise.metrics import (
    average_imbalance_fraction,
    average_imbalance_fraction_of_loads,
    balance_penalty,
    block_cardinality_imbalance,
    block_size_imbalance,
    count_distinct_keys,
    distribution_cost,
    imbalance,
    key_split_ratio,
    load_imbalance,
    load_ratio,
    lower_bound,
    makespan,
    makespan_lower_bound,
    micropartitioning_imbalance,
    overall_balance_penalty,
    overall_imbalance,
    relative_load_imbalance,
    relative_migration,
    standard_deviation,
)
from equipoise.plan.cost import imbalance_threshold

PKG_ROUTING = [0, 1, 0, 2, 1, 2, 0, 1, 0, 2]
POTC_ROUTING = [0, 1, 0, 2, 0, 2, 0, 1, 0, 2]

# two packings of the same 385 tuples of 8 keys into 4 blocks: {key: tuples} for each block
FIRST_FIT_DECREASING = [{1: 97}, {1: 23, 2: 73}, {2: 17, 3: 45, 4: 34}, {4: 8, 5: 33, 6: 30, 7: 15, 8: 10}]
PROMPT = [{1: 87, 8: 10}, {2: 49, 7: 15, 1: 33}, {3: 45, 6: 30, 2: 22}, {4: 42, 5: 33, 2: 19}]

OF_LOADS = {
    "load_imbalance": load_imbalance,
    "imbalance": imbalance,
    "load_ratio": load_ratio,
    "relative_load_imbalance": lambda loads: relative_load_imbalance(loads, 1.2),
    "overall_balance_penalty": overall_balance_penalty,
    "balance_penalty": lambda loads: balance_penalty(loads, 0.1),
    "block_size_imbalance": block_size_imbalance,
    "block_cardinality_imbalance": block_cardinality_imbalance,
    "key_split_ratio": lambda counts: key_split_ratio(counts, 1),
    "distribution_cost": lambda counts: distribution_cost(counts, 1),
    "standard_deviation": standard_deviation,
    "makespan": lambda durations: makespan(durations, 2),
    "makespan_lower_bound": lambda durations: makespan_lower_bound(durations, 2),
}

amounts = st.lists(st.floats(0, 1e9, allow_subnormal=False), min_size=1, max_size=30)
whole_amounts = st.lists(st.integers(0, 1000), min_size=1, max_size=30)
scales = st.floats(1e-3, 1e3)
routings = st.integers(1, 5).flatmap(
    lambda workers: st.tuples(st.lists(st.integers(0, workers - 1), min_size=1, max_size=40), st.just(workers))
)


def loads_after_each_message(routing, workers):
    return np.cumsum(np.eye(workers)[routing], axis=0)


def sizes_of(blocks):
    return [sum(block.values()) for block in blocks]


def cardinalities_of(blocks):
    return [len(block) for block in blocks]


# golden numbers


@pytest.mark.parametrize(
    ("routing", "last", "fraction"), [(PKG_ROUTING, 0.6667, 0.05667), (POTC_ROUTING, 1.6667, 0.11667)]
)
def test_imbalance_of_the_ten_message_stream_is_that_of_the_worked_example(routing, last, fraction):
    assert imbalance(np.bincount(routing)) == pytest.approx(last, abs=5e-5)
    assert average_imbalance_fraction(routing, 3) == pytest.approx(fraction, abs=5e-6)
    assert average_imbalance_fraction_of_loads(loads_after_each_message(routing, 3)) == pytest.approx(
        fraction, abs=5e-6
    )


def test_load_ratios_are_those_of_gediks_toy_example():
    assert load_ratio([11, 11]) == 1.0
    assert load_ratio([39, 35]) == pytest.approx(1.114, abs=5e-4)
    assert load_ratio([38, 36]) == pytest.approx(1.0556, abs=5e-5)


@pytest.mark.parametrize(("loads", "penalty"), [([8, 7, 7], 12 / 11), ([8, 8, 6], 24 / 11), ([8, 9, 5], 48 / 11)])
def test_balance_penalties_are_those_of_gediks_toy_example(loads, penalty):
    assert balance_penalty(loads, imbalance_threshold(1.2, 3)) == pytest.approx(penalty)


def test_first_fit_decreasing_balances_sizes_but_not_cardinalities():
    assert block_size_imbalance(sizes_of(FIRST_FIT_DECREASING)) == 0.75
    assert block_cardinality_imbalance(cardinalities_of(FIRST_FIT_DECREASING)) == 2.25
    assert key_split_ratio(cardinalities_of(FIRST_FIT_DECREASING), 8) == 1.375


def test_prompt_balances_sizes_and_cardinalities():
    sizes, counts = sizes_of(PROMPT), cardinalities_of(PROMPT)
    assert block_size_imbalance(sizes) == 0.75
    assert block_cardinality_imbalance(counts) == 0.25
    assert key_split_ratio(counts, 8) == 1.375
    assert micropartitioning_imbalance(sizes, counts, 8) == pytest.approx(0.7917, abs=5e-5)


@pytest.mark.parametrize(("loads", "deviation"), [([68, 8, 8, 8, 8], 24.0), ([68] + [32 / 9] * 9, 19.3333)])
def test_standard_deviation_of_one_worker_with_68_percent_is_that_of_the_worked_example(loads, deviation):
    assert standard_deviation(loads) == pytest.approx(deviation, abs=5e-5)


# meaning


def test_a_weight_of_one_leaves_a_single_measure_of_prompt():
    sizes, counts = sizes_of(FIRST_FIT_DECREASING), cardinalities_of(FIRST_FIT_DECREASING)
    weights = {"size_weight": 0, "cardinality_weight": 0, "split_weight": 0}
    assert micropartitioning_imbalance(sizes, counts, 8, **weights | {"size_weight": 1}) == 0.75
    assert micropartitioning_imbalance(sizes, counts, 8, **weights | {"cardinality_weight": 1}) == 2.25
    assert micropartitioning_imbalance(sizes, counts, 8, **weights | {"split_weight": 1}) == 1.375


def test_moving_the_load_of_one_partition_is_the_ideal_migration():
    assert relative_migration(migrated=25, total=100, partitions=4) == 1.0
    assert relative_migration(migrated=0, total=0, partitions=4) == 0.0


def test_shuffling_costs_a_copy_of_every_key_at_every_worker_and_key_grouping_costs_one():
    keys = np.repeat([3, 5], 4)
    shuffled = count_distinct_keys(keys, np.tile(np.arange(4), 2), blocks=4)
    grouped = count_distinct_keys(keys, keys % 4, blocks=4)
    assert distribution_cost(shuffled, 2) == 4.0
    assert distribution_cost(grouped, 2) == 1.0


def test_a_task_starts_on_the_slot_that_is_free_first():
    assert makespan([3, 1, 1, 1, 3], slots=2) == 6.0
    assert makespan([3, 3, 1, 1, 1], slots=2) == 5.0


def test_more_slots_than_tasks_leave_the_longest_task():
    assert makespan([1, 5, 2], slots=100) == 5.0


def test_an_idle_worker_makes_the_ratio_infinite_and_the_penalty_not():
    assert load_ratio([1, 0]) == np.inf
    assert overall_imbalance([relative_load_imbalance([1, 0], 1.2), 1.0]) == np.inf
    assert balance_penalty([1, 0], 0.5) == 4.0


def test_one_resource_in_perfect_balance_hides_the_others_in_the_overall_penalty():
    assert overall_balance_penalty([0.0, 3.333, 2.0]) == 0.0


@pytest.mark.parametrize("name", ["load_imbalance", "load_ratio"])
def test_ratios_of_no_load_at_all_are_one(name):
    assert OF_LOADS[name]([0, 0, 0]) == 1.0


@pytest.mark.parametrize("name", ["imbalance", "balance_penalty", "standard_deviation", "makespan"])
def test_differences_of_no_load_at_all_are_zero(name):
    assert OF_LOADS[name]([0, 0, 0]) == 0.0


def test_empty_blocks_are_balanced_and_unsplit():
    assert key_split_ratio([0, 0], 0) == 1.0
    assert average_imbalance_fraction_of_loads([[0, 0]]) == 0.0


# laws


@given(amounts)
def test_load_imbalance_lies_between_one_and_the_number_of_workers(loads):
    assert 1.0 <= load_imbalance(loads) <= len(loads) * (1 + 1e-12)


@given(st.floats(0, 1e9), st.integers(1, 50))
def test_equal_loads_are_balanced_by_every_measure(load, workers):
    loads = [load] * workers
    assert load_imbalance(loads) == pytest.approx(1.0)
    assert load_ratio(loads) == 1.0
    assert balance_penalty(loads, 0.1) == 0.0
    assert imbalance(loads) == pytest.approx(0.0, abs=1e-6)
    assert standard_deviation(loads) == pytest.approx(0.0, abs=1e-6)


@given(whole_amounts, scales)
def test_relative_measures_do_not_depend_on_the_unit(loads, scale):
    scaled = np.array(loads) * scale
    for name in ("load_imbalance", "load_ratio", "balance_penalty", "standard_deviation"):
        assert OF_LOADS[name](scaled) == pytest.approx(OF_LOADS[name](loads), abs=1e-9)


@given(whole_amounts, scales)
def test_absolute_measures_grow_with_the_unit(loads, scale):
    scaled = np.array(loads) * scale
    for name in ("imbalance", "makespan", "makespan_lower_bound"):
        assert OF_LOADS[name](scaled) == pytest.approx(scale * OF_LOADS[name](loads), abs=1e-6)


@given(whole_amounts, st.randoms(use_true_random=False))
def test_the_order_of_workers_does_not_matter(loads, random):
    shuffled = random.sample(loads, len(loads))
    for name in ("load_imbalance", "imbalance", "load_ratio", "balance_penalty", "standard_deviation"):
        assert OF_LOADS[name](shuffled) == pytest.approx(OF_LOADS[name](loads))


@given(routings)
def test_both_forms_of_the_average_imbalance_agree(case):
    routing, workers = case
    history = loads_after_each_message(routing, workers)
    assert average_imbalance_fraction(routing, workers) == pytest.approx(average_imbalance_fraction_of_loads(history))


@given(amounts, st.integers(1, 40))
def test_makespan_lies_between_its_lower_bound_and_twice_that(durations, slots):
    least = makespan_lower_bound(durations, slots)
    assert least * (1 - 1e-9) <= makespan(durations, slots) <= 2 * least * (1 + 1e-9)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 8), st.data())
def test_no_plan_without_splits_beats_the_lower_bound(key_loads, partitions, data):
    owners = data.draw(st.lists(st.integers(0, partitions - 1), min_size=len(key_loads), max_size=len(key_loads)))
    loads = np.bincount(owners, key_loads, partitions)
    hottest = max(key_loads) / sum(key_loads)
    assert load_imbalance(loads) >= lower_bound(partitions, hottest) * (1 - 1e-12)


@given(routings, st.data())
def test_a_key_is_at_one_worker_at_least_and_at_all_at_most(case, data):
    assignment, workers = case
    keys = data.draw(st.lists(st.integers(-3, 3), min_size=len(assignment), max_size=len(assignment)))
    counts = count_distinct_keys(keys, assignment, workers)
    pairs = set(zip(assignment, keys, strict=True))
    assert counts.tolist() == [sum(worker == where for where, _ in pairs) for worker in range(workers)]
    assert 1.0 <= distribution_cost(counts, len(set(keys))) <= workers


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5))
def test_the_overall_imbalance_lies_between_those_of_the_resources(relative_imbalances):
    overall = overall_imbalance(relative_imbalances)
    assert min(relative_imbalances) * (1 - 1e-9) <= overall <= max(relative_imbalances) * (1 + 1e-9)


@given(st.lists(st.integers(1, 100), min_size=2, max_size=20), st.integers(0, 19), st.integers(0, 19))
def test_levelling_two_workers_never_raises_the_imbalance(loads, one, other):
    assume(one < len(loads) and other < len(loads))
    levelled = np.array(loads, dtype=float)
    levelled[[one, other]] = (loads[one] + loads[other]) / 2
    for name in ("load_imbalance", "imbalance", "load_ratio", "balance_penalty", "standard_deviation"):
        assert OF_LOADS[name](levelled) <= OF_LOADS[name](loads) + 1e-9


# bad input

BAD_LOADS = [
    [],
    [1, np.nan],
    [1, -1],
    [1, np.inf],
    [[1, 2], [3, 4]],
    3,
    ["a"],
    ["1", "2"],
    "12",
    [None],
    [object()],
    [1, [2, 3]],
    [1j],
    None,
    {1: 2},
]


@pytest.mark.parametrize("loads", BAD_LOADS)
@pytest.mark.parametrize("name", OF_LOADS)
def test_loads_that_are_none_are_refused(name, loads):
    with pytest.raises(InvalidArgumentError):
        OF_LOADS[name](loads)


@pytest.mark.parametrize("assignment", [[], [0, 3], [0, -1], [0.5], [[0]], ["a"], [0, [1]], None])
def test_assignments_to_no_worker_are_refused(assignment):
    with pytest.raises(InvalidArgumentError, match="assignment"):
        average_imbalance_fraction(assignment, 3)
    with pytest.raises(InvalidArgumentError, match="assignment"):
        count_distinct_keys(assignment, assignment, 3)


def test_keys_and_assignments_of_different_lengths_are_refused():
    with pytest.raises(InvalidArgumentError, match="3 keys but 2 assignments"):
        count_distinct_keys([1, 2, 3], [0, 1], 2)


@pytest.mark.parametrize("rows", [[], [1, 2], [[]], [[1, np.nan]], [[1, -1]], [["a"]], [[1], [1, 2]], None])
def test_recorded_loads_without_rows_are_refused(rows):
    with pytest.raises(InvalidArgumentError, match="loads_over_time"):
        average_imbalance_fraction_of_loads(rows)


def test_loads_that_fall_are_refused_as_they_are_not_cumulative():
    with pytest.raises(InvalidArgumentError, match="pass cumulative sums"):
        average_imbalance_fraction_of_loads([[2, 1], [1, 2]])


@pytest.mark.parametrize("alpha", [0.99, np.nan, np.inf, "much", None])
def test_a_tolerated_ratio_below_one_is_refused(alpha):
    with pytest.raises(InvalidArgumentError, match="alpha"):
        relative_load_imbalance([1, 2], alpha)


@pytest.mark.parametrize("theta", [0, -0.1, np.nan, np.inf, "much", None])
def test_an_allowed_deviation_of_nothing_is_refused(theta):
    with pytest.raises(InvalidArgumentError, match="theta"):
        balance_penalty([1, 2], theta)


@pytest.mark.parametrize("relative_imbalances", [[], [0.0, 1.0], [np.nan], [-1.0]])
def test_relative_imbalances_that_are_no_ratios_are_refused(relative_imbalances):
    with pytest.raises(InvalidArgumentError):
        overall_imbalance(relative_imbalances)


@pytest.mark.parametrize(
    ("migrated", "total", "partitions"), [(2, 1, 4), (-1, 1, 4), (1, np.nan, 4), (1, 1, 0), (1, 1, 2.5), ("a", 1, 4)]
)
def test_impossible_migrations_are_refused(migrated, total, partitions):
    with pytest.raises(InvalidArgumentError):
        relative_migration(migrated, total, partitions)


@pytest.mark.parametrize("distinct_keys", [0, 2, 7])
def test_numbers_of_keys_that_the_blocks_contradict_are_refused(distinct_keys):
    with pytest.raises(InvalidArgumentError, match="distinct keys"):
        key_split_ratio([3, 3], distinct_keys)


@pytest.mark.parametrize("distinct_keys", [3.5, "3", None])
def test_numbers_of_keys_that_are_not_whole_are_refused(distinct_keys):
    with pytest.raises(InvalidArgumentError, match="distinct_keys must be a whole number"):
        key_split_ratio([3, 3], distinct_keys)


def test_numbers_of_workers_that_are_not_whole_are_refused():
    with pytest.raises(InvalidArgumentError, match="workers must be a whole number"):
        average_imbalance_fraction([0, 1], 2.5)
    with pytest.raises(InvalidArgumentError, match="blocks must be a whole number"):
        count_distinct_keys([0, 1], [0, 1], 2.5)


def test_keys_that_cannot_be_compared_are_refused():
    with pytest.raises(InvalidArgumentError, match="pass their fingerprints"):
        count_distinct_keys([None, 1], [0, 1], 2)


def test_sizes_of_blocks_that_are_no_numbers_are_refused():
    with pytest.raises(InvalidArgumentError, match="sizes"):
        micropartitioning_imbalance([1, [2]], [1, 1], 2)


def test_weights_that_do_not_add_up_to_one_are_refused():
    with pytest.raises(InvalidArgumentError, match="add up to 1"):
        micropartitioning_imbalance([1, 1], [1, 1], 2, size_weight=1)


def test_sizes_and_cardinalities_of_different_numbers_of_blocks_are_refused():
    with pytest.raises(InvalidArgumentError, match="2 sizes but 3 cardinalities"):
        micropartitioning_imbalance([1, 1], [1, 1, 1], 2)


@pytest.mark.parametrize("slots", [0, -1, 2.5, "2", None])
def test_tasks_without_slots_are_refused(slots):
    with pytest.raises(InvalidArgumentError, match="slots"):
        makespan([1], slots)
    with pytest.raises(InvalidArgumentError, match="slots"):
        makespan_lower_bound([1], slots)


@pytest.mark.parametrize(("partitions", "share"), [(0, 0.5), (2, 1.1), (2, -0.1), (2, np.nan), (2.5, 0.5), (2, "a")])
def test_a_lower_bound_of_impossible_shares_is_refused(partitions, share):
    with pytest.raises(InvalidArgumentError):
        lower_bound(partitions, share)
