import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.plan.cost import price
from equipoise.plan.plan import Plan
from equipoise.plan.planner import Problem
from equipoise.plan.redist import Redist
from equipoise.plan.uniform import uniform_plan
from equipoise.sketch.histogram import Histogram


def adaptation(planner, counts, old, partitions):
    histogram = Histogram(range(len(counts)), np.array(counts) / sum(counts))
    before = max(old) + 1
    previous = Plan(before, uniform_plan(before, 64).tail, dict(enumerate(old)))
    return planner.adaptation(Problem(previous, partitions, price(histogram, 64), None))


def only(step, items):
    """The same step, as it stands when only ``items`` are placed."""
    return step._replace(
        keys=step.keys[items],
        shares=step.shares[items],
        loads=step.loads[:, items],
        state=step.state[items],
        old=step.old[items],
        fallback=step.fallback[items],
    )


def by_hand(step):
    """Order in which the items are placed, and their partitions, straight from the definition."""
    batch_spec: list[int] = []
    placed: list[int] = []
    while len(batch_spec) < len(step.keys):
        candidates = []
        for item in set(range(len(step.keys))) - set(batch_spec):
            partial = only(step, [*batch_spec, item])
            for partition in range(step.partitions):
                choice = np.array([*placed, partition])
                utility = partial.balance_penalty(choice) + partial.migration_penalty(choice)
                candidates.append((utility / step.shares[item], item, partition))
        least = min(candidates)[0]
        _, item, partition = min((c for c in candidates if c[0] <= least * (1 + 1e-10)), key=lambda c: c[1:])
        batch_spec.append(item)
        placed.append(partition)
    return batch_spec, [partition for _, partition in sorted(zip(batch_spec, placed, strict=True))]


def test_the_toy_of_the_paper_moves_6_and_is_less_balanced_than_by_scan():
    counts, old = (5, 4, 3, 3, 3, 2, 1, 1), (0, 1, 1, 1, 0, 0, 1, 0)  # X U W Y Z V L R
    planner = Redist(theta=1 / 8, tracked=8)
    step = adaptation(planner, counts, old, 3)
    placement = planner.place(step)
    assert placement.tolist() == [0, 1, 2, 1, 0, 2, 1, 2]
    assert np.bincount(placement, counts).tolist() == [8, 8, 6]
    assert step.balance_penalty(placement) == pytest.approx(24 / 11)
    assert step.migration_penalty(placement) == pytest.approx(6 / (22 / 3))


def test_the_toy_of_the_paper_is_placed_out_of_the_order_of_shares():
    step = adaptation(Redist(theta=1 / 8, tracked=8), (5, 4, 3, 3, 3, 2, 1, 1), (0, 1, 1, 1, 0, 0, 1, 0), 3)
    batch_spec, placement = by_hand(step)
    assert "".join("XUWYZVLR"[item] for item in batch_spec) == "XUWVLYZR"
    assert placement == [0, 1, 2, 1, 0, 2, 1, 2]


def test_a_full_partition_is_split_at_least_migration():
    planner = Redist(theta=1 / 5, tracked=3)
    step = adaptation(planner, (5, 3, 2), (0, 0, 0), 2)
    placement = planner.place(step)
    assert placement.tolist() == [0, 1, 1]
    assert step.state[placement != step.old].sum() == pytest.approx(5 / 10)


@settings(max_examples=60)
@given(
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    partitions=st.integers(2, 4),
    data=st.data(),
)
def test_the_kernel_does_what_the_definition_says(counts, partitions, data):
    counts = sorted(counts, reverse=True)
    old = data.draw(st.lists(st.integers(0, 4), min_size=len(counts), max_size=len(counts)))
    planner = Redist(theta=0.2, tracked=len(counts))
    step = adaptation(planner, counts, old, partitions)
    assert planner.place(step).tolist() == by_hand(step)[1]
