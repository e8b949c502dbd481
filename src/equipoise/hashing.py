"""Fingerprints and seeded hashes, equal in every process and equal to Spark's ``xxhash64``.

A fingerprint is a signed 64-bit integer; all routing uses it. ``fingerprints(a, b)`` returns for every row the value of
``pyspark.sql.functions.xxhash64("a", "b")``: XXH64 with seed 42 over the first column, whose result seeds the second,
and so on. NULL leaves the seed unchanged, so NULL is a valid key.

Python and NumPy types map to Spark types as ``spark.createDataFrame`` maps them:

=========================================  ===================  =======================
values                                     Spark type           hashed as
=========================================  ===================  =======================
``int``, ``int64``                         BIGINT               8 bytes
``int8``, ``int16``, ``int32``             TINYINT .. INT       4 bytes
``bool``                                   BOOLEAN              4 bytes, 0 or 1
``float``, ``float64``                     DOUBLE               its bits; one zero, one NaN
``float32``                                FLOAT                its bits; one zero, one NaN
``str``                                    STRING               its UTF-8 bytes
``bytes``                                  BINARY               its bytes
``None``                                   NULL                 nothing
=========================================  ===================  =======================
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError
from equipoise.kernels import kernel

FINGERPRINT_SEED = 42
"""The seed of Spark's ``xxhash64``. Histograms and plans carry the seed they were made with."""

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


@kernel(inline="always")
def _rotate(x: Any, bits: int) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@kernel(inline="always")
def _finish(h: Any) -> Any:
    h ^= h >> np.uint64(33)
    h *= _P2
    h ^= h >> np.uint64(29)
    h *= _P3
    return h ^ (h >> np.uint64(32))


@kernel
def hash_long(value: int, seed: int) -> int:
    """XXH64 of one 64-bit integer, as Spark hashes BIGINT."""
    h = np.uint64(seed) + _P5 + np.uint64(8)
    h ^= _rotate(np.uint64(value) * _P2, 31) * _P1
    h = _rotate(h, 27) * _P1 + _P4
    return np.int64(_finish(h))  # type: ignore[return-value]


@kernel
def _hash_int(value: int, seed: int) -> int:
    h = np.uint64(seed) + _P5 + np.uint64(4)
    h ^= (np.uint64(value) & np.uint64(0xFFFFFFFF)) * _P1
    h = _rotate(h, 23) * _P2 + _P3
    return np.int64(_finish(h))  # type: ignore[return-value]


@kernel(inline="always")
def _word(data: Any, at: int, width: int) -> Any:
    """Little-endian unsigned integer of ``width`` bytes."""
    word = np.uint64(0)
    for i in range(width):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@kernel
def _hash_bytes(data: Any, start: int, stop: int, seed: int) -> int:
    s = np.uint64(seed)
    at = start
    if stop - start >= 32:
        v1, v2, v3, v4 = s + _P1 + _P2, s + _P2, s, s - _P1
        while at + 32 <= stop:
            v1 = _rotate(v1 + _word(data, at, 8) * _P2, 31) * _P1
            v2 = _rotate(v2 + _word(data, at + 8, 8) * _P2, 31) * _P1
            v3 = _rotate(v3 + _word(data, at + 16, 8) * _P2, 31) * _P1
            v4 = _rotate(v4 + _word(data, at + 24, 8) * _P2, 31) * _P1
            at += 32
        h = _rotate(v1, 1) + _rotate(v2, 7) + _rotate(v3, 12) + _rotate(v4, 18)
        for v in (v1, v2, v3, v4):
            h ^= _rotate(v * _P2, 31) * _P1
            h = h * _P1 + _P4
    else:
        h = s + _P5
    h += np.uint64(stop - start)
    while at + 8 <= stop:
        h ^= _rotate(_word(data, at, 8) * _P2, 31) * _P1
        h = _rotate(h, 27) * _P1 + _P4
        at += 8
    if at + 4 <= stop:
        h ^= _word(data, at, 4) * _P1
        h = _rotate(h, 23) * _P2 + _P3
        at += 4
    while at < stop:
        h ^= np.uint64(data[at]) * _P5
        h = _rotate(h, 11) * _P1
        at += 1
    return np.int64(_finish(h))  # type: ignore[return-value]


@kernel
def _fold_longs(values: Any, valid: Any, running: Any) -> None:
    for i in range(len(values)):
        if valid[i]:
            running[i] = hash_long(values[i], running[i])


@kernel
def _fold_ints(values: Any, valid: Any, running: Any) -> None:
    for i in range(len(values)):
        if valid[i]:
            running[i] = _hash_int(values[i], running[i])


@kernel
def _fold_bytes(data: Any, ends: Any, valid: Any, running: Any) -> None:
    start = 0
    for i in range(len(ends)):
        if valid[i]:
            running[i] = _hash_bytes(data, start, ends[i], running[i])
        start = ends[i]


