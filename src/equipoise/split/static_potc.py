"""Static PoTC: a key chooses between two workers at its first message and stays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.fingerprint_table import EMPTY, find
from equipoise.kernels import kernel
from equipoise.split.base import hash_starts, hashed_workers
from equipoise.split.partial_key import least_of_choices
from equipoise.split.sticky import StickyKeys, StickySplitter


@kernel
def _fill(keys: Any, starts: Any, known: Any, workers: Any, room: int, loads: Any, targets: Any) -> tuple[int, int]:
    """Route keys until the table is full; return the numbers of routed messages and of new keys."""
    placed = 0
    for i in range(len(keys)):
        slot = find(known, workers, keys[i])
        if workers[slot] == EMPTY:
            if placed == room:
                return i, placed
            known[slot] = keys[i]
            workers[slot] = least_of_choices(keys[i], starts, loads)
            placed += 1
        worker = workers[slot]
        loads[worker] += 1
        targets[i] = worker
    return len(keys), placed


class StaticPoTC(StickySplitter):
    """Static power of two choices (PoTC): a key stays at the less loaded of two workers at its first message.

    Guarantees
    ----------
    - A key is never split: all its messages go to one of its two workers.
    - That worker had fewer messages at the first message of the key; on a tie it is the first of the two.

    Differs from the paper
    ----------------------
    No known difference. There is no public code; this follows section 6.2.

    Parameters
    ----------
    workers
        W, number of workers.
    seed
        Seed of the two hash functions.

    References
    ----------
    Nasir et al., "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams", section 6.2.
    Azar, Broder, Karlin, Upfal: Balanced allocations, SIAM Journal on Computing 29, 1999.

    Examples
    --------
    >>> StaticPoTC(10, seed=1).route([7, 7, 8, 8]).tolist()
    [0, 0, 4, 4]
    """

    name = "static-potc"

    def __init__(self, workers: int, *, seed: int = 0) -> None:
        super().__init__(workers, seed=seed)
        self._starts = hash_starts(self.seed, min(2, self.workers))

    def _fill(self, keys: NDArray[np.int64], table: StickyKeys, targets: NDArray[np.int32]) -> tuple[int, int]:
        room = table.room - table.size
        return _fill(keys, self._starts, table.keys, table.workers, room, self.loads, targets)

    def _choices(self, key: int) -> NDArray[np.int32]:
        return hashed_workers(key, self._starts, self.workers)
