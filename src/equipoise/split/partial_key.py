"""Partial Key Grouping: each message goes to the least loaded of d workers chosen by hash functions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.kernels import kernel
from equipoise.split.base import Splitter, hash_starts, hashed_workers, worker_of


@kernel(nogil=True)
def _route_two(keys: Any, one: int, two: int, loads: Any, targets: Any) -> None:
    workers = len(loads)
    for i in range(len(keys)):
        first = worker_of(keys[i], one, workers)
        second = worker_of(keys[i], two, workers)
        worker = second if loads[second] < loads[first] else first
        loads[worker] += 1
        targets[i] = worker


@kernel(inline="always")
def least_of_choices(key: int, starts: Any, loads: Any) -> int:
    """Return the first of the least loaded workers among the hashed workers of a key."""
    best = worker_of(key, starts[0], len(loads))
    for choice in range(1, len(starts)):
        worker = worker_of(key, starts[choice], len(loads))
        if loads[worker] < loads[best]:
            best = worker
    return best


@kernel(nogil=True)
def _route_any(keys: Any, starts: Any, loads: Any, targets: Any) -> None:
    for i in range(len(keys)):
        worker = least_of_choices(keys[i], starts, loads)
        loads[worker] += 1
        targets[i] = worker


class PartialKey(Splitter):
    """Partial Key Grouping (PKG) and Greedy-d: the power of d choices for every message, with key splitting.

    One instance for all sources is PKG with global load (G). One instance for each source is PKG with local load
    estimation (L_S), or with calls of ``probe`` the probed variant (L_S P_T).

    Guarantees
    ----------
    - A key goes to at most ``choices`` workers, the same at every source of the same seed.
    - Each message goes to the least loaded of them, the first one on a tie.
    - While no key has a share above 1 / (5 W), the imbalance after m messages is O(m / W * ln ln W / ln d) with high
      probability (theorem 5.1). With a share above ``choices`` / W it grows with the stream.

    Differs from the paper
    ----------------------
    The hashes are XXH64. As in the paper, two of them may give the same worker, so a key has at most d workers; the
    grouping that newer releases of Storm call PKG draws two distinct ones. The number of choices is at most W.

    Parameters
    ----------
    workers
        W, number of workers.
    choices
        d, number of hash functions.
    seed
        Seed of the hash functions.

    References
    ----------
    Nasir et al., "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams", section 4.

    Examples
    --------
    >>> splitter = PartialKey(10, seed=1)
    >>> splitter.candidates(7).tolist()
    [0, 1]
    >>> splitter.route([7, 7, 7, 7]).tolist()
    [0, 1, 0, 1]
    """

    name = "partial-key"

    def __init__(self, workers: int, *, choices: int = 2, seed: int = 0) -> None:
        super().__init__(workers, seed=seed)
        self.choices = min(whole("choices", choices, 1), self.workers)
        self._starts = hash_starts(self.seed, self.choices)

    def _route(self, keys: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        if self.choices == 2:
            one, two = self._starts
            _route_two(keys, one, two, self.loads, targets)
        else:
            _route_any(keys, self._starts, self.loads, targets)

    def candidates(self, key: int) -> NDArray[np.int32]:
        """Return the hashed workers of the key, in order, repetitions included."""
        return hashed_workers(key, self._starts, self.workers)
