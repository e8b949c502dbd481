"""On-Greedy: all messages of a key go to the worker that was least loaded at its first message."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.fingerprint_table import EMPTY, find
from equipoise.kernels import kernel
from equipoise.split.base import least_loaded
from equipoise.split.sticky import StickyKeys, StickySplitter


@kernel
def _fill(keys: Any, known: Any, workers: Any, room: int, loads: Any, targets: Any) -> tuple[int, int]:
    """Route keys until the table is full; return the numbers of routed messages and of new keys."""
    placed = 0
    for i in range(len(keys)):
        slot = find(known, workers, keys[i])
        if workers[slot] == EMPTY:
            if placed == room:
                return i, placed
            known[slot] = keys[i]
            workers[slot] = least_loaded(loads)
            placed += 1
        worker = workers[slot]
        loads[worker] += 1
        targets[i] = worker
    return len(keys), placed


class OnGreedy(StickySplitter):
    """On-Greedy: a key stays at the worker that was least loaded of all at its first message.

    Guarantees
    ----------
    - A key is never split.
    - Its worker is the one with the fewest messages at the first message of the key, the first one on a tie.

    Differs from the paper
    ----------------------
    No known difference. There is no public code; this follows section 6.2.

    Parameters
    ----------
    workers
        W, number of workers.
    seed
        Not used; all splitters have this parameter.

    References
    ----------
    Nasir et al., "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams", section 6.2.

    Examples
    --------
    >>> OnGreedy(3).route([7, 7, 8, 9, 8]).tolist()
    [0, 0, 1, 2, 1]
    """

    name = "on-greedy"

    def _fill(self, keys: NDArray[np.int64], table: StickyKeys, targets: NDArray[np.int32]) -> tuple[int, int]:
        return _fill(keys, table.keys, table.workers, table.room - table.size, self.loads, targets)

    def _choices(self, key: int) -> NDArray[np.int32]:  # noqa: ARG002 - the same for all keys
        return np.arange(self.workers, dtype=np.int32)
