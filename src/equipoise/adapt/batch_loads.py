"""Loads that the tasks of one micro-batch measured, and the speed of each task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError
from equipoise.readable import fingerprint_text

_LARGEST = 1e30  # of all values: they are stored in single precision

ENOUGH_GROUPS = 8
"""Number of tail groups of a task from which the median cost of its rows shows its speed, and not some heavy keys."""


class Work(NamedTuple):
    """Work of one tail group or one key in one batch.

    Attributes
    ----------
    rows
        Number of processed rows and timers.
    seconds
        Time to process them.
    state
        Bytes of state after the batch; ``None``: not measured.
    """

    rows: float
    seconds: float
    state: float | None = None


class WorkTable(NamedTuple):
    """Work of tail groups or keys as arrays, by ascending number.

    Attributes
    ----------
    numbers
        Tail groups or fingerprints.
    rows, seconds
        Their work.
    state
        Bytes of state; NaN where it was not measured.
    """

    numbers: NDArray[np.int64]
    rows: NDArray[np.float64]
    seconds: NDArray[np.float64]
    state: NDArray[np.float64]

    @classmethod
    def of(cls, works: Mapping[int, Work]) -> Self:
        """Return the works as arrays."""
        numbers = np.fromiter(works, dtype=np.int64, count=len(works))
        order = np.argsort(numbers)
        found = works.values()
        columns = [work.rows for work in found], [work.seconds for work in found], [work.state for work in found]
        return cls(numbers[order], *(np.array(column, dtype=np.float64)[order] for column in columns))


@dataclass(frozen=True)
class BatchLoads:
    """Measured loads of one batch.

    Parameters
    ----------
    tail_groups
        H, number of tail groups.
    groups
        Work of the tail groups with rows, each with all its keys except the isolated ones.
    isolated
        Work of every key that the plan of the batch isolates, also of keys without rows.
    listed
        Work of the hottest keys that are not isolated; it is included in the work of their tail groups.
    """

    tail_groups: int
    groups: Mapping[int, Work]
    isolated: Mapping[int, Work] = field(default_factory=dict)
    listed: Mapping[int, Work] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole("tail_groups", self.tail_groups, 1)
        both = self.isolated.keys() & self.listed.keys()
        if both:
            raise InvalidArgumentError(
                f"key {fingerprint_text(int(min(both)))} is both in isolated and in listed; pass it in one of them"
            )
        groups = self.tail.numbers
        outside = groups[(groups < 0) | (groups >= self.tail_groups)]
        if len(outside):
            raise InvalidArgumentError(f"tail group {outside[0]} is not one of 0..{self.tail_groups - 1}")
        for what, works, table in (
            ("tail group", self.groups, self.tail),
            ("key", {**self.isolated, **self.listed}, self.single),
        ):
            figures = np.array([table.rows, table.seconds, np.nan_to_num(table.state, posinf=np.inf)])
            measured = len(works) - [work.state for work in works.values()].count(None)
            if np.all((figures >= 0) & (figures <= _LARGEST)) and measured == np.sum(~np.isnan(table.state)):
                continue
            number, work = next(each for each in works.items() if not _possible(each[1]))
            name = fingerprint_text(int(number)) if what == "key" else number
            raise InvalidArgumentError(f"{what} {name} has {work}; values must be in 0..{_LARGEST:.0g}")

    @cached_property
    def tail(self) -> WorkTable:
        """Work of the tail groups."""
        return WorkTable.of(self.groups)

    @cached_property
    def single(self) -> WorkTable:
        """Work of the isolated and the listed keys."""
        return WorkTable.of({**self.isolated, **self.listed})

    @property
    def rows(self) -> float:
        """Rows of the batch."""
        return float(self.tail.rows.sum()) + float(sum(work.rows for work in self.isolated.values()))

    @property
    def seconds(self) -> float:
        """Sum of the times of all tasks."""
        return float(self.tail.seconds.sum()) + float(sum(work.seconds for work in self.isolated.values()))


def _possible(work: Work) -> bool:
    return all(0 <= figure <= _LARGEST for figure in (work.rows, work.seconds, work.state or 0.0))


def task_slowness(tails: Sequence[Sequence[Work]]) -> list[float]:
    """Return by which factor each task was slower than the median task.

    Loads can be divided by this factor, so as not to mistake a slow host for skew. The cost per row of a task is the
    median over its tail groups, weighted by their rows. A few heavy keys do not change the median; a slow machine, a
    cold cache or a busy neighbour does. A task with fewer than ``ENOUGH_GROUPS`` groups has the factor 1.

    Parameters
    ----------
    tails
        For each task, the work of its tail groups.

    Examples
    --------
    >>> even, slow = [Work(100, 0.1)] * 8, [Work(100, 0.3)] * 7 + [Work(100, 9.0)]
    >>> [round(each, 2) for each in task_slowness([even, slow, even, [Work(5, 5.0)]])]
    [1.0, 3.0, 1.0, 1.0]
    """
    costs = [_cost_per_row([work for work in tail if work.rows > 0]) for tail in tails]
    known = [cost for cost in costs if cost]
    middle = float(np.median(known)) if known else 0.0
    return [cost / middle if cost and middle else 1.0 for cost in costs]


def _cost_per_row(tail: Sequence[Work]) -> float:
    """Return the median cost per row; 0 if there are too few groups."""
    if len(tail) < ENOUGH_GROUPS:
        return 0.0
    rows, seconds = (np.array([getattr(work, name) for work in tail]) for name in ("rows", "seconds"))
    order = np.argsort(seconds / rows, kind="stable")
    passed = np.cumsum(rows[order])
    at = order[np.searchsorted(passed, passed[-1] / 2)]
    return float(seconds[at] / rows[at])
