"""Advice on a keyed operation: what would help, by how much, or why to leave it alone.

One measure decides everywhere: the *time over ideal*, which is the predicted time on the slots of the cluster over the
shortest time that any placement allows. The ideal is an even share of the work for each slot or, if keys must stay
whole, the hottest key if that takes longer.
"""

from collections.abc import Mapping
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import InvalidArgumentError
from equipoise.metrics import makespan
from equipoise.plan import Plan
from equipoise.readable import key_text
from equipoise.spark.rows.advice import Action, Advice
from equipoise.spark.rows.explained import Facts
from equipoise.spark.rows.routing import SplitPlan
from equipoise.split.shards import shards_text

WORTH_IT = 1.1
"""Smallest predicted gain that is worth a change; predictions are less wrong than that."""

OVERPARTITIONING = (2, 4, 8, 16)
"""Multiples of the number of partitions under Spark's hash that plans are compared with."""

_SHOWN = 10  # keys


class Operation(Enum):
    """Operation on the groups of a key."""

    APPLY_IN_PANDAS = "applyInPandas"
    APPLY_IN_ARROW = "applyInArrow"
    COGROUP = "cogroup"
    WINDOW = "window"
    AGG = "agg"
    AGGREGATE = "aggregate"
    JOIN = "join"

    @property
    def splits(self) -> bool:
        """Whether a key may be split: its partial buffers can be merged, or the other side repeated."""
        return self in {Operation.AGGREGATE, Operation.JOIN}

    @classmethod
    def of(cls, given: "str | Operation") -> "Operation":
        """Return an operation by its name, or as given."""
        try:
            return cls(given)
        except ValueError:
            names = ", ".join(each.value for each in cls)
            raise InvalidArgumentError(f"no advice on operation {given!r}; choose one of {names}") from None


def advice_for(
    operation: Operation,
    *,
    hottest: float,
    loads: Mapping[str, NDArray[np.float64]],
    slots: int,
    plan: Plan | SplitPlan | None = None,
) -> Advice:
    """Compare the predicted loads of several ways to place keys.

    Parameters
    ----------
    operation
        Operation on the groups.
    hottest
        Share of the hottest key.
    loads
        Share of the load in each partition by way: ``hash`` and ``whole``; optionally ``split``, and ``hash_x2`` and so
        on for a multiple of the partitions.
    slots
        Number of tasks that run at the same time.
    plan
        The plan behind ``split`` or, without it, ``whole``.
    """
    if not loads["hash"].any():
        return Advice(Action.NOTHING, "there are no rows with a load, so there is nothing to balance", {}, plan)
    count = len(loads["hash"])
    over = {way: time_over_ideal(each, slots, None if operation.splits else hottest) for way, each in loads.items()}
    numbers = {"hottest_share": hottest, **{f"{way}_over_ideal": time for way, time in over.items()}}
    stuck = not operation.splits and hottest > 1 / slots
    if isinstance(plan, SplitPlan) and plan.widths:
        return Advice(
            Action.SPLIT,
            f"one key carries {hottest:.1%} of the load, {hottest * count:.1f} partitions' worth; the job is predicted "
            f"at {over['split']:.2f} times the ideal time with {shards_text(plan.widths)}, at {over['whole']:.2f} with "
            f"whole keys, at {over['hash']:.2f} with Spark's hash",
            numbers,
            plan,
        )
    if over["hash"] <= WORTH_IT:
        why = "the load is even"
        if stuck:
            why = f"one key carries {hottest:.1%} of the load and cannot be split, so no plan beats {hottest:.1%}"
        return Advice(
            Action.NOTHING,
            f"{why}; Spark's hash is predicted at {over['hash']:.2f} times the ideal time",
            numbers,
            plan,
        )
    limit = ""
    if stuck:
        limit = (
            f"; one key carries {hottest:.1%} and cannot be split, so no plan beats {hottest * slots:.2f} of even work"
        )
    factors = {factor: over[f"hash_x{factor}"] for factor in OVERPARTITIONING if f"hash_x{factor}" in over}
    best = min(factors, key=lambda factor: factors[factor], default=1)
    if best > 1 and factors[best] <= over["whole"] * 1.02:
        return Advice(
            Action.MORE_PARTITIONS,
            f"{best * count} partitions of Spark's hash are predicted {over['hash'] / factors[best]:.2f} times faster "
            f"than {count}, as fast as a plan{limit}",
            numbers,
            plan,
        )
    gain = over["hash"] / over["whole"]
    if gain >= WORTH_IT:
        return Advice(
            Action.ISOLATE, f"a plan is predicted {gain:.2f} times faster than Spark's hash{limit}", numbers, plan
        )
    reason = f"a plan is predicted only {gain:.2f} times faster than Spark's hash{limit}"
    return Advice(Action.NOTHING, reason, numbers, plan)


def time_over_ideal(loads: NDArray[np.float64], slots: int, hottest: float | None) -> float:
    """Return the predicted time on the slots over the ideal one.

    Parameters
    ----------
    loads
        Share of the load in each partition.
    slots
        Number of tasks that run at the same time.
    hottest
        Share of the hottest key if keys must stay whole; ``None`` if they can be split.
    """
    return makespan(loads, slots) / ideal_time(slots, hottest)


def ideal_time(slots: int, hottest: float | None) -> float:
    """Return the shortest possible time, as a share of the time of all work on one slot."""
    return max(1 / slots, hottest or 0.0)


def shard_facts(plan: SplitPlan, side_of: Mapping[int, str] | None = None) -> Facts:
    """Return the keys in shards as facts to show.

    Parameters
    ----------
    plan
        The plan.
    side_of
        Side of a join on which each key is split.
    """
    widest = sorted(plan.widths.items(), key=lambda pair: -pair[1])[:_SHOWN]
    facts = []
    for key, width in widest:
        where = f", split on the {side_of[key]}" if side_of else ""
        facts.append((f"  {key_text(key)}", f"{width} shards{where}"))
    return facts
