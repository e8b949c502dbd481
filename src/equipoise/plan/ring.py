"""Consistent hashing: a ring of replicas with bucketed, constant-time lookup."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import whole
from equipoise.hashing import as_fingerprints, seeded_hashes
from equipoise.kernels import kernel

_TAIL_SEED = 0x7A11  # places tail groups on the ring; differs from every replica's seed


@kernel
def _lookup(points: Any, starts: Any, ring: Any, owners: Any, shift: int, out: Any) -> None:
    for i in range(len(points)):
        at = starts[points[i] >> np.uint64(shift)]
        while at < len(ring) and ring[at] < points[i]:
            at += 1
        out[i] = owners[at if at < len(ring) else 0]


class HashRing:
    """Consistent hash from 64-bit integers to N partitions.

    Guarantees
    ----------
    - Growing from N to N + 1 moves keys to the new partition only; shrinking moves only the keys of removed
      partitions.
    - Lookup takes expected constant time: the ring is divided into as many buckets as it has replicas, rounded up to a
      power of two, and each bucket stores the first replica at or after its start.

    Differs from the paper
    ----------------------
    - A 64-bit ring instead of 128 bits.
    - One bucket per replica instead of 100 buckets, so that the search within a bucket does not grow with N.

    Parameters
    ----------
    partitions
        N, number of partitions.
    replicas
        Points on the ring for each partition; more points make the shares more even.

    References
    ----------
    Gedik, "Partitioning functions for stateful data parallelism in stream processing", section 4.1.1.

    Examples
    --------
    >>> three, four = HashRing(3), HashRing(4)
    >>> keys = np.arange(1000)
    >>> moved = three.lookup(keys) != four.lookup(keys)
    >>> set(four.lookup(keys)[moved].tolist())
    {3}
    """

    def __init__(self, partitions: int, *, replicas: int = 1000) -> None:
        self.partitions = partitions = whole("partitions", partitions, 1)
        self.replicas = replicas = whole("replicas", replicas, 1)
        owners = np.repeat(np.arange(partitions, dtype=np.int32), replicas)
        # replica r of partition p is hash(r) with seed p: independent of N, so growing only adds points
        points = np.concatenate([seeded_hashes(np.arange(replicas), p) for p in range(partitions)]).view(np.uint64)
        order = np.lexsort((owners, points))
        self._ring, self._owners = points[order], owners[order]
        bits = max(1, (len(points) - 1).bit_length())
        self._shift = 64 - bits
        bucket_starts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(self._shift)
        self._starts = np.searchsorted(self._ring, bucket_starts).astype(np.int64)

    def lookup(self, keys: ArrayLike) -> NDArray[np.int32]:
        """Return the partition of each key: the owner of the first replica at or after its point on the ring."""
        points = seeded_hashes(as_fingerprints(keys), _TAIL_SEED).view(np.uint64)
        out = np.empty(len(points), dtype=np.int32)
        _lookup(points, self._starts, self._ring, self._owners, self._shift, out)
        return out

    def tail(self, groups: int) -> NDArray[np.int32]:
        """Return the partition of each tail group, placed on the ring by its number."""
        return self.lookup(np.arange(groups))
