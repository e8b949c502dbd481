"""Base of D-Choices and W-Choices: hot keys, found by a sketch, get more than two choices."""

from abc import abstractmethod
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.fingerprint_table import EMPTY, fill, find, get, new_table
from equipoise.kernels import kernel
from equipoise.sketch.sketch_merge import by_decreasing
from equipoise.sketch.space_saving import SpaceSaving
from equipoise.split.base import Splitter, hash_starts, hashed_workers
from equipoise.split.hot_rows import SCANNED, HotRows, least_of_few, least_of_many
from equipoise.split.load_levels import arrange, new_levels, rise
from equipoise.split.partial_key import least_of_choices
from equipoise.split.tournament import grow, new_tree, play_again


class _Interval(NamedTuple):
    """Keys since the last refresh: first the hot keys, then the others in order of arrival."""

    table_keys: NDArray[np.int64]
    table_values: NDArray[np.int32]
    keys: NDArray[np.int64]
    counts: NDArray[np.int64]  # messages that the sketch has not counted yet


class Head(NamedTuple):
    """Choices of the hot keys: hot key i has the first ``choices`` of row ``slots[i]``.

    If ``choices`` is the number of workers, these are all workers, and the rows are not used.
    """

    choices: int
    slots: NDArray[np.int32]
    starts: NDArray[np.int64]  # of the hash functions
    rows: HotRows


def _new_interval(hot: NDArray[np.int64], length: int) -> _Interval:
    """Return an interval with room for the hot keys and for one key per message."""
    keys = np.empty(len(hot) + length, dtype=np.int64)
    keys[: len(hot)] = hot
    interval = _Interval(*new_table(len(keys)), keys, np.zeros(len(keys), dtype=np.int64))
    fill(interval.table_keys, interval.table_values, hot)
    return interval


@kernel
def _entries(interval: Any, keys: Any, out: Any) -> None:
    """Fill in the number of each key in the interval; ``EMPTY`` if it has none."""
    for i in range(len(keys)):
        out[i] = get(interval.table_keys, interval.table_values, keys[i])


@kernel(nogil=True)
def _route(
    keys: Any,
    counted: int,
    starts: Any,
    interval: Any,
    size: int,
    head: Any,
    loads: Any,
    tree: Any,
    levels: Any,
    targets: Any,
) -> int:
    """Route the hot keys to the least loaded of their choices, others to the less loaded of two.

    Messages are counted, except the first ``counted``. Return the number of keys of the interval.
    """
    hot = len(head.slots)
    everywhere, many = head.choices == len(loads), SCANNED < head.choices < len(loads)
    for i in range(len(keys)):
        slot = find(interval.table_keys, interval.table_values, keys[i])
        entry = int(interval.table_values[slot])
        if entry == EMPTY:
            entry = size
            size += 1
            interval.table_keys[slot] = keys[i]
            interval.table_values[slot] = entry
            interval.keys[entry] = keys[i]
        if i >= counted:
            interval.counts[entry] += 1
        if entry >= hot:
            worker = least_of_choices(keys[i], starts, loads)
        elif everywhere:
            worker = int(tree[1])
        elif many:
            row = head.slots[entry]
            worker = int(least_of_many(head.rows, row, keys[i], head.starts, head.choices, levels, loads))
        else:
            row = head.slots[entry]
            worker = int(least_of_few(head.rows, row, keys[i], head.starts, head.choices, loads))
        loads[worker] += 1
        if everywhere:
            play_again(tree, loads, worker)
        elif many:
            rise(levels, loads, worker)
        targets[i] = worker
    return size


