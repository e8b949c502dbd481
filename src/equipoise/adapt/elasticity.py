"""Elasticity: the number of partitions of a query, from how busy they have been."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError

_ROUNDING = 1e-9  # rounding error by which a quotient may exceed a whole number


def busy_fraction(work_seconds: float, partitions: int, target_seconds: float) -> float:
    """Return the fraction of the time of N partitions that the work of a batch takes.

    Parameters
    ----------
    work_seconds
        Sum of the times of all tasks of the batch, without waiting.
    partitions
        N, number of partitions; all could run at the same time.
    target_seconds
        Time that a batch may take: the interval of the trigger, or a target if there is none.

    Examples
    --------
    >>> busy_fraction(12.0, partitions=4, target_seconds=10)
    0.3
    """
    if at_least("target_seconds", target_seconds, 0) == 0:
        raise InvalidArgumentError("target_seconds, the time that a batch may take, must be above 0, got 0")
    return at_least("work_seconds", work_seconds, 0) / (whole("partitions", partitions, 1) * target_seconds)


@dataclass(frozen=True)
class Elastic:
    """Adapt the number of partitions N, within bounds, so that the partitions are well used but not overloaded.

    After ``patience`` consecutive batches above ``high``, or as many below ``low``, N becomes the smallest number that
    brings the busy fraction of those batches to ``goal``: their mean when growing, their maximum when shrinking.

    Guarantees
    ----------
    - N is always within ``minimum`` and ``maximum``.
    - A steady load changes N at most once, since growing and shrinking aim at the same number. A load that stays
      within 10 % of its mean never makes N turn back, with the default parameters.

    Differs from the paper
    ----------------------
    - Prompt adds or removes one task at a time. Here N changes in one step, because every change of N moves state.
    - Prompt compares the time of a batch, which skew lengthens, with its interval. Here the work of all tasks counts,
      because skew needs a better plan, not more partitions.
    - Prompt prints scaling out only, and its counter is never reset. Here the batches must be consecutive.
    - Prompt scales mappers and reducers separately, by data rate and number of keys. Here there is one N.

    Parameters
    ----------
    minimum, maximum
        Bounds of N.
    high, low
        Busy fractions above and below which N changes (thres, and thres - step, of Prompt).
    goal
        Busy fraction to reach.
    patience
        Number of consecutive batches that must agree (d of Prompt).

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
            raise InvalidArgumentError(
                f"busy fractions must satisfy 0 <= low < goal < high, got low {low}, goal {goal}, high {high}"
            )

    def propose(self, busy_fractions: Sequence[float], partitions: int) -> int:
        """Return the number of partitions for the next batch.

        Parameters
        ----------
        busy_fractions
            Busy fractions of the batches since N last changed, oldest first: see :func:`busy_fraction`.
        partitions
            Present N.
        """
        whole("partitions", partitions, 1)
        now = min(max(partitions, self.minimum), self.maximum)
        recent = [at_least("a busy fraction", busy, 0) for busy in busy_fractions[-self.patience :]]
        if now != partitions or len(recent) < self.patience:
            return now
        if min(recent) > self.high:
            return min(self.maximum, max(now, self._fitting(sum(recent) / len(recent), now)))
        if max(recent) < self.low:
            return max(self.minimum, min(now, self._fitting(max(recent), now)))
        return now

    def _fitting(self, busy: float, partitions: int) -> int:
        """Return the smallest number of partitions that brings the busy fraction down to the goal."""
        return ceil(busy * partitions / self.goal - _ROUNDING)
