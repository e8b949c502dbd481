"""Base of D-Choices and W-Choices: hot keys, found by a sketch, get more than two choices."""

from abc import abstractmethod
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.fingerprint_table import EMPTY, fill, find, get, new_table
from equipoise.kernels import kernel
from equipoise.sketch.space_saving import SpaceSaving
from equipoise.split.base import Splitter, hash_starts, hashed_workers
from equipoise.split.partial_key import least_of_choices
from equipoise.split.tournament import grow, new_tree, play_again

_FEW = 16  # number of messages up to which a scan over all workers is cheaper than building the tree


class _Interval(NamedTuple):
    """Keys since the last refresh: first the hot keys, then the others in order of arrival."""

    table_keys: NDArray[np.int64]
    table_values: NDArray[np.int32]
    keys: NDArray[np.int64]
    counts: NDArray[np.int64]  # messages that the sketch has not counted yet


def _new_interval(hot: NDArray[np.int64], length: int) -> _Interval:
    """Return an interval with room for the hot keys and for one key per message."""
    keys = np.empty(len(hot) + length, dtype=np.int64)
    keys[: len(hot)] = hot
    interval = _Interval(*new_table(len(keys)), keys, np.zeros(len(keys), dtype=np.int64))
    fill(interval.table_keys, interval.table_values, hot)
    return interval


@kernel(nogil=True)
def _route(
    keys: Any,
    counted: int,
    starts: Any,
    interval: Any,
    size: int,
    choices: Any,
    hot: int,
    loads: Any,
    tree: Any,
    targets: Any,
) -> int:
    """Route the first ``hot`` keys to the least loaded of their row of choices, others to the less loaded of two.

    If there is a ``tree``, hot keys go to the least loaded of all workers, which is its root. Messages are counted,
    except the first ``counted``. Return the number of keys of the interval.
    """
    one_row = choices.shape[0] == 1
    everywhere = len(tree) > 0
    if everywhere:
        grow(tree, loads)
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
        else:
            row = 0 if one_row else entry
            worker = int(choices[row, 0])
            for choice in range(1, choices.shape[1]):
                if loads[choices[row, choice]] < loads[worker]:
                    worker = int(choices[row, choice])
        loads[worker] += 1
        if everywhere:
            play_again(tree, loads, worker)
        targets[i] = worker
    return size


class HotKeySplitter(Splitter):
    """Base of D-Choices and W-Choices: two choices for most keys, more for the hot keys.

    A key is hot if its share by SpaceSaving exceeds a threshold. The hot keys are updated on message 1, 2, 3, 5, 9 and
    so on, at intervals that double up to ``refresh``. That message is counted first, so that ``refresh=1`` is the
    algorithm as printed.
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
        self._begin(np.empty(0, dtype=np.int64), np.zeros((1, 1), dtype=np.int32), 1)

    def _begin(self, hot: NDArray[np.int64], choices: NDArray[np.int32], length: int) -> None:
        """Start an interval of ``length`` messages with these hot keys."""
        self._choices = choices
        self._hot = self._size = len(hot)
        self._interval = _new_interval(hot, length)

    def _route(self, keys: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        done = 0
        while done < len(keys):
            counted = 0
            if self._seen == self._next_refresh:
                counted = 1
                self._refresh(keys[done : done + 1])
            stop = min(len(keys), done + self._next_refresh - self._seen)
            now = slice(done, stop)
            # building the tree costs as much as scanning all workers for a few messages
            everywhere = self._choices.shape == (1, self.workers) and stop - done > _FEW
            self._size = _route(
                keys[now],
                counted,
                self._starts,
                self._interval,
                self._size,
                self._choices,
                self._hot,
                self.loads,
                self._tree if everywhere else self._tree[:0],
                targets[now],
            )
            self._seen += stop - done
            done = stop

    def _refresh(self, message: NDArray[np.int64]) -> None:
        """Count the messages since the last refresh and this one, find the hot keys, and choose their workers."""
        fresh = np.flatnonzero(self._interval.counts[: self._size])
        self._sketch.update_many(self._interval.keys[fresh], self._interval.counts[fresh])
        self._sketch.update_many(message)
        keys, counts = self._sketch.entries()
        shares = counts / self._sketch.total
        hot = slice(int(np.searchsorted(-shares, -self.threshold, side="left")))
        length = min(self.refresh, max(1, self._seen))
        self._begin(keys[hot], self._widen(keys[hot], shares[hot]), length)
        self._next_refresh += length

    @abstractmethod
    def _widen(self, keys: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the workers of the hot keys, given by decreasing share: a row for each, or one row for all."""

    def hot_keys(self) -> NDArray[np.int64]:
        """Return the hot keys as of the last refresh, sorted."""
        return np.sort(self._interval.keys[: self._hot])

    def candidates(self, key: int) -> NDArray[np.int32]:
        """Return the choices of a hot key, or the two workers of another key, as of the last refresh."""
        entry = int(get(self._interval.table_keys, self._interval.table_values, key))
        if entry == EMPTY or entry >= self._hot:
            return hashed_workers(key, self._starts, self.workers)
        return np.array(self._choices[0 if len(self._choices) == 1 else entry])

    @property
    def nbytes(self) -> int:
        """Memory of loads, tournament tree, sketch and the keys since the last refresh, in bytes."""
        interval = sum(array.nbytes for array in self._interval)
        return super().nbytes + self._sketch.nbytes + self._choices.nbytes + self._tree.nbytes + interval
