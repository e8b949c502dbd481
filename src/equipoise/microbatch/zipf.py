"""Zipf's law: shares of keys, and keys drawn by their shares."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError


def zipf_shares(keys: int, exponent: float) -> NDArray[np.float64]:
    """Zipf's law: the key of rank i = 1 .. keys has a share in proportion to 1 / i^z.

    Parameters
    ----------
    keys
        K, number of keys.
    exponent
        z, at least 0; 0 gives every key the same share.

    Examples
    --------
    >>> (zipf_shares(3, exponent=1) * 11).round(9).tolist()
    [6.0, 3.0, 2.0]
    """
    keys, exponent = whole("keys", keys, 1), at_least("exponent", exponent, 0)
    relative = np.arange(1.0, keys + 1) ** -exponent  # to the hottest key
    return np.asarray(relative / relative.sum(), dtype=np.float64)


def sample(shares: ArrayLike, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw keys independently of each other, each with the probability of its share (inversion of the CDF).

    A draw takes one random number, so a longer sample from an equal generator starts with the shorter one.

    Parameters
    ----------
    shares
        Share of each key, at least 0; scaled here to add up to 1.
    count
        Number of keys to draw.
    rng
        Source of randomness, such as ``numpy.random.default_rng(seed)``.

    Examples
    --------
    >>> sample([0.5, 0.0, 0.5], 6, np.random.default_rng(1)).tolist()
    [2, 2, 0, 2, 0, 0]
    """
    if not isinstance(rng, np.random.Generator):
        raise InvalidArgumentError(
            f"rng must be a numpy Generator, got {rng!r}; make one with numpy.random.default_rng(seed)"
        )
    count = whole("count", count, 0)
    try:
        weights = np.asarray(shares)
    except ValueError as error:  # rows of different lengths
        raise InvalidArgumentError(f"shares must be a list of numbers: {error}") from error
    if weights.dtype.kind not in "iuf":
        raise InvalidArgumentError(
            f"shares must be numbers, got an array of {weights.dtype}; convert them to float first"
        )
    if weights.ndim != 1 or not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.sum() > 0:
        raise InvalidArgumentError("shares must be a list of finite numbers of at least 0, not all of them 0")
    cumulative = np.cumsum(weights, dtype=np.float64)
    cumulative /= cumulative[-1]  # ends at exactly 1, above every random number
    return np.searchsorted(cumulative, rng.random(count), side="right")
