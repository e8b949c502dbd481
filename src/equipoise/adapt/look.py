"""Rows of a batch that are seen before it is placed, and the number of rows that a plan needs."""

from dataclasses import dataclass, replace
from math import ceil, inf, log, sqrt

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
    """Rows of each key of a batch, from the rows that were seen of it.

    A row that was seen counts with the inverse of the chance that it had to be seen, so that all sums are unbiased.

    Parameters
    ----------
    fingerprints
        Distinct fingerprints of the keys that were seen.
    counts
        Rows of each in the batch; estimates unless all rows were seen.
    variances
        Variance of each count (Horvitz and Thompson's estimate).
    taken
        Rows of each that were seen.
    buffers
        Rows that remain if each map task combines its rows: one for each key and task that has it. An estimate unless
        all rows were seen.
    tasks
        Map tasks that read the batch.
    seconds
        Time of the look.

    Examples
    --------
    >>> look = Look.of([7, 8, 7], chances=0.01, seconds=0.1)
    >>> look.fingerprints.tolist(), look.counts.tolist(), look.seen, look.is_exact
    ([7, 8], [200.0, 100.0], 3, False)
    """

    fingerprints: NDArray[np.int64]
    counts: NDArray[np.float64]
    variances: NDArray[np.float64]
    taken: NDArray[np.int64]
    buffers: float
    tasks: int
    seconds: float

    @classmethod
    def of(
        cls, fingerprints: ArrayLike, *, seconds: float, chances: ArrayLike = 1.0, tasks: ArrayLike | None = None
    ) -> "Look":
        """Count the rows that were seen.

        Parameters
        ----------
        fingerprints
            Fingerprint of the key of each row.
        seconds
            Time of the look.
        chances
            Chance of each row to be seen, or of all rows; 1: all rows of the batch were seen.
        tasks
            Number of the map task of each row; ``None``: one task has read them all.
        """
        found = as_fingerprints(fingerprints)
        chance = np.broadcast_to(np.asarray(chances, dtype=np.float64), found.shape)
        if not np.all((chance > 0) & (chance <= 1)):
            raise InvalidArgumentError("the chance of a row to be seen must be above 0 and at most 1")
        weights = 1 / chance
        keys, place, taken = np.unique(found, return_inverse=True, return_counts=True)
        readers, reader = np.unique(
            np.zeros(len(found), dtype=np.int64) if tasks is None else np.asarray(tasks), return_inverse=True
        )
        counts, count = np.bincount(place, weights, len(keys)).astype(np.float64), max(1, len(readers))
        most = np.where(taken > 1, np.minimum(counts, count), counts).sum()
        return cls(
            keys,
            counts,
            np.bincount(place, weights**2 * (1 - chance), len(keys)).astype(np.float64),
            taken,
            _buffers(place * count + reader, chance, float(most)),
            count,
            seconds,
        )

    @property
    def rows(self) -> float:
        """Rows of the batch; an estimate unless all were seen."""
        return float(self.counts.sum())

    @property
    def seen(self) -> int:
        """Number of rows seen."""
        return int(self.taken.sum())

    @property
    def variance(self) -> float:
        """Sum of the variances of the counts; 0 if all rows were seen."""
        return float(self.variances.sum())

    @property
    def effective_rows(self) -> float:
        """Number of rows seen at one rate that would tell as much; infinite if all rows were seen."""
        return self.rows**2 / self.variance if self.variance else inf

    @property
    def is_exact(self) -> bool:
        """Whether all rows of the batch were seen."""
        return not self.variance

    def combined(self, keys: ArrayLike | None = None) -> "Look":
        """Return the look at the rows that cross the exchange if map tasks combine these keys; ``None``: all.

        A combined key counts as at most one row for each map task. If all are combined, keys that were seen once stand
        for the keys that were not seen.
        """
        is_chosen = np.ones(len(self.counts), dtype=bool) if keys is None else np.isin(self.fingerprints, keys)
        counts = np.where(is_chosen, np.minimum(self.counts, self.tasks), self.counts)
        missed = self.buffers - counts.sum()
        once = self.counts * (self.taken == 1)
        if keys is None and missed > 0 and once.any():
            counts += missed * once / once.sum()
        return replace(self, counts=counts, variances=self.variances * (counts / self.counts) ** 2)

    def imbalance(self, plan: Plan) -> float:
        """Return the rows of the fullest partition over the mean, as a plan places the rows that were seen."""
        if not self.seen:
            return 1.0
        rows = np.bincount(plan.assign(self.fingerprints), self.counts, plan.partitions)
        return float(rows.max() * plan.partitions / self.counts.sum())


def _buffers(pairs: NDArray[np.int64], chances: NDArray[np.float64], most: float) -> float:
    """Return the number of distinct pairs of key and map task in the batch, from the pair of each row seen.

    A sample does not tell how many pairs it missed. At least, they are those that follow if all pairs have similar
    numbers of rows (Chao and Lin's bound for a sample without replacement). At most, each pair that was seen once
    stands for pairs of one row each. The geometric mean of the two is returned.

    Parameters
    ----------
    pairs
        Number of the pair of each row.
    chances
        Chance of each row to be seen.
    most
        Pairs, if each key seen more than once is in all tasks and the others have one row in each of their pairs.
    """
    rate = float(chances.min(initial=1.0))
    if rate == 1:
        return float(len(np.unique(pairs)))
    kept = pairs[np.random.default_rng(0).random(len(pairs)) * chances < rate]  # all rows at the lowest rate
    counts = np.unique(kept, return_counts=True)[1]
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    if not once:
        return float(len(counts))
    missed = once**2 / (2 * twice * len(kept) / max(1, len(kept) - 1) + once * rate / (1 - rate))
    return sqrt(min(len(counts) + missed, most) * min(len(counts) - once + once / rate, most))
