"""DR's counter histogram: it samples ever fewer rows, and forgets rare keys unless the hot ones are changing."""

import math
from typing import Annotated, Any, NamedTuple, Self

import msgspec
import numpy as np
from numba import njit
from numpy.typing import NDArray

from equipoise.errors import InvalidArgument, Mismatch
from equipoise.fingerprint_table import EMPTY, fill, find, get, new_table
from equipoise.framing import pack_array, seal, unpack_array, unseal
from equipoise.hashing import FINGERPRINT_SEED
from equipoise.sketch.base import Sketch
from equipoise.sketch.histogram import Histogram
from equipoise.sketch.sampling import SamplingError, mixed, uniform
from equipoise.sketch.stored import Total, reading, require
from equipoise.sketch.tracked import Union, bounded_histogram, by_decreasing

_MAX_BOUNDARY = 2**28  # keys are numbered by 32-bit integers


class Settings(msgspec.Struct, frozen=True):
    """Parameters of a ``DriftHistogram``, described there."""

    take: int
    soft_boundary: int
    hard_boundary: int
    compaction: int
    backoff: float
    drift_boundary: float
    drift_history_weight: float
    solidarity: int
    hash_seed: int

    def check(self) -> None:
        """Refuse what cannot work."""
        if self.take < 1 or self.soft_boundary < 1 or self.solidarity < 1:
            raise InvalidArgument(
                "take, soft_boundary and solidarity must be at least 1, "
                f"got {self.take}, {self.soft_boundary} and {self.solidarity}"
            )
        if not 2 * self.take <= self.hard_boundary <= _MAX_BOUNDARY:
            raise InvalidArgument(
                f"hard_boundary must be at least twice take ({self.take}) and at most 2**28, got {self.hard_boundary}: "
                "drift is told from where the former top keys stand among the others"
            )
        if not 1 <= self.compaction <= self.hard_boundary - self.take:
            raise InvalidArgument(
                f"compaction must drop at least 1 key and leave take ({self.take}) of {self.hard_boundary}, "
                f"got {self.compaction}; use 1 to {self.hard_boundary - self.take}"
            )
        if not 1 <= self.backoff < math.inf:
            raise InvalidArgument(f"backoff must be at least 1 (1: never sample), got {self.backoff}")
        if not 0 <= self.drift_boundary < math.inf:
            raise InvalidArgument(f"drift_boundary must be a number of at least 0, got {self.drift_boundary}")
        if not 0 <= self.drift_history_weight <= 1:
            raise InvalidArgument(f"drift_history_weight must be in [0, 1], got {self.drift_history_weight}")


class _State(msgspec.Struct):
    """What a sketch knows beside its entries; also a part of the payload."""

    boundary: int  # present hard boundary
    drift: float  # smoothed over the boundaries
    scale: float = 1.0  # what a sampled row counts: 1 / rate
    norm: float = 0.0  # weight taken in: the total as the sample estimates it
    lost: float = 0.0  # upper bound of the weight taken in for any key not tracked
    quiet: int = 0  # boundaries without drift since the hard boundary last moved


class _Entries(NamedTuple):
    """Entries by number, in the order in which they came, and the table that finds a key's entry."""

    table_keys: NDArray[np.int64]
    table_values: NDArray[np.int32]
    keys: NDArray[np.int64]
    weights: NDArray[np.float64]
    missed: NDArray[np.float64]  # upper bound of the weight lost to cuts before the key came in


class _Stored(msgspec.Struct):
    """Payload; keys and history (int64), weights and missed (float64) in the order in which keys came."""

    settings: Settings
    total: Total
    random: Annotated[int, msgspec.Meta(ge=0)]
    state: _State
    history: bytes
    keys: bytes
    weights: bytes
    missed: bytes


def _new_entries(room: int) -> _Entries:
    weights, missed = np.zeros((2, room))
    return _Entries(*new_table(room), np.zeros(room, dtype=np.int64), weights, missed)


def _heaviest_first(weights: NDArray[np.float64]) -> NDArray[np.intp]:
    """Order of decreasing weight, ties in the order in which they came."""
    return np.argsort(-weights, kind="stable")


