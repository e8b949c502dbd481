"""A hot key in pieces: to a planner each piece is a key of its own, so a plan can spread what one key carries.

Piece ``i`` of a key has the fingerprint ``xxhash64(fingerprint, i)``, both BIGINT, which Spark computes for each row of
the key. Where the rows of a piece go is then a matter of the plan, as for any other key.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import whole
from equipoise.hashing import fingerprints
from equipoise.sketch.histogram import Histogram
from equipoise.split.d_choices import find_choices

HOT = 5
"""A key is hot from ``1 / (HOT N)`` of the load, as in D-Choices."""


def shard_fingerprints(key: int, width: int) -> NDArray[np.int64]:
    """Fingerprints of the pieces of a key.

    Parameters
    ----------
    key
        Fingerprint of the key.
    width
        Number of its pieces; a key in one piece is the key itself.

    Examples
    --------
    >>> shard_fingerprints(7, 1).tolist(), len(set(shard_fingerprints(7, 3).tolist()))
    ([7], 3)
    """
    if whole("width", width, 1) == 1:
        return np.array([key], dtype=np.int64)
    return fingerprints(np.full(width, key, dtype=np.int64), np.arange(width, dtype=np.int64))


def ladder(shares: ArrayLike, partitions: int) -> Iterator[NDArray[np.int64]]:
    """Widths to try, from few pieces to many: each step halves the largest piece, up to what D-Choices would give.

    The first step cuts a key into as many pieces as partitions' worth of load it has, which is enough where the tail
    fills the gaps. The last gives every hot key the d of D-Choices.

    Parameters
    ----------
    shares
        Shares of the keys in the whole load, falling.
    partitions
        N, number of partitions.

    Yields
    ------
    NDArray
        A width for each key.

    Examples
    --------
    >>> [step.tolist() for step in ladder([0.6, 0.01], 4)]
    [[3, 1], [4, 1]]
    """
    known = np.asarray(shares, dtype=np.float64)
    hot = known > 1 / (HOT * whole("partitions", partitions, 1))
    if not hot.any() or partitions == 1:
        return
    most = max(find_choices(known[hot], partitions), int(np.ceil(known[0] * partitions)))
    most, factor, last = min(most, partitions), 1, None
    while True:
        widths = np.where(hot, np.clip(np.ceil(factor * known * partitions), 1, most), 1).astype(np.int64)
        if last is None or not np.array_equal(widths, last):
            yield widths
        if np.all(widths[hot] == most):
            return
        factor, last = 2 * factor, widths


def in_shards(histogram: Histogram, widths: Mapping[int, int]) -> Histogram:
    """The histogram with some keys in pieces, which share the load of their key evenly.

    Parameters
    ----------
    histogram
        Of whole keys.
    widths
        Number of pieces by fingerprint; keys that are not named stay whole.

    Examples
    --------
    >>> in_shards(Histogram([7, 9], [0.6, 0.1]), {7: 3}).shares.round(3).tolist()
    [0.2, 0.2, 0.2, 0.1]
    """
    whole_keys = ~np.isin(histogram.fingerprints, list(widths))
    keys, shares = [histogram.fingerprints[whole_keys]], [histogram.shares[whole_keys]]
    for key, share in zip(histogram.fingerprints[~whole_keys].tolist(), histogram.shares[~whole_keys], strict=True):
        keys.append(shard_fingerprints(key, widths[key]))
        shares.append(np.full(widths[key], share / widths[key]))
    return Histogram(
        np.concatenate(keys),
        np.concatenate(shares),
        error=histogram.error,
        unlisted=histogram.unlisted,
        total=histogram.total,
        hash_seed=histogram.hash_seed,
    )
