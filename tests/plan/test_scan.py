import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.plan.cost import price
from equipoise.plan.plan import Plan
from equipoise.plan.planner import Problem
from equipoise.plan.scan import Scan
from equipoise.plan.uniform import uniform_plan
from equipoise.sketch.histogram import Histogram


def adaptation(planner, counts, old, partitions):
    histogram = Histogram(range(len(counts)), np.array(counts) / sum(counts))
    before = max(old) + 1
    previous = Plan(before, uniform_plan(before, 64).tail, dict(enumerate(old)))
    return planner.adaptation(Problem(previous, partitions, price(histogram, 64), None))


def first(step, count):
    """The same step, as it stands when only ``count`` items are placed."""
    return step._replace(
        keys=step.keys[:count],
        shares=step.shares[:count],
        loads=step.loads[:, :count],
        state=step.state[:count],
        old=step.old[:count],
        fallback=step.fallback[:count],
    )


def utilities(step, placed):
    """Utility of each partition for the item after those that are placed."""
    partial = first(step, len(placed) + 1)
    choices = [np.array([*placed, partition]) for partition in range(step.partitions)]
    return [partial.balance_penalty(choice) + partial.migration_penalty(choice) for choice in choices]


def by_hand(step):
    placed: list[int] = []
    for _ in step.keys:
        values = np.array(utilities(step, placed))
        placed.append(int(np.flatnonzero(values <= values.min() + 1e-9)[0]))
    return placed


def test_the_toy_of_the_paper_is_balanced_at_a_migration_of_10():
    counts, old = (5, 4, 3, 3, 3, 2, 1, 1), (0, 1, 1, 1, 0, 0, 1, 0)  # X U W Y Z V L R
    planner = Scan(theta=1 / 8, tracked=8)
    step = adaptation(planner, counts, old, 3)
    placement = planner.place(step)
    assert placement.tolist() == [0, 1, 2, 2, 1, 0, 2, 0]
    assert np.bincount(placement, counts).tolist() == [8, 7, 7]
    assert step.balance_penalty(placement) == pytest.approx(12 / 11)
    assert step.migration_penalty(placement) == pytest.approx(10 / (22 / 3))


def test_each_item_goes_to_the_partition_of_least_utility():
    planner = Scan(theta=1 / 5, tracked=3, as_printed=True)
    step = adaptation(planner, (5, 3, 2), (0, 0, 0), 2)
    assert utilities(step, []) == pytest.approx([10, 11])
    assert utilities(step, [0]) == pytest.approx([10, 31 / 10])
    assert utilities(step, [0, 1]) == pytest.approx([23 / 5, 1])
    placement = planner.place(step)
    assert placement.tolist() == [0, 1, 1]
    assert step.state[placement != step.old].sum() == pytest.approx(5 / 10)


@settings(max_examples=100)
@given(
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=9),
    partitions=st.integers(2, 5),
    data=st.data(),
)
def test_the_kernel_does_what_the_definition_says(counts, partitions, data):
    counts = sorted(counts, reverse=True)
    old = data.draw(st.lists(st.integers(0, 5), min_size=len(counts), max_size=len(counts)))
    planner = Scan(theta=0.2, tracked=len(counts))
    step = adaptation(planner, counts, old, partitions)
    assert planner.place(step).tolist() == by_hand(step)


def test_an_item_stays_where_it_is_when_balance_does_not_mind():
    planner = Scan(tracked=1)
    assert planner.place(adaptation(planner, (1,), (2,), 4)).tolist() == [2]
