"""Bloom filters of the keys of a frame: whether it may have entries of a fingerprint.

A filter has ten bits for each distinct number and four probes for each lookup, so about one lookup in a hundred finds a
number that is not there. Bit i is bit ``i % 8`` of byte ``i // 8``; its number of bits is a multiple of eight.

The number of a key is made of its first nine bytes: the fingerprint, plus a constant for each space of entries. It is
hashed with ``seeded_hashes``; probe j is ``(low + j * high) % bits``, where low and high are the halves of the hash.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.hashing import seeded_hashes

PREFIX_BYTES = 9
"""Bytes of a key that filters and ranges of frames are made of."""

Probe = tuple[int, int]
"""The halves of a hash."""

_BITS, _PROBES, _SEED = 10, 4, 0x5EED
_SPACE = np.uint64(0x9E3779B97F4A7C15)
_PARTS = np.dtype([("space", "u1"), ("number", ">u8")])


def numbers_of(prefixes: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return the number of each key, given its first nine bytes; shorter keys end in zeros.

    Examples
    --------
    >>> numbers_of([bytes(8) + b"a", b""]).tolist()
    [97, 0]
    """
    parts = np.frombuffer(b"".join([prefix.ljust(PREFIX_BYTES, b"\x00") for prefix in prefixes]), _PARTS)
    return parts["number"].astype(np.uint64) + parts["space"].astype(np.uint64) * _SPACE


def filter_of(numbers: NDArray[np.uint64]) -> bytes:
    """Return the filter of some keys, given their numbers.

    Examples
    --------
    >>> made = filter_of(numbers_of([b"one", b"two"]))
    >>> may_hold(made, probe_of(b"one")), may_hold(made, probe_of(b"three"))
    (True, False)
    """
    distinct = np.unique(numbers)
    size = (_BITS * len(distinct) + 7) // 8 * 8
    low, high = _halves(distinct)
    probes = low[:, None] + high[:, None] * np.arange(_PROBES, dtype=np.uint64)
    bits = np.zeros(size, np.bool_)
    bits[(probes % np.uint64(size)).ravel()] = True
    return np.packbits(bits, bitorder="little").tobytes()


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
    hashes = seeded_hashes(numbers.view(np.int64), _SEED).view(np.uint64)
    return hashes & np.uint64(0xFFFFFFFF), hashes >> np.uint64(32)