def _most_lost(entries: _Entries, dropped: NDArray[np.intp]) -> float:
    """Largest weight that any key loses, now and before, if these entries are dropped."""
    return float((entries.weights[dropped] + entries.missed[dropped]).max(initial=0.0))


@njit(cache=True)
def _sample(
    entries: Any,
    fingerprints: Any,
    weights: Any,
    start: int,
    size: int,
    norm: float,
    scale: float,
    lost: float,
    random: Any,
) -> tuple[int, int, float]:
    """Sample fingerprints from ``start`` on, up to one that fills the entries; returns the next, size and norm."""
    stride = 0 if len(weights) == 1 else 1
    for i in range(start, len(fingerprints)):
        weight = float(weights[i * stride])
        if weight < scale:
            if uniform(random) * scale >= weight:
                continue
            weight = scale
        norm += weight
        slot = find(entries.table_keys, entries.table_values, fingerprints[i])
        entry = entries.table_values[slot]
        if entry == EMPTY:
            entry = size
            size += 1
            entries.table_keys[slot] = fingerprints[i]
            entries.table_values[slot] = entry
            entries.keys[entry] = fingerprints[i]
            entries.missed[entry] = lost
        entries.weights[entry] += weight
        if size == len(entries.keys):
            return i + 1, size, norm
    return len(fingerprints), size, norm


@njit(cache=True)
def _departure(entries: Any, rank: Any, history: Any, take: int, smallest: float) -> float:
    """How far the former top keys have fallen below the present ones, in ranks plus weight."""
    distance = 0.0
    for key in history:
        entry = get(entries.table_keys, entries.table_values, key)
        if entry == EMPTY:
            distance += (len(rank) - take) + smallest
        elif rank[entry] >= take:
            distance += (rank[entry] - take) + (smallest - entries.weights[entry])
    return distance


