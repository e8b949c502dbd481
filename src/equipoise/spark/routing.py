"""A plan as one Catalyst expression: constant-time lookup in literal arrays.

The tail is an array indexed by ``fingerprint mod H``. Isolated keys are found by perfect hashing in two levels (hash
and displace): ``fingerprint mod B`` gives a bucket, the bucket's displacement seeds a second hash, and that hash gives
the only slot where the key can be. If the slot holds the fingerprint, the row goes to the slot's partition, else by the
tail.

Arrays reach Spark as one string literal each, split and cast; Catalyst folds that into an array constant when it plans
the query, so a plan of any size costs one small message under Connect and nothing per row.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.errors import InvalidArgument
from equipoise.hashing import FINGERPRINT_SEED, fingerprints
from equipoise.plan import Plan

_KEYS_PER_BUCKET = 4
_COMPARED = 4  # keys up to which comparing one after the other is cheaper than looking up


def partition_column(plan: Plan, fingerprint: Column) -> Column:
    """Partition of each row, an INT from 0 to N - 1, from its fingerprint.

    Parameters
    ----------
    plan
        The plan; of fingerprints with Spark's seed.
    fingerprint
        BIGINT column of fingerprints: ``xxhash64`` of the key columns.
    """
    tail = F.get(int_array(plan.tail), _modulo(fingerprint, plan.tail_groups))
    return _by_plan(plan, fingerprint, tail, plan.assign(plan.isolated_keys))


def group_column(plan: Plan, fingerprint: Column) -> Column:
    """Number of the key group of each row: its tail group, or H plus the place of its key among the isolated ones."""
    places = np.arange(len(plan.isolated_keys)) + plan.tail_groups
    return _by_plan(plan, fingerprint, _modulo(fingerprint, plan.tail_groups), places)


def _by_plan(plan: Plan, fingerprint: Column, tail: Column, isolated: NDArray[np.signedinteger]) -> Column:
    """``isolated[i]`` for rows of the i-th isolated key, ``tail`` for the others."""
    if plan.hash_seed != FINGERPRINT_SEED:
        raise InvalidArgument(
            f"plan {plan.version} routes fingerprints of seed {plan.hash_seed}, but Spark's xxhash64 has seed "
            f"{FINGERPRINT_SEED}; plan from fingerprints made with the default seed"
        )
    return looked_up(plan.isolated_keys, isolated, fingerprint, tail)


def looked_up(
    keys: NDArray[np.int64], values: NDArray[np.signedinteger], fingerprint: Column, otherwise: Column
) -> Column:
    """``values[i]``, which must be at least 0, for rows with the fingerprint ``keys[i]``, ``otherwise`` for the rest.

    Parameters
    ----------
    keys, values
        Distinct fingerprints and what stands for each.
    fingerprint
        BIGINT column of fingerprints.
    otherwise
        INT column.
    """
    if not len(keys):
        return otherwise
    if len(keys) <= _COMPARED:
        few = F.when(fingerprint == F.lit(int(keys[0])), F.lit(int(values[0])))
        for key, value in zip(keys[1:].tolist(), values[1:].tolist(), strict=True):
            few = few.when(fingerprint == F.lit(key), F.lit(value))
        return few.otherwise(otherwise)
    displacements, slots = perfect_hash(keys)
    value_of = np.full(len(slots), -1)
    occupied = slots >= 0
    value_of[occupied] = values[slots[occupied]]
    key_of = np.zeros(len(slots), dtype=np.int64)
    key_of[occupied] = keys[slots[occupied]]
    displacement = F.get(_array(displacements, "bigint"), _modulo(fingerprint, len(displacements)))
    slot = _modulo(F.xxhash64(displacement, fingerprint), len(slots))
    found = (F.get(_array(key_of, "bigint"), slot) == fingerprint) & (F.get(int_array(value_of), slot) >= 0)
    return F.when(found, F.get(int_array(value_of), slot)).otherwise(otherwise)


def perfect_hash(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Displacement of each bucket and, for each slot, the index of its key or -1.

    Key k is in slot ``xxhash64(displacement[k mod buckets], k) mod slots``. Buckets are filled from the fullest on,
    each with the first displacement that sends all its keys to free slots; half of the slots stay free, so few are
    tried.
    """
    buckets = max(1, -(-len(keys) // _KEYS_PER_BUCKET))
    slots = np.full(2 * len(keys), -1, dtype=np.int64)
    displacements = np.zeros(buckets, dtype=np.int64)
    bucket_of = np.mod(keys, buckets)
    for bucket in np.argsort(-np.bincount(bucket_of, minlength=buckets), kind="stable").tolist():
        members = np.flatnonzero(bucket_of == bucket)
        displacement = -1
        while True:
            displacement += 1
            wanted = np.mod(fingerprints(np.full(len(members), displacement), keys[members]), len(slots))
            if len(np.unique(wanted)) == len(members) and np.all(slots[wanted] < 0):
                break
        displacements[bucket] = displacement
        slots[wanted] = members
    return displacements, slots


def int_array(values: Sequence[int] | NDArray[np.generic]) -> Column:
    """An ARRAY<INT> constant."""
    return _array(values, "int")


def _array(values: Sequence[int] | NDArray[np.generic], element: str) -> Column:
    return F.split(F.lit(",".join(map(str, np.asarray(values).tolist()))), ",").cast(f"array<{element}>")


def _modulo(value: Column, divisor: int) -> Column:
    return F.pmod(value, F.lit(divisor).cast("bigint")).cast("int")
