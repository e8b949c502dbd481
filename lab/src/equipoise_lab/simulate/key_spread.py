"""On how many workers the keys are: exact while there is room, then from a sample of the keys."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.fingerprint_table import EMPTY, find, get, new_table, put
from equipoise.hashing import hash_long
from equipoise.kernels import kernel

_SAMPLE_SEED = 77  # of the hash that samples keys; another than any that places them


@kernel(inline="always")
def _sampled(key: int, level: int) -> bool:
    return hash_long(key, _SAMPLE_SEED) & ((1 << level) - 1) == 0


@kernel
def _add(
    keys: Any, targets: Any, level: int, table: Any, rows: Any, names: Any, bits: Any, size: int, counts: Any
) -> tuple[int, int]:
    """Note the worker of each message until there is no room for a new key; returns how many, and the keys."""
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
    """Keep the keys of the next level only, in an emptied table; returns their number."""
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
    """Distinct keys at each worker and in all.

    Exact up to ``capacity`` keys. Beyond, only keys whose hash ends in ``level`` zero bits are followed, and the counts
    are scaled up: an adaptive sample, whose error is about 1 / sqrt(capacity / 2).

    Parameters
    ----------
    workers
        W, number of workers.
    capacity
        Largest number of keys that are followed.

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
        """Forget everything."""
        self._rows[:] = EMPTY
        self._counts[:] = 0
        self._size = 0
        self.level = 0

    def add(self, keys: NDArray[np.int64], targets: NDArray[Any]) -> None:
        """Note where messages went."""
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
        """Distinct keys at each worker."""
        return self._counts << self.level

    def keys(self) -> int:
        """Distinct keys at all workers together."""
        return self._size << self.level

    def replicas(self) -> int:
        """Distinct pairs of key and worker."""
        return int(self.keys_at_workers().sum())

    def workers_of(self, key: int) -> int:
        """Number of workers that a key, if it is followed, has been at."""
        row = int(get(self._table, self._rows, key))
        return 0 if row == EMPTY else sum(int(word).bit_count() for word in self._bits[row])