class DriftHistogram(Sketch):
    """Hot keys by sampling that backs off, with room that grows while the hot keys change.

    Whenever the number of tracked keys reaches the hard boundary, sampling backs off, and the present top keys
    are compared with those of the boundary before. If many have left the top, keys are drifting: nothing is
    dropped, and the boundary is raised. If not, the lightest keys are dropped, and after enough quiet
    boundaries the boundary is lowered again.

    Guarantees
    ----------
    - Until sampling backs off, ``weight <= true <= weight + missed``, where ``missed`` is at most the sum of the
      largest weights dropped by the cuts before the key came in; a key not tracked has at most the largest
      ``weight + missed`` ever dropped.
    - Later, the same holds for the sampled weights, and the bounds add what Freedman's inequality says about sampling:
      for any one key that is asked for, they fail with a probability of at most ``FAILURE_PROBABILITY``, 1e-9.
    - Both also after ``merge``, if the two inputs were sampled independently: give parallel sketches different
      seeds, or inputs that differ before their first boundary (the keys met until then go into the seed).
    - Stated shares never add up to more than 1; weight lost to cuts counts as weight of the rest.
    - Without drift there are fewer than ``hard_boundary + soft_boundary`` keys. While drift goes on, memory grows.

    Differs from the paper
    ----------------------
    The paper only names the method; this follows its code, with these repairs and choices.

    - The hard boundary starts at ``hard_boundary`` and never falls below it; the code starts at 0 and can return there.
    - Drift boundary and history weight are real numbers; the code reads them as integers, that is as 0. The drift
      history starts at the boundary, not at 0.
    - The drift formula is the code's. It adds ranks to weights, so that one rank counts as much as one row. On
      long streams the weights outgrow the ranks, and drift tends to the mean relative shortfall of the
      top keys that left, which has no unit. Parameters for which its denominator could be 0 or negative
      (``hard_boundary < 2 * take``) are refused.
    - Weights are honoured. A row heavier than the present scale is always taken in, with its own weight.
    - ``merge`` adds the weights of both sides, cuts if there are too many, and takes the merged top keys as history.
      Estimates are normalised to the rows seen after adding, not before: this leaves the weights a martingale, so
      that the bounds survive. Until sampling backs off, both are the same.
    - There is no reset: a new sketch is an empty one.
    - Bounds are ours.

    Parameters
    ----------
    take
        Number of top keys compared from boundary to boundary (TAKE).
    soft_boundary
        By how much the hard boundary is raised or lowered (SOFT).
    hard_boundary
        Number of tracked keys at which the first boundary is met (HB); ``None``: as ``soft_boundary``.
    compaction
        How many keys below the hard boundary a cut leaves (COMPACTION); ``None``: a quarter of ``hard_boundary``.
    backoff
        Factor by which each boundary lowers the sampling rate (BACKOFF).
    drift_boundary
        Drift above which nothing is dropped (DRIFT_BOUNDARY).
    drift_history_weight
        Weight of the past in the smoothed drift (DRIFT_HISTORY_WEIGHT).
    solidarity
        Quiet boundaries until the hard boundary is lowered (SOLIDARITY).
    seed
        Seed of the sampling.
    hash_seed
        Seed of the fingerprints that are fed in.

    References
    ----------
    Zvara, Szabó, Lóránt, Benczúr: System-aware dynamic partitioning for batch and streaming workloads, 2021; the
    method itself is only in its code, zzvara/dynamic-repartitioning, class Conceptier.
    Freedman: On tail probabilities for martingales, Annals of Probability 1975.
    Duffield, Lund, Thorup: Learn more, sample less, IEEE Transactions on Information Theory 2005.

    Examples
    --------
    >>> import numpy as np
    >>> sketch = DriftHistogram(take=10, soft_boundary=100, seed=1)
    >>> sketch.update_many(np.random.default_rng(1).zipf(1.5, 10_000))
    >>> [key for key, count in sketch.top(3)]
    [1, 2, 3]
    >>> sketch.lower(1) < 3811 < sketch.upper(1)
    True
    """

    kind = "drift-histogram"

    def __init__(
        self,
        take: int = 1000,
        *,
        soft_boundary: int = 5000,
        hard_boundary: int | None = None,
        compaction: int | None = None,
        backoff: float = 1.05,
        drift_boundary: float = 0.125,
        drift_history_weight: float = 0.8,
        solidarity: int = 5,
        seed: int = 0,
        hash_seed: int = FINGERPRINT_SEED,
    ) -> None:
        if not 0 <= seed < 2**64:
            raise InvalidArgument(f"seed must be an integer from 0 to 2**64 - 1, got {seed}")
        hard_boundary = soft_boundary if hard_boundary is None else hard_boundary
        self.settings = Settings(
            int(take),
            int(soft_boundary),
            int(hard_boundary),
            max(1, int(hard_boundary) // 4) if compaction is None else int(compaction),
            float(backoff),
            float(drift_boundary),
            float(drift_history_weight),
            int(solidarity),
            int(hash_seed),
        )
        self.settings.check()
        self.hash_seed = self.settings.hash_seed
        self.total = 0
        self._random = np.array([seed], dtype=np.uint64)  # state of splitmix64
        self._state = _State(self.settings.hard_boundary, self.settings.drift_boundary)
        self._history = np.empty(0, dtype=np.int64)  # top keys of the last boundary
        self._entries = _new_entries(self.settings.hard_boundary)
        self._size = 0

    def _feed(self, keys: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        state, done = self._state, 0
        while done < len(keys):
            done, self._size, state.norm = _sample(
                self._entries, keys, weights, done, self._size, state.norm, state.scale, state.lost, self._random
            )
            if self._size == state.boundary:
                self._meet_boundary()
        self.total += int(weights.sum()) if len(weights) == len(keys) else len(keys)

    def _meet_boundary(self) -> None:
        """Back off; then make more room, or drop the lightest keys, by how much the top keys have changed."""
        settings, state, used = self.settings, self._state, self._used()
        order = _heaviest_first(used.weights)
        keep = len(order)
        state.scale *= settings.backoff
        self._random ^= mixed(np.bitwise_xor.reduce(used.keys.view(np.uint64)))
        if len(self._history) == 0 or self._is_drifting(order):
            state.boundary += settings.soft_boundary
            state.quiet = 0
        else:
            state.quiet += 1
            if state.quiet >= settings.solidarity and state.boundary > settings.hard_boundary:
                state.boundary -= settings.soft_boundary
                state.quiet = 0
            keep = state.boundary - settings.compaction
        state.lost = max(state.lost, _most_lost(used, order[keep:]))
        self._history = used.keys[order[: settings.take]]
        self._put(used, order[:keep])

    def _is_drifting(self, order: NDArray[np.intp]) -> bool:
        """Bring the smoothed drift up to date and compare it with its boundary."""
        take, width = self.settings.take, len(order)
        smallest = float(self._entries.weights[order[take - 1]])
        rank = np.empty(width, dtype=np.int64)
        rank[order] = np.arange(width)
        farthest = take * ((smallest - take + width) + (smallest - 2 * take + width)) / 2
        drift = _departure(self._entries, rank, self._history, take, smallest) / farthest
        past = self.settings.drift_history_weight
        self._state.drift = self._state.drift * past + drift * (1 - past)
        return self._state.drift > self.settings.drift_boundary

    def merge(self, other: Self) -> Self:
        """Sketch of both inputs together; a key missing on one side may have been lost there to cuts."""
        if self.settings != other.settings:
            raise Mismatch(f"cannot merge {self.settings} with {other.settings}; make both with the same parameters")
        mine, theirs = self._state, other._state
        entries = self._united(other)
        order = _heaviest_first(entries.weights)
        boundary = max(mine.boundary, theirs.boundary)
        keep = boundary - self.settings.compaction if len(order) >= boundary else len(order)
        state = _State(
            boundary=boundary,
            drift=max(mine.drift, theirs.drift),
            scale=max(mine.scale, theirs.scale),
            norm=mine.norm + theirs.norm,
            lost=max(mine.lost + theirs.lost, _most_lost(entries, order[keep:])),
            quiet=min(mine.quiet, theirs.quiet),
        )
        met_boundary = len(self._history) + len(other._history) > 0
        history = entries.keys[order[: self.settings.take if met_boundary else 0]]
        random = mixed((self._random + other._random)[0])
        return self._holding(self.settings, self.total + other.total, random, state, history, entries, order[:keep])

    def _united(self, other: Self) -> _Entries:
        """Entries of both, added up, by increasing fingerprint."""
        mine, theirs = self._used(), other._used()
        union = Union(mine.keys, theirs.keys)
        return mine._replace(
            keys=union.keys,
            weights=union.sum(mine.weights, theirs.weights),
            missed=union.sum(mine.missed, theirs.missed, (self._state.lost, other._state.lost)),
        )

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """All tracked keys and their sampled weights as parts of ``total``, by decreasing weight."""
        used = self._used()
        counts = self._estimates(used)
        order = by_decreasing(counts, used.keys)
        return used.keys[order], counts[order]

    def lower(self, key: int) -> float:
        """Lower bound of the true count of a key."""
        return self._bounds_of(key)[0]

    def upper(self, key: int) -> float:
        """Upper bound of the true count of a key."""
        return self._bounds_of(key)[1]

    def histogram(self, k: int | None = None) -> Histogram:
        """The ``k`` keys of largest sampled weight, as shares of all weight taken in."""
        used = self._used()
        return bounded_histogram(
            used.keys,
            self._estimates(used),
            self._bounds(used.weights, used.missed),
            untracked=self._untracked(),
            total=self.total,
            k=k,
            hash_seed=self.hash_seed,
        )

    def _estimates(self, used: _Entries) -> NDArray[np.float64]:
        """Sampled weights, normalised to the rows seen."""
        return used.weights * (self.total / self._state.norm if self.total else 1.0)

    def _bounds(
        self, weights: NDArray[np.float64], missed: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bounds of true counts, from the weights taken in and those that may have been lost."""
        state, backoff = self._state, self.settings.backoff
        error = SamplingError.of(state.scale, math.log(state.scale) / math.log(backoff) if backoff > 1 else 0)
        return error.at_least(weights), np.minimum(error.at_most(weights + missed), float(self.total))

    def _bounds_of(self, key: int) -> tuple[float, float]:
        entry = get(self._entries.table_keys, self._entries.table_values, key)
        if entry == EMPTY:
            return 0.0, self._untracked()
        lower, upper = self._bounds(self._entries.weights[entry : entry + 1], self._entries.missed[entry : entry + 1])
        return float(lower[0]), float(upper[0])

    def _untracked(self) -> float:
        """Upper bound of the true count of any key not tracked."""
        return float(self._bounds(np.zeros(1), np.array([self._state.lost]))[1][0])

    @property
    def nbytes(self) -> int:
        """Memory held by the sketch's arrays, in bytes."""
        return sum(array.nbytes for array in self._entries) + self._history.nbytes

    def to_bytes(self) -> bytes:
        """Stored form; its fields are those of ``_Stored``."""
        used = self._used()
        arrays = (pack_array(array) for array in (self._history, used.keys, used.weights, used.missed))
        payload = _Stored(self.settings, self.total, int(self._random[0]), self._state, *arrays)
        return seal(self.kind, self.format_version, payload)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what ``to_bytes`` wrote."""
        with reading(cls.kind):
            stored = msgspec.convert(unseal(cls.kind, cls.format_version, data), _Stored)
            stored.settings.check()
            history, keys = (unpack_array(array, np.int64) for array in (stored.history, stored.keys))
            weights, missed = (unpack_array(array, np.float64) for array in (stored.weights, stored.missed))
            entries = _Entries(*new_table(0), keys, weights, missed)
            _check(stored, history, entries)
            return cls._holding(
                stored.settings, stored.total, stored.random, stored.state, history, entries, np.arange(len(keys))
            )

    @classmethod
    def _holding(
        cls,
        settings: Settings,
        total: int,
        random: int,
        state: _State,
        history: NDArray[np.int64],
        entries: _Entries,
        kept: NDArray[np.intp],
    ) -> Self:
        """Sketch with the given contents."""
        sketch = cls(**msgspec.structs.asdict(settings), seed=random)
        sketch.total, sketch._state, sketch._history = total, state, history
        sketch._put(entries, kept)
        return sketch

    def _used(self) -> _Entries:
        """The entries in use."""
        entries, used = self._entries, slice(self._size)
        return entries._replace(keys=entries.keys[used], weights=entries.weights[used], missed=entries.missed[used])

    def _put(self, entries: _Entries, kept: NDArray[np.intp]) -> None:
        """Hold some of the given entries, in their order, in arrays as long as the hard boundary says."""
        kept = np.sort(kept)
        self._entries, self._size = _new_entries(self._state.boundary), len(kept)
        self._entries.keys[: self._size] = entries.keys[kept]
        self._entries.weights[: self._size] = entries.weights[kept]
        self._entries.missed[: self._size] = entries.missed[kept]
        fill(self._entries.table_keys, self._entries.table_values, entries.keys[kept])


def _check(stored: _Stored, history: NDArray[np.int64], entries: _Entries) -> None:
    """Refuse contents that no history leads to."""
    kind, settings, state = DriftHistogram.kind, stored.settings, stored.state
    keys, weights, missed = entries.keys, entries.weights, entries.missed
    require(kind, len(keys) == len(weights) == len(missed), "its arrays have different lengths")
    require(kind, len(np.unique(keys)) == len(keys), "a key has two entries")
    raised, odd = divmod(state.boundary - settings.hard_boundary, settings.soft_boundary)
    require(kind, raised >= 0 and odd == 0, f"a boundary of {state.boundary} cannot be reached")
    require(kind, len(keys) < state.boundary, f"{len(keys)} keys within a boundary of {state.boundary}")
    require(kind, len(history) <= settings.take, f"{len(history)} former top keys instead of {settings.take}")
    require(kind, 1 <= state.scale < math.inf and 0 <= state.drift < math.inf, "scale or drift is no possible number")
    require(
        kind, bool(np.all(weights > 0) and np.all((missed >= 0) & (missed <= state.lost))), "a weight is impossible"
    )
    require(kind, weights.sum() <= state.norm * (1 + 1e-9) < math.inf, "its weights exceed what was taken in")
    require(kind, (stored.total > 0) == (state.norm > 0), "rows were seen but none taken in, or the other way round")
