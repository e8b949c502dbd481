"""What every sketch of hot keys can do."""

import operator
from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.hashing import FINGERPRINT_SEED, as_fingerprints
from equipoise.sketch.histogram import Histogram

MAX_TOTAL = 2**53
"""Largest weight a sketch may see: up to here every count is exact also as a float, so that bounds hold as stated."""

LEAST_SEED = -(2**63)
"""Smallest seed of fingerprints; Spark's are signed 64-bit integers."""


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
        self.update_many([_signed(key)], [weight])

    def update_many(self, fingerprints: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Count an array of fingerprints, in order, as ``update`` would one by one.

        Parameters
        ----------
        fingerprints
            64-bit integers, signed or unsigned; unsigned ones are taken bit for bit.
        weights
            Positive integers, one per fingerprint; ``None`` counts each as 1.
        """
        keys = as_fingerprints(fingerprints)
        if weights is None:
            self._check_room(len(keys))
            self._feed(keys, np.ones(1, dtype=np.int64))
            return
        values = np.asarray(weights)
        if values.shape != keys.shape:
            raise InvalidArgumentError(f"{len(keys)} keys but weights of shape {values.shape}; give one weight per key")
        if len(values) and (values.dtype.kind not in "iu" or values.min() < 1):
            raise InvalidArgumentError(
                "weights must be integers of at least 1; scale fractions first (seconds to microseconds)"
            )
        self._check_room(_exact_sum(values))
        self._feed(keys, values.astype(np.int64))

    def _check_room(self, weight: int) -> None:
        """Refuse weight beyond ``MAX_TOTAL``."""
        if self.total + weight > MAX_TOTAL:
            raise InvalidArgumentError(
                f"a sketch that has seen a weight of {self.total} cannot take in {weight} more, the sum exceeds 2**53; "
                "use a coarser unit (bytes to megabytes)"
            )

    @abstractmethod
    def _feed(self, keys: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        """Count ``keys``; ``weights`` has one entry per key, or a single 1 for all."""

    def merge(self, other: Self) -> Self:
        """Sketch of both inputs together; the operands stay as they are.

        Both must be of the same class and parameters, and the sum of their totals at most ``MAX_TOTAL``.
        """
        if type(other) is not type(self):
            raise MismatchError(
                f"cannot merge {type(self).__name__} with {type(other).__name__}; make both of the same class"
            )
        self._check_room(other.total)
        return self._merged(other)

    @abstractmethod
    def _merged(self, other: Self) -> Self:
        """What ``merge`` gives, for a sketch of the same class; raises ``MismatchError`` on other parameters."""

    @abstractmethod
    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """All tracked keys and their estimated counts, by decreasing count, ties by fingerprint."""

    def top(self, k: int) -> list[tuple[int, float]]:
        """The ``k`` keys of largest estimated count, largest first."""
        k = whole("k", k, 0)
        keys, counts = self.entries()
        return list(zip(keys[:k].tolist(), counts[:k].tolist(), strict=True))

    def lower(self, key: int) -> float:
        """Lower bound of the true count of a fingerprint, signed or unsigned."""
        return self._bounds_of(_signed(key))[0]

    def upper(self, key: int) -> float:
        """Upper bound of the true count of a fingerprint, signed or unsigned."""
        return self._bounds_of(_signed(key))[1]

    @abstractmethod
    def _bounds_of(self, key: int) -> tuple[float, float]:
        """Lower and upper bound of the true count of a key, which is a signed 64-bit integer."""

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


def _signed(key: object) -> int:
    """A fingerprint as ``update_many`` sees it: signed, an unsigned one bit for bit."""
    try:
        number = operator.index(key)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(key, bool | np.bool_) or not -(2**63) <= number < 2**64:
        raise InvalidArgumentError(f"a key must be a 64-bit fingerprint, got {key!r}; make it with fingerprint(value)")
    return number - 2**64 if number >= 2**63 else number


def _exact_sum(weights: NDArray[np.integer]) -> int:
    """Sum of weights; beyond ``MAX_TOTAL`` a float is near enough, and does not wrap around."""
    rough = float(weights.sum(dtype=np.float64))
    return int(rough) if rough > MAX_TOTAL else int(weights.sum(dtype=np.int64))