def fingerprints(*columns: NDArray[Any] | Iterable[object], seed: int = FINGERPRINT_SEED) -> NDArray[np.int64]:
    """Fingerprint every row of the given key columns.

    Parameters
    ----------
    *columns
        The key columns, in order, of equal length: NumPy arrays, or sequences of one of the types in the
        table above, with ``None`` for NULL.
    seed
        Seed of the first column; Spark's ``xxhash64`` uses 42.

    Examples
    --------
    >>> fingerprints(["spark", None, "storm"]).tolist()
    [-1960931134668248110, 42, -2928557970922724523]
    >>> fingerprints([1, 2], ["a", "b"]).shape
    (2,)
    """
    if not columns:
        raise InvalidArgumentError("fingerprints() got no key column; pass at least one")
    arrays = [_column(each) for each in columns]
    lengths = {len(a) for a in arrays}
    if len(lengths) > 1:
        raise InvalidArgumentError(f"key columns have different lengths {sorted(lengths)}; pass one value per row")
    running = np.full(lengths.pop(), whole("seed", seed, -(2**63)), dtype=np.int64)
    for array in arrays:
        _fold_column(array, running)
    return running


def fingerprint(*key: object, seed: int = FINGERPRINT_SEED) -> int:
    """Fingerprint one key, given as its column values.

    Examples
    --------
    >>> fingerprint("spark")
    -1960931134668248110
    >>> fingerprint(None)
    42
    """
    return int(fingerprints(*([value] for value in key), seed=seed)[0])


def as_fingerprints(values: ArrayLike) -> NDArray[np.int64]:
    """Return integers as a contiguous array of fingerprints; refuse other types and shapes."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1:
        raise InvalidArgumentError(f"fingerprints must be one-dimensional, got shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"fingerprints must be 64-bit integers, got {array.dtype}; make them with fingerprints(column)"
        )
    return np.ascontiguousarray(array.view(np.int64) if array.dtype == np.uint64 else array, dtype=np.int64)


@kernel
def _seeded(values: Any, seed: int, out: Any) -> None:
    start = hash_long(seed, FINGERPRINT_SEED)
    for i in range(len(values)):
        out[i] = hash_long(values[i], start)


def seeded_hashes(values: ArrayLike, seed: int) -> NDArray[np.int64]:
    """Hash fingerprints, or other integers, with the member ``seed`` of a family of hash functions.

    The equivalent in Spark is ``xxhash64(lit(seed).cast("long"), value)``.
    """
    array = as_fingerprints(values)
    out = np.empty_like(array)
    _seeded(array, seed, out)
    return out


def _column(values: NDArray[Any] | Iterable[object]) -> NDArray[Any]:
    """Return a key column as a one-dimensional array of a NumPy type or of Python objects."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise InvalidArgumentError(
                f"a key column must be one-dimensional, got shape {values.shape}; pass one argument per column"
            )
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidArgumentError(
            f"a key column must be a list of values, got {values!r}; use fingerprint() for one key"
        )
    items = [value.item() if isinstance(value, np.generic) else value for value in values]
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return array


def _fold_column(array: NDArray[Any], running: NDArray[np.int64]) -> None:
    """Fold one column into the running hashes."""
    valid = np.ones(len(array), dtype=np.bool_)
    if array.dtype == object:
        valid = np.array([value is not None for value in array], dtype=np.bool_)
        array = _typed(array, valid)
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind in "SU" or array.dtype == object:
        _fold_bytes(*_packed(array, valid), valid, running)
    elif kind == "f" and size in (4, 8):
        # Spark hashes -0.0 as 0.0, and all NaN alike, as Java's doubleToLongBits does
        unified = np.where(np.isnan(array), np.nan, array + 0).astype(array.dtype)
        if size == 8:
            _fold_longs(unified.view(np.int64), valid, running)
        else:
            _fold_ints(unified.view(np.int32).astype(np.int64), valid, running)
    elif kind == "i" and size == 8:
        _fold_longs(np.ascontiguousarray(array), valid, running)
    elif kind == "b" or (kind == "i" and size < 8):
        _fold_ints(array.astype(np.int64), valid, running)
    else:
        raise InvalidArgumentError(
            f"cannot fingerprint values of type {array.dtype}; "
            "use signed integers of at most 64 bits, floats, booleans, str or bytes"
        )


def _typed(array: NDArray[Any], valid: NDArray[np.bool_]) -> NDArray[Any]:
    """Convert an object column to the NumPy type of its values; NULL becomes a placeholder that is not hashed."""
    types = {type(value) for value in array[valid]}
    if types <= {str} or types <= {bytes}:
        return array
    for python_type, dtype in ((bool, np.bool_), (int, np.int64), (float, np.float64)):
        if types == {python_type}:
            try:
                return np.array([value if ok else 0 for value, ok in zip(array, valid, strict=True)], dtype=dtype)
            except OverflowError as error:
                raise InvalidArgumentError(f"an integer key does not fit 64 bits ({error}); pass it as str") from error
    names = ", ".join(sorted(t.__name__ for t in types))
    raise InvalidArgumentError(
        f"a key column must hold one type of int, float, bool, str or bytes (and None), got {names}"
    )


def _packed(array: NDArray[Any], valid: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Concatenate strings, encoded as UTF-8, or bytes; also return the end offset of each."""
    try:
        encoded = [
            (value.encode() if isinstance(value, str) else bytes(value)) if ok else b""
            for value, ok in zip(array.tolist(), valid, strict=True)
        ]
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"a key is not valid Unicode ({error}); Spark strings are UTF-8") from error
    ends = np.cumsum([len(each) for each in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), ends
