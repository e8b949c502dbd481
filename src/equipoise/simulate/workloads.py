"""Keyed streams to simulate with: seeded generators of skewed and drifting keys, and recorded keys from Parquet.

A key is an index ``0 .. keys - 1``, the hottest first; streams are made of its fingerprint. Equal arguments give
equal streams with one release of NumPy, whose generators may change between releases.
"""

import os
from collections.abc import Collection, Iterator
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.errors import InvalidArgument, SparkUnavailable
from equipoise.hashing import fingerprint, fingerprints, seeded_hashes


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
    return shifted_power_law_shares(keys, exponent, shift=1)


def shifted_power_law_shares(keys: int, exponent: float, shift: float) -> NDArray[np.float64]:
    """Power law with a flattened head: key i = 0 .. keys - 1 has a share in proportion to (i + shift)^-exponent.

    The law that DR's experiments call ZIPF; the example in their code has a shift of 10.

    Parameters
    ----------
    keys
        K, number of keys.
    exponent
        At least 0; 0 gives every key the same share.
    shift
        Above 0; 1 is Zipf's law, more makes the hottest keys more alike.

    Examples
    --------
    >>> (shifted_power_law_shares(2, exponent=1, shift=2) * 5).round(9).tolist()
    [3.0, 2.0]
    """
    _check_at_least(keys, 1, "keys")
    if not (np.isfinite(exponent) and exponent >= 0):
        raise InvalidArgument(f"exponent must be a finite number of at least 0, got {exponent}")
    if not (np.isfinite(shift) and shift > 0):
        raise InvalidArgument(f"shift must be a finite number above 0, got {shift}")
    relative = (np.arange(keys) / shift + 1) ** -exponent  # to the hottest key, so that nothing overflows
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
    weights = np.asarray(shares, dtype=np.float64)
    if weights.ndim != 1 or not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.sum() > 0:
        raise InvalidArgument("shares must be a list of finite numbers of at least 0, not all of them 0")
    _check_at_least(count, 0, "count")
    cumulative = np.cumsum(weights)
    cumulative /= cumulative[-1]  # ends at exactly 1, above every random number
    return np.searchsorted(cumulative, rng.random(count), side="right")


def key_fingerprints(keys: ArrayLike, seed: int) -> NDArray[np.int64]:
    """Fingerprints of key indices, others for every seed: repeated runs see the same skew under another hash.

    Examples
    --------
    >>> bool(np.any(key_fingerprints([0, 1], seed=1) == key_fingerprints([0, 1], seed=2)))
    False
    """
    return seeded_hashes(keys, seed)


def drifting_batches(
    keys: int,
    exponent: float,
    batch_size: int,
    batches: int,
    *,
    drift: float = 0.0,
    swaps: Collection[int] = (),
    hot: int = 100,
    seed: int = 0,
) -> Iterator[NDArray[np.int64]]:
    """Batches of a Zipf stream whose hot keys change: slowly by drift, at once by swaps.

    The shares by rank never change, only which key has which rank. A key that loses a hot rank trades places with
    a random key outside the hot ranks.

    Guarantees
    ----------
    - Without drift and swaps all batches are samples of one distribution.
    - Before each batch but the first, each hot rank gets a new key with probability ``drift``.
    - Before each batch in ``swaps`` every hot rank gets a new key, none of which was hot in the batch before.

    Parameters
    ----------
    keys
        K, number of keys.
    exponent
        z, exponent of Zipf's law.
    batch_size
        Rows of a batch.
    batches
        Number of batches.
    drift
        Fraction of the hot ranks, on average, that get a new key from one batch to the next.
    swaps
        Batches, counted from 0, that begin with a new hot set; the first batch has none to swap.
    hot
        Number of hot ranks, at most half of the keys.
    seed
        Seed of the draws and of the fingerprints.

    Yields
    ------
    NDArray[np.int64]
        Fingerprints of one batch, as ``key_fingerprints(..., seed)`` gives them.

    Examples
    --------
    >>> stream = drifting_batches(1000, 1.2, batch_size=500, batches=3, drift=0.1, swaps=[2])
    >>> [len(batch) for batch in stream]
    [500, 500, 500]
    """
    shares = zipf_shares(keys, exponent)
    _check_at_least(batch_size, 1, "batch_size")
    _check_at_least(batches, 1, "batches")
    _check_at_least(seed, 0, "seed")
    if not 0 <= drift <= 1:
        raise InvalidArgument(f"drift is a fraction of the hot ranks, in [0, 1], got {drift}")
    if not 1 <= hot <= keys // 2:
        raise InvalidArgument(f"hot must lie between 1 and half of the {keys} keys, got {hot}")
    if any(not 1 <= batch < batches for batch in swaps):
        raise InvalidArgument(f"swaps must name batches in 1..{batches - 1}, got {sorted(swaps)}")
    return _drifting(shares, batch_size, batches, drift, frozenset(swaps), hot, seed)


