"""What every sketch of hot keys can do."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.errors import InvalidArgument
from equipoise.hashing import FINGERPRINT_SEED, as_fingerprints
from equipoise.sketch.histogram import Histogram

MAX_TOTAL = 2**62
"""Largest weight a sketch may see: counts and their bounds then fit 64 bits."""


class Sketch(ABC):
    """Counts fingerprints in bounded memory and names the hottest.

    Guarantees
    ----------
    - ``lower(key) <= true count <= upper(key)``, also after ``merge``.
    - ``a.merge(b)`` and ``b.merge(a)`` give the same bounds and leave ``a`` and ``b`` as they were.
    - ``from_bytes(to_bytes())`` behaves exactly like the original, also on later updates.
    - Equal parameters, seed and input give equal bytes, in every process.
    """

    kind: ClassVar[str]
    """Name of the sketch in its stored form."""

    format_version: ClassVar[int] = 1
    """Version of the stored form; a release reads the one it writes."""

    total: int
    """Weight seen so far."""

    hash_seed: int = FINGERPRINT_SEED
    """Seed of the fingerprints that are fed in, handed on to the histogram."""

    def update(self, key: int, weight: int = 1) -> None:
        """Count one fingerprint."""
        self.update_many([key], [weight])

    def update_many(self, fingerprints: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Count an array of fingerprints, in order, as ``update`` would one by one.

        Parameters
        ----------
        fingerprints
            64-bit integers.
        weights
            Positive integers, one per fingerprint; ``None`` counts each as 1.
        """
        keys = as_fingerprints(fingerprints)
        if weights is None:
            self._feed(keys, np.ones(1, dtype=np.int64))
            return
        values = np.asarray(weights)
        if values.shape != keys.shape:
            raise InvalidArgument(f"{len(keys)} keys but weights of shape {values.shape}; give one weight per key")
        if len(values) and (values.dtype.kind not in "iu" or values.min() < 1):
            raise InvalidArgument(
                "weights must be integers of at least 1; scale fractions first (seconds to microseconds)"
            )
        if self.total + values.sum(dtype=np.float64) > MAX_TOTAL:
            raise InvalidArgument("the weights add up to more than 2**62; use a coarser unit (bytes to megabytes)")
        self._feed(keys, values.astype(np.int64))

    @abstractmethod
    def _feed(self, keys: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        """Count ``keys``; ``weights`` has one entry per key, or a single 1 for all."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Sketch of both inputs together; the operands stay as they are."""

    @abstractmethod
    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """All tracked keys and their estimated counts, by decreasing count, ties by fingerprint."""

    def top(self, k: int) -> list[tuple[int, float]]:
        """The ``k`` keys of largest estimated count, largest first."""
        if k < 0:
            raise InvalidArgument(f"cannot list {k} keys; ask for 0 or more")
        keys, counts = self.entries()
        return list(zip(keys[:k].tolist(), counts[:k].tolist(), strict=True))

    @abstractmethod
    def lower(self, key: int) -> float:
        """Lower bound of the true count of a key."""

    @abstractmethod
    def upper(self, key: int) -> float:
        """Upper bound of the true count of a key."""

    @abstractmethod
    def histogram(self, k: int | None = None) -> Histogram:
        """Hottest ``k`` keys (default: all tracked) as shares of ``total``."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory held by the sketch's arrays, in bytes."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Stored form: versioned, checksummed, the same for the same history."""

    @classmethod
    @abstractmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what ``to_bytes`` wrote."""
