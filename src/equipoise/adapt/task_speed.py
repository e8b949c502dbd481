"""How fast a task ran, told apart from how heavy its keys are: a slow machine is no skew."""

from collections.abc import Sequence

import numpy as np

from equipoise.adapt.batch_loads import Work

ENOUGH_GROUPS = 8
"""Tail groups from which their usual cost is that of the task, and not of some heavy keys among them."""


def task_slowness(tails: Sequence[Sequence[Work]]) -> list[float]:
    """By which factor each task was slower than the usual one.

    The cost per row of a task is the median over its tail groups, weighted by their rows: a few heavy keys do not move
    it, a slow machine, a cold cache or a busy neighbour does. A task with few groups counts as usual.

    Parameters
    ----------
    tails
        For each task, what its tail groups took.

    Examples
    --------
    >>> even, slow = [Work(100, 0.1)] * 8, [Work(100, 0.3)] * 7 + [Work(100, 9.0)]
    >>> [round(each, 2) for each in task_slowness([even, slow, even, [Work(5, 5.0)]])]
    [1.0, 3.0, 1.0, 1.0]
    """
    usual = [_usual_cost([work for work in tail if work.rows > 0]) for tail in tails]
    known = [cost for cost in usual if cost]
    middle = float(np.median(known)) if known else 0.0
    return [cost / middle if cost and middle else 1.0 for cost in usual]


def _usual_cost(tail: Sequence[Work]) -> float:
    """Median cost per row; 0 where it cannot be told."""
    if len(tail) < ENOUGH_GROUPS:
        return 0.0
    rows, seconds = (np.array([getattr(work, name) for work in tail]) for name in ("rows", "seconds"))
    order = np.argsort(seconds / rows, kind="stable")
    passed = np.cumsum(rows[order])
    at = order[np.searchsorted(passed, passed[-1] / 2)]
    return float(seconds[at] / rows[at])
