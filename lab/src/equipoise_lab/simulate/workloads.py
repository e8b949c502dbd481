"""Workloads for simulations: seeded generators of skewed and drifting keys, and keys from Parquet files.

A key is an index ``0 .. keys - 1``, the hottest first; streams have the fingerprints of keys. Equal arguments give
equal streams with the same release of NumPy, whose generators may change between releases.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError, MissingPackageError
from equipoise.hashing import fingerprint, fingerprints, seeded_hashes
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.requirements import missing_text


def shifted_power_law_shares(keys: int, exponent: float, shift: float) -> NDArray[np.float64]:
    """Return the shares of a shifted power law: that of key i = 0 .. keys - 1 is proportional to (i + shift)^-exponent.

    DR's experiments call this law ZIPF; the example in their code has a shift of 10.

    Parameters
    ----------
    keys
        K, number of keys.
    exponent
        At least 0; 0 gives every key the same share.
    shift
        Above 0; 1 is Zipf's law, larger values make the shares of the hottest keys more even.

    Examples
    --------
    >>> (shifted_power_law_shares(2, exponent=1, shift=2) * 5).round(9).tolist()
    [3.0, 2.0]
    """
    keys, exponent, shift = whole("keys", keys, 1), at_least("exponent", exponent, 0), at_least("shift", shift, 0)
    if shift == 0:
        raise InvalidArgumentError("shift must be above 0, got 0; 1 is Zipf's law")
    relative = (np.arange(keys) / shift + 1) ** -exponent  # to the hottest key, so that nothing overflows
    return np.asarray(relative / relative.sum(), dtype=np.float64)


def key_fingerprints(keys: ArrayLike, seed: int) -> NDArray[np.int64]:
    """Return fingerprints of key indices, different for every seed: the same skew under another hash.

    Examples
    --------
    >>> bool(np.any(key_fingerprints([0, 1], seed=1) == key_fingerprints([0, 1], seed=2)))
    False
    """
    return seeded_hashes(keys, _seed(seed))


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
    """Return batches of a Zipf stream whose hot keys change: slowly by drift, at once by swaps.

    The shares by rank do not change, only the keys of the ranks. A key that loses a hot rank is exchanged with a random
    key outside the hot ranks.

    Guarantees
    ----------
    - Without drift and swaps all batches are samples of one distribution.
    - Before each batch except the first, each hot rank gets a new key with probability ``drift``.
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
        Average fraction of the hot ranks that get a new key from one batch to the next.
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
    batch_size, batches = whole("batch_size", batch_size, 1), whole("batches", batches, 1)
    drift, hot, seed = at_least("drift", drift, 0), whole("hot", hot, 1), _seed(seed)
    if drift > 1:
        raise InvalidArgumentError(f"drift must be a fraction of the hot ranks, in [0, 1], got {drift}")
    if hot > len(shares) // 2:
        raise InvalidArgumentError(f"hot must lie between 1 and half of the {keys} keys, got {hot}")
    return _drifting(shares, batch_size, batches, drift, _swaps(swaps, batches), hot, seed)


def _swaps(swaps: Collection[int], batches: int) -> frozenset[int]:
    """Return the batches that start with a swap; refuse the first batch and those beyond the last."""
    if not isinstance(swaps, Iterable):
        raise InvalidArgumentError(f"swaps must be a list of batches, got {swaps!r}")
    chosen = frozenset(whole("each of swaps", batch, 1) for batch in swaps)
    if chosen and max(chosen) >= batches:
        raise InvalidArgumentError(f"swaps must name batches in 1..{batches - 1}, got {sorted(chosen)}")
    return chosen


def _seed(seed: int) -> int:
    """Return a seed that is valid for the generator and for fingerprints."""
    number = whole("seed", seed, 0)
    if number >= 2**63:
        raise InvalidArgumentError(f"seed must be at most 2**63 - 1, got {seed}")
    return number


def _drifting(
    shares: NDArray[np.float64], batch_size: int, batches: int, drift: float, swaps: frozenset[int], hot: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    """Generate the batches of :func:`drifting_batches`, which checks the arguments."""
    rng = np.random.default_rng(seed)
    key_of_rank = key_fingerprints(np.arange(len(shares)), seed)
    for batch in range(batches):
        if batch in swaps:
            _replace(key_of_rank, np.arange(hot), hot, rng)
        elif batch > 0:
            _replace(key_of_rank, np.flatnonzero(rng.random(hot) < drift), hot, rng)
        yield key_of_rank[sample(shares, batch_size, rng)]


def _replace(key_of_rank: NDArray[np.int64], ranks: NDArray[np.int64], hot: int, rng: np.random.Generator) -> None:
    """Exchange the keys of the given hot ranks with those of random ranks that are not hot."""
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
    """Return the fingerprints of a Parquet column, row by row, equal to Spark's ``xxhash64`` of that column.

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
        import pyarrow.parquet as pq  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingPackageError(missing_text("reading Parquet", "pyarrow", "dashboard")) from error
    wanted = [column] if weight is None else [column, weight]
    present = pq.ParquetDataset(path).schema.names
    missing = [name for name in wanted if name not in present]
    if missing:
        raise InvalidArgumentError(f"{path} has no column {missing[0]!r}; it has {', '.join(present)}")
    table = pq.read_table(path, columns=wanted)
    keys = _arrow_fingerprints(table.column(column))
    return keys if weight is None else (keys, _arrow_weights(table.column(weight), weight))


def _arrow_fingerprints(column: Any) -> NDArray[np.int64]:
    """Return the fingerprints of an Arrow column, computed once for each distinct value."""
    encoded = column.dictionary_encode().combine_chunks()
    values = encoded.dictionary.to_numpy(zero_copy_only=False)
    of_value = np.append(fingerprints(values), fingerprint(None))
    codes: NDArray[np.int64] = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return of_value[codes]


def _arrow_weights(column: Any, name: str) -> NDArray[np.float64]:
    try:
        weights = np.asarray(column.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"weights in column {name!r} must be numbers, got {column.type}") from error
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise InvalidArgumentError(f"weights in column {name!r} must be finite numbers of at least 0, without NULL")
    return weights
