"""Shuffle grouping: round robin over the workers, whatever the key."""

import numpy as np
from numpy.typing import NDArray

from equipoise.split.base import Splitter, hash_starts, hashed_workers


class Shuffle(Splitter):
    """Shuffle grouping (SG): round robin over the workers, without regard to keys.

    Guarantees
    ----------
    - The loads that one source causes differ by at most one message.
    - A key may be at every worker: the best balance at the highest cost of aggregation.

    Differs from the paper
    ----------------------
    The first worker is derived from the seed; the papers do not specify it.

    Parameters
    ----------
    workers
        W, number of workers.
    seed
        Seed of the first worker.

    References
    ----------
    Nasir et al., "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams", section 2.

    Examples
    --------
    >>> Shuffle(3, seed=1).route([7, 7, 7, 7]).tolist()
    [0, 1, 2, 0]
    """

    name = "shuffle"

    def __init__(self, workers: int, *, seed: int = 0) -> None:
        super().__init__(workers, seed=seed)
        self._next = int(hashed_workers(0, hash_starts(self.seed, 1), self.workers)[0])

    def _route(self, keys: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        np.mod(np.arange(self._next, self._next + len(keys)), self.workers, out=targets, casting="same_kind")
        self._next = (self._next + len(keys)) % self.workers
        self.loads += np.bincount(targets, minlength=self.workers)

    def candidates(self, key: int) -> NDArray[np.int32]:  # noqa: ARG002 - the same for all keys
        """Return all workers."""
        return np.arange(self.workers, dtype=np.int32)
