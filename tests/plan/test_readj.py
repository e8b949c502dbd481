from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import InvalidArgumentError
from equipoise.plan.cost import price
from equipoise.plan.plan import Plan
from equipoise.plan.planner import Problem
from equipoise.plan.readj import Readj
from equipoise.plan.uniform import uniform_plan
from equipoise.sketch.histogram import Histogram

TOY = (5, 4, 3, 3, 3, 2, 1, 1), (0, 1, 1, 1, 0, 0, 1, 0)  # X U W Y Z V L R and where they were


def adaptation(planner, counts, old, partitions):
    histogram = Histogram(range(len(counts)), np.array(counts) / sum(counts))
    before = max(old) + 1
    previous = Plan(before, uniform_plan(before, 64).tail, dict(enumerate(old)))
    return planner.adaptation(Problem(previous, partitions, price(histogram, 64), None))


def readjustments(step, placement, moves, max_moves):
    """All moves and swaps, in order: the new placement, the share moved, and the items."""
    movable = [item for item in range(len(placement)) if moves[item] < max_moves]
    for source, target in permutations(range(step.partitions), 2):
        there = [item for item in movable if placement[item] == target]
        for item in (item for item in movable if placement[item] == source):
            for other in (None, *there):
                changed = placement.copy()
                changed[item] = target
                if other is not None:
                    changed[other] = source
                share = abs(step.shares[item] - (0 if other is None else step.shares[other]))
                if share > 0:
                    yield changed, share, (item,) if other is None else (item, other)


def by_hand(step, max_moves, *, as_printed):
    """The algorithm without any short cut."""
    placement = np.where(step.old < step.partitions, step.old, step.fallback)
    moves = np.zeros(len(placement), dtype=np.int64)
    base = 0.0
    while True:
        now = step.balance_penalty(placement)
        if not as_printed:
            base = now + step.migration_penalty(placement)
        best, best_gain = None, -np.inf
        for changed, share, items in readjustments(step, placement, moves, max_moves):
            rho = step.balance_penalty(changed)
            value = rho + step.migration_penalty(changed)
            if rho < now - 1e-9 and (base - value) / share > best_gain + 1e-9:
                best, best_gain = (changed, items), (base - value) / share
                base = value if as_printed else base
        if best is None:
            return placement.tolist()
        placement = best[0]
        moves[list(best[1])] += 1


def test_the_toy_of_the_paper_is_balanced_at_a_migration_of_9():
    planner = Readj(theta=1 / 8, tracked=8)
    step = adaptation(planner, *TOY, 3)
    placement = planner.place(step)
    assert placement.tolist() == [2, 1, 2, 1, 0, 0, 0, 0]
    assert np.bincount(placement, TOY[0]).tolist() == [7, 7, 8]
    assert step.balance_penalty(placement) == pytest.approx(12 / 11)
    assert step.migration_penalty(placement) == pytest.approx(9 / (22 / 3))


def test_the_toy_of_the_paper_as_printed_is_balanced_by_other_moves():
    planner = Readj(theta=1 / 8, tracked=8, as_printed=True)
    step = adaptation(planner, *TOY, 3)
    placement = planner.place(step)
    assert placement.tolist() == [0, 2, 1, 1, 2, 0, 1, 0]
    assert step.balance_penalty(placement) == pytest.approx(12 / 11)
    assert step.migration_penalty(placement) == pytest.approx(7 / (22 / 3))


@pytest.mark.parametrize("as_printed", [False, True])
def test_one_move_is_enough_where_it_balances(as_printed):
    planner = Readj(theta=1 / 5, tracked=3, as_printed=as_printed)
    step = adaptation(planner, (5, 3, 2), (0, 0, 0), 2)
    placement = planner.place(step)
    assert step.balance_penalty(placement) <= 1e-3
    assert step.state[placement != step.old].sum() == pytest.approx(5 / 10)


def test_the_first_of_two_equal_moves_is_made():
    planner = Readj(theta=1 / 5, tracked=3)
    assert planner.place(adaptation(planner, (5, 3, 2), (0, 0, 0), 2)).tolist() == [1, 0, 0]


@settings(max_examples=100)
@given(
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=7),
    partitions=st.integers(2, 4),
    max_moves=st.integers(1, 5),
    as_printed=st.booleans(),
    data=st.data(),
)
def test_no_short_cut_changes_the_outcome(counts, partitions, max_moves, as_printed, data):
    counts = sorted(counts, reverse=True)
    old = data.draw(st.lists(st.integers(0, 4), min_size=len(counts), max_size=len(counts)))
    planner = Readj(theta=0.2, tracked=len(counts), max_moves=max_moves, as_printed=as_printed)
    step = adaptation(planner, counts, old, partitions)
    assert planner.place(step).tolist() == by_hand(step, max_moves, as_printed=as_printed)


def test_balance_never_gets_worse():
    rng = np.random.default_rng(3)
    for _ in range(20):
        counts = -np.sort(-rng.integers(1, 1000, 40))
        old = rng.integers(0, 6, 40).tolist()
        planner = Readj(tracked=40)
        step = adaptation(planner, counts, old, 6)
        assert step.balance_penalty(planner.place(step)) <= step.balance_penalty(step.old)


def test_swaps_of_equal_keys_are_left_alone():
    planner = Readj(tracked=6)
    old = (0, 1, 2, 0, 1, 2)
    assert planner.place(adaptation(planner, (1,) * 6, old, 3)).tolist() == list(old)


def test_keys_of_vanished_partitions_start_from_the_ring():
    planner = Readj(tracked=4, theta=10.0)
    step = adaptation(planner, (1, 1, 1, 1), (0, 1, 2, 3), 2)
    start = np.where(step.old < 2, step.old, step.fallback)
    placement = planner.place(step)
    assert step.balance_penalty(placement) <= step.balance_penalty(start)
    assert placement.max() < 2


def test_a_key_must_be_allowed_to_move():
    with pytest.raises(InvalidArgumentError, match="max_moves must be a whole number of at least 1, got 0"):
        Readj(max_moves=0)
