"""Base class of splitters, which route a stream of messages to workers by key."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError
from equipoise.hashing import FINGERPRINT_SEED, as_fingerprints, hash_long
from equipoise.kernels import kernel

MAX_WORKERS = 2**20
"""Largest number of workers. A choice uses 32 bits of a hash, so the bias of a worker stays below 2**-11."""


@kernel(inline="always")
def worker_of(key: int, start: int, workers: int) -> int:
    """Return the worker of a key by one hash function: the upper half of the hash, scaled to the workers.

    The equivalent in Spark, for choice ``i`` of ``seed``, is
    ``shiftright(shiftrightunsigned(xxhash64(seed, i, fingerprint), 32) * workers, 32)``, with BIGINT throughout.
    """
    upper = np.uint64(hash_long(key, start)) >> np.uint64(32)
    return np.int64((upper * np.uint64(workers)) >> np.uint64(32))  # type: ignore[return-value]


@kernel
def _starts(seed: int, out: Any) -> None:
    first = hash_long(seed, FINGERPRINT_SEED)
    for i in range(len(out)):
        out[i] = hash_long(i, first)


def hash_starts(seed: int, choices: int) -> NDArray[np.int64]:
    """Return the start values of :func:`worker_of` for the first ``choices`` hash functions of a seed."""
    starts = np.empty(choices, dtype=np.int64)
    _starts(seed, starts)
    return starts


@kernel
def _workers_of(key: int, starts: Any, workers: int, out: Any) -> None:
    for i in range(len(starts)):
        out[i] = worker_of(key, starts[i], workers)


def hashed_workers(key: int, starts: NDArray[np.int64], workers: int) -> NDArray[np.int32]:
    """Return the workers of a key by each hash function, in their order, repetitions included."""
    out = np.empty(len(starts), dtype=np.int32)
    _workers_of(key, starts, workers, out)
    return out


@kernel(inline="always")
def least_loaded(loads: Any) -> int:
    """Return the first of the workers with the smallest load."""
    best = 0
    for worker in range(1, len(loads)):
        if loads[worker] < loads[best]:
            best = worker
    return best


class Splitter(ABC):
    """Base class of splitters, which route messages to workers by their key.

    An instance is one source. Independent sources are several instances with the same seed. Sources with shared
    knowledge, like the global oracle of the PKG paper, are one instance that routes the messages of all sources in the
    order of the stream. With ``probe``, independent sources learn the true loads from time to time.

    Guarantees
    ----------
    - Every message gets one worker in ``0 .. workers - 1``.
    - Equal arguments and equal streams give equal routes, in every process.
    - Routes do not depend on how the stream is divided into calls of ``route``, except through the clock of splitters
      that have one.
    - A message goes to one of the ``candidates`` of its key.

    Parameters
    ----------
    workers
        W, number of workers.
    seed
        Seed of the hash functions; all sources of a stream use the same.
    """

    name: ClassVar[str]
    """Name in options, tables and benchmarks."""

    coordinated: ClassVar[bool] = False
    """Whether all sources of a stream must be one instance, because it stores the worker of each key."""

    memory: ClassVar[str] = "workers"
    """Whether ``nbytes`` grows with the number of ``"workers"`` alone, or with the number of ``"keys"``, too."""

    def __init__(self, workers: int, *, seed: int = 0) -> None:
        self.workers = whole("workers", workers, 1)
        if self.workers > MAX_WORKERS:
            raise InvalidArgumentError(f"workers must be at most {MAX_WORKERS}, got {workers}")
        self.seed = whole("seed", seed, -(2**63))
        if self.seed >= 2**63:
            raise InvalidArgumentError(f"seed must be at most 2**63 - 1, got {seed}")
        self.loads: NDArray[np.int64] = np.zeros(self.workers, dtype=np.int64)
        """Messages sent to each worker, as far as known to this source."""

    def route(self, fingerprints: ArrayLike) -> NDArray[np.int32]:
        """Return the worker of each message, in the order of the stream.

        Parameters
        ----------
        fingerprints
            Keys of the messages: 64-bit integers of ``equipoise.fingerprints``.
        """
        keys = as_fingerprints(fingerprints)
        targets = np.empty(len(keys), dtype=np.int32)
        if len(keys):
            self._route(keys, targets)
        return targets

    @abstractmethod
    def _route(self, keys: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        """Fill in the worker of each of at least one message, and count it in ``loads``."""

    @abstractmethod
    def candidates(self, key: int) -> NDArray[np.int32]:
        """Return the workers that messages of a key may go to at present, the worker of its last message included."""

    def probe(self, loads: ArrayLike, *, sources: int = 1, absolute: bool = False) -> None:
        """Replace the loads known to this source by the loads that the workers report (L_S P_T of the PKG paper).

        Parameters
        ----------
        loads
            Messages that each worker has received from all sources.
        sources
            S, number of sources; each takes its share, ``loads // sources``, as in the simulator of the paper.
        absolute
            Take the loads undivided, as in the text of the paper.
        """
        reported = np.asarray(loads)
        if reported.shape != (self.workers,) or reported.dtype.kind not in "iu" or reported.min() < 0:
            raise InvalidArgumentError(
                f"probe() needs {self.workers} message counts, one for each worker, "
                f"got {reported.dtype} of shape {reported.shape}"
            )
        self.loads[:] = reported if absolute else reported // whole("sources", sources, 1)

    @property
    def nbytes(self) -> int:
        """Memory of the splitter's arrays, in bytes."""
        return self.loads.nbytes
