import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import InvalidArgumentError
from equipoise.fingerprint_table import find
from equipoise.metrics import load_imbalance
from equipoise.split import DynamicKey
from equipoise.split.key_space import BABY, OLD, TEENAGE, KeySpace, append, promote


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def splitter_in(kind, loads, *, width=2, generation=OLD, **options):
    """A warm splitter with given loads that knows one key, the first whose first worker is 0."""
    clock = Clock()
    splitter = kind(len(loads), clock=clock, **options)
    clock.now = 100.0
    splitter._next_cycle = 1000.0
    key = next(key for key in range(10_000) if splitter.candidates(key)[0] == 0)
    know(splitter._space, key, generation, width)
    splitter.loads[:] = loads
    return splitter, key


def know(space, key, generation, width=2, count=1):
    entries = space.entries
    slot = find(entries.table_keys, entries.table_values, key)
    append(entries, space.size, slot, key)
    entries.generations[space.size] = generation
    entries.widths[space.size] = width
    entries.counts[space.size] = count
    space.size += 1


# one decision


def test_an_overloaded_old_key_takes_the_next_worker_if_that_has_less():
    splitter, key = splitter_in(DynamicKey, [30, 30, 5, 20, 15])
    assert splitter.route([key]).tolist() == [2]
    assert splitter.width(key) == 3
    splitter, key = splitter_in(DynamicKey, [30, 30, 35, 5, 0])
    assert splitter.route([key]).tolist() == [0]
    assert splitter.width(key) == 2


def test_a_key_with_two_free_workers_gets_narrower():
    splitter, key = splitter_in(DynamicKey, [10, 10, 10, 40, 30], width=4)
    assert splitter.route([key]).tolist() == [0]
    assert splitter.width(key) == 3


@pytest.mark.parametrize("generation", [BABY, TEENAGE])
def test_only_old_keys_get_wider(generation):
    splitter, key = splitter_in(DynamicKey, [30, 30, 5, 20, 15], generation=generation)
    splitter.route([key])
    assert splitter.width(key) == 2


def test_nothing_gets_wider_before_the_warm_up_has_passed():
    splitter, key = splitter_in(DynamicKey, [30, 30, 5, 20, 15], warm_up=100.0)
    splitter.route([key])
    assert splitter.width(key) == 2


# generations


def spaces(source, target):
    """Entries and counts of two generations, given as counts."""
    counts = np.array([*source, *target])
    names = list(range(len(counts)))
    return names[: len(source)], names[len(source) :], counts


@pytest.mark.parametrize(
    ("swaps_ties", "fills", "target", "source"),
    [(False, True, [0, 3, 4], [1, 2, 5]), (True, False, [1, 0, 3], [2, 5, 4])],
)
def test_promotion_comes_out_as_coded_and_as_printed(swaps_ties, fills, target, source):
    src, dst, counts = spaces([9, 5, 1], [8, 5, 2])  # x y z, p q r
    promote(src, dst, counts, 3, fills=fills, swaps_ties=swaps_ties)
    assert (dst, src) == (target, source)


def test_an_empty_generation_is_filled_as_coded_and_stays_empty_as_printed():
    src, dst, counts = spaces([9, 7, 1], [])
    promote(src, dst, counts, 2, fills=True, swaps_ties=False)
    assert (dst, src) == ([1, 0], [2])
    src, dst, counts = spaces([9, 7, 1], [])
    promote(src, dst, counts, 2, fills=False, swaps_ties=True)
    assert (dst, src) == ([], [0, 1, 2])


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(0, 9), max_size=4), st.booleans())
def test_promotion_loses_no_key_and_keeps_the_largest(source, target, swaps_ties):
    src, dst, counts = spaces(source, target)
    promote(src, dst, counts, 4, fills=True, swaps_ties=swaps_ties)
    assert sorted(src + dst) == list(range(len(counts)))
    assert len(dst) == min(4, len(counts))
    # up to 4 keys move, which is enough for the largest ones to be there
    assert sorted(counts[dst]) == sorted(sorted(counts)[::-1][:4])


def space(**options):
    rules = {"limit": None, "fills": True, "swaps_ties": False, "keeps_widths": True}
    return KeySpace(100, **rules | options)


