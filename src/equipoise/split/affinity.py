"""Affinity (cAM): during a window, a key stays at its first worker."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.fingerprint_table import EMPTY, find
from equipoise.kernels import kernel
from equipoise.split.base import hash_starts, hashed_workers, worker_of
from equipoise.split.sticky import StickyKeys, StickySplitter


@kernel(inline="always")
def _choose(key: int, starts: Any, loads: Any, ties_last: bool) -> int:
    best = worker_of(key, starts[0], len(loads))
    for choice in range(1, len(starts)):
        worker = worker_of(key, starts[choice], len(loads))
        if loads[worker] < loads[best] or (ties_last and loads[worker] == loads[best]):
            best = worker
    return best


@kernel
def _fill(
    keys: Any,
    starts: Any,
    known: Any,
    workers: Any,
    room: int,
    ties_last: bool,
    as_coded: bool,
    loads: Any,
    targets: Any,
) -> tuple[int, int]:
    """Route keys until the table is full; return the numbers of routed messages and of new keys."""
    placed = 0
    for i in range(len(keys)):
        slot = find(known, workers, keys[i])
        worker = int(workers[slot])
        if worker == EMPTY:
            if placed == room:
                return i, placed
            worker = _choose(keys[i], starts, loads, ties_last)
            if not as_coded or worker == worker_of(keys[i], starts[len(starts) - 1], len(loads)):
                known[slot] = keys[i]
                workers[slot] = worker
                placed += 1
        loads[worker] += 1
        targets[i] = worker
    return len(keys), placed


class Affinity(StickySplitter):
    """Cardinality-aware affinity with tuple counts (cAM): the candidate that has the key, else the least loaded.

    Guarantees
    ----------
    - Within a window a key is never split: all its messages go to one of its ``choices`` workers.
    - That worker had the fewest messages of the window when the key first occurred in it.
    - So within a window this is static PoTC with ``choices`` candidates. Nothing is kept across windows.

    Differs from the paper
    ----------------------
    Ties go to the first candidate; the authors' code for two choices sends them to the second (``ties_last``). Keys are
    stored exactly, as in the authors' runs of cAM. Their code for five choices stores a key only when its last
    candidate was chosen (``as_coded``); until then the key may change its worker.

    Parameters
    ----------
    workers
        W, number of workers.
    choices
        d, number of candidates of a key.
    window
        Messages of a window; ``None``: a window ends when ``new_window`` is called.
    ties_last
        Send ties to the last candidate instead of the first.
    as_coded
        Store a key only at its last candidate, as the authors' code for more than two choices does.
    seed
        Seed of the hash functions.

    References
    ----------
    Katsipoulakis, Labrinidis, Chrysanthis: A holistic view of stream partitioning costs, VLDB 2017.

    Examples
    --------
    >>> splitter = Affinity(10, window=3, seed=1)
    >>> splitter.route([7, 7, 8, 7]).tolist()
    [0, 0, 4, 0]
    >>> splitter.loads.sum()  # messages of the new window
    np.int64(1)
    """

    name = "affinity"

    def __init__(
        self,
        workers: int,
        *,
        choices: int = 2,
        window: int | None = None,
        ties_last: bool = False,
        as_coded: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(workers, seed=seed)
        self.choices = min(whole("choices", choices, 1), self.workers)
        self.window = None if window is None else whole("window", window, 1)
        self.ties_last = ties_last
        self.as_coded = as_coded
        self._starts = hash_starts(self.seed, self.choices)
        self._seen = 0

    def new_window(self) -> None:
        """Start a new window: clear keys and loads."""
        self._placed = StickyKeys()
        self._seen = 0
        self.loads[:] = 0

    def _route(self, keys: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        done = 0
        while done < len(keys):
            if self._seen == self.window:
                self.new_window()
            stop = len(keys) if self.window is None else min(len(keys), done + self.window - self._seen)
            super()._route(keys[done:stop], targets[done:stop])
            self._seen += stop - done
            done = stop

    def _fill(self, keys: NDArray[np.int64], table: StickyKeys, targets: NDArray[np.int32]) -> tuple[int, int]:
        room = table.room - table.size
        rules = (self.ties_last, self.as_coded)
        return _fill(keys, self._starts, table.keys, table.workers, room, *rules, self.loads, targets)

    def _choices(self, key: int) -> NDArray[np.int32]:
        return hashed_workers(key, self._starts, self.workers)
