"""Off-Greedy: places all keys before the stream starts, by decreasing frequency."""

from heapq import heapify, heapreplace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.errors import InvalidArgumentError
from equipoise.fingerprint_table import EMPTY, get
from equipoise.hashing import as_fingerprints
from equipoise.kernels import kernel
from equipoise.split.base import Splitter
from equipoise.split.sticky import StickyKeys


@kernel
def _route_placed(keys: Any, known: Any, workers: Any, loads: Any, targets: Any) -> int:
    """Route keys to their workers until one has no worker; return the number of routed messages."""
    for i in range(len(keys)):
        worker = get(known, workers, keys[i])
        if worker == EMPTY:
            return i
        targets[i] = worker
        loads[worker] += 1
    return len(keys)


class OffGreedy(Splitter):
    """Off-Greedy: an oracle that knows the whole stream places keys, heaviest first, on the least loaded worker.

    This is Graham's LPT rule. Pass the stream to ``learn`` before the first ``route``. Keys that were not learned are
    placed at their first message, on the worker with the smallest planned load.

    Guarantees
    ----------
    - A key is never split.
    - If all keys were learned, the largest load is at most 4/3 - 1/(3 W) times that of the best placement.

    Differs from the paper
    ----------------------
    No known difference. Ties, which the paper does not mention, are broken by fingerprint among keys, and go to the
    first among workers.

    Parameters
    ----------
    workers
        W, number of workers.
    seed
        Not used; all splitters have this parameter.

    References
    ----------
    Nasir et al., "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams", section 6.2.
    Graham: Bounds on multiprocessing timing anomalies, SIAM Journal on Applied Mathematics 17, 1969.

    Examples
    --------
    >>> splitter = OffGreedy(2)
    >>> splitter.learn([5, 6, 7, 7])
    >>> splitter.route([5, 6, 7, 7]).tolist()
    [1, 1, 0, 0]
    """

    name = "off-greedy"
    coordinated = True
    memory = "keys"

    def __init__(self, workers: int, *, seed: int = 0) -> None:
        super().__init__(workers, seed=seed)
        self._keys = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)
        self._placed: StickyKeys | None = None
        self._lightest = [(0, worker) for worker in range(self.workers)]

    def learn(self, fingerprints: ArrayLike) -> None:
        """Count the keys of a part of the stream that will be routed."""
        if self._placed is not None:
            raise InvalidArgumentError(
                "off-greedy has already routed messages and cannot learn more; make a new splitter"
            )
        keys, counts = np.unique(as_fingerprints(fingerprints), return_counts=True)
        union, where = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        counts = np.concatenate([self._counts, counts])
        self._keys, self._counts = union, np.bincount(where, counts, len(union)).astype(np.int64)

    def _place(self, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int32]:
        """Place each key, in the given order, on the worker with the smallest planned load."""
        workers = np.empty(len(keys), dtype=np.int32)
        for i, count in enumerate(counts.tolist()):
            load, worker = self._lightest[0]
            workers[i] = worker
            heapreplace(self._lightest, (load + count, worker))
        return workers

    def _table(self) -> StickyKeys:
        """Return the routing table; make it on the first call."""
        if self._placed is None:
            self._placed = StickyKeys()
            heapify(self._lightest)
            order = np.lexsort((self._keys, -self._counts))
            keys = self._keys[order]
            self._placed.place(keys, self._place(keys, self._counts[order]))
            self._keys, self._counts = self._keys[:0], self._counts[:0]
        return self._placed

    def _route(self, keys: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        table, done = self._table(), 0
        while True:
            done += _route_placed(keys[done:], table.keys, table.workers, self.loads, targets[done:])
            if done == len(keys):
                return
            new = keys[done : done + 1]
            table.place(new, self._place(new, np.ones(1, dtype=np.int64)))

    def candidates(self, key: int) -> NDArray[np.int32]:
        """Return the worker of a placed key, or the worker with the smallest planned load."""
        worker = self._table().worker(key)
        return np.array([self._lightest[0][1] if worker == EMPTY else worker], dtype=np.int32)

    @property
    def nbytes(self) -> int:
        """Memory of loads, counts and routing table, in bytes."""
        table = 0 if self._placed is None else self._placed.nbytes
        return super().nbytes + self._keys.nbytes + self._counts.nbytes + table
