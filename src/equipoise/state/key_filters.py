"""Bloom filters of the keys of a frame: whether it may have entries of a fingerprint.

A filter has ten bits for each distinct number and four probes for each lookup, so about one lookup in a hundred finds a
number that is not there. Bit i is bit ``i % 8`` of byte ``i // 8``; its number of bits is a multiple of eight.

The number of a key is made of its first nine bytes: the fingerprint, plus a constant for each space of entries. It is
mixed as the last step of MurmurHash3 does; probe j is ``(low + j * high) % bits``, where low and high are the halves of
the result.
"""

from collections.abc import Collection
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

PREFIX_BYTES = 9
"""Bytes of a key that filters and ranges of frames are made of."""

Probe = tuple[int, int]
"""The halves of a hash."""

_BITS, _PROBES = 10, 4
_SPACE = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_PARTS = np.dtype([("space", "u1"), ("number", ">u8")])


def numbers_of(prefixes: Collection[bytes]) -> NDArray[np.uint64]:
    """Return the number of each key, given its first nine bytes; shorter keys end in zeros.

    Examples
    --------
    >>> numbers_of([bytes(8) + b"a", b""]).tolist()
    [97, 0]
    """
    parts = np.frombuffer(b"".join([prefix.ljust(PREFIX_BYTES, b"\x00") for prefix in prefixes]), _PARTS)
    return parts["number"].astype(np.uint64) + parts["space"].astype(np.uint64) * _SPACE


def filter_of(numbers: NDArray[np.uint64]) -> bytes:
    """Return the filter of some keys, given their numbers, best each once.

    Examples
    --------
    >>> made = filter_of(numbers_of([b"one", b"two"]))
    >>> may_hold(made, probe_of(b"one")), may_hold(made, probe_of(b"three"))
    (True, False)
    """
    size = (_BITS * len(numbers) + 7) // 8 * 8
    low, high = _halves(numbers)
    probes = low[:, None] + high[:, None] * np.arange(_PROBES, dtype=np.uint64)
    bits = np.zeros(size, np.bool_)
    bits[(probes % np.uint64(size)).ravel()] = True
    return np.packbits(bits, bitorder="little").tobytes()


@lru_cache(maxsize=1024)
def probe_of(prefix: bytes) -> Probe:
    """Return what ``may_hold`` needs to know of a key, given its first nine bytes."""
    low, high = _halves(numbers_of([prefix]))
    return int(low[0]), int(high[0])


def may_hold(content: bytes, probe: Probe) -> bool:
    """Whether a filter has the key; without bits it has none."""
    low, high = probe
    size = 8 * len(content)
    places = [(low + high * step) % size for step in range(_PROBES)] if size else []
    return bool(places) and all(content[place >> 3] >> (place & 7) & 1 for place in places)


def _halves(numbers: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    mixed = numbers ^ (numbers >> np.uint64(33))
    for factor in _MIX:
        mixed = mixed * factor
        mixed ^= mixed >> np.uint64(33)
    return mixed & np.uint64(0xFFFFFFFF), mixed >> np.uint64(32)
