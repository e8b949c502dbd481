"""SpaceSaving: a bounded number of counters; a new key takes over the count of those that were dropped for room."""

from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.fingerprint_table import spread
from equipoise.framing import pack_array, reading, require, seal, unpack_array, unseal
from equipoise.hashing import FINGERPRINT_SEED
from equipoise.kernels import kernel
from equipoise.sketch.base import LEAST_SEED, Sketch, Total
from equipoise.sketch.histogram import Histogram
from equipoise.sketch.sketch_merge import Union, bounded_histogram, by_decreasing

_MAX_CAPACITY = 2**28  # slots are chosen by 32 bits of a product


class _Counters(NamedTuple):
    """Slots of a hash table with linear probing; a slot with a count of 0 is free."""

    keys: NDArray[np.int64]
    counts: NDArray[np.int64]
    errors: NDArray[np.float32]  # rounded up


class _Stored(msgspec.Struct):
    """Payload; the arrays (int64, int64, float32) have one entry per key, by increasing fingerprint."""

    capacity: int
    hash_seed: int
    total: Total
    floor: Total
    keys: bytes
    counts: bytes
    errors: bytes


def _room(capacity: int) -> int:
    """Return the number of keys at which keys are dropped."""
    return capacity + capacity // 8


def _new_counters(room: int) -> _Counters:
    """Return free slots, of which ``room`` keys fill seven eighths."""
    slots = room + -(-room // 7)
    keys, counts = np.zeros((2, slots), dtype=np.int64)
    return _Counters(keys, counts, np.zeros(slots, dtype=np.float32))


@kernel(inline="always")
def _slot_of(counters: Any, key: int) -> int:
    """Return the slot of ``key``, or the free slot where it would be inserted."""
    slots = len(counters.keys)
    slot: Any = np.int64((spread(key) * np.uint64(slots)) >> np.uint64(32))
    while counters.counts[slot] != 0 and counters.keys[slot] != key:
        slot += 1
        if slot == slots:
            slot = 0
    return slot  # type: ignore[no-any-return]


@kernel(inline="always")
def _rounded_up(error: Any) -> Any:
    """Return the smallest float32 that is not below ``error``."""
    nearest = np.float32(error)
    return nearest if np.float64(nearest) >= error else np.nextafter(nearest, np.float32(np.inf))


@kernel
def _place(counters: Any, keys: Any, counts: Any, errors: Any, above: int) -> int:
    """Insert the keys with a count above ``above``, none of which has a slot; return their number."""
    placed = 0
    for i in range(len(keys)):
        if counts[i] > above:
            slot = _slot_of(counters, keys[i])
            counters.keys[slot], counters.counts[slot] = keys[i], counts[i]
            counters.errors[slot] = _rounded_up(errors[i])
            placed += 1
    return placed


@kernel
def _cut(counts: Any, capacity: int) -> int:
    """Return the count up to which keys are dropped, so that fewer than ``capacity`` remain."""
    return np.partition(counts, len(counts) - capacity)[len(counts) - capacity]  # type: ignore[no-any-return]


@kernel(nogil=True)
def _count(
    counters: Any, fingerprints: Any, weights: Any, size: int, floor: int, capacity: int, room: int
) -> tuple[int, int]:
    """Count every fingerprint; return the new number of keys and the new floor."""
    stride = 0 if len(weights) == 1 else 1
    error = _rounded_up(floor)
    for i in range(len(fingerprints)):
        key, weight = fingerprints[i], weights[i * stride]
        slot = _slot_of(counters, key)
        if counters.counts[slot] == 0:
            if size == room:
                taken = np.flatnonzero(counters.counts)
                keys, counts, errors = counters.keys[taken], counters.counts[taken], counters.errors[taken]
                floor = _cut(counts, capacity)
                error = _rounded_up(floor)
                counters.counts[:] = 0
                size = _place(counters, keys, counts, errors, floor)
                slot = _slot_of(counters, key)
            size += 1
            counters.keys[slot], counters.counts[slot], counters.errors[slot] = key, floor, error
        counters.counts[slot] += weight
    return size, floor


@kernel
def _counts_of(counters: Any, fingerprints: Any, out: Any) -> None:
    for i in range(len(fingerprints)):
        out[i] = counters.counts[_slot_of(counters, fingerprints[i])]


class SpaceSaving(Sketch):
    """Find hot keys with a bounded number of counters.

    Guarantees
    ----------
    - For a tracked key ``count - error <= true <= count``, and ``error`` is at most ``floor``.
    - The true count of a key that is not tracked is at most ``floor``, which is 0 until keys are dropped.
    - ``floor`` is at most ``total / capacity``, so every key with a larger count is tracked.
    - All of this holds after ``merge``, too, of full and of partly filled sketches.
    - A weight counts exactly like that many repetitions.
    - At most ``capacity + capacity // 8`` keys are tracked, in 23 bytes each, from 26 bytes per ``capacity`` in all;
      memory does not grow. An update takes constant time, amortised.

    Differs from the paper
    ----------------------
    The paper evicts one key for each new one. Here an eighth of the keys is dropped at once when the room is full, with
    all that have the same count, and ``floor`` becomes the largest count dropped; a new key starts with that count,
    as in the paper. This is the purge of the frequent-items sketch of Anderson et al., in terms of SpaceSaving, with
    an eighth instead of half of the keys. So a counter needs neither a heap nor the time of its last change, and keys
    that have been tracked from the start keep an error of 0. ``capacity`` has the same meaning in both methods: the
    bound ``total / capacity``. Errors are stored as float32, rounded up. The merge is that of Agarwal et al., with
    ``floor`` in place of the smallest count.

    Parameters
    ----------
    capacity
        Number of counters that the paper's method needs for the same bound (m).
    hash_seed
        Seed of the counted fingerprints.

    References
    ----------
    Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data streams, ICDT 2005.
    Agarwal, Cormode, Huang, Phillips, Wei, Yi: Mergeable summaries, PODS 2012.
    Anderson, Bevin, Lang, Liberty, Rhodes, Thaler: A high-performance algorithm for identifying frequent items in data
    streams, IMC 2017.

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
    format_version = 2

    floor: int
    """Upper bound of the count of a key that is not tracked."""

    def __init__(self, capacity: int, *, hash_seed: int = FINGERPRINT_SEED) -> None:
        self.capacity = capacity = whole("capacity", capacity, 1)
        if capacity > _MAX_CAPACITY:
            raise InvalidArgumentError(f"capacity must be at most 2**28 counters, got {capacity}")
        self.hash_seed = whole("hash_seed", hash_seed, LEAST_SEED)
        self.total = self.floor = 0
        self._size = 0
        self._counters = _new_counters(_room(capacity))

    def _feed(self, keys: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        self._size, self.floor = _count(
            self._counters, keys, weights, self._size, self.floor, self.capacity, _room(self.capacity)
        )
        self.total += int(weights.sum()) if len(weights) == len(keys) else len(keys)

    def _merged(self, other: Self) -> Self:
        """Merge; a key that is missing on one side counts there as the floor of that side."""
        if (self.capacity, self.hash_seed) != (other.capacity, other.hash_seed):
            raise MismatchError(
                f"cannot merge capacity {self.capacity}, hash seed {self.hash_seed} with "
                f"capacity {other.capacity}, hash seed {other.hash_seed}; make both with the same parameters"
            )
        mine, theirs = self._taken(), other._taken()
        union = Union(mine.keys, theirs.keys)
        missing = (self.floor, other.floor)
        counts = union.sum(mine.counts, theirs.counts, missing)
        errors = union.sum(mine.errors.astype(np.float64), theirs.errors.astype(np.float64), missing)
        floor = self.floor + other.floor
        united = union.keys, counts, np.minimum(errors, floor)  # the sum of two that were rounded up
        if len(counts) > _room(self.capacity):
            floor = int(_cut(counts, self.capacity))
        return self._holding(self.capacity, self.hash_seed, self.total + other.total, floor, *united)

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return all tracked keys and their counts, which are upper bounds, by decreasing count."""
        taken = self._taken()
        order = by_decreasing(taken.counts, taken.keys)
        return taken.keys[order], taken.counts[order].astype(np.float64)

    def counts(self, fingerprints: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the count of each fingerprint, an upper bound if it is tracked; 0 if it is not tracked."""
        out = np.empty(len(fingerprints), dtype=np.int64)
        _counts_of(self._counters, fingerprints, out)
        return out

    def _bounds_of(self, key: int) -> tuple[float, float]:
        slot = _slot_of(self._counters, key)
        count = float(self._counters.counts[slot])
        if count == 0:
            return 0.0, float(self.floor)
        return max(0.0, count - float(self._counters.errors[slot])), count

    def histogram(self, k: int | None = None) -> Histogram:
        """Return the ``k`` keys of largest lower bound; the lower bound gives the stated share."""
        taken = self._taken()
        upper = taken.counts.astype(np.float64)
        lower = np.maximum(upper - taken.errors, 0)
        return bounded_histogram(
            taken.keys,
            lower,
            (lower, upper),
            untracked=self.floor,
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
        order = np.argsort(taken.keys)
        arrays = (pack_array(array[order]) for array in taken)
        stored = _Stored(self.capacity, self.hash_seed, self.total, self.floor, *arrays)
        return seal(self.kind, self.format_version, stored)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the stored form of ``to_bytes``."""
        with reading(cls.kind):
            stored = msgspec.convert(unseal(cls.kind, cls.format_version, data), _Stored)
            keys, counts = (unpack_array(array, np.int64) for array in (stored.keys, stored.counts))
            errors = unpack_array(stored.errors, np.float32)
            _check(stored, keys, counts, errors)
            return cls._holding(
                stored.capacity, stored.hash_seed, stored.total, stored.floor, keys, counts, errors.astype(np.float64)
            )

    def _taken(self) -> _Counters:
        """Return the counters in use."""
        taken = np.flatnonzero(self._counters.counts)
        counters = self._counters
        return _Counters(counters.keys[taken], counters.counts[taken], counters.errors[taken])

    @classmethod
    def _holding(
        cls,
        capacity: int,
        hash_seed: int,
        total: int,
        floor: int,
        keys: NDArray[np.int64],
        counts: NDArray[np.int64],
        errors: NDArray[np.float64],
    ) -> Self:
        """Make a sketch with those of the given keys whose count exceeds the floor."""
        sketch = cls(capacity, hash_seed=hash_seed)
        sketch.total, sketch.floor = total, floor
        sketch._size = _place(sketch._counters, keys, counts, errors, floor)
        return sketch


def _check(stored: _Stored, keys: NDArray[np.int64], counts: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
    """Refuse counters that no sequence of updates can produce."""
    kind, room = SpaceSaving.kind, _room(whole("capacity", stored.capacity, 1))
    require(kind, len(keys) == len(counts) == len(errors), "its arrays have different lengths")
    require(kind, len(keys) <= room, f"{len(keys)} keys with room for {room}")
    require(kind, bool(np.all(keys[1:] > keys[:-1])), "its keys are not in order")
    highest = _rounded_up(stored.floor)
    require(kind, bool(np.all((errors >= 0) & (errors <= highest))), "an error is out of range")
    require(kind, bool(np.all(counts > stored.floor)), "a count does not exceed the floor")
    excess = float(np.sum(counts, dtype=np.float64)) - len(counts) * stored.floor
    require(kind, excess + stored.capacity * stored.floor <= stored.total, "its counts exceed its total")
