"""Plan with hot keys in as few shards as make the partitions even."""

from collections.abc import Callable, Mapping

from equipoise.errors import InvalidArgumentError
from equipoise.plan import Planner
from equipoise.spark.batch.key_loads import KeyLoads
from equipoise.spark.batch.sample import warn_caller
from equipoise.spark.rows.routing import SplitPlan
from equipoise.split.shards import HOT, ladder

Split = str | int | Callable[[float, int], int] | None
"""How to split: ``"auto"``, a number of shards for every hot key, a function of (share, N), or not at all."""

InShards = Callable[[KeyLoads, Mapping[int, int]], KeyLoads]
"""Function that returns loads with some keys in shards, by fingerprint."""

GOOD_ENOUGH = 1.02
"""Time over ideal at which no more shards are tried."""


def plan_split(
    loads: KeyLoads,
    partitions: int,
    planner: Planner,
    slots: int,
    split: Split,
    in_shards: InShards = KeyLoads.in_shards,
) -> SplitPlan:
    """Return a plan with hot keys in as few shards as make the partitions even.

    Parameters
    ----------
    loads
        Loads of the keys.
    partitions
        N, number of partitions.
    planner
        Planner for keys and shards.
    slots
        Number of tasks that run at the same time.
    split
        How to split.
    in_shards
        Returns the loads with some keys in shards; default: the shards share the load of their key.
    """

    def planned(widths: Mapping[int, int]) -> SplitPlan:
        placed = in_shards(loads, widths) if widths else loads
        plan = placed.plan(partitions, planner)
        return SplitPlan(plan, widths, placed.predicted(plan) * (placed.load / loads.load if loads.load else 1.0))

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
    """Return the widths of the hot keys as the user asked for them."""
    if isinstance(split, str) or (isinstance(split, int) and isinstance(split, bool)):
        raise InvalidArgumentError(f"split must be 'auto', a number of shards, a function or None, got {split!r}")
    hot = {key: share for key, share in loads.histogram if share > 1 / (HOT * partitions)}
    given = {key: split if isinstance(split, int) else split(share, partitions) for key, share in hot.items()}
    widths = {key: min(max(int(width), 1), partitions) for key, width in given.items()}
    outside = sorted({width for key, width in given.items() if width != widths[key]})
    if outside:
        warn_caller(
            f"a key can have 1 to {partitions} shards, one for each partition; {outside} were asked for and were "
            "brought into that range"
        )
    return {key: width for key, width in widths.items() if width > 1}
