"""Shards of a hot key: a planner places each shard as a key of its own, so that a plan can spread the load of one key.

Shard ``i`` of a key has the fingerprint ``xxhash64(fingerprint, i)``, both BIGINT, which Spark computes for each row of
the key. The plan assigns the rows of a shard to a partition, as those of any other key.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import whole
from equipoise.hashing import fingerprints
from equipoise.readable import count_text
from equipoise.sketch.histogram import Histogram
from equipoise.split.d_choices import find_choices

HOT = 5
"""A key is hot above ``1 / (HOT N)`` of the load, as in D-Choices."""


def shard_fingerprints(key: int, width: int) -> NDArray[np.int64]:
    """Return the fingerprints of the shards of a key.

    Parameters
    ----------
    key
        Fingerprint of the key.
    width
        Number of its shards; a single shard has the fingerprint of the key itself.

    Examples
    --------
    >>> shard_fingerprints(7, 1).tolist(), len(set(shard_fingerprints(7, 3).tolist()))
    ([7], 3)
    """
    if whole("width", width, 1) == 1:
        return np.array([key], dtype=np.int64)
    return fingerprints(np.full(width, key, dtype=np.int64), np.arange(width, dtype=np.int64))


def shards_text(widths: Mapping[int, int]) -> str:
    """Return how many keys are split into how many shards, as text.

    Parameters
    ----------
    widths
        Number of shards of each key that is split, by its fingerprint.

    Examples
    --------
    >>> shards_text({7: 4}), shards_text({7: 4, 9: 2})
    ('1 key in 4 shards', '2 keys in 6 shards')
    """
    return f"{count_text(len(widths), 'key')} in {count_text(sum(widths.values()), 'shard')}"


def ladder(shares: ArrayLike, partitions: int) -> Iterator[NDArray[np.int64]]:
    """Yield numbers of shards to try, from few to many: each step halves the largest shard.

    The first step gives a key one shard for each partition's worth of load, which is enough if the tail fills the gaps.
    The last step gives every hot key the d of D-Choices.

    Parameters
    ----------
    shares
        Shares of the keys in the whole load, in decreasing order.
    partitions
        N, number of partitions.

    Yields
    ------
    NDArray
        Number of shards of each key.

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
    """Return the histogram with some keys replaced by their shards, which share the load evenly.

    Parameters
    ----------
    histogram
        Histogram of whole keys.
    widths
        Number of shards by fingerprint; other keys stay whole.

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
