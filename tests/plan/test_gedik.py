"""What scan, redist and readj share."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import InvalidArgumentError
from equipoise.plan.consistent import Consistent, ring_tail
from equipoise.plan.cost import Costs, Resource, Utility, price
from equipoise.plan.gedik import Gedik, partition_loads
from equipoise.plan.plan import Plan
from equipoise.plan.planner import Problem
from equipoise.plan.readj import Readj
from equipoise.plan.redist import Redist
from equipoise.plan.scan import Scan
from equipoise.plan.uniform import uniform_plan
from equipoise.sketch.histogram import Histogram

PLANNERS = [Scan, Redist, Readj]
GROUPS = 256

# the toy example of the paper: X Z V R on the first partition, U Y W L on the second
TOY = dict(zip("XUWYZVLR", (5, 4, 3, 3, 3, 2, 1, 1), strict=True))
TOY_OLD = np.array([name in "UYWL" for name in TOY], dtype=np.int64)


def toy(planner, partitions):
    histogram = Histogram(range(8), [count / 22 for count in TOY.values()])
    previous = Plan(2, uniform_plan(2, GROUPS).tail, dict(enumerate(TOY_OLD.tolist())))
    return planner.adaptation(problem(previous, histogram, partitions))


def problem(previous, histogram, partitions=None, costs=None):
    priced = price(histogram, previous.tail_groups, costs)
    return Problem(previous, partitions or previous.partitions, priced, None)


def zipf(keys, exponent=1.0, of=10_000):
    shares = np.arange(1, of + 1) ** -float(exponent)
    return Histogram(np.arange(keys) * 7919, shares[:keys] / shares.sum())


# loads


def test_the_computation_load_of_the_toy_is_the_sum_of_squares():
    step = toy(Scan(computation=Resource.QUADRATIC, tracked=8), 2)
    computation, communication = partition_loads(step, TOY_OLD)[1:]
    assert computation * 22**2 == pytest.approx([39, 35])
    assert communication * 22 == pytest.approx([11, 11])


@pytest.mark.parametrize(
    ("partitions", "resource", "least"), [(2, 0, 38 / 36), (3, 0, 25 / 24), (2, 1, 1.0), (3, 1, 8 / 7)]
)
def test_no_placement_of_the_toy_has_a_better_ratio_than_the_paper_says(partitions, resource, least):
    step = toy(Scan(state=Resource.CONSTANT, computation=Resource.QUADRATIC, tracked=8), partitions)
    placements = (np.array(p) for p in product(range(partitions), repeat=8))
    loads = (partition_loads(step, p)[resource] for p in placements)
    assert min(load.max() / load.min() for load in loads if load.min() > 0) == pytest.approx(least)


def test_constant_resources_are_not_balanced():
    def kinds(*resources):
        return len(toy(Scan(*resources, tracked=8), 3).loads)

    constant, linear, quadratic = Resource.CONSTANT, Resource.LINEAR, Resource.QUADRATIC
    assert kinds(linear, constant, linear) == 2
    assert kinds(constant, constant, linear) == 1
    assert kinds(linear, quadratic, linear) == 3
    assert toy(Scan(linear, constant, linear), 3).balance_penalty(TOY_OLD) == pytest.approx(11 / (22 / 3) / 0.125)


def test_a_balanced_resource_hides_the_others_only_as_printed():
    histogram = Histogram([0, 1, 2], [0.4, 0.2, 0.2])
    previous, placement = uniform_plan(2, GROUPS), np.array([0, 1, 1])

    def penalty(**options):
        planner = Scan(theta=0.2, tracked=3, **options)
        return planner.adaptation(problem(previous, histogram)).balance_penalty(placement)

    only = {"state": Resource.CONSTANT, "computation": Resource.QUADRATIC, "communication": Resource.CONSTANT}
    assert penalty(**only) == pytest.approx(10 / 3)
    assert penalty(computation=Resource.QUADRATIC, as_printed=True) == pytest.approx(0, abs=1e-9)
    assert penalty(computation=Resource.QUADRATIC) == pytest.approx((1e-6 * 10 / 3) ** (1 / 3))


# tracking


@pytest.mark.parametrize(("partitions", "theta"), [(3, 0.125), (10, 0.17647), (20, 0.18812)])
def test_the_allowed_deviation_follows_from_alpha(partitions, theta):
    step = Scan(alpha=1.2).adaptation(problem(uniform_plan(partitions, GROUPS), zipf(5)))
    assert step.theta == pytest.approx(theta, abs=5e-6)
    assert Scan(theta=0.3).adaptation(problem(uniform_plan(partitions, GROUPS), zipf(5))).theta == 0.3


@pytest.mark.parametrize(("partitions", "delta"), [(10, 0.0017647), (20, 0.00094059)])
def test_keys_at_or_above_delta_are_tracked(partitions, delta):
    histogram = Histogram([1, 2, 3, 4], [0.5, delta * 1.001, delta * 0.999, 0.0])
    step = Scan(sigma=0.1).adaptation(problem(uniform_plan(partitions, GROUPS), histogram))
    assert step.keys.tolist() == [1, 2]


def test_quadratic_resources_raise_delta_by_the_load_they_predict():
    shares = np.array([0.3, 0.1, 0.02, 0.01, 0.001, 0.0001])
    planner = Scan(Resource.CONSTANT, Resource.QUADRATIC, Resource.CONSTANT, theta=0.2, domain_size=1_000_000)
    step = planner.adaptation(problem(uniform_plan(10, GROUPS), Histogram(np.arange(6), shares)))
    mean = ((shares**2).sum() + (1 - shares.sum()) ** 2 / (1_000_000 - 6)) / 10
    delta = np.sqrt(0.1 * 0.2 * mean)
    assert np.sqrt(0.1 * 0.2 / (1_000_000 * 10)) < shares[-1] < delta < shares[2]
    assert step.shares.tolist() == shares[shares >= delta].tolist()


def test_the_smallest_delta_of_all_resources_counts():
    shares = np.array([0.3, 0.1, 0.02, 0.01, 0.003, 0.001])
    planner = Scan(computation=Resource.QUADRATIC, theta=0.2)
    step = planner.adaptation(problem(uniform_plan(10, GROUPS), Histogram(np.arange(6), shares)))
    assert step.shares.tolist() == shares[shares >= 0.1 * 0.2 / 10].tolist()


def test_a_given_number_of_keys_is_tracked_whatever_their_share():
    histogram = Histogram([1, 2, 3, 4], [0.5, 1e-9, 1e-10, 0.0])
    assert Scan(tracked=2).adaptation(problem(uniform_plan(4, GROUPS), histogram)).keys.tolist() == [1, 2]
    assert Scan(tracked=9).adaptation(problem(uniform_plan(4, GROUPS), histogram)).keys.tolist() == [1, 2, 3]
    assert len(Scan(tracked=0).adaptation(problem(uniform_plan(4, GROUPS), histogram)).keys) == 0


# migration


def test_keys_tracked_no_more_count_as_moved_where_the_ring_sends_them_elsewhere():
    ring = ring_tail(3, GROUPS, 1000)
    stays, leaves = 10, 20
    previous = Plan(3, ring, {stays: int(ring[stays]), leaves: int(ring[leaves] + 1) % 3, 30: 0})
    histogram = Histogram([30, stays, leaves], [0.4, 0.2, 0.1])
    step = Scan(tracked=1).adaptation(problem(previous, histogram))
    assert step.keys.tolist() == [30]
    assert step.forgotten == pytest.approx(0.1)
    assert step.ideal == pytest.approx((0.4 + 0.2 + 0.1) / 3)
    assert step.migration_penalty(np.array([0])) == pytest.approx(0.1 / step.ideal)
    assert step.migration_penalty(np.array([1])) == pytest.approx(0.5 / step.ideal)


@pytest.mark.parametrize("state", Resource)
def test_state_follows_the_resource_function_where_nothing_was_measured(state):
    previous = Plan(2, uniform_plan(2, GROUPS).tail, {99: 1})
    step = Scan(state=state, tracked=2).adaptation(problem(previous, Histogram([1, 2], [0.5, 0.2])))
    assert step.state.tolist() == state(np.array([0.5, 0.2])).tolist()
    assert step.ideal == pytest.approx(state(np.array([0.5, 0.2, 0.0])).sum() / 2)


def test_measured_state_takes_the_place_of_the_resource_function():
    group_state = np.full(GROUPS, 100.0)
    costs = Costs(group_state=group_state, key_state={1: 70.0, 99: 5.0})
    previous = Plan(2, uniform_plan(2, GROUPS).tail, {99: 1})
    step = Scan(tracked=2).adaptation(problem(previous, Histogram([1, 2], [0.5, 0.2]), costs=costs))
    in_proportion = 100 * 0.2 / (0.2 + 0.3 / GROUPS)
    assert step.state == pytest.approx([70.0, in_proportion])
    assert step.loads[0] == pytest.approx(step.state)
    assert step.ideal == pytest.approx((70.0 + in_proportion + 5.0) / 2)


@pytest.mark.parametrize("kind", PLANNERS)
@pytest.mark.parametrize("as_printed", [False, True])
def test_keys_without_any_state_are_placed(kind, as_printed):
    costs = Costs(group_state=np.zeros(GROUPS))
    plan = kind(as_printed=as_printed).plan(uniform_plan(2, GROUPS), zipf(20), partitions=4, costs=costs)
    assert plan.partitions == 4
    assert "nan" not in plan.reason


# plans


@pytest.mark.parametrize("kind", PLANNERS)
@pytest.mark.parametrize(
    ("options", "partitions", "histogram"),
    [
        ({}, 4, Histogram([], [])),
        ({}, 1, zipf(30)),
        ({"theta": 0.2}, 1, zipf(30)),
        ({"tracked": 5}, 4, Histogram([1, 2], [0.0, 0.0])),
        ({"state": Resource.CONSTANT, "communication": Resource.CONSTANT}, 4, zipf(30)),
        ({"state": Resource.CONSTANT, "communication": Resource.CONSTANT, "tracked": 5}, 4, zipf(30)),
    ],
    ids=["no keys", "one partition", "one partition, theta given", "no load", "constant", "constant, top keys"],
)
def test_with_nothing_to_track_the_plan_is_the_consistent_hash(kind, options, partitions, histogram):
    previous = uniform_plan(3, GROUPS)
    plan = kind(**options).plan(previous, histogram, partitions=partitions)
    assert plan.same_routing(Consistent().plan(previous, histogram, partitions=partitions))


@pytest.mark.parametrize("kind", PLANNERS)
@pytest.mark.parametrize("histogram", [Histogram([7], [0.4]), Histogram(range(40), np.full(40, 0.02)), zipf(60)])
@pytest.mark.parametrize("sizes", [(4, 4), (1, 5), (3, 9), (9, 4), (5, 2)])
def test_every_tracked_key_is_isolated_and_all_others_follow_the_ring(kind, histogram, sizes):
    before, after = sizes
    scattered = dict(zip(histogram.fingerprints.tolist(), np.arange(len(histogram)) % before, strict=True))
    for previous in (uniform_plan(before, GROUPS), Plan(before, uniform_plan(before, GROUPS).tail, scattered)):
        plan = kind().plan(previous, histogram, partitions=after)
        step = kind().adaptation(problem(previous, histogram, after))
        assert len(step.keys) > 0
        assert set(plan.isolated) == set(step.keys.tolist())
        assert set(plan.isolated.values()) <= set(range(after))
        assert plan.tail.tolist() == ring_tail(after, GROUPS, 1000).tolist()
        assert plan == kind().plan(previous, histogram, partitions=after)


@pytest.mark.parametrize("kind", PLANNERS)
@pytest.mark.parametrize("utility", Utility)
@pytest.mark.parametrize("computation", Resource)
def test_every_utility_and_resource_gives_balance(kind, utility, computation):
    planner = kind(utility=utility, computation=computation, tracked=60)
    previous = uniform_plan(4, GROUPS)
    step = planner.adaptation(problem(previous, zipf(60, 0.5), 5))
    everything_on_one = step.balance_penalty(np.zeros(60, dtype=np.int64))
    assert step.balance_penalty(planner.place(step)) < 0.2 * everything_on_one


@pytest.mark.parametrize("kind", PLANNERS)
def test_growing_step_by_step_stays_within_the_allowed_imbalance(kind):
    histogram, planner = zipf(200, 0.5, of=200), kind()
    plan = uniform_plan(1, GROUPS)
    for partitions in range(2, 9):
        step = planner.adaptation(problem(plan, histogram, partitions))
        assert step.balance_penalty(planner.place(step)) <= 1
        plan = planner.plan(plan, histogram, partitions=partitions)
        assert plan.partitions == partitions


@settings(max_examples=60)
@given(
    kind=st.sampled_from(PLANNERS),
    utility=st.sampled_from(Utility),
    resources=st.tuples(*[st.sampled_from(Resource)] * 3),
    as_printed=st.booleans(),
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    measured=st.booleans(),
    data=st.data(),
)
def test_plans_are_valid_and_free_of_nan(kind, utility, resources, as_printed, counts, sizes, measured, data):
    before, after = sizes
    histogram = Histogram(range(len(counts)), np.array(counts) / max(1, sum(counts)))
    owners = data.draw(st.lists(st.integers(0, before - 1), min_size=4, max_size=4))
    previous = Plan(before, uniform_plan(before, GROUPS).tail, dict(zip((0, 1, 500, 501), owners, strict=True)))
    states = (
        data.draw(st.lists(st.sampled_from([0.0, 1.0, 1e9]), min_size=GROUPS, max_size=GROUPS)) if measured else None
    )
    costs = Costs(group_state=None if states is None else np.array(states))
    planner = kind(*resources, utility=utility, as_printed=as_printed, tracked=10)
    plan = planner.plan(previous, histogram, partitions=after, costs=costs)
    assert plan.partitions == after
    assert "nan" not in plan.reason
    assert "inf" not in plan.reason


@pytest.mark.parametrize("kind", PLANNERS)
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"state": "linear"}, "state must be a Resource"),
        ({"computation": 2}, "computation must be a Resource"),
        ({"communication": None}, "communication must be a Resource"),
        ({"utility": "rho"}, "utility must be a Utility"),
        ({"alpha": 1.0}, "must exceed 1, got 1.0"),
        ({"alpha": np.nan}, "alpha must be a finite"),
        ({"theta": 0.0}, "must exceed 0, got 0.0"),
        ({"theta": np.inf}, "theta must be a finite"),
        ({"sigma": 0.0}, r"in \(0, 1\], got 0.0"),
        ({"sigma": 1.5}, r"in \(0, 1\], got 1.5"),
        ({"domain_size": 0}, "domain_size must be a whole number of at least 1, got 0"),
        ({"tracked": -1}, "tracked must be a whole number of at least 0, got -1"),
        ({"replicas": 0}, "replicas must be a whole number of at least 1, got 0"),
    ],
)
def test_parameters_outside_their_range_are_refused(kind, options, complaint):
    with pytest.raises(InvalidArgumentError, match=complaint):
        kind(**options)


def test_what_they_share_is_no_planner_by_itself():
    with pytest.raises(TypeError, match="abstract"):
        Gedik()
