"""SpaceSaving: a fixed number of counters; a new key takes over the smallest."""

from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.fingerprint_table import EMPTY, fill, find, get, new_table, put, remove
from equipoise.framing import pack_array, reading, require, seal, unpack_array, unseal
from equipoise.hashing import FINGERPRINT_SEED
from equipoise.kernels import kernel
from equipoise.sketch.base import LEAST_SEED, Sketch, Total
from equipoise.sketch.histogram import Histogram
from equipoise.sketch.sketch_merge import Union, bounded_histogram, by_decreasing

_MAX_CAPACITY = 2**28  # counters are numbered by 32-bit integers, in a table of up to four slots each


class _Counters(NamedTuple):
    """Counters, the hash table from a key to its counter, and a heap of the counters' numbers.

    The heap has the smallest count at its top, among equal counts the one reached first. It is ordered only once every
    counter is used: before that, nothing is evicted.
    """

    table_keys: NDArray[np.int64]
    table_values: NDArray[np.int32]
    keys: NDArray[np.int64]
    counts: NDArray[np.int64]
    errors: NDArray[np.int64]
    since: NDArray[np.int64]  # total weight seen when the counter reached its count
    heap: NDArray[np.int32]
    position: NDArray[np.int32]  # position of each counter in the heap


class _Stored(msgspec.Struct):
    """Payload; the arrays (int64) hold one entry per counter, by increasing count, then ``since``."""

    capacity: int
    hash_seed: int
    total: Total
    keys: bytes
    counts: bytes
    errors: bytes
    since: bytes


@kernel(inline="always")
def _precedes(counters: Any, a: int, b: int) -> bool:
    """Whether counter ``a`` is evicted before ``b``."""
    if counters.counts[a] != counters.counts[b]:
        return counters.counts[a] < counters.counts[b]  # type: ignore[no-any-return]
    return counters.since[a] < counters.since[b]  # type: ignore[no-any-return]


@kernel
def _sink(counters: Any, at: int) -> None:
    """Move the counter at heap position ``at`` down, below all counters that precede it."""
    heap, position = counters.heap, counters.position
    moving = heap[at]
    while True:
        child = 2 * at + 1
        if child >= len(heap):
            break
        if child + 1 < len(heap) and _precedes(counters, heap[child + 1], heap[child]):
            child += 1
        if _precedes(counters, moving, heap[child]):
            break
        heap[at] = heap[child]
        position[heap[at]] = at
        at = child
    heap[at] = moving
    position[moving] = at


@kernel
def _take_over(counters: Any, key: int) -> int:
    """Give the first counter of the heap to ``key``; its count becomes the error of the new key."""
    counter = counters.heap[0]
    remove(counters.table_keys, counters.table_values, counters.keys[counter])
    put(counters.table_keys, counters.table_values, key, counter)
    counters.keys[counter] = key
    counters.errors[counter] = counters.counts[counter]
    return counter  # type: ignore[no-any-return]


