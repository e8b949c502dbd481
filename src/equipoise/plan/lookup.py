"""Lookup tables of plans: literal arrays that find an isolated key in constant time.

Isolated keys are found by perfect hashing in two levels (hash and displace): ``fingerprint mod B`` gives a bucket, the
bucket's displacement seeds a second hash, and that hash gives the only slot where the key can be.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.hashing import FINGERPRINT_SEED, hash_long
from equipoise.kernels import kernel
from equipoise.plan.plan import Plan

COMPARED = 4
"""Number of keys up to which comparing one by one is cheaper than a lookup."""

_KEYS_PER_BUCKET = 4
_EMPTY_SLOT = -1


class LookupTable(NamedTuple):
    """Arrays of a perfect hash table."""

    displacements: NDArray[np.int64]
    """Seed of the second hash, by bucket."""
    keys: NDArray[np.int64]
    """Fingerprint in each slot; 0 in free slots."""
    values: NDArray[np.int64]
    """Value of the key in each slot; -1 in free slots."""


def lookup_table(keys: NDArray[np.int64], values: NDArray[np.signedinteger]) -> LookupTable:
    """Return a table that maps ``keys[i]`` to ``values[i]``.

    Parameters
    ----------
    keys
        Distinct fingerprints.
    values
        Value of each key, at least 0.
    """
    displacements, slots = perfect_hash(keys)
    occupied = slots >= 0
    key_of = np.zeros(len(slots), dtype=np.int64)
    key_of[occupied] = keys[slots[occupied]]
    value_of = np.full(len(slots), _EMPTY_SLOT, dtype=np.int64)
    value_of[occupied] = values[slots[occupied]]
    return LookupTable(displacements, key_of, value_of)


@kernel
def _claim(keys: Any, members: Any, displacement: int, slots: Any) -> bool:
    """Put a bucket's keys into the slots that a displacement gives them; if one is taken, put none."""
    seed = hash_long(displacement, FINGERPRINT_SEED)
    for i in range(len(members)):
        slot = hash_long(keys[members[i]], seed) % len(slots)
        if slots[slot] != _EMPTY_SLOT:
            for j in range(i):
                slots[hash_long(keys[members[j]], seed) % len(slots)] = _EMPTY_SLOT
            return False
        slots[slot] = members[i]
    return True


@kernel
def _displace(keys: Any, members: Any, starts: Any, order: Any, displacements: Any, slots: Any) -> None:
    """Fill ``displacements`` and ``slots``; bucket b has the keys ``members[starts[b]:starts[b + 1]]``."""
    for bucket in order:
        mine = members[starts[bucket] : starts[bucket + 1]]
        while not _claim(keys, mine, displacements[bucket], slots):
            displacements[bucket] += 1


def perfect_hash(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the displacement of each bucket and, for each slot, the index of its key or -1.

    Key k is in slot ``xxhash64(displacement[k mod buckets], k) mod slots``. Buckets are filled by decreasing size, each
    with the first displacement that sends all its keys to free slots. Half of the slots stay free, so few displacements
    are tried.
    """
    buckets = max(1, -(-len(keys) // _KEYS_PER_BUCKET))
    slots = np.full(2 * len(keys), _EMPTY_SLOT, dtype=np.int64)
    displacements = np.zeros(buckets, dtype=np.int64)
    bucket_of = np.mod(keys, buckets)
    sizes = np.bincount(bucket_of, minlength=buckets)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    by_size = np.argsort(-sizes, kind="stable")
    _displace(keys, np.argsort(bucket_of, kind="stable"), starts, by_size, displacements, slots)
    return displacements, slots


def literal(values: Sequence[int] | NDArray[np.generic]) -> str:
    """Return an array of integers as comma-separated text, the form in which Spark gets it."""
    return msgspec.json.encode(np.asarray(values).tolist())[1:-1].decode()


def routing_bytes(plan: Plan) -> int:
    """Return the size in bytes of the literal arrays in the expression that routes rows by a plan.

    Examples
    --------
    >>> routing_bytes(Plan(2, [0, 1, 0, 1]))
    7
    """
    size = len(literal(plan.tail))
    if len(plan.isolated) <= COMPARED:
        return size
    table = lookup_table(plan.isolated_keys, plan.assign(plan.isolated_keys))
    # the expression has the values twice: to test for a free slot, and as the result
    return size + len(literal(table.displacements)) + len(literal(table.keys)) + 2 * len(literal(table.values))
