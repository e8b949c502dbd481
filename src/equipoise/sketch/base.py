"""Base class of sketches, which find hot keys in one pass."""

import operator
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.hashing import FINGERPRINT_SEED, as_fingerprints
from equipoise.sketch.histogram import Histogram

MAX_TOTAL = 2**53
"""Largest total weight of a sketch. Counts up to here are exact as floats, so the bounds hold as stated."""

Total = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOTAL)]
"""Weight seen, as a field of a stored sketch."""

LEAST_SEED = -(2**63)
"""Smallest seed of fingerprints; Spark's seeds are signed 64-bit integers."""


class Sketch(ABC):
    """Count fingerprints in bounded memory and list the hottest.

    Guarantees
    ----------
    - ``lower(key) <= true count <= upper(key)``, also after ``merge``.
    - ``a.merge(b)`` and ``b.merge(a)`` give the same bounds and change neither ``a`` nor ``b``.
    - ``from_bytes(to_bytes())`` behaves exactly like the original, also on later updates.
    - Equal parameters, seed and input give equal bytes, in every process.
    """

    kind: ClassVar[str]
    """Name of the sketch in its stored form."""

    format_version: ClassVar[int] = 1
    """Version of the stored form; a release reads only the version that it writes."""

    total: int
    """Weight seen so far."""

    hash_seed: int = FINGERPRINT_SEED
    """Seed of the counted fingerprints; the histogram has the same."""

    def update(self, key: int, weight: int = 1) -> None:
        """Count one fingerprint."""
        self.update_many([_signed(key)], [weight])

    def update_many(self, fingerprints: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Count an array of fingerprints, in order, as ``update`` would one by one.

        Parameters
        ----------
        fingerprints
            64-bit integers, signed or unsigned; unsigned integers are reinterpreted bit for bit.
        weights
            Positive integers, one per fingerprint; ``None``: each counts 1.
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
                "weights must be integers of at least 1; use a finer unit, for example microseconds instead of seconds"
            )
        self._check_room(_exact_sum(values))
        self._feed(keys, values.astype(np.int64))

    def _check_room(self, weight: int) -> None:
        """Refuse weight beyond ``MAX_TOTAL``."""
        if self.total + weight > MAX_TOTAL:
            raise InvalidArgumentError(
                f"the sketch has a total weight of {self.total}; {weight} more would exceed 2**53; "
                "use a coarser unit, for example megabytes instead of bytes"
            )

    @abstractmethod
    def _feed(self, keys: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        """Count ``keys``; ``weights`` has one entry per key, or a single 1 for all."""

    def merge(self, other: Self) -> Self:
        """Return a sketch of both inputs together; the operands do not change.

        Both must have the same class and parameters, and the sum of their totals must be at most ``MAX_TOTAL``.
        """
        if type(other) is not type(self):
            raise MismatchError(
                f"cannot merge {type(self).__name__} with {type(other).__name__}; make both of the same class"
            )
        self._check_room(other.total)
        return self._merged(other)

    @abstractmethod
    def _merged(self, other: Self) -> Self:
        """Merge with a sketch of the same class; raise ``MismatchError`` if its parameters differ."""

    @abstractmethod
    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return all tracked keys and their estimated counts, by decreasing count, ties by fingerprint."""

    def top(self, k: int) -> list[tuple[int, float]]:
        """Return the ``k`` keys of largest estimated count, largest first."""
        k = whole("k", k, 0)
        keys, counts = self.entries()
        return list(zip(keys[:k].tolist(), counts[:k].tolist(), strict=True))

    def lower(self, key: int) -> float:
        """Return the lower bound of the true count of a fingerprint, signed or unsigned."""
        return self._bounds_of(_signed(key))[0]

    def upper(self, key: int) -> float:
        """Return the upper bound of the true count of a fingerprint, signed or unsigned."""
        return self._bounds_of(_signed(key))[1]

    @abstractmethod
    def _bounds_of(self, key: int) -> tuple[float, float]:
        """Return lower and upper bound of the true count of a key, given as a signed 64-bit integer."""

    @abstractmethod
    def histogram(self, k: int | None = None) -> Histogram:
        """Return the hottest ``k`` keys (default: all tracked) as shares of ``total``."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory of the sketch's arrays, in bytes."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the stored form: versioned, checksummed, and equal for equal updates."""

    @classmethod
    @abstractmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the stored form of ``to_bytes``."""


def _signed(key: object) -> int:
    """Return a fingerprint as a signed integer; an unsigned one is reinterpreted bit for bit."""
    try:
        number = operator.index(key)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(key, bool | np.bool_) or not -(2**63) <= number < 2**64:
        raise InvalidArgumentError(f"a key must be a 64-bit fingerprint, got {key!r}; make it with fingerprint(value)")
    return number - 2**64 if number >= 2**63 else number


def _exact_sum(weights: NDArray[np.integer]) -> int:
    """Sum of weights, exact up to ``MAX_TOTAL``; above, rounded to a float, which does not wrap around."""
    rough = float(weights.sum(dtype=np.float64))
    return int(rough) if rough > MAX_TOTAL else int(weights.sum(dtype=np.int64))
