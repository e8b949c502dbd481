"""Base of splitters that store the worker of every key, and their table, which grows with the number of keys."""

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from equipoise.fingerprint_table import EMPTY, get, new_table, put_all
from equipoise.split.base import Splitter

_FIRST_CAPACITY = 1024


class StickyKeys:
    """Table of the worker of each placed key.

    A kernel fills ``keys`` and ``workers`` (see :mod:`equipoise.fingerprint_table`) until there is no room. The caller
    then calls :meth:`grow`.
    """

    def __init__(self) -> None:
        self.size = 0
        self.room = _FIRST_CAPACITY
        self.keys, self.workers = new_table(self.room)

    def grow(self) -> None:
        """Double the room."""
        keys, workers = new_table(2 * self.room)
        taken = self.workers != EMPTY
        put_all(keys, workers, self.keys[taken], self.workers[taken])
        self.room, self.keys, self.workers = 2 * self.room, keys, workers

    def worker(self, key: int) -> int:
        """Return the worker of a key, or -1."""
        return int(get(self.keys, self.workers, key))

    def place(self, keys: NDArray[np.int64], workers: NDArray[np.int32]) -> None:
        """Add the workers of new keys."""
        while self.size + len(keys) > self.room:
            self.grow()
        put_all(self.keys, self.workers, keys, workers)
        self.size += len(keys)

    @property
    def nbytes(self) -> int:
        """Memory of the table, in bytes."""
        return self.keys.nbytes + self.workers.nbytes


class StickySplitter(Splitter):
    """Base of splitters that place a key at its first message and send all later messages to the same worker."""

    coordinated = True
    memory = "keys"

    def __init__(self, workers: int, *, seed: int = 0) -> None:
        super().__init__(workers, seed=seed)
        self._placed = StickyKeys()

    def _route(self, keys: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        done = 0
        while done < len(keys):
            if self._placed.size == self._placed.room:
                self._placed.grow()
            routed, new = self._fill(keys[done:], self._placed, targets[done:])
            self._placed.size += new
            done += routed

    @abstractmethod
    def _fill(self, keys: NDArray[np.int64], table: StickyKeys, targets: NDArray[np.int32]) -> tuple[int, int]:
        """Route keys until the table is full; return the numbers of routed messages and of new keys."""

    @abstractmethod
    def _choices(self, key: int) -> NDArray[np.int32]:
        """Return the workers that a new key chooses from."""

    def candidates(self, key: int) -> NDArray[np.int32]:
        """Return the worker of a placed key, or the workers that it will choose from."""
        worker = self._placed.worker(key)
        return self._choices(key) if worker == EMPTY else np.array([worker], dtype=np.int32)

    @property
    def nbytes(self) -> int:
        """Memory of loads and routing table, in bytes."""
        return super().nbytes + self._placed.nbytes
