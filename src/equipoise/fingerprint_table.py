"""Open-addressing hash table from fingerprints to small integers, as numba kernels.

A table is two parallel arrays, ``keys`` and ``values``, whose length is a power of two. ``values[slot] == EMPTY`` marks
a free slot, so every fingerprint is a valid key. Collisions use linear probing; keys are not deleted. The caller keeps
the load at or below one half.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.kernels import kernel

EMPTY = -1

_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads fingerprints that share low bits


def capacity_for(count: int) -> int:
    """Return the smallest table length that holds ``count`` keys at a load of at most one half."""
    return max(8, 1 << (2 * count - 1).bit_length())


def new_table(count: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Make an empty table for up to ``count`` keys."""
    capacity = capacity_for(count)
    return np.zeros(capacity, dtype=np.int64), np.full(capacity, EMPTY, dtype=np.int32)


@kernel(inline="always")
def spread(key: int) -> Any:
    """Return 32 bits that depend on all bits of ``key``, as ``uint64``."""
    return (np.uint64(key) * _SPREAD) >> np.uint64(32)


@kernel(inline="always")
def home_slot(key: int, mask: int) -> int:
    """Return the slot at which the search for ``key`` starts."""
    return np.int64(spread(key) & np.uint64(mask))  # type: ignore[return-value]


@kernel(inline="always")
def find(keys: Any, values: Any, key: int) -> int:
    """Return the slot of ``key``, or the free slot where it would be inserted."""
    mask = len(keys) - 1
    slot = home_slot(key, mask)
    while values[slot] != EMPTY and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@kernel(inline="always")
def get(keys: Any, values: Any, key: int) -> int:
    """Return the value of ``key``, or ``EMPTY``."""
    return values[find(keys, values, key)]  # type: ignore[no-any-return]


@kernel(inline="always")
def put(keys: Any, values: Any, key: int, value: int) -> None:
    """Insert or overwrite ``key``."""
    slot = find(keys, values, key)
    keys[slot] = key
    values[slot] = value


@kernel
def fill(keys: Any, values: Any, new_keys: Any) -> None:
    """Map each of ``new_keys`` to its index."""
    for i in range(len(new_keys)):
        put(keys, values, new_keys[i], i)


@kernel
def put_all(keys: Any, values: Any, new_keys: Any, new_values: Any) -> None:
    """Insert or overwrite each of ``new_keys``."""
    for i in range(len(new_keys)):
        put(keys, values, new_keys[i], new_values[i])
