"""Rows of a batch that are seen before it is placed, and the number of rows that a plan needs."""

from dataclasses import dataclass
from math import ceil, log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.hashing import as_fingerprints
from equipoise.plan import Plan

ERROR = 0.05
"""Error of a partition's share of the rows, relative to the mean, that a plan tolerates."""

LEAST_ROWS = 20_000
"""Rows that are always seen: on streams whose hot keys matter most they are enough."""


def rows_needed(partitions: int, error: float = ERROR) -> int:
    """Return how many rows to see of a batch for a plan of N partitions.

    A partition's count has about the relative error ``sqrt(N / rows)``, and the largest of N such errors exceeds it by
    ``sqrt(2 ln N)``. So ``2 N ln N / error**2`` rows suffice, and never fewer than ``LEAST_ROWS``.

    Parameters
    ----------
    partitions
        N, number of partitions.
    error
        Tolerated error of a partition's share, relative to the mean.

    Examples
    --------
    >>> rows_needed(16), rows_needed(200)
    (35490, 847731)
    """
    count = whole("partitions", partitions, 1)
    return max(LEAST_ROWS, ceil(2 * count * log(count) / at_least("error", error, 1e-6) ** 2))


@dataclass(frozen=True, eq=False)
class Look:
    """Counts of the keys in rows that were seen of a batch.

    Parameters
    ----------
    fingerprints
        Distinct fingerprints of the keys.
    counts
        Number of rows seen of each.
    rows
        Rows of the batch, seen or not; may be an estimate.
    seconds
        Time of the look.
    tasks
        Map tasks that read the batch.

    Examples
    --------
    >>> look = Look.of([7, 8, 7], rows=300, seconds=0.1)
    >>> look.fingerprints.tolist(), look.counts.tolist(), look.is_exact
    ([7, 8], [2, 1], False)
    """

    fingerprints: NDArray[np.int64]
    counts: NDArray[np.int64]
    rows: float
    seconds: float
    tasks: int = 1

    def __post_init__(self) -> None:
        if self.rows < self.seen:
            raise InvalidArgumentError(f"{self.seen} rows were seen of a batch of {self.rows:g}")

    @classmethod
    def of(cls, fingerprints: ArrayLike, *, seconds: float, rows: float | None = None, tasks: int = 1) -> "Look":
        """Count the fingerprints of the rows that were seen; ``rows=None``: all rows of the batch were."""
        keys, counts = np.unique(as_fingerprints(fingerprints), return_counts=True)
        return cls(keys, counts, float(counts.sum()) if rows is None else rows, seconds, tasks)

    @property
    def seen(self) -> int:
        """Number of rows seen."""
        return int(self.counts.sum())

    @property
    def is_exact(self) -> bool:
        """Whether all rows of the batch were seen."""
        return self.seen == self.rows

    def buffers(self) -> float:
        """Return an estimate of the buffers if each map task combines its rows: one for each key and task that has it.

        The rows of a key are taken as spread over the tasks at random. If not all rows were seen, a key that was seen
        once stands for keys of one row each.
        """
        repeated = self.counts[self.counts > 1] if not self.is_exact else self.counts
        scale = self.rows / self.seen
        missed = 1 - 1 / self.tasks
        buffers = self.tasks * (1 - missed ** (repeated * scale)) if self.tasks > 1 else np.ones(len(repeated))
        return float(buffers.sum() + (len(self.counts) - len(repeated)) * scale)

    def combined(self, keys: ArrayLike | None = None) -> "Look":
        """Return the look at the rows that cross the exchange if map tasks combine these keys; ``None``: all.

        A combined key counts as at most one row for each map task.
        """
        chosen = np.ones(len(self.counts), dtype=bool) if keys is None else np.isin(self.fingerprints, keys)
        scale = self.rows / self.seen if self.seen else 1.0
        most = max(1, round(self.tasks / scale))
        counts = np.where(chosen, np.minimum(self.counts, most), self.counts)
        rows = self.rows - float((self.counts - counts).sum()) * scale
        return Look(self.fingerprints, counts, max(rows, float(counts.sum())), self.seconds, self.tasks)

    def imbalance(self, plan: Plan) -> float:
        """Return the rows of the fullest partition over the mean, as a plan places the rows that were seen."""
        if not self.seen:
            return 1.0
        rows = np.bincount(plan.assign(self.fingerprints), self.counts, plan.partitions)
        return float(rows.max() * plan.partitions / self.seen)
