"""Number of workers of each key and of keys at each worker: exact up to a capacity, then from a sample of the keys."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.fingerprint_table import EMPTY, find, get, new_table, put
from equipoise.hashing import hash_long
from equipoise.kernels import kernel

_SAMPLE_SEED = 77  # of the hash that samples keys; differs from those that place them


@kernel(inline="always")
def _sampled(key: int, level: int) -> bool:
    return hash_long(key, _SAMPLE_SEED) & ((1 << level) - 1) == 0


@kernel
def _add(
    keys: Any, targets: Any, level: int, table: Any, rows: Any, names: Any, bits: Any, size: int, counts: Any
) -> tuple[int, int]:
    """Record the worker of each message until the table is full; return the numbers of messages and of keys."""
    for i in range(len(keys)):
        if level > 0 and not _sampled(keys[i], level):
            continue
        slot = find(table, rows, keys[i])
        row = int(rows[slot])
        if row == EMPTY:
            if size == len(names):
                return i, size
            row = size
            size += 1
            table[slot] = keys[i]
            rows[slot] = row
            names[row] = keys[i]
            bits[row] = 0
        word, bit = targets[i] >> 6, np.uint64(1) << np.uint64(targets[i] & 63)
        if bits[row, word] & bit == 0:
            bits[row, word] |= bit
            counts[targets[i]] += 1
    return len(keys), size


@kernel
def _thin(level: int, table: Any, rows: Any, names: Any, bits: Any, size: int, counts: Any) -> int:
    """Keep only the keys of the next level, in an emptied table; return their number."""
    counts[:] = 0
    kept = 0
    for row in range(size):
        if not _sampled(names[row], level):
            continue
        names[kept] = names[row]
        bits[kept] = bits[row]
        put(table, rows, names[kept], kept)
        for worker in range(len(counts)):
            if bits[kept, worker >> 6] & (np.uint64(1) << np.uint64(worker & 63)) != 0:
                counts[worker] += 1
        kept += 1
    return kept


class KeySpread:
    """Count distinct keys at each worker and overall.

    Counts are exact up to ``capacity`` keys. Beyond, only keys whose hash ends in ``level`` zero bits are recorded, and
    the counts are scaled up: an adaptive sample with an error of about 1 / sqrt(capacity / 2).

    Parameters
    ----------
    workers
        W, number of workers.
    capacity
        Largest number of recorded keys.

    Examples
    --------
    >>> spread = KeySpread(3)
    >>> spread.add(np.array([7, 7, 9]), np.array([0, 1, 1]))
    >>> spread.keys_at_workers().tolist(), spread.keys()
    ([1, 2, 0], 2)
    """

    def __init__(self, workers: int, capacity: int = 2**18) -> None:
        self._names = np.empty(capacity, dtype=np.int64)
        self._bits = np.zeros((capacity, (workers + 63) // 64), dtype=np.uint64)
        self._counts = np.zeros(workers, dtype=np.int64)
        self._table, self._rows = new_table(capacity)
        self.clear()

    def clear(self) -> None:
        """Remove all keys."""
        self._rows[:] = EMPTY
        self._counts[:] = 0
        self._size = 0
        self.level = 0

    def add(self, keys: NDArray[np.int64], targets: NDArray[Any]) -> None:
        """Record the workers of messages."""
        state = (self._table, self._rows, self._names, self._bits)
        done = 0
        while True:
            noted, self._size = _add(keys[done:], targets[done:], self.level, *state, self._size, self._counts)
            done += noted
            if done == len(keys):
                return
            self.level += 1
            self._rows[:] = EMPTY
            self._size = _thin(self.level, *state, self._size, self._counts)

    def keys_at_workers(self) -> NDArray[np.int64]:
        """Return the number of distinct keys at each worker."""
        return self._counts << self.level

    def keys(self) -> int:
        """Return the number of distinct keys at all workers together."""
        return self._size << self.level

    def replicas(self) -> int:
        """Return the number of distinct pairs of key and worker."""
        return int(self.keys_at_workers().sum())

    def workers_of(self, key: int) -> int:
        """Return the number of workers of a key, 0 if it is not recorded."""
        row = int(get(self._table, self._rows, key))
        return 0 if row == EMPTY else sum(int(word).bit_count() for word in self._bits[row])
