"""Algorithm 1 of Prompt: a buffer that knows the frequencies of its keys, and their order, when the batch closes.

Keys are kept in order while tuples arrive, instead of being sorted when the batch closes. A key updates its place in
the order at most ``budget`` times in a batch: after ``f_step`` more tuples, or ``t_step`` more seconds. So the order is
that of slightly old counts (quasi-sorted), while the counts themselves are exact.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.fingerprint_table import EMPTY, find, new_table
from equipoise.hashing import as_fingerprints
from equipoise.kernels import kernel

_NONE = -1
_INSTANT = 1e-9  # tolerance in seconds for sums of floats


class _Keys(NamedTuple):
    """Data of each key, by its number in the order of arrival."""

    fingerprints: NDArray[np.int64]
    sizes: NDArray[np.int64]  # exact
    placed: NDArray[np.int64]  # size at the last update of the order
    budget: NDArray[np.int64]
    f_step: NDArray[np.float64]
    t_step: NDArray[np.float64]
    updated: NDArray[np.float64]  # time of the last update
    before: NDArray[np.int32]  # neighbours among the keys of the same placed size
    after: NDArray[np.int32]


def _new_keys(room: int) -> _Keys:
    fingerprints, sizes, placed, budget = np.zeros((4, room), dtype=np.int64)
    f_step, t_step, updated = np.zeros((3, room))
    before, after = np.full((2, room), _NONE, dtype=np.int32)
    return _Keys(fingerprints, sizes, placed, budget, f_step, t_step, updated, before, after)


@kernel
def _link(keys: Any, levels: Any, key: int) -> None:
    """Put a key first among those of its placed size."""
    level = min(keys.placed[key], len(levels) - 1)
    first = levels[level]
    keys.before[key], keys.after[key] = _NONE, first
    if first != _NONE:
        keys.before[first] = key
    levels[level] = key


@kernel
def _unlink(keys: Any, levels: Any, key: int) -> None:
    before, after = keys.before[key], keys.after[key]
    if after != _NONE:
        keys.before[after] = before
    if before != _NONE:
        keys.after[before] = after
    else:
        levels[min(keys.placed[key], len(levels) - 1)] = after


@kernel
def _add(
    fingerprints: Any,
    times: Any,
    sizes: Any,
    table_keys: Any,
    table_values: Any,
    keys: Any,
    levels: Any,
    numbers: Any,
    count: int,
    total: int,
    end: float,
    budget: int,
    first_step: float,
    expected: float,
) -> tuple[int, int, int]:
    """Add tuples until all are in or a key has no room; return tuples added, keys and total size."""
    for i in range(len(fingerprints)):
        slot = find(table_keys, table_values, fingerprints[i])
        key = int(table_values[slot])
        now, size = times[min(i, len(times) - 1)], sizes[min(i, len(sizes) - 1)]
        if key == EMPTY:
            if count == len(keys.sizes):
                return i, count, total
            key = count
            count += 1
            table_keys[slot], table_values[slot] = fingerprints[i], key
            total += size
            keys.fingerprints[key] = fingerprints[i]
            keys.sizes[key] = keys.placed[key] = size
            keys.budget[key] = budget
            keys.f_step[key] = first_step
            keys.t_step[key] = max(0.0, end - now) / budget
            keys.updated[key] = now
            _link(keys, levels, key)
        else:
            total += size
            keys.sizes[key] += size
            if keys.budget[key] > 0:
                by_size = keys.sizes[key] - keys.placed[key] >= keys.f_step[key]
                if by_size or now - keys.updated[key] >= keys.t_step[key] - _INSTANT:
                    _unlink(keys, levels, key)
                    keys.placed[key] = keys.sizes[key]
                    _link(keys, levels, key)
                    keys.budget[key] -= 1
                    keys.updated[key] = now
                    if by_size:
                        keys.f_step[key] = max(1.0, np.ceil(expected / budget * keys.sizes[key] / total))
                    elif keys.budget[key] > 0:
                        keys.t_step[key] = max(0.0, end - now) / keys.budget[key]
        numbers[i] = key
    return len(fingerprints), count, total


@kernel
def _descending(keys: Any, levels: Any, out: Any) -> None:
    """Keys by falling placed size; those beyond the last level are sorted among themselves."""
    at = 0
    key = levels[len(levels) - 1]
    while key != _NONE:
        out[at] = key
        at += 1
        key = keys.after[key]
    top = out[:at]
    top[:] = top[np.argsort(-keys.placed[top])]
    for level in range(len(levels) - 2, -1, -1):
        key = levels[level]
        while key != _NONE:
            out[at] = key
            at += 1
            key = keys.after[key]


@kernel
def _grouped(numbers: Any, starts: Any, out: Any) -> None:
    """Positions of tuples by the number of their key, in the order of arrival."""
    for i in range(len(numbers)):
        out[starts[numbers[i]]] = i
        starts[numbers[i]] += 1


@dataclass(frozen=True, eq=False)
class Batch:
    """A closed batch: its keys, quasi-sorted by falling size, each with its tuples.

    Parameters
    ----------
    keys
        Fingerprints.
    sizes
        Exact size of each key: its tuples, or their sizes added up.
    tuples
        Positions of all tuples in the order they came in, key by key.
    starts
        Tuples of key i are ``tuples[starts[i] : starts[i + 1]]``.
    tuple_sizes
        Size of each tuple by its position; ``None`` where all are 1.
    """

    keys: NDArray[np.int64]
    sizes: NDArray[np.int64]
    tuples: NDArray[np.int64]
    starts: NDArray[np.int64]
    tuple_sizes: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.tuples)

    @property
    def size(self) -> int:
        """N_C, size of all tuples."""
        return int(self.sizes.sum())


class Accumulator:
    """Buffers the tuples of one batch and keeps their keys in order.

    Guarantees
    ----------
    - Sizes are exact; every tuple is in exactly one key's list, in the order of arrival.
    - A key updates its place at most ``budget`` times, so the order takes at most ``budget + 1`` steps for each key.
    - The placed sizes fall along the order, and no placed size exceeds the true one.

    Differs from the paper
    ----------------------
    The balanced tree of counts is a list for each count, so that an update takes constant time; the order it gives is
    the same. Steps are met from below (``>=``): the printed equality with a real number would never hold. A key that
    has spent its budget is not updated any more, where the print divides by zero. The time of the last update, which
    the print never sets, is set on insertion and with every update.

    Parameters
    ----------
    start, end
        Batch interval in seconds.
    expected
        N_Est, expected size of the batch.
    expected_keys
        K_Avg, expected number of keys.
    budget
        Updates that a key is allowed.
    first_step
        f, the first frequency step; default ``expected / (expected_keys * budget)``.
    levels
        Number of placed sizes that are distinguished without sorting.

    References
    ----------
    Abdelhamid, Mahmood, Daghistani, Aref: Prompt, SIGMOD 2020, algorithm 1.

    Examples
    --------
    >>> buffer = Accumulator(0.0, 1.0, expected=6, expected_keys=2)
    >>> buffer.add([7, 9, 7, 7, 9, 5], 0.5)
    >>> batch = buffer.close()
    >>> batch.keys.tolist(), batch.sizes.tolist(), batch.tuples.tolist()
    ([7, 9, 5], [3, 2, 1], [0, 2, 3, 1, 4, 5])
    """

    def __init__(
        self,
        start: float,
        end: float,
        *,
        expected: float,
        expected_keys: float,
        budget: int = 4,
        first_step: float | None = None,
        levels: int = 1 << 16,
    ) -> None:
        if not start < end:
            raise InvalidArgumentError(
                f"the batch interval [{start}, {end}) is empty; its end must come after its start"
            )
        self.start, self.end = float(start), float(end)
        self.budget = whole("budget", budget, 1)
        self.expected = at_least("expected", expected, 0)
        guess = self.expected / max(1.0, at_least("expected_keys", expected_keys, 0)) / self.budget
        self.first_step = max(1.0, guess if first_step is None else at_least("first_step", first_step, 0))
        self._levels = np.full(whole("levels", levels, 2), _NONE, dtype=np.int32)
        self._keys = _new_keys(1024)
        self._table = new_table(1024)
        self._count = self._total = 0
        self._numbers: list[NDArray[np.int32]] = []
        self._sizes: list[NDArray[np.int64]] = []

    def add(self, fingerprints: ArrayLike, times: ArrayLike, sizes: ArrayLike | None = None) -> None:
        """Take in tuples in the order of their arrival.

        Parameters
        ----------
        fingerprints
            Keys.
        times
            Time of arrival of each, or of all.
        sizes
            Size of each; default 1.
        """
        keys = as_fingerprints(fingerprints)
        if not len(keys):
            return
        clock = np.atleast_1d(np.asarray(times, dtype=np.float64))
        weights = np.ones(1, dtype=np.int64) if sizes is None else np.asarray(sizes, dtype=np.int64).reshape(-1)
        for what, values in (("times", clock), ("sizes", weights)):
            if len(values) not in {1, len(keys)}:
                raise InvalidArgumentError(f"{len(keys)} tuples but {len(values)} {what}; give one for each")
        if weights.min() < 1:
            raise InvalidArgumentError(f"a tuple has the size {weights.min()}; sizes are at least 1")
        numbers = np.empty(len(keys), dtype=np.int32)
        done = 0
        while done < len(keys):
            taken, self._count, self._total = _add(
                keys[done:],
                clock if len(clock) == 1 else clock[done:],
                weights if len(weights) == 1 else weights[done:],
                *self._table,
                self._keys,
                self._levels,
                numbers[done:],
                self._count,
                self._total,
                self.end,
                self.budget,
                self.first_step,
                float(self.expected),
            )
            done += taken
            if done < len(keys):
                self._grow()
        self._numbers.append(numbers)
        self._sizes.append(np.broadcast_to(weights, len(keys)) if sizes is not None else weights[:0])

    @property
    def keys(self) -> int:
        """K, number of keys so far."""
        return self._count

    @property
    def size(self) -> int:
        """N_C, size of all tuples so far."""
        return self._total

    def close(self) -> Batch:
        """Return the batch; the accumulator must not be used afterwards."""
        count = self._count
        order = np.empty(count, dtype=np.int64)
        _descending(self._keys, self._levels, order)
        numbers = np.concatenate(self._numbers) if self._numbers else np.empty(0, dtype=np.int32)
        place = np.empty(count, dtype=np.int64)
        place[order] = np.arange(count)
        rank = place[numbers]
        starts = np.concatenate([[0], np.cumsum(np.bincount(rank, minlength=count))]).astype(np.int64)
        tuples = np.empty(len(numbers), dtype=np.int64)
        _grouped(rank, starts[:-1].copy(), tuples)
        weighted = any(len(each) for each in self._sizes)
        sizes = None
        if weighted:
            parts = zip(self._sizes, self._numbers, strict=True)
            sizes = np.concatenate([each if len(each) else np.ones(len(n), dtype=np.int64) for each, n in parts])
        return Batch(self._keys.fingerprints[order], self._keys.sizes[order], tuples, starts, sizes)

    def entry(self, fingerprint: int) -> tuple[int, int, int]:
        """Exact size, placed size and budget left of a key."""
        key = int(self._table[1][find(*self._table, fingerprint)])
        if key == EMPTY:
            raise InvalidArgumentError(f"key {fingerprint} is not in the batch")
        return int(self._keys.sizes[key]), int(self._keys.placed[key]), int(self._keys.budget[key])

    def _grow(self) -> None:
        wider = _new_keys(4 * len(self._keys.sizes))
        for name in _Keys._fields:
            getattr(wider, name)[: self._count] = getattr(self._keys, name)[: self._count]
        self._keys = wider
        self._table = new_table(len(wider.sizes))
        _refill(*self._table, wider.fingerprints, self._count)


@kernel
def _refill(table_keys: Any, table_values: Any, fingerprints: Any, count: int) -> None:
    for key in range(count):
        slot = find(table_keys, table_values, fingerprints[key])
        table_keys[slot], table_values[slot] = fingerprints[key], key


def post_sorted(fingerprints: ArrayLike, sizes: ArrayLike | None = None) -> Batch:
    """Build a batch by sorting at its end: the reference for the accumulator.

    Examples
    --------
    >>> post_sorted([7, 9, 7]).keys.tolist()
    [7, 9]
    """
    keys = as_fingerprints(fingerprints)
    weights = np.ones(len(keys), dtype=np.int64) if sizes is None else np.asarray(sizes, dtype=np.int64)
    distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    total = np.bincount(inverse, weights, len(distinct)).astype(np.int64)
    order = np.lexsort((first, -total))
    place = np.empty(len(distinct), dtype=np.int64)
    place[order] = np.arange(len(distinct))
    rank = place[inverse]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rank, minlength=len(distinct)))]).astype(np.int64)
    tuples = np.argsort(rank, kind="stable")
    return Batch(distinct[order], total[order], tuples, starts, None if sizes is None else weights)