def _drifting(
    shares: NDArray[np.float64], batch_size: int, batches: int, drift: float, swaps: frozenset[int], hot: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    """The generator behind :func:`drifting_batches`, which has checked the arguments at the call."""
    rng = np.random.default_rng(seed)
    key_of_rank = key_fingerprints(np.arange(len(shares)), seed)
    for batch in range(batches):
        if batch in swaps:
            _replace(key_of_rank, np.arange(hot), hot, rng)
        elif batch > 0:
            _replace(key_of_rank, np.flatnonzero(rng.random(hot) < drift), hot, rng)
        yield key_of_rank[sample(shares, batch_size, rng)]


def _replace(key_of_rank: NDArray[np.int64], ranks: NDArray[np.int64], hot: int, rng: np.random.Generator) -> None:
    """Trade the keys of the given hot ranks for those of random ranks that are not hot."""
    others = hot + rng.choice(len(key_of_rank) - hot, size=len(ranks), replace=False)
    key_of_rank[ranks], key_of_rank[others] = key_of_rank[others], key_of_rank[ranks]


@overload
def load_parquet_keys(
    path: str | os.PathLike[str], column: str = "key", *, weight: None = None
) -> NDArray[np.int64]: ...


@overload
def load_parquet_keys(
    path: str | os.PathLike[str], column: str = "key", *, weight: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]: ...


def load_parquet_keys(
    path: str | os.PathLike[str], column: str = "key", *, weight: str | None = None
) -> NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Fingerprints of a Parquet column in the order of its rows, equal to Spark's ``xxhash64`` of that column.

    Parameters
    ----------
    path
        A Parquet file or a directory of them.
    column
        The key column: integers of at most 64 bits, floats, booleans, strings or bytes, NULL allowed.
    weight
        Column with the load of each row; ``None``: every row counts the same.

    Returns
    -------
    NDArray[np.int64] or tuple
        The fingerprints; with ``weight`` a pair of fingerprints and weights.
    """
    try:
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra: only those who read Parquet need it
    except ImportError as error:
        raise SparkUnavailable(
            "reading Parquet needs pyarrow, which is not installed; run: pip install 'equipoise[spark]'"
        ) from error
    wanted = [column] if weight is None else [column, weight]
    present = pq.ParquetDataset(path).schema.names
    missing = [name for name in wanted if name not in present]
    if missing:
        raise InvalidArgument(f"{path} has no column {missing[0]!r}; it has {', '.join(present)}")
    table = pq.read_table(path, columns=wanted)
    keys = _arrow_fingerprints(table.column(column))
    return keys if weight is None else (keys, _arrow_weights(table.column(weight), weight))


def _arrow_fingerprints(column: Any) -> NDArray[np.int64]:
    """Fingerprints of an Arrow column, computed once for each distinct value."""
    encoded = column.dictionary_encode().combine_chunks()
    values = encoded.dictionary.to_numpy(zero_copy_only=False)
    of_value = np.append(fingerprints(values), fingerprint(None))
    codes: NDArray[np.int64] = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return of_value[codes]


def _arrow_weights(column: Any, name: str) -> NDArray[np.float64]:
    weights = np.asarray(column.to_numpy(), dtype=np.float64)
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise InvalidArgument(f"weights in column {name!r} must be finite numbers of at least 0, without NULL")
    return weights


def _check_at_least(value: int, least: int, name: str) -> None:
    if not value >= least:
        raise InvalidArgument(f"{name} must be at least {least}, got {value}")