def test_a_cycle_keeps_the_hottest_babies_and_moves_them_up():
    keys = space()
    for key in range(200):
        know(keys, key, BABY, count=key)
    keys.cycle(to_old=True)
    generations = keys.entries.generations[: keys.size]
    assert [int((generations == g).sum()) for g in (OLD, TEENAGE, BABY)] == [10, 30, 10]
    assert {keys.entries.keys[i] for i in np.flatnonzero(generations == OLD)} == set(range(190, 200))
    assert keys.size == 50


def test_a_forgotten_key_keeps_its_width_as_coded_and_loses_it_in_ours():
    for keeps, width in ((True, 5), (False, 2)):
        keys = space(keeps_widths=keeps)
        know(keys, 7, BABY, width=5, count=1)
        for key in range(100, 200):
            know(keys, key, BABY, count=10)
        keys.cycle(to_old=False)
        assert keys.width(7) == width


# over time


def run(splitter, clock, seconds, share, hot, rate=1000, seed=1):
    """Loads of the workers over some seconds of a stream with one hot key."""
    rng = np.random.default_rng(seed)
    loads = np.zeros(splitter.workers, dtype=np.int64)
    for _ in range(seconds):
        batch = np.where(rng.random(rate) < share, hot, rng.integers(1000, 1200, rate))
        loads += np.bincount(splitter.route(batch), minlength=splitter.workers)
        clock.now += 1.0
    return loads


@pytest.mark.parametrize("hot", [1, 2, 3])
def test_a_hot_key_is_spread_until_no_worker_is_far_above_the_threshold(hot):
    clock = Clock()
    splitter = DynamicKey(10, clock=clock)
    run(splitter, clock, 60, 0.8, hot)
    assert splitter.width(hot) >= 5
    assert 10 * load_imbalance(run(splitter, clock, 60, 0.8, hot)) < splitter.threshold + 1


def test_a_key_that_cools_shrinks_back_and_the_next_one_is_followed():
    clock = Clock()
    splitter = DynamicKey(10, clock=clock)
    run(splitter, clock, 300, 0.8, 1)
    run(splitter, clock, 90, 0.8, 2)
    assert splitter.width(2) >= 5
    run(splitter, clock, 60, 0.02, 2)
    assert splitter.width(2) == 2
    run(splitter, clock, 20, 0.02, 1)  # rare, but not gone
    assert splitter.width(1) == 2


@settings(max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=300), st.integers(1, 6), st.integers(0, 9))
def test_every_message_goes_to_the_least_loaded_of_side_by_side_workers(stream, workers, seed):
    clock = Clock()
    splitter = DynamicKey(workers, cycle=2.0, warm_up=0.0, retention=1.0, clock=clock, seed=seed)
    for key in stream:
        before = splitter.loads.copy()
        target = int(splitter.route([key])[0])
        choices = splitter.candidates(key).tolist()
        assert choices == [(choices[0] + i) % workers for i in range(splitter.width(key))]
        assert target in choices
        assert before[target] == before[choices].min()
        clock.now += 0.7


def test_memory_stays_within_the_limit_and_hot_keys_are_kept():
    clock = Clock()
    splitter = DynamicKey(10, limit=500, clock=clock)
    before = splitter.nbytes
    rng = np.random.default_rng(3)
    for _ in range(40):
        splitter.route(np.where(rng.random(2000) < 0.6, 5, rng.integers(0, 2**40, 2000)))
        clock.now += 1.0
    assert splitter.nbytes == before
    assert splitter.width(5) > 3


def test_a_long_pause_counts_as_a_few_cycles_only():
    clock = Clock()
    splitter = DynamicKey(10, clock=clock)
    run(splitter, clock, 30, 0.8, 1)
    clock.now = 1e9
    splitter.route([1])
    assert splitter._cycles <= 12
    assert splitter.loads.sum() < 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"cycle": 0},
        {"warm_up": -1},
        {"retention": 0},
        {"retention": 1.5},
        {"limit": 150},
        {"check_interval": -1},
        {"expected_keys": 1},
    ],
)
def test_impossible_options_are_refused(wrong):
    with pytest.raises(InvalidArgumentError):
        DynamicKey(10, **wrong)
