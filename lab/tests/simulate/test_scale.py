"""The scaled simulation, in miniature, against simulations that know every key."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from equipoise.errors import InvalidArgumentError
from equipoise.metrics import load_imbalance, lower_bound
from equipoise.plan import KIP, Costs, Scan, default_tail_groups, uniform_plan
from equipoise.sketch import Histogram
from equipoise_lab.simulate.cluster import ClusterOptions, simulate, splitter_of
from equipoise_lab.simulate.hourly_counts import HourlyCounts
from equipoise_lab.simulate.scale import ScaleOptions, check_names, planners_at_scale, splitters_at_scale
from equipoise_lab.simulate.workloads import key_fingerprints
from equipoise_lab.simulate.zipf_stream import zipf_stream

SMALL = ScaleOptions(partitions=8, messages=60_000, keys=2000, exponent=0.9, hours=3, drift=0.2, plan_limit=60, seed=3)


def every_key(options):
    """Fingerprints and counts of all keys in each hour."""
    counts = HourlyCounts(
        options.keys,
        options.exponent,
        options.messages,
        groups=default_tail_groups(options.partitions),
        hot=options.listed,
        drift=options.drift,
        seed=options.seed,
    )
    for _ in range(options.hours + 1):
        drawn = np.concatenate([part for _, part in counts.draw()])
        names = key_fingerprints(np.arange(options.keys), options.seed)
        alive = counts._rank_of_known >= 0
        names[counts._rank_of_known[alive]] = counts.known[alive]
        yield names, drawn, counts.known.copy()


def brute_force(planner, options):
    """Fullest over mean, bound and moved state of each hour, with a table of all keys."""
    plan, states, hours = uniform_plan(options.partitions), [], list(every_key(options))
    for (names, counts, known), (later_names, later, _) in pairwise(hours):
        states = [*states, dict(zip(names.tolist(), counts.tolist(), strict=True))][-options.state_hours :]
        state = {key: sum(each.get(key, 0) for each in states) for each in states for key in each}
        keys, amounts = np.array(list(state)), np.array(list(state.values()))
        groups = plan.tail_groups
        costs = Costs(
            group_load=np.bincount(np.mod(names, groups), counts, groups),
            group_state=np.bincount(np.mod(keys, groups), amounts, groups),
            key_state={key: state.get(key, 0) for key in known.tolist()},
        )
        at = np.flatnonzero(np.isin(names, known))
        hottest = at[np.lexsort((names[at], -counts[at]))[: options.listed]]
        histogram = Histogram(names[hottest], counts[hottest] / counts.sum(), total=counts.sum())
        following = planner.plan(plan, histogram, costs=costs)
        moved = amounts[plan.assign(keys) != following.assign(keys)].sum() / amounts.sum()
        plan = following
        loads = np.bincount(plan.assign(later_names), later, options.partitions)
        bound = lower_bound(options.partitions, later.max() / later.sum())
        yield load_imbalance(loads), load_imbalance(loads) / bound, moved, plan


@pytest.mark.parametrize("planner", [KIP(), Scan()])
def test_planners_give_what_a_simulation_of_every_key_gives(planner):
    expected = list(brute_force(planner, SMALL))
    found = planners_at_scale([planner.name], SMALL)[planner.name]
    assert found.fullest == pytest.approx([each[0] for each in expected])
    assert found.over_bound == pytest.approx([each[1] for each in expected])
    assert found.moved == pytest.approx([each[2] for each in expected])
    last = expected[-1][3]
    assert (found.isolated, found.plan_bytes) == (len(last.isolated), len(last.to_json()))
    assert found.routing_bytes > last.tail_groups
    assert len(found.planning) == SMALL.hours


def test_splitters_give_what_one_simulation_of_each_gives():
    names = ["shuffle", "key-grouping", "partial-key", "w-choices"]
    calls = []
    found = splitters_at_scale(names, SMALL, lambda name, done: calls.append((name, done)))
    options = ClusterOptions(sources=SMALL.sources, seed=SMALL.seed)
    for name in names:
        stream = zipf_stream(SMALL.keys, SMALL.exponent, SMALL.messages, seed=SMALL.seed)
        more = {"refresh": 100 * SMALL.partitions} if name == "w-choices" else {}
        alone = simulate(splitter_of(name, SMALL.partitions, seed=SMALL.seed, **more), stream, options)
        assert found[name].messages == SMALL.messages
        assert found[name].trouble == ""
        assert (name, SMALL.messages) in calls
        assert found[name].fullest == load_imbalance(alone.loads)
        assert found[name].average_imbalance == pytest.approx(alone.average_imbalance)
    assert found["partial-key"].fullest < found["key-grouping"].fullest


def test_what_takes_too_long_is_given_up_and_said_so():
    hasty = replace(SMALL, messages=3_000_000, stream_limit=1e-6)
    split = splitters_at_scale(["partial-key"], hasty)["partial-key"]
    assert split.messages == 1_000_000
    assert split.trouble == "gave up after 1e-06 s"
    planned = planners_at_scale(["readj"], replace(SMALL, plan_limit=1e-6))["readj"]
    assert planned.trouble.startswith("gave up after")
    assert (planned.fullest, planned.plan_bytes, planned.moved_per_hour) == ([], 0, None)


def test_migration_is_counted_by_replan_and_by_hour():
    found = planners_at_scale(["kip", "uniform"], SMALL)
    kip = found["kip"]
    assert kip.moved_per_hour == pytest.approx(np.mean(kip.moved[1:]))
    assert kip.moved_per_replan >= kip.moved_per_hour > 0
    assert found["uniform"].moved == [0.0] * SMALL.hours
    assert (found["uniform"].moved_per_replan, found["uniform"].moved_per_hour) == (None, 0.0)


def test_names_are_distinguished_and_what_remembers_every_key_is_refused():
    assert check_names(["kip", "shuffle"]) == (["shuffle"], ["kip"])
    for wrong in ("pkg", "off-greedy", "static-potc", "dynamic-key-printed"):
        with pytest.raises(InvalidArgumentError):
            check_names([wrong])


@pytest.mark.parametrize(
    "wrong", [{"keys": 33}, {"hours": 0}, {"plan_limit": 0}, {"stream_limit": 0}, {"partitions": 1}, {"state_hours": 0}]
)
def test_impossible_sizes_are_reported(wrong):
    with pytest.raises(InvalidArgumentError):
        replace(SMALL, **wrong)
