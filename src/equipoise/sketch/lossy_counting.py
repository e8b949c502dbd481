"""Lossy Counting: counts every key, and drops keys that stay rare."""

import math
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.fingerprint_table import EMPTY, fill, find, get, new_table
from equipoise.framing import pack_array, reading, require, seal, unpack_array, unseal
from equipoise.hashing import FINGERPRINT_SEED
from equipoise.kernels import kernel
from equipoise.sketch.base import LEAST_SEED, Sketch, Total
from equipoise.sketch.histogram import Histogram
from equipoise.sketch.sketch_merge import Union, bounded_histogram, by_decreasing

_MIN_EPSILON = 2.0**-28  # entries are numbered by 32-bit integers
_SMALLEST_ROOM = 16


class _Entries(NamedTuple):
    """Entries, and the hash table from a key to its entry.

    An entry is live while ``count + missed`` exceeds the number of completed windows. An entry that is not live counts
    as dropped; its place is reused when room is needed.
    """

    table_keys: NDArray[np.int64]
    table_values: NDArray[np.int32]
    keys: NDArray[np.int64]
    counts: NDArray[np.int64]
    missed: NDArray[np.int64]


class _Stored(msgspec.Struct):
    """Payload; the arrays (int64) hold one entry per live key, by increasing fingerprint."""

    epsilon: float
    hash_seed: int
    total: Total
    keys: bytes
    counts: bytes
    missed: bytes


def _new_entries(room: int) -> _Entries:
    keys, counts, missed = np.zeros((3, room), dtype=np.int64)
    return _Entries(*new_table(room), keys, counts, missed)


@kernel
def _count(
    entries: Any, fingerprints: Any, weights: Any, start: int, size: int, total: int, width: int
) -> tuple[int, int, int]:
    """Count fingerprints from ``start`` until the entries are full; return the next position, size and total."""
    stride = 0 if len(weights) == 1 else 1
    completed = total // width
    left = width - total % width
    for i in range(start, len(fingerprints)):
        key, weight = fingerprints[i], weights[i * stride]
        slot = find(entries.table_keys, entries.table_values, key)
        entry = entries.table_values[slot]
        if entry != EMPTY and entries.counts[entry] + entries.missed[entry] > completed:
            entries.counts[entry] += weight
        else:
            if entry == EMPTY:
                if size == len(entries.keys):
                    return i, size, total
                entry = size
                size += 1
                entries.table_keys[slot] = key
                entries.table_values[slot] = entry
                entries.keys[entry] = key
            # an occurrence that completes a window is dropped at its end; the rest of the weight starts the next window
            closing = 1 if left == 1 else 0
            entries.counts[entry] = weight - closing
            entries.missed[entry] = completed + closing
        total += weight
        left -= weight
        if left <= 0:
            completed = total // width
            left = width - total % width
    return len(fingerprints), size, total