class HotKeySplitter(Splitter):
    """Base of D-Choices and W-Choices: two choices for most keys, more for the hot keys.

    A key is hot if its share by SpaceSaving exceeds a threshold. The hot keys are updated on message 1, 2, 3, 5, 9 and
    so on, at intervals that double up to ``refresh``. That message is counted first, so that ``refresh=1`` is the
    algorithm as printed. Only keys with messages in the interval can become hot, since the share of any other key has
    fallen; so an update takes time in proportion to the interval and the hot keys, not to the workers.
    """

    def __init__(self, workers: int, *, threshold: float | None, capacity: int | None, refresh: int, seed: int) -> None:
        super().__init__(workers, seed=seed)
        if threshold is None:
            threshold = 1 / (5 * self.workers)
        self.threshold = at_least("threshold", threshold, 0)
        if not 0 < self.threshold <= 1:
            raise InvalidArgumentError(f"threshold is the share from which a key is hot, in (0, 1], got {threshold}")
        self.capacity = ceil(10 / self.threshold) if capacity is None else whole("capacity", capacity, 1)
        self.refresh = whole("refresh", refresh, 1)
        self._starts = hash_starts(self.seed, min(2, self.workers))
        self._sketch = SpaceSaving(self.capacity)
        self._seen = 0  # messages routed
        self._next_refresh = 0
        self._tree = new_tree(self.workers)
        self._levels = new_levels(self.workers)
        nobody = np.empty(0, dtype=np.int32)
        self._head = Head(0, nobody, nobody.astype(np.int64), HotRows.empty(0, 0, self.workers))
        self._size = 0
        self._interval = _new_interval(np.empty(0, dtype=np.int64), 1)

    def _route(self, keys: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        done = 0
        while done < len(keys):
            counted = 0
            if self._seen == self._next_refresh:
                counted = 1
                self._refresh(keys[done : done + 1])
            stop = min(len(keys), done + self._next_refresh - self._seen)
            now = slice(done, stop)
            self._size = _route(
                keys[now],
                counted,
                self._starts,
                self._interval,
                self._size,
                self._head,
                self.loads,
                self._tree,
                self._levels,
                targets[now],
            )
            self._seen += stop - done
            done = stop

    def _refresh(self, message: NDArray[np.int64]) -> None:
        """Count the messages since the last refresh and this one, find the hot keys, and choose their workers."""
        seen = self._interval.keys[: self._size]
        fresh = np.flatnonzero(self._interval.counts[: self._size])
        self._sketch.update_many(seen[fresh], self._interval.counts[fresh])
        self._sketch.update_many(message)
        known = get(self._interval.table_keys, self._interval.table_values, message[0]) != EMPTY
        keys = seen if known else np.concatenate([seen, message])
        counts = self._sketch.counts(keys)
        shares = counts / self._sketch.total
        above = np.flatnonzero(shares > self.threshold)
        above = above[by_decreasing(counts[above], keys[above])]
        hot = keys[above]
        before = np.empty(len(hot), dtype=np.int64)
        _entries(self._interval, hot, before)
        choices = self._head.choices
        self._head = self._widen(hot, shares[above], np.where(before < len(self._head.slots), before, EMPTY))
        if self._order_of(choices) != self._order_of(self._head.choices):
            self._put_in_order()
        length = min(self.refresh, max(1, self._seen))
        self._interval = _new_interval(hot, length)
        self._size = len(hot)
        self._next_refresh += length

    def _order_of(self, choices: int) -> int:
        """Return which order of the workers finds the least loaded of so many choices: 0 none, 1 levels, 2 tree."""
        return 2 if choices == self.workers else int(choices > SCANNED)

    def _put_in_order(self) -> None:
        """Bring the order of the workers in use up to date with their loads."""
        if self._order_of(self._head.choices) == 2:
            grow(self._tree, self.loads)
        elif self._order_of(self._head.choices) == 1:
            arrange(self._levels, self.loads)

    def probe(self, loads: ArrayLike, *, sources: int = 1, absolute: bool = False) -> None:
        """Replace the loads known to this source, as in :meth:`Splitter.probe`."""
        super().probe(loads, sources=sources, absolute=absolute)
        self._head.rows.forget_loads()
        self._put_in_order()

    @abstractmethod
    def _widen(self, keys: NDArray[np.int64], shares: NDArray[np.float64], before: NDArray[np.int64]) -> Head:
        """Return the choices of the hot keys.

        Parameters
        ----------
        keys, shares
            The hot keys by decreasing share.
        before
            Number of each key among the hot keys so far; ``EMPTY`` if it was not one of them.
        """

    def hot_keys(self) -> NDArray[np.int64]:
        """Return the hot keys as of the last refresh, sorted."""
        return np.sort(self._interval.keys[: len(self._head.slots)])

    def candidates(self, key: int) -> NDArray[np.int32]:
        """Return the choices of a hot key, or the two workers of another key, as of the last refresh."""
        entry = int(get(self._interval.table_keys, self._interval.table_values, key))
        if entry == EMPTY or entry >= len(self._head.slots):
            return hashed_workers(key, self._starts, self.workers)
        if self._head.choices == self.workers:
            return np.arange(self.workers, dtype=np.int32)
        return hashed_workers(key, self._head.starts[: self._head.choices], self.workers)

    @property
    def nbytes(self) -> int:
        """Memory of loads, orders of the workers, sketch, choices and the keys since the last refresh, in bytes."""
        arrays = (*self._interval, self._tree, *self._levels, self._head.slots, self._head.starts, *self._head.rows)
        return super().nbytes + self._sketch.nbytes + sum(array.nbytes for array in arrays)
