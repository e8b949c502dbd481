"""Histogram of hot keys, the output of every sketch and the input of every planner."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.hashing import FINGERPRINT_SEED, as_fingerprints

_ROUNDING = 1e-9  # relative rounding error of a share; the sum may exceed 1 by as much for each


@dataclass(frozen=True, eq=False)
class Histogram:
    """Hottest keys with their share of the load, and bounds of the error.

    Guarantees
    ----------
    - Keys are in order of decreasing share, ties by fingerprint.
    - The true share of a listed key lies within ``error`` of the stated one.
    - No key that is not listed has a true share above ``unlisted``.

    Parameters
    ----------
    fingerprints
        The listed keys, in any order.
    shares
        Their share of the whole load, each in [0, 1], together at most 1.
    error
        Largest distance between a stated and a true share.
    unlisted
        Upper bound of the share of any key that is not listed; ``None``: the share that the listed keys leave.
    total
        The observed load in rows, bytes, microseconds or another unit: the weight of this histogram in a merge.
    hash_seed
        Seed of the fingerprints. Histograms and plans of different seeds cannot be combined.

    Examples
    --------
    >>> h = Histogram([7, 9], [0.2, 0.5], total=10)
    >>> h.fingerprints.tolist(), h.shares.tolist(), round(h.rest, 3)
    ([9, 7], [0.5, 0.2], 0.3)
    """

    fingerprints: NDArray[np.int64]
    shares: NDArray[np.float64]
    error: float
    unlisted: float
    total: float
    hash_seed: int

    def __init__(
        self,
        fingerprints: ArrayLike,
        shares: ArrayLike,
        *,
        error: float = 0.0,
        unlisted: float | None = None,
        total: float = 1.0,
        hash_seed: int = FINGERPRINT_SEED,
    ) -> None:
        keys = as_fingerprints(fingerprints)
        at_least("error", error, 0)
        try:
            values = np.asarray(shares, dtype=np.float64).reshape(-1)
        except (TypeError, ValueError) as error_found:
            raise InvalidArgumentError(f"shares must be numbers in [0, 1]: {error_found}") from error_found
        if len(keys) != len(values):
            raise InvalidArgumentError(f"{len(keys)} keys but {len(values)} shares; give one share per key")
        if not np.all((values >= 0) & (values <= 1 + _ROUNDING)):
            bad = values[~((values >= 0) & (values <= 1 + _ROUNDING))][0]
            raise InvalidArgumentError(f"share {bad} is not in [0, 1]; shares are fractions of the whole load")
        if values.sum() > 1 + _ROUNDING * max(1, len(values)):
            raise InvalidArgumentError(
                f"shares add up to {values.sum():.6g}; they are fractions of the whole load and cannot exceed 1"
            )
        order = np.lexsort((keys, -values))
        keys, values = keys[order], np.minimum(values[order], 1.0)
        if len(np.unique(keys)) != len(keys):
            raise InvalidArgumentError("a key is listed twice; add its shares first")
        if unlisted is None:  # what the listed keys leave if each has its share minus the error
            unlisted = max(0.0, 1.0 - float(values.sum())) + len(values) * error
        for name, value in (("unlisted", unlisted), ("total", total)):
            at_least(name, value, 0)
        keys.setflags(write=False)
        values.setflags(write=False)
        object.__setattr__(self, "fingerprints", keys)
        object.__setattr__(self, "shares", values)
        object.__setattr__(self, "error", float(error))
        object.__setattr__(self, "unlisted", min(1.0, float(unlisted)))
        object.__setattr__(self, "total", float(total))
        object.__setattr__(self, "hash_seed", int(hash_seed))

    @property
    def rest(self) -> float:
        """Share of all keys that are not listed."""
        return max(0.0, 1.0 - float(self.shares.sum()))

    def __len__(self) -> int:
        return len(self.fingerprints)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Pairs of fingerprint and share, hottest first."""
        return zip(self.fingerprints.tolist(), self.shares.tolist(), strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return (
            np.array_equal(self.fingerprints, other.fingerprints)
            and np.array_equal(self.shares, other.shares)
            and (self.error, self.unlisted, self.total, self.hash_seed)
            == (other.error, other.unlisted, other.total, other.hash_seed)
        )

    __hash__ = None  # type: ignore[assignment]  # compared by value, and arrays cannot be hashed

    def share_of(self, key: int) -> float:
        """Return the stated share of a key, 0 if it is not listed."""
        at = np.flatnonzero(self.fingerprints == key)
        return float(self.shares[at[0]]) if len(at) else 0.0

    def top(self, k: int) -> Self:
        """Return the histogram of the ``k`` hottest keys; the others count as rest."""
        if whole("the number of keys", k, 0) >= len(self):
            return self
        cut = min(1.0, float(self.shares[k]) + self.error)
        return type(self)(
            self.fingerprints[:k],
            self.shares[:k],
            error=self.error,
            unlisted=max(self.unlisted, cut),
            total=self.total,
            hash_seed=self.hash_seed,
        )

    @classmethod
    def merge(cls, *parts: "Histogram") -> Self:
        """Merge histograms of parts of one load, each weighted by its ``total``.

        Examples
        --------
        >>> one = Histogram([1, 2], [0.6, 0.4], total=10)
        >>> two = Histogram([1], [0.1], total=30)
        >>> Histogram.merge(one, two).shares.round(3).tolist()
        [0.225, 0.1]
        """
        if not parts:
            raise InvalidArgumentError("merge() got no histogram; pass at least one")
        total = sum(part.total for part in parts)
        weights = [part.total / total if total else 1 / len(parts) for part in parts]
        return cls._weighted(parts, weights, total)

    def blend(self, newer: "Histogram", weight: float = 0.8, *, keep: int | None = None) -> Self:
        """Return the decayed average of this histogram, with ``weight``, and of a ``newer`` one.

        A key that is missing on one side counts as share 0 there, as in DR's retention rule; the error grows by the
        share that such a key may have had. Only the ``keep`` hottest keys are listed; ``None``: the keys of both sides.

        Examples
        --------
        >>> past = Histogram([1, 2], [0.5, 0.3])
        >>> past.blend(Histogram([1, 3], [0.1, 0.6]), weight=0.8).shares.round(3).tolist()
        [0.42, 0.24, 0.12]
        """
        if not 0 <= weight <= 1:
            raise InvalidArgumentError(f"weight of the past must be in [0, 1], got {weight}")
        total = weight * self.total + (1 - weight) * newer.total
        blended = self._weighted((self, newer), (weight, 1 - weight), total)
        return blended if keep is None else blended.top(keep)

    @classmethod
    def _weighted(
        cls, parts: "tuple[Histogram, ...]", weights: "list[float] | tuple[float, ...]", total: float
    ) -> Self:
        seeds = {part.hash_seed for part in parts}
        if len(seeds) > 1:
            raise MismatchError(
                f"histograms have different hash seeds {sorted(seeds)}; fingerprint both with the same seed"
            )
        keys, inverse = np.unique(np.concatenate([part.fingerprints for part in parts]), return_inverse=True)
        shares = np.bincount(
            inverse, np.concatenate([w * p.shares for p, w in zip(parts, weights, strict=True)]), len(keys)
        )
        everywhere = all(len(part) == len(keys) for part in parts)
        error = sum(
            w * (p.error if everywhere else max(p.error, p.unlisted)) for p, w in zip(parts, weights, strict=True)
        )
        unlisted = sum(w * p.unlisted for p, w in zip(parts, weights, strict=True))
        return cls(keys, shares, error=error, unlisted=unlisted, total=total, hash_seed=seeds.pop())
