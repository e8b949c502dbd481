"""Functions that the sketches share: order of keys, union of the keys of two sketches, histogram with bounds."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.sketch.histogram import Histogram

_Number = TypeVar("_Number", np.int64, np.float64)


def by_decreasing(counts: NDArray[np.int64] | NDArray[np.float64], keys: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the order of decreasing count, ties by fingerprint."""
    return np.lexsort((keys, -counts))


class Union:
    """Sorted union of the keys of two sketches.

    Parameters
    ----------
    left, right
        Tracked keys of the two sketches, in any order.
    """

    def __init__(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> None:
        self.keys = np.union1d(left, right)
        self._left = np.searchsorted(self.keys, left)
        self._right = np.searchsorted(self.keys, right)

    def sum(
        self, left: NDArray[_Number], right: NDArray[_Number], missing: tuple[float, float] = (0, 0)
    ) -> NDArray[_Number]:
        """Add values key by key; ``missing`` holds the values of a key on a side that does not track it."""
        first = np.full(len(self.keys), missing[0], dtype=left.dtype)
        second = np.full(len(self.keys), missing[1], dtype=right.dtype)
        first[self._left] = left
        second[self._right] = right
        return first + second


def bounded_histogram(
    keys: NDArray[np.int64],
    stated: NDArray[np.float64],
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]],
    *,
    untracked: float,
    total: int,
    k: int | None,
    hash_seed: int,
) -> Histogram:
    """Return the histogram of the ``k`` keys of largest stated count.

    Parameters
    ----------
    keys, stated
        Tracked keys and the counts to state as shares of ``total``.
    bounds
        Lower and upper bounds of their true counts.
    untracked
        Upper bound of the true count of every other key.
    total, hash_seed
        Attributes of the sketch.
    k
        Number of keys to list; ``None``: all.
    """
    k = None if k is None else whole("k", k, 0)
    order = by_decreasing(stated, keys)
    listed, others = order[:k], order[len(order) if k is None else k :]
    lower, upper = bounds
    error = np.maximum(upper - stated, stated - lower)[listed].max(initial=0.0)
    unlisted = upper[others].max(initial=untracked)
    seen = max(total, 1)  # an empty sketch has no keys; avoid a division by 0
    return Histogram(
        keys[listed],
        stated[listed] / seen,
        error=float(error / seen),
        unlisted=float(unlisted / seen),
        total=total,
        hash_seed=hash_seed,
    )
