"""Key grouping: each key goes to the worker of its hash."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.kernels import kernel
from equipoise.split.base import Splitter, hash_starts, hashed_workers, worker_of


@kernel(nogil=True)
def _route(keys: Any, start: int, loads: Any, targets: Any) -> None:
    for i in range(len(keys)):
        worker = worker_of(keys[i], start, len(loads))
        targets[i] = worker
        loads[worker] += 1


class KeyGrouping(Splitter):
    """Key grouping (KG): hash partitioning, the default of stream engines.

    Guarantees
    ----------
    - All messages of a key go to one worker, at every source of the same seed.
    - A route depends only on the key and the seed.

    Differs from the paper
    ----------------------
    The hash is XXH64; the paper's simulator uses Murmur.

    Parameters
    ----------
    workers
        W, number of workers.
    seed
        Seed of the hash function.

    References
    ----------
    Nasir et al., "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams", section 2.

    Examples
    --------
    >>> KeyGrouping(10, seed=1).route([7, 8, 7]).tolist()
    [0, 4, 0]
    """

    name = "key-grouping"

    def __init__(self, workers: int, *, seed: int = 0) -> None:
        super().__init__(workers, seed=seed)
        self._starts = hash_starts(self.seed, 1)

    def _route(self, keys: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        _route(keys, self._starts[0], self.loads, targets)

    def candidates(self, key: int) -> NDArray[np.int32]:
        """Return the worker of the key, alone."""
        return hashed_workers(key, self._starts, self.workers)