class LossyCounting(Sketch):
    """Find all keys above a given share, in memory that grows with the logarithm of the input.

    Guarantees
    ----------
    - ``count <= true <= count + missed`` for a tracked key, ``true <= floor(total / width)`` for any other; both
      margins are at most ``epsilon * total``. This holds after ``merge``, too, at any point of a window.
    - Every key seen more often than ``epsilon * total`` is tracked.
    - Without merges, the number of tracked keys is in the order of ``log(epsilon * total) / epsilon``.
    - A weight counts exactly like that many repetitions.

    Differs from the paper
    ----------------------
    Results are the same. Entries are dropped when their room is needed instead of at the end of a window: whether an
    entry is live follows from its count, its possible miss and the number of completed windows alone. So an update
    takes constant time, amortised, whatever its weight.

    Parameters
    ----------
    epsilon
        Largest error, as a share of the total, between 0 and 1; a window has ``width = ceil(1 / epsilon)``.
    hash_seed
        Seed of the counted fingerprints.

    References
    ----------
    Manku, Motwani: Approximate frequency counts over data streams, VLDB 2002.

    Examples
    --------
    >>> import numpy as np
    >>> sketch = LossyCounting(epsilon=0.01)
    >>> sketch.update_many(np.random.default_rng(1).zipf(1.5, 10_000))
    >>> [key for key, count in sketch.top(3)]
    [1, 2, 3]
    >>> sketch.lower(1), sketch.upper(1)
    (3811.0, 3811.0)
    """

    kind = "lossy-counting"

    def __init__(self, epsilon: float, *, hash_seed: int = FINGERPRINT_SEED) -> None:
        self.epsilon = at_least("epsilon", epsilon, 0)
        if not _MIN_EPSILON <= self.epsilon < 1:
            raise InvalidArgumentError(f"epsilon must lie between 2**-28 and 1, got {epsilon}")
        self.hash_seed = whole("hash_seed", hash_seed, LEAST_SEED)
        self.total = 0
        self._width = math.ceil(1 / self.epsilon - 1e-9)  # 1 / (1 / 49) is a little above 49
        self._size = 0
        self._entries = _new_entries(_SMALLEST_ROOM)

    @property
    def completed(self) -> int:
        """Number of completed windows: the upper bound of the count of a key that is not tracked."""
        return self.total // self._width

    def _feed(self, keys: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        done = 0
        while True:
            done, self._size, self.total = _count(
                self._entries, keys, weights, done, self._size, self.total, self._width
            )
            if done == len(keys):
                return
            self._make_room()

    def _make_room(self) -> None:
        """Drop the entries that are no longer live; if that frees less than a quarter, double the room."""
        live = self._live()
        room = len(self._entries.keys)
        self._move(live.keys, live.counts, live.missed, room if 4 * len(live.keys) <= 3 * room else 2 * room)

    def _merged(self, other: Self) -> Self:
        """Merge; a key that is missing on one side may have been missed there in every window."""
        if (self.epsilon, self.hash_seed) != (other.epsilon, other.hash_seed):
            raise MismatchError(
                f"cannot merge epsilon {self.epsilon}, hash seed {self.hash_seed} with "
                f"epsilon {other.epsilon}, hash seed {other.hash_seed}; make both with the same parameters"
            )
        mine, theirs = self._live(), other._live()
        union = Union(mine.keys, theirs.keys)
        missed = union.sum(mine.missed, theirs.missed, (self.completed, other.completed))
        counts = union.sum(mine.counts, theirs.counts)
        return self._holding(self.epsilon, self.hash_seed, self.total + other.total, union.keys, counts, missed)

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return all tracked keys and their counts, which are lower bounds, by decreasing count."""
        live = self._live()
        order = by_decreasing(live.counts, live.keys)
        return live.keys[order], live.counts[order].astype(np.float64)

    def _bounds_of(self, key: int) -> tuple[float, float]:
        entry = get(self._entries.table_keys, self._entries.table_values, key)
        if entry != EMPTY:
            count, missed = int(self._entries.counts[entry]), int(self._entries.missed[entry])
            if count + missed > self.completed:
                return float(count), float(count + missed)
        return 0.0, float(self.completed)

    def histogram(self, k: int | None = None) -> Histogram:
        """Return the ``k`` keys of largest count; the count gives the stated share."""
        live = self._live()
        lower = live.counts.astype(np.float64)
        return bounded_histogram(
            live.keys,
            lower,
            (lower, lower + live.missed),
            untracked=self.completed,
            total=self.total,
            k=k,
            hash_seed=self.hash_seed,
        )

    @property
    def nbytes(self) -> int:
        """Memory of the sketch's arrays, in bytes."""
        return sum(array.nbytes for array in self._entries)

    def to_bytes(self) -> bytes:
        """Return the stored form; its fields are those of ``_Stored``."""
        live = self._live()
        order = np.argsort(live.keys)
        arrays = (pack_array(a[order]) for a in (live.keys, live.counts, live.missed))
        return seal(self.kind, self.format_version, _Stored(self.epsilon, self.hash_seed, self.total, *arrays))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the stored form of ``to_bytes``."""
        with reading(cls.kind):
            stored = msgspec.convert(unseal(cls.kind, cls.format_version, data), _Stored)
            arrays = [unpack_array(a, np.int64) for a in (stored.keys, stored.counts, stored.missed)]
            sketch = cls._holding(stored.epsilon, stored.hash_seed, stored.total, *arrays)
            _check(sketch, *arrays)
            return sketch

    def _live(self) -> _Entries:
        """Return the live entries in order of arrival."""
        counts, missed = self._entries.counts[: self._size], self._entries.missed[: self._size]
        live = np.flatnonzero(counts + missed > self.completed)
        return self._entries._replace(keys=self._entries.keys[live], counts=counts[live], missed=missed[live])

    @classmethod
    def _holding(
        cls,
        epsilon: float,
        hash_seed: int,
        total: int,
        keys: NDArray[np.int64],
        counts: NDArray[np.int64],
        missed: NDArray[np.int64],
    ) -> Self:
        """Make a sketch with the given entries."""
        sketch = cls(epsilon, hash_seed=hash_seed)
        sketch.total = total
        sketch._move(keys, counts, missed, max(_SMALLEST_ROOM, 1 << len(keys).bit_length()))
        return sketch

    def _move(self, keys: NDArray[np.int64], counts: NDArray[np.int64], missed: NDArray[np.int64], room: int) -> None:
        """Replace the entries, in new arrays with the given room."""
        self._size = len(keys)
        self._entries = _new_entries(room)
        self._entries.keys[: self._size] = keys
        self._entries.counts[: self._size] = counts
        self._entries.missed[: self._size] = missed
        fill(self._entries.table_keys, self._entries.table_values, keys)


def _check(
    sketch: LossyCounting, keys: NDArray[np.int64], counts: NDArray[np.int64], missed: NDArray[np.int64]
) -> None:
    """Refuse entries that no sequence of updates can produce."""
    kind = sketch.kind
    require(kind, len(keys) == len(counts) == len(missed), "its arrays have different lengths")
    require(kind, bool(np.all(keys[1:] > keys[:-1])), "its keys are not in order")
    require(kind, bool(np.all((counts >= 1) & (missed >= 0))), "a count is below 1 or a miss below 0")
    require(kind, bool(np.all(missed <= sketch.completed)), "a key was missed more often than a window ended")
    require(kind, bool(np.all(counts + missed > sketch.completed)), "a key should have been dropped")
    require(kind, bool(counts.sum(dtype=np.float64) <= sketch.total), "its counts exceed its total")
