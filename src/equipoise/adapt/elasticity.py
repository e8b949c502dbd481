"""How many partitions a query should use, from how busy they have been."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError

_ROUNDING = 1e-9  # part of a partition that quotients may exceed a whole number by


def busy_fraction(work_seconds: float, partitions: int, target_seconds: float) -> float:
    """Part of the time that N partitions have for a batch which its work takes.

    Parameters
    ----------
    work_seconds
        Time of all tasks of the batch together, waiting left out.
    partitions
        N, number of partitions, each of which could run all the time.
    target_seconds
        Time that a batch may take: the trigger's interval, or a goal where there is none.

    Examples
    --------
    >>> busy_fraction(12.0, partitions=4, target_seconds=10)
    0.3
    """
    if at_least("target_seconds", target_seconds, 0) == 0:
        raise InvalidArgumentError("target_seconds is the time that a batch may take and must exceed 0")
    return at_least("work_seconds", work_seconds, 0) / (whole("partitions", partitions, 1) * target_seconds)


@dataclass(frozen=True)
class Elastic:
    """Number of partitions between two bounds, so that each is busy for a good part of the time, but not all of it.

    After ``patience`` consecutive batches above ``high``, or as many below ``low``, N becomes the least number that
    brings the work of those batches to ``goal``: their mean work when growing, the most when shrinking.

    Guarantees
    ----------
    - Within ``minimum`` and ``maximum``, always.
    - A steady load changes N at most once, since growing and shrinking aim at the same number. A load that stays
      within 10 % of its mean never makes N turn back, with the default parameters.

    Differs from the paper
    ----------------------
    - Prompt adds or removes one task at a time; here N goes to where it should be at once, because every change of N
      moves state.
    - Prompt counts the time of a batch against its interval, which skew lengthens; here the work of all tasks counts,
      for skew is cured by a better plan and not by more partitions.
    - Prompt prints scaling out only, and its counter is never reset; here the batches must be consecutive.
    - Prompt tells mappers from reducers by data rate and number of keys; there is one N here.

    Parameters
    ----------
    minimum, maximum
        Bounds of N.
    high, low
        Busy fractions above and below which N changes (thres, and thres - step, of Prompt).
    goal
        Busy fraction to reach.
    patience
        Consecutive batches that must agree (d of Prompt).

    References
    ----------
    Abdelhamid et al., "Prompt: Dynamic Data-Partitioning for Distributed Micro-batch Stream Processing Systems",
    algorithm 4.

    Examples
    --------
    >>> elastic = Elastic(1, 64)
    >>> elastic.propose([0.95, 1.2, 1.1], partitions=8)
    13
    >>> elastic.propose([0.95, 0.5, 1.1], partitions=8)
    8
    >>> elastic.propose([0.1, 0.05, 0.2], partitions=8)
    3
    """

    minimum: int
    maximum: int
    high: float = 0.9
    low: float = 0.4
    goal: float = 0.7
    patience: int = 3

    def __post_init__(self) -> None:
        whole("maximum", self.maximum, whole("minimum", self.minimum, 1))
        whole("patience", self.patience, 1)
        low, goal, high = (at_least(name, getattr(self, name), 0) for name in ("low", "goal", "high"))
        if not 0 <= low < goal < high:
            raise InvalidArgumentError(f"busy fractions must be low < goal < high, got {low}, {goal}, {high}")

    def propose(self, history: Sequence[float], partitions: int) -> int:
        """Number of partitions for the next batch.

        Parameters
        ----------
        history
            Busy fractions of the batches since N last changed, oldest first: see :func:`busy_fraction`.
        partitions
            N now.
        """
        whole("partitions", partitions, 1)
        now = min(max(partitions, self.minimum), self.maximum)
        recent = [at_least("a busy fraction", busy, 0) for busy in history[-self.patience :]]
        if now != partitions or len(recent) < self.patience:
            return now
        if min(recent) > self.high:
            return min(self.maximum, max(now, self._fitting(sum(recent) / len(recent), now)))
        if max(recent) < self.low:
            return max(self.minimum, min(now, self._fitting(max(recent), now)))
        return now

    def _fitting(self, busy: float, partitions: int) -> int:
        """Least number of partitions that brings work down to the goal."""
        return ceil(busy * partitions / self.goal - _ROUNDING)
