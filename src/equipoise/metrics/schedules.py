"""Measures of time: how long the tasks of a stage take on a number of slots."""

from heapq import heapify, heapreplace

from numpy.typing import ArrayLike

from equipoise.arguments import whole
from equipoise.metrics.inputs import as_amounts


def makespan(durations: ArrayLike, slots: int) -> float:
    """Time from the start of the first task of a stage to the end of the last, with tasks started in Spark's order.

    Tasks start in the order of the list, each on the slot that becomes free first (Graham's list scheduling). Delays
    of scheduling and locality are not modelled. The result is at most twice :func:`makespan_lower_bound`.

    Parameters
    ----------
    durations
        Duration of each task.
    slots
        Number of tasks that run at the same time.

    Examples
    --------
    >>> makespan([1, 1, 4], slots=2)
    5.0
    """
    times = as_amounts(durations, "durations")
    slots = whole("slots", slots, 1)
    free_at = times[:slots].tolist()
    heapify(free_at)
    for duration in times[slots:].tolist():
        heapreplace(free_at, free_at[0] + duration)
    return float(max(free_at))


def makespan_lower_bound(durations: ArrayLike, slots: int) -> float:
    """Smallest time that any order of the tasks can reach: max(sum of durations / slots, longest duration).

    Parameters
    ----------
    durations
        Duration of each task.
    slots
        Number of tasks that run at the same time.

    Examples
    --------
    >>> makespan_lower_bound([1, 1, 4], slots=2)
    4.0
    """
    times = as_amounts(durations, "durations")
    return max(float(times.sum()) / whole("slots", slots, 1), float(times.max()))
