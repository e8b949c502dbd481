"""Algorithm 3 of Prompt: each map task assigns its clusters to the reduce buckets without coordination.

Keys that are split over blocks must meet in one bucket, so they are assigned by hash. The other keys belong to this
task alone: the largest goes to the bucket with most room, which then waits until every other bucket has received one.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError
from equipoise.hashing import as_fingerprints
from equipoise.kernels import kernel


@kernel
def _deal(order: Any, sizes: Any, room: Any, turns: bool, out: Any) -> None:
    buckets = len(room)
    waiting = np.ones(buckets, dtype=np.bool_)
    left = buckets
    for at in range(len(order)):
        best = -1
        for bucket in range(buckets):
            if waiting[bucket] and (best < 0 or room[bucket] > room[best]):
                best = bucket
        out[order[at]] = best
        room[best] -= sizes[order[at]]
        if turns:
            waiting[best] = False
            left -= 1
            if left == 0:
                waiting[:] = True
                left = buckets


@kernel
def _lightest(sizes: Any, order: Any, loads: Any, out: Any) -> None:
    for at in range(len(order)):
        best = 0
        for bucket in range(1, len(loads)):
            if loads[bucket] < loads[best]:
                best = bucket
        out[order[at]] = best
        loads[best] += sizes[order[at]]


def level_buckets(sizes: ArrayLike, buckets: int) -> NDArray[np.int32]:
    """Bucket of each key of a batch: keys by falling size, each to the bucket with the least load.

    The receiver knows the sizes of all keys of a batch. Algorithm 3 is for map tasks that only know their own clusters.

    Examples
    --------
    >>> level_buckets([9, 5, 4, 3], 3).tolist()
    [0, 1, 2, 2]
    """
    weights = np.asarray(sizes, dtype=np.float64).reshape(-1)
    out = np.empty(len(weights), dtype=np.int32)
    _lightest(weights, np.argsort(-weights, kind="stable"), np.zeros(whole("buckets", buckets, 1)), out)
    return out


def prompt_buckets(
    keys: ArrayLike,
    sizes: ArrayLike,
    split: ArrayLike,
    buckets: int,
    *,
    turns: bool = True,
) -> NDArray[np.int32]:
    """Bucket of each cluster of a map task by algorithm 3.

    Guarantees
    ----------
    - A split key gets the same bucket from every task, whatever else the task has.
    - Every key gets exactly one bucket.

    Differs from the paper
    ----------------------
    The candidates are renewed when none is left; the print renews them while some are, which makes it plain worst fit
    (``turns=False``).

    Parameters
    ----------
    keys
        Fingerprints of the clusters.
    sizes
        Their sizes.
    split
        Whether each key is split over blocks: the block's reference table.
    buckets
        r, number of reduce buckets.
    turns
        Whether a bucket that was given a cluster waits for the others.

    References
    ----------
    Abdelhamid, Mahmood, Daghistani, Aref: Prompt, SIGMOD 2020, algorithm 3.

    Examples
    --------
    >>> prompt_buckets([1, 2, 3, 4], [10, 1, 1, 1], [False] * 4, 2).tolist()
    [0, 1, 1, 0]
    """
    known, weights = as_fingerprints(keys), np.asarray(sizes, dtype=np.float64).reshape(-1)
    flags = np.asarray(split, dtype=bool).reshape(-1)
    count = whole("buckets", buckets, 1)
    if not len(known) == len(weights) == len(flags):
        raise InvalidArgumentError(
            f"{len(known)} keys, {len(weights)} sizes and {len(flags)} flags; give one of each a key"
        )
    out = np.empty(len(known), dtype=np.int32)
    out[flags] = np.mod(known[flags], count)
    room = np.full(count, weights.sum() / count) - np.bincount(out[flags], weights[flags], count)
    whole_keys = np.flatnonzero(~flags)
    order = whole_keys[np.lexsort((known[whole_keys], -weights[whole_keys]))]
    _deal(order, weights, room, turns, out)
    return out
