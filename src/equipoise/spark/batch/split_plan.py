"""A plan in which hot keys are in pieces, and the expressions that send each row to one of them."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.errors import InvalidArgumentError
from equipoise.metrics import makespan
from equipoise.plan import Plan, Planner
from equipoise.spark.batch.key_loads import KeyLoads
from equipoise.spark.rows.routing import partition_column, width_column
from equipoise.split.shards import HOT, ladder

Split = str | int | Callable[[float, int], int] | None
"""How to split: ``"auto"``, a number of pieces for every hot key, a function of (share, N), or not at all."""

InPieces = Callable[[KeyLoads, Mapping[int, int]], KeyLoads]
"""Loads of keys of which some are in pieces, by their fingerprint."""

GOOD_ENOUGH = 1.02
"""Time over ideal at which no finer pieces are tried."""


@dataclass(frozen=True, eq=False)
class SplitPlan:
    """Where keys and pieces of keys go.

    Parameters
    ----------
    plan
        Of keys that are whole, and of pieces by their own fingerprints.
    widths
        Number of pieces, at least 2, of each key that is split, by its fingerprint.
    loads
        Load of each partition, as predicted, as a part of the load of whole keys.
    """

    plan: Plan
    widths: Mapping[int, int]
    loads: NDArray[np.float64]

    def time(self, slots: int) -> float:
        """Predicted time on so many slots, as a multiple of what an even spread of whole keys would take."""
        return makespan(self.loads, slots) * slots

    def width(self, fingerprint: Column) -> Column:
        """Number of pieces of the key of each row."""
        return width_column(self.widths, fingerprint)

    def piece(self, fingerprint: Column, number: Column) -> Column:
        """Fingerprint of a piece of a key: that of the key where it is whole.

        Parameters
        ----------
        fingerprint
            Of the key.
        number
            Which piece, an INT below the width of the key.
        """
        if not self.widths:
            return fingerprint
        split = F.xxhash64(fingerprint, number.cast("bigint"))
        return F.when(self.width(fingerprint) > 1, split).otherwise(fingerprint)

    def partition(self, piece: Column) -> Column:
        """Partition of a key or a piece."""
        return partition_column(self.plan, piece)


def plan_split(
    loads: KeyLoads,
    partitions: int,
    planner: Planner,
    slots: int,
    split: Split,
    in_shards: InPieces = KeyLoads.in_shards,
) -> SplitPlan:
    """Plan with hot keys in as few pieces as make the partitions even.

    Parameters
    ----------
    loads
        What is known of the keys.
    partitions
        N, number of partitions.
    planner
        Places keys and pieces.
    slots
        Tasks that run at a time.
    split
        How to split.
    in_shards
        Loads when keys are in so many pieces; default: the pieces share the load of their key.
    """

    def planned(widths: Mapping[int, int]) -> SplitPlan:
        parts = in_shards(loads, widths) if widths else loads
        plan = parts.plan(partitions, planner)
        return SplitPlan(plan, widths, parts.predicted(plan) * (parts.load / loads.load if loads.load else 1.0))

    best = planned({})
    if split is None or loads.hottest == 0:
        return best
    if split != "auto":
        return planned(_asked_for(loads, partitions, split))
    keys = loads.histogram.fingerprints.tolist()
    for step in ladder(loads.histogram.shares, partitions):
        if best.time(slots) <= GOOD_ENOUGH:
            break
        widths = {key: width for key, width in zip(keys, step.tolist(), strict=True) if width > 1}
        tried = planned(widths) if widths else best
        if tried.time(slots) < best.time(slots) / GOOD_ENOUGH:
            best = tried
    return best


def _asked_for(loads: KeyLoads, partitions: int, split: str | int | Callable[[float, int], int]) -> dict[int, int]:
    """Widths as the user wants them, of the hot keys."""
    if isinstance(split, str) or (isinstance(split, int) and isinstance(split, bool)):
        raise InvalidArgumentError(f"split must be 'auto', a number of pieces, a function or None, got {split!r}")
    hot = {key: share for key, share in loads.histogram if share > 1 / (HOT * partitions)}
    given = {key: split if isinstance(split, int) else split(share, partitions) for key, share in hot.items()}
    widths = {key: min(max(int(width), 1), partitions) for key, width in given.items()}
    outside = sorted({width for key, width in given.items() if width != widths[key]})
    if outside:
        warnings.warn(
            f"a key can be in 1 to {partitions} pieces, one for each partition; {outside} were asked for and were "
            "brought into that range",
            RuntimeWarning,
            stacklevel=2,
        )
    return {key: width for key, width in widths.items() if width > 1}
