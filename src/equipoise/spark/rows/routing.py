"""A plan as one Catalyst expression: constant-time lookup in literal arrays.

The tail is an array indexed by ``fingerprint mod H``. Isolated keys are found by perfect hashing, as
:mod:`equipoise.plan.lookup` describes: if the slot holds the fingerprint, the row goes to the slot's partition, else by
the tail.

Arrays reach Spark as one string literal each, split and cast; Catalyst folds that into an array constant when it plans
the query, so a plan of any size costs one small message under Connect and nothing for each row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.errors import InvalidArgumentError
from equipoise.hashing import FINGERPRINT_SEED
from equipoise.metrics import makespan
from equipoise.plan import Plan
from equipoise.plan.lookup import COMPARED, literal, lookup_table


def partition_column(plan: Plan, fingerprint: Column) -> Column:
    """Return the partition of each row, an INT from 0 to N - 1, from its fingerprint.

    Parameters
    ----------
    plan
        The plan, made for fingerprints with Spark's seed.
    fingerprint
        BIGINT column of fingerprints: ``xxhash64`` of the key columns.
    """
    tail = F.get(int_array(plan.tail), _modulo(fingerprint, plan.tail_groups))
    return _by_plan(plan, fingerprint, tail, plan.assign(plan.isolated_keys))


def group_column(plan: Plan, fingerprint: Column) -> Column:
    """Return the key group of each row: its tail group, or H plus the place of its key among the isolated ones."""
    places = np.arange(len(plan.isolated_keys)) + plan.tail_groups
    return _by_plan(plan, fingerprint, _modulo(fingerprint, plan.tail_groups), places)


def _by_plan(plan: Plan, fingerprint: Column, tail: Column, isolated: NDArray[np.signedinteger]) -> Column:
    """Return ``isolated[i]`` for rows of the i-th isolated key, ``tail`` for the others."""
    if plan.hash_seed != FINGERPRINT_SEED:
        raise InvalidArgumentError(
            f"plan {plan.version} routes fingerprints of seed {plan.hash_seed}, but Spark's xxhash64 has seed "
            f"{FINGERPRINT_SEED}; plan from fingerprints made with the default seed"
        )
    return looked_up(plan.isolated_keys, isolated, fingerprint, tail)


def looked_up(
    keys: NDArray[np.int64], values: NDArray[np.signedinteger], fingerprint: Column, otherwise: Column
) -> Column:
    """Return ``values[i]``, at least 0, for rows with the fingerprint ``keys[i]``, ``otherwise`` for the rest.

    Parameters
    ----------
    keys, values
        Distinct fingerprints and a value for each.
    fingerprint
        BIGINT column of fingerprints.
    otherwise
        INT column.
    """
    if not len(keys):
        return otherwise
    if len(keys) <= COMPARED:
        few = F.when(fingerprint == F.lit(int(keys[0])), F.lit(int(values[0])))
        for key, value in zip(keys[1:].tolist(), values[1:].tolist(), strict=True):
            few = few.when(fingerprint == F.lit(key), F.lit(value))
        return few.otherwise(otherwise)
    table = lookup_table(keys, values)
    displacement = F.get(_array(table.displacements, "bigint"), _modulo(fingerprint, len(table.displacements)))
    slot = _modulo(F.xxhash64(displacement, fingerprint), len(table.keys))
    found = (F.get(_array(table.keys, "bigint"), slot) == fingerprint) & (F.get(int_array(table.values), slot) >= 0)
    return F.when(found, F.get(int_array(table.values), slot)).otherwise(otherwise)


def width_column(widths: Mapping[int, int], fingerprint: Column) -> Column:
    """Return the number of shards of the key of each row, from the widths of the keys that are split."""
    keys = np.array(sorted(widths), dtype=np.int64)
    counts = np.array([widths[key] for key in keys.tolist()], dtype=np.int64)
    return looked_up(keys, counts, fingerprint, F.lit(1))


def next_shard(width: Column) -> Column:
    """Return the shard of each row, by the hash of its place among the rows of its task.

    The place itself, modulo the width, would follow any periodic pattern of the rows.
    """
    dealt = F.pmod(F.xxhash64(F.monotonically_increasing_id()), width.cast("bigint")).cast("int")
    return F.when(width > 1, dealt).otherwise(F.lit(0))


def int_array(values: Sequence[int] | NDArray[np.generic]) -> Column:
    """Return an ARRAY<INT> constant."""
    return _array(values, "int")


def _array(values: Sequence[int] | NDArray[np.generic], element: str) -> Column:
    return F.split(F.lit(literal(values)), ",").cast(f"array<{element}>")


def _modulo(value: Column, divisor: int) -> Column:
    return F.pmod(value, F.lit(divisor).cast("bigint")).cast("int")


@dataclass(frozen=True, eq=False)
class SplitPlan:
    """Placement of keys and of shards of keys.

    Parameters
    ----------
    plan
        Plan of whole keys, and of shards by their own fingerprints.
    widths
        Number of shards, at least 2, of each key that is split, by its fingerprint.
    loads
        Predicted load of each partition, as a share of the load of whole keys.
    """

    plan: Plan
    widths: Mapping[int, int]
    loads: NDArray[np.float64]

    @property
    def partitions(self) -> int:
        """N, the number of partitions."""
        return self.plan.partitions

    def time(self, slots: int) -> float:
        """Return the predicted time on the slots, as a multiple of an even share of the work of whole keys."""
        return makespan(self.loads, slots) * slots

    def width(self, fingerprint: Column) -> Column:
        """Return the number of shards of the key of each row."""
        return width_column(self.widths, fingerprint)

    def shard(self, fingerprint: Column, number: Column) -> Column:
        """Return the fingerprint of a shard; that of the key if the key is whole.

        Parameters
        ----------
        fingerprint
            Fingerprint of the key.
        number
            Number of the shard, an INT below the width of the key.
        """
        if not self.widths:
            return fingerprint
        split = F.xxhash64(fingerprint, number.cast("bigint"))
        return F.when(self.width(fingerprint) > 1, split).otherwise(fingerprint)

    def partition(self, shard: Column) -> Column:
        """Return the partition of a key or a shard, by its fingerprint."""
        return partition_column(self.plan, shard)