@kernel(nogil=True)
def _count(counters: Any, fingerprints: Any, weights: Any, size: int, total: int) -> tuple[int, int]:
    """Count every fingerprint; return the new size and total."""
    capacity = len(counters.keys)
    stride = 0 if len(weights) == 1 else 1
    for i in range(len(fingerprints)):
        key, weight = fingerprints[i], weights[i * stride]
        total += weight
        slot = find(counters.table_keys, counters.table_values, key)
        counter = counters.table_values[slot]
        filled = False
        if counter == EMPTY and size == capacity:
            counter = _take_over(counters, key)
        elif counter == EMPTY:
            counter = size
            size += 1
            filled = size == capacity
            counters.table_keys[slot] = key
            counters.table_values[slot] = counter
            counters.keys[counter] = key
        counters.counts[counter] += weight
        counters.since[counter] = total
        if filled:
            for at in range(capacity // 2 - 1, -1, -1):
                _sink(counters, at)
        elif size == capacity:
            _sink(counters, counters.position[counter])
    return size, total


class SpaceSaving(Sketch):
    """Find hot keys with a fixed number of counters.

    Guarantees
    ----------
    - For a tracked key ``count - error <= true <= count``, and ``error`` is at most the smallest count.
    - The true count of a key that is not tracked is at most the smallest count, and 0 while a counter is free.
    - The smallest count is at most ``total / capacity``, so every key with a larger count is tracked.
    - All of this holds after ``merge``, too, of full and of partly filled sketches.
    - A weight counts exactly like that many repetitions.
    - Memory is 64 to 88 bytes per counter and does not grow; an update takes time logarithmic in ``capacity``.

    Differs from the paper
    ----------------------
    Counters are in a heap instead of a list of buckets, so that any weight costs the same. Among equal minima, the
    count that was reached first is evicted, as in the reference implementations; the paper does not say which. The
    merge is that of Agarwal et al.; among equal counts at the cut, it keeps the smaller error.

    Parameters
    ----------
    capacity
        Number of counters (m).
    hash_seed
        Seed of the counted fingerprints.

    References
    ----------
    Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data streams, ICDT 2005.
    Agarwal, Cormode, Huang, Phillips, Wei, Yi: Mergeable summaries, PODS 2012.

    Examples
    --------
    >>> import numpy as np
    >>> sketch = SpaceSaving(capacity=100)
    >>> sketch.update_many(np.random.default_rng(1).zipf(1.5, 10_000))
    >>> [key for key, count in sketch.top(3)]
    [1, 2, 3]
    >>> sketch.lower(1), sketch.upper(1)
    (3811.0, 3811.0)
    """

    kind = "space-saving"

    def __init__(self, capacity: int, *, hash_seed: int = FINGERPRINT_SEED) -> None:
        self.capacity = capacity = whole("capacity", capacity, 1)
        if capacity > _MAX_CAPACITY:
            raise InvalidArgumentError(f"capacity must be at most 2**28 counters, got {capacity}")
        self.hash_seed = whole("hash_seed", hash_seed, LEAST_SEED)
        self.total = 0
        self._size = 0
        keys, counts, errors, since = np.zeros((4, capacity), dtype=np.int64)
        heap, position = np.tile(np.arange(capacity, dtype=np.int32), (2, 1))
        self._counters = _Counters(*new_table(capacity), keys, counts, errors, since, heap, position)

    @property
    def smallest(self) -> int:
        """Smallest count: the upper bound of the count of a key that is not tracked; 0 while a counter is free."""
        if self._size < self.capacity:
            return 0
        return int(self._counters.counts[self._counters.heap[0]])

    def _feed(self, keys: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        self._size, self.total = _count(self._counters, keys, weights, self._size, self.total)

    def _merged(self, other: Self) -> Self:
        """Merge; a key that is missing on one side counts there as the smallest count of that side."""
        if (self.capacity, self.hash_seed) != (other.capacity, other.hash_seed):
            raise MismatchError(
                f"cannot merge capacity {self.capacity}, hash seed {self.hash_seed} with "
                f"capacity {other.capacity}, hash seed {other.hash_seed}; make both with the same parameters"
            )
        mine, theirs = self._taken(), other._taken()
        union = Union(mine.keys, theirs.keys)
        missing = (self.smallest, other.smallest)
        counts = union.sum(mine.counts, theirs.counts, missing)
        errors = union.sum(mine.errors, theirs.errors, missing)
        # the surest of equal counts is kept first and, in order of eviction, goes last
        kept = np.lexsort((union.keys, errors, -counts))[: self.capacity][::-1]
        contents = (union.keys[kept], counts[kept], errors[kept], np.arange(len(kept), dtype=np.int64))
        return self._holding(self.capacity, self.hash_seed, self.total + other.total, *contents)

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return all tracked keys and their counts, which are upper bounds, by decreasing count."""
        taken = self._taken()
        order = by_decreasing(taken.counts, taken.keys)
        return taken.keys[order], taken.counts[order].astype(np.float64)

    def _bounds_of(self, key: int) -> tuple[float, float]:
        counter = get(self._counters.table_keys, self._counters.table_values, key)
        if counter == EMPTY:
            return 0.0, float(self.smallest)
        count, error = self._counters.counts[counter], self._counters.errors[counter]
        return float(count - error), float(count)

    def histogram(self, k: int | None = None) -> Histogram:
        """Return the ``k`` keys of largest lower bound; the lower bound gives the stated share."""
        taken = self._taken()
        upper = taken.counts.astype(np.float64)
        lower = upper - taken.errors
        return bounded_histogram(
            taken.keys,
            lower,
            (lower, upper),
            untracked=self.smallest,
            total=self.total,
            k=k,
            hash_seed=self.hash_seed,
        )

    @property
    def nbytes(self) -> int:
        """Memory of the sketch's arrays, in bytes."""
        return sum(array.nbytes for array in self._counters)

    def to_bytes(self) -> bytes:
        """Return the stored form; its fields are those of ``_Stored``."""
        taken = self._taken()
        order = np.lexsort((taken.since, taken.counts))
        arrays = (pack_array(a[order]) for a in (taken.keys, taken.counts, taken.errors, taken.since))
        return seal(self.kind, self.format_version, _Stored(self.capacity, self.hash_seed, self.total, *arrays))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the stored form of ``to_bytes``."""
        with reading(cls.kind):
            stored = msgspec.convert(unseal(cls.kind, cls.format_version, data), _Stored)
            arrays = [unpack_array(a, np.int64) for a in (stored.keys, stored.counts, stored.errors, stored.since)]
            _check(stored, *arrays)
            return cls._holding(stored.capacity, stored.hash_seed, stored.total, *arrays)

    def _taken(self) -> _Counters:
        """Return the counters in use."""
        used = slice(self._size)
        return self._counters._replace(
            keys=self._counters.keys[used],
            counts=self._counters.counts[used],
            errors=self._counters.errors[used],
            since=self._counters.since[used],
        )

    @classmethod
    def _holding(
        cls,
        capacity: int,
        hash_seed: int,
        total: int,
        keys: NDArray[np.int64],
        counts: NDArray[np.int64],
        errors: NDArray[np.int64],
        since: NDArray[np.int64],
    ) -> Self:
        """Make a sketch with the given counters, in order of eviction, which is a valid heap."""
        sketch = cls(capacity, hash_seed=hash_seed)
        sketch.total, sketch._size = total, len(keys)
        taken = sketch._taken()
        taken.keys[:], taken.counts[:], taken.errors[:], taken.since[:] = keys, counts, errors, since
        fill(taken.table_keys, taken.table_values, keys)
        return sketch


def _check(
    stored: _Stored,
    keys: NDArray[np.int64],
    counts: NDArray[np.int64],
    errors: NDArray[np.int64],
    since: NDArray[np.int64],
) -> None:
    """Refuse counters that no sequence of updates can produce."""
    kind = SpaceSaving.kind
    require(kind, len(keys) == len(counts) == len(errors) == len(since), "its arrays have different lengths")
    require(kind, len(keys) <= stored.capacity, f"{len(keys)} counters with a capacity of {stored.capacity}")
    require(kind, len(np.unique(keys)) == len(keys), "a key has two counters")
    require(kind, bool(np.all((errors >= 0) & (errors < counts))), "an error is not below its count")
    require(kind, bool(np.all(counts <= stored.total) and np.all(since <= stored.total)), "a count exceeds the total")
    ordered = (counts[1:] > counts[:-1]) | ((counts[1:] == counts[:-1]) & (since[1:] > since[:-1]))
    require(kind, bool(np.all(ordered)), "its counters are not in order")
