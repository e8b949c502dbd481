"""DR's counter histogram: samples ever fewer rows, drops rare keys, and forgets the past when the hot keys change."""

import math
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.fingerprint_table import EMPTY, fill, find, get, new_table
from equipoise.framing import pack_array, reading, seal, unpack_array, unseal
from equipoise.hashing import FINGERPRINT_SEED
from equipoise.kernels import kernel
from equipoise.sketch.base import Sketch
from equipoise.sketch.drift_state import (
    KIND,
    Entries,
    HistogramSettings,
    SampledWeight,
    State,
    Stored,
    check_stored,
    new_entries,
)
from equipoise.sketch.histogram import Histogram
from equipoise.sketch.sampling import SamplingError, mixed, uniform
from equipoise.sketch.sketch_merge import Union, bounded_histogram, by_decreasing

_CHANCE = 1e-3  # probability that two samples of one distribution are taken for samples of two


def _heaviest_first(weights: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the order of decreasing weight, ties in order of arrival."""
    return np.argsort(-weights, kind="stable")


def _most_lost(entries: Entries, dropped: NDArray[np.intp]) -> float:
    """Return the largest weight that any key loses, earlier cuts included, if these entries are dropped."""
    return float((entries.weights[dropped] + entries.missed[dropped]).max(initial=0.0))


@kernel
def _sample(
    entries: Any,
    fingerprints: Any,
    weights: Any,
    start: int,
    size: int,
    norm: float,
    squares: float,
    scale: float,
    lost: float,
    random: Any,
) -> tuple[int, int, float, float]:
    """Sample fingerprints from ``start`` until the entries are full; return next position, size, norm and squares."""
    stride = 0 if len(weights) == 1 else 1
    for i in range(start, len(fingerprints)):
        weight = float(weights[i * stride])
        if weight < scale:
            if uniform(random) * scale >= weight:
                continue
            weight = scale
        norm += weight
        squares += weight * weight
        slot = find(entries.table_keys, entries.table_values, fingerprints[i])
        entry = entries.table_values[slot]
        if entry == EMPTY:
            entry = size
            size += 1
            entries.table_keys[slot] = fingerprints[i]
            entries.table_values[slot] = entry
            entries.keys[entry] = fingerprints[i]
            entries.missed[entry] = lost
        entries.recent[entry] += weight
        if size == len(entries.keys):
            return i + 1, size, norm, squares
    return len(fingerprints), size, norm, squares


@kernel
def _departure(entries: Any, weights: Any, rank: Any, last_top: Any, take: int, smallest: float) -> float:
    """Return how far the former top keys have fallen below the present top, in ranks plus weight."""
    distance = 0.0
    for key in last_top:
        entry = get(entries.table_keys, entries.table_values, key)
        if entry == EMPTY:
            distance += (len(rank) - take) + smallest
        elif rank[entry] >= take:
            distance += (rank[entry] - take) + (smallest - weights[entry])
    return distance


def _have_shifted(used: Entries, past: SampledWeight, recent: SampledWeight, take: int, boundary: float) -> bool:
    """Return whether more than a share of ``boundary`` of the weight has left the former top keys, beyond chance.

    This is the largest distance, over the first 1 to ``take`` keys by weight until the last boundary, between their
    share of the weight until then and their share since: the Kolmogorov-Smirnov distance in one direction. By chance,
    two samples of one distribution are further apart with a probability of ``_CHANCE``. A key may be among the first by
    luck, so its former weight counts less a standard deviation.
    """
    if past.norm == 0:
        return False
    first = _heaviest_first(used.past)[:take]
    former = used.past[first]
    sure = np.maximum(former - np.sqrt(former * past.squares / past.norm), 0)
    distance = np.cumsum(sure / past.norm - used.recent[first] / recent.norm).max()
    variance = past.squares / past.norm**2 + recent.squares / recent.norm**2
    return bool(distance > max(boundary, math.sqrt(-math.log(_CHANCE) / 2 * variance)))


class DriftHistogram(Sketch):
    """Find hot keys by sampling at a falling rate, with room that grows while the hot keys change.

    When the number of tracked keys reaches the hard boundary, the sampling rate is lowered, and the top keys are
    compared with the top keys at the boundary before. If many have left the top, keys are drifting: nothing is
    dropped, and the boundary is raised. Otherwise the lightest keys are dropped, and after enough boundaries without
    drift the boundary is lowered again.

    If more than ``shift_boundary`` of the weight has left the top keys since the last boundary, all rows before it are
    forgotten, and sampling begins again with all rows. So the sketch describes all rows of a steady stream, and the
    rows since the last change of a stream that drifts.

    Guarantees
    ----------
    - ``total`` is the weight since the past was last forgotten, the most recent weight; all that follows is about it.
    - Until sampling backs off, ``weight <= true <= weight + missed``, where ``missed`` is at most the sum of the
      largest weights dropped by the cuts before the key came in; a key not tracked has at most the largest
      ``weight + missed`` ever dropped.
    - Later, the same holds for the sampled weights, and the bounds add what Freedman's inequality says about sampling:
      for any single key, they fail with a probability of at most ``FAILURE_PROBABILITY``, 1e-9.
    - Both hold after ``merge``, if the two inputs were sampled independently: give parallel sketches different
      seeds, or inputs that differ before their first boundary (the keys up to it are mixed into the seed).
    - Stated shares add up to at most 1; weight lost to cuts counts as weight of the rest.
    - Without drift there are fewer than ``hard_boundary + soft_boundary`` keys. While keys drift, memory grows, until
      the past is forgotten.

    Differs from the paper
    ----------------------
    The paper only names the method. This follows its code, with these corrections and choices.

    - The past is forgotten when the top keys shift. The code keeps all weight: on a stream whose hot keys change, new
      ones have to outweigh all that was hot before. ``shift_boundary=1`` never forgets, as the code.
    - The hard boundary starts at ``hard_boundary`` and never falls below it; the code starts at 0 and can return there.
    - Drift boundary and history weight are real numbers; the code reads them as integers, that is as 0. The drift
      history starts at the boundary, not at 0.
    - The drift formula is the code's. It adds ranks to weights, so that one rank counts as much as one row. On
      long streams the weights outgrow the ranks, and drift tends to the mean relative shortfall of the
      top keys that left, which has no unit. Parameters for which its denominator could be 0 or negative
      (``hard_boundary < 2 * take``) are refused.
    - Rows have weights. A row heavier than the present scale is always sampled, with its own weight.
    - ``merge`` adds the weights of both sides, cuts if there are too many keys, and takes the merged top keys as the
      top keys of the last boundary. Estimates are normalised to the rows seen after adding, not before: the weights
      stay a martingale, so the bounds hold. Until sampling backs off, both are the same.
    - There is no reset; make a new sketch instead.
    - The paper and its code have no bounds.

    Parameters
    ----------
    take
        Number of top keys that are compared between boundaries (TAKE).
    soft_boundary
        Step by which the hard boundary is raised or lowered (SOFT).
    hard_boundary
        Number of tracked keys at the first boundary (HB); ``None``: equal to ``soft_boundary``.
    compaction
        A cut leaves this many keys fewer than the hard boundary (COMPACTION); ``None``: a quarter of
        ``hard_boundary``.
    backoff
        Factor by which each boundary lowers the sampling rate (BACKOFF).
    drift_boundary
        Drift above which nothing is dropped (DRIFT_BOUNDARY).
    drift_history_weight
        Weight of the past in the smoothed drift (DRIFT_HISTORY_WEIGHT).
    solidarity
        Boundaries without drift until the hard boundary is lowered (SOLIDARITY).
    shift_boundary
        Share of the weight that must have left the top keys, beyond chance, for the past to be forgotten; 1: never.
        The rows between two boundaries are compared with all before, and are about a part of ``backoff - 1`` of all:
        after a long steady time, that is how long it takes to notice a change.
    seed
        Seed of the sampling.
    hash_seed
        Seed of the counted fingerprints.

    References
    ----------
    Zvara, Szabó, Lóránt, Benczúr: System-aware dynamic partitioning for batch and streaming workloads, 2021. The
    method is described only by its code, zzvara/dynamic-repartitioning, class Conceptier.
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

    kind = KIND
    format_version = 2

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
        shift_boundary: float = 0.05,
        seed: int = 0,
        hash_seed: int = FINGERPRINT_SEED,
    ) -> None:
        seed = whole("seed", seed, 0)
        if seed >= 2**64:
            raise InvalidArgumentError(f"seed must be at most 2**64 - 1, got {seed}")
        self.settings = HistogramSettings.checked(
            take=take,
            soft_boundary=soft_boundary,
            hard_boundary=hard_boundary,
            compaction=compaction,
            backoff=backoff,
            drift_boundary=drift_boundary,
            drift_history_weight=drift_history_weight,
            solidarity=solidarity,
            shift_boundary=shift_boundary,
            hash_seed=hash_seed,
        )
        self.hash_seed = self.settings.hash_seed
        self.total = 0
        self._random = np.array([seed], dtype=np.uint64)  # state of splitmix64
        self._state = State(self.settings.hard_boundary, self.settings.drift_boundary)
        self._last_top = np.empty(0, dtype=np.int64)  # top keys of the last boundary
        self._entries = new_entries(self.settings.hard_boundary)
        self._size = 0

    def _feed(self, keys: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        done = 0
        while done < len(keys):
            state, start = self._state, done
            done, self._size, state.recent.norm, state.recent.squares = _sample(
                self._entries,
                keys,
                weights,
                start,
                self._size,
                state.recent.norm,
                state.recent.squares,
                state.scale,
                state.lost,
                self._random,
            )
            self.total += int(weights[start:done].sum()) if len(weights) == len(keys) else done - start
            state.highest = max(state.highest, state.scale)
            if self._size == state.boundary:
                self._meet_boundary()

    def _meet_boundary(self) -> None:
        """Forget the past if the top keys have changed; else make room if they are drifting; else drop light keys."""
        settings, state, used = self.settings, self._state, self._used()
        self._random ^= mixed(np.bitwise_xor.reduce(used.keys.view(np.uint64)))
        state.boundaries += 1
        if _have_shifted(used, state.past, state.recent, settings.take, settings.shift_boundary):
            state, used = self._forget(used)
            keep = state.boundary - settings.compaction
        elif len(self._last_top) == 0 or self._is_drifting(used):
            state.boundary += settings.soft_boundary
            state.quiet = 0
            keep = len(used.keys)
        else:
            state.quiet += 1
            if state.quiet >= settings.solidarity and state.boundary > settings.hard_boundary:
                state.boundary -= settings.soft_boundary
                state.quiet = 0
            keep = state.boundary - settings.compaction
        order = _heaviest_first(used.weights)
        state.scale *= settings.backoff
        state.lost = max(state.lost, _most_lost(used, order[keep:]))
        state.past_total, state.past, state.recent = self.total, state.seen, SampledWeight()
        self._last_top = used.keys[order[: settings.take]]
        self._put(used._replace(past=used.weights, recent=np.zeros(len(order))), order[:keep])

    def _forget(self, used: Entries) -> tuple[State, Entries]:
        """Begin anew, as if the first row had come after the last boundary; no key has been dropped since."""
        settings, state = self.settings, self._state
        self.total -= state.past_total
        self._state = State(
            settings.hard_boundary,
            settings.drift_boundary,
            highest=state.scale,
            boundaries=state.boundaries,
            recent=state.recent,
        )
        remembered = used.only(used.recent > 0)
        remembered.past[:] = remembered.missed[:] = 0
        return self._state, remembered

    def _is_drifting(self, used: Entries) -> bool:
        """Update the smoothed drift and return whether it exceeds its boundary."""
        take, width, weights = self.settings.take, len(used.keys), used.weights
        order = _heaviest_first(weights)
        smallest = float(weights[order[take - 1]])
        rank = np.empty(width, dtype=np.int64)
        rank[order] = np.arange(width)
        farthest = take * ((smallest - take + width) + (smallest - 2 * take + width)) / 2
        drift = _departure(self._entries, weights, rank, self._last_top, take, smallest) / farthest
        past = self.settings.drift_history_weight
        self._state.drift = self._state.drift * past + drift * (1 - past)
        return self._state.drift > self.settings.drift_boundary

    def _merged(self, other: Self) -> Self:
        """Merge; a key that is missing on one side may have been lost there to cuts."""
        if self.settings != other.settings:
            raise MismatchError(
                f"cannot merge {self.settings} with {other.settings}; make both with the same parameters"
            )
        mine, theirs = self._state, other._state
        entries = self._united(other)
        order = _heaviest_first(entries.weights)
        boundary = max(mine.boundary, theirs.boundary)
        keep = boundary - self.settings.compaction if len(order) >= boundary else len(order)
        state = State(
            boundary=boundary,
            drift=max(mine.drift, theirs.drift),
            scale=max(mine.scale, theirs.scale),
            highest=max(mine.highest, theirs.highest),
            lost=max(mine.lost + theirs.lost, _most_lost(entries, order[keep:])),
            quiet=min(mine.quiet, theirs.quiet),
            boundaries=mine.boundaries + theirs.boundaries,
            past_total=self.total + other.total,
            past=mine.seen + theirs.seen,
        )
        met_boundary = len(self._last_top) + len(other._last_top) > 0
        last_top = entries.keys[order[: self.settings.take if met_boundary else 0]]
        random = mixed((self._random + other._random)[0])
        return self._holding(self.settings, self.total + other.total, random, state, last_top, entries, order[:keep])

    def _united(self, other: Self) -> Entries:
        """Return the sums of the entries of both, by increasing fingerprint; all weight is of the past."""
        mine, theirs = self._used(), other._used()
        union = Union(mine.keys, theirs.keys)
        return mine._replace(
            keys=union.keys,
            past=union.sum(mine.weights, theirs.weights),
            recent=np.zeros(len(union.keys)),
            missed=union.sum(mine.missed, theirs.missed, (self._state.lost, other._state.lost)),
        )

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return all tracked keys and their sampled weights, scaled to ``total``, by decreasing weight."""
        used = self._used()
        counts = self._estimates(used)
        order = by_decreasing(counts, used.keys)
        return used.keys[order], counts[order]

    def histogram(self, k: int | None = None) -> Histogram:
        """Return the ``k`` keys of largest sampled weight, as shares of all sampled weight."""
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

    def _estimates(self, used: Entries) -> NDArray[np.float64]:
        """Return sampled weights, normalised to the rows seen."""
        return used.weights * (self.total / self._state.seen.norm if self.total else 1.0)

    def _bounds(
        self, weights: NDArray[np.float64], missed: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return bounds of true counts from sampled weights and from weights that may have been lost."""
        error = SamplingError.of(self._state.highest, self._state.boundaries)
        return error.at_least(weights), np.minimum(error.at_most(weights + missed), float(self.total))

    def _bounds_of(self, key: int) -> tuple[float, float]:
        at = get(self._entries.table_keys, self._entries.table_values, key)
        if at == EMPTY:
            return 0.0, self._untracked()
        entry = self._entries.only(slice(at, at + 1))
        lower, upper = self._bounds(entry.weights, entry.missed)
        return float(lower[0]), float(upper[0])

    def _untracked(self) -> float:
        """Upper bound of the true count of any key not tracked."""
        return float(self._bounds(np.zeros(1), np.array([self._state.lost]))[1][0])

    @property
    def nbytes(self) -> int:
        """Memory of the sketch's arrays, in bytes."""
        return sum(array.nbytes for array in self._entries) + self._last_top.nbytes

    def to_bytes(self) -> bytes:
        """Return the stored form; its fields are those of ``Stored``."""
        used = self._used()
        arrays = (pack_array(array) for array in (self._last_top, used.keys, used.past, used.recent, used.missed))
        payload = Stored(self.settings, self.total, int(self._random[0]), self._state, *arrays)
        return seal(self.kind, self.format_version, payload)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the stored form of ``to_bytes``."""
        with reading(cls.kind):
            stored = msgspec.convert(unseal(cls.kind, cls.format_version, data), Stored)
            HistogramSettings.checked(**msgspec.structs.asdict(stored.settings))
            last_top, keys = (unpack_array(array, np.int64) for array in (stored.last_top, stored.keys))
            weights = (unpack_array(array, np.float64) for array in (stored.past, stored.recent, stored.missed))
            entries = Entries(*new_table(0), keys, *weights)
            check_stored(stored, last_top, entries)
            return cls._holding(
                stored.settings, stored.total, stored.random, stored.state, last_top, entries, np.arange(len(keys))
            )

    @classmethod
    def _holding(
        cls,
        settings: HistogramSettings,
        total: int,
        random: int,
        state: State,
        last_top: NDArray[np.int64],
        entries: Entries,
        kept: NDArray[np.intp],
    ) -> Self:
        """Make a sketch with the given state and some of the given entries."""
        sketch = cls(**msgspec.structs.asdict(settings), seed=random)
        sketch.total, sketch._state, sketch._last_top = total, state, last_top
        sketch._put(entries, kept)
        return sketch

    def _used(self) -> Entries:
        """Return a copy of the entries in use."""
        return self._entries.only(np.arange(self._size))

    def _put(self, entries: Entries, kept: NDArray[np.intp]) -> None:
        """Replace the entries by some of the given ones, in arrays of the length of the hard boundary."""
        chosen = entries.only(np.sort(kept))
        self._entries, self._size = new_entries(self._state.boundary), len(kept)
        for mine, given in zip(self._entries[2:], chosen[2:], strict=True):
            mine[: self._size] = given
        fill(self._entries.table_keys, self._entries.table_values, chosen.keys)
