"""Difference between two plans: the key groups that move, and their load and state."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from equipoise.errors import MismatchError
from equipoise.pictures import moves_figure
from equipoise.plan.cost import Costs, amount_text, price
from equipoise.plan.plan import Plan
from equipoise.readable import count_text
from equipoise.sketch.histogram import Histogram

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Move(NamedTuple):
    """Move of one key group to another partition."""

    source: int
    target: int


@dataclass(frozen=True)
class PlanDiff:
    """Moves from one plan to another.

    Parameters
    ----------
    before, after
        Versions of the two plans.
    groups
        Moves of tail groups, by group.
    keys
        Moves of keys that are isolated in either plan, by fingerprint.
    load
        Share of the load that moves; ``None`` if no histogram was given.
    state
        State that moves, in the unit of the measured states, or as a share of all state if none were measured;
        ``None`` if no histogram was given.
    partitions
        Number of partitions of the larger plan.
    """

    before: int
    after: int
    groups: dict[int, Move]
    keys: dict[int, Move]
    load: float | None
    state: float | None
    partitions: int

    def __bool__(self) -> bool:
        """Return whether anything moves."""
        return bool(self.groups or self.keys)

    def __str__(self) -> str:
        amount = "" if self.load is None else f": {self.load:.2%} of the load, state {amount_text(self.state or 0.0)}"
        moves = f"{count_text(len(self.groups), 'tail group')} and {count_text(len(self.keys), 'key')} move"
        return f"plan {self.before} -> {self.after}: {moves}{amount}"

    def plot(self) -> "Figure":
        """Draw the key groups that arrive at each partition and those that leave it."""
        return moves_figure(list(self.groups.values()), list(self.keys.values()), self.partitions, title=str(self))


def diff(before: Plan, after: Plan, histogram: Histogram | None = None, costs: Costs | None = None) -> PlanDiff:
    """Compare two plans over the same tail groups, and list the moves.

    Parameters
    ----------
    before, after
        The plans; N may differ, H and the hash seed may not.
    histogram
        Shares of the hot keys; needed for the load and state that move.
    costs
        Measured load and state.

    Examples
    --------
    >>> a, b = Plan(2, [0, 1, 0, 1]), Plan(2, [0, 1, 1, 1], {4: 1}, version=1)
    >>> moves = diff(a, b, Histogram([4], [0.4]))
    >>> moves.groups, moves.keys, round(moves.load, 3)
    ({2: Move(source=0, target=1)}, {4: Move(source=0, target=1)}, 0.55)
    """
    check_comparable(before, after)
    keys = np.union1d(before.isolated_keys, after.isolated_keys)
    key_moves = _moves(keys, before.assign(keys), after.assign(keys))
    group_moves = _moves(np.arange(before.tail_groups), before.tail, after.tail)
    partitions = max(before.partitions, after.partitions)
    if histogram is None:
        return PlanDiff(before.version, after.version, group_moves, key_moves, None, None, partitions)
    if histogram.hash_seed != before.hash_seed:
        raise MismatchError(
            f"the histogram was made with hash seed {histogram.hash_seed} but the plans with {before.hash_seed}; "
            "fingerprint both with the same seed"
        )
    priced = price(histogram, before.tail_groups, costs)
    key_moved = before.assign(priced.keys) != after.assign(priced.keys)
    group_moved = before.tail != after.tail
    load = priced.key_load[key_moved].sum() + priced.group_load[group_moved].sum()
    state = priced.key_state[key_moved].sum() + priced.group_state[group_moved].sum()
    return PlanDiff(before.version, after.version, group_moves, key_moves, float(load), float(state), partitions)


def check_comparable(before: Plan, after: Plan) -> None:
    """Raise ``MismatchError`` unless both plans cover the same tail groups, with the same hash seed."""
    if before.tail_groups != after.tail_groups:
        raise MismatchError(
            f"the plans cover {before.tail_groups} and {after.tail_groups} tail groups; "
            "only plans with the same number of tail groups can be compared"
        )
    if before.hash_seed != after.hash_seed:
        seeds = f"{before.hash_seed} and {after.hash_seed}"
        raise MismatchError(f"the plans have hash seeds {seeds}; only plans with the same seed can be compared")


def _moves(items: np.ndarray, source: np.ndarray, target: np.ndarray) -> dict[int, Move]:
    moved = source != target
    rows = zip(items[moved].tolist(), source[moved].tolist(), target[moved].tolist(), strict=True)
    return {item: Move(a, b) for item, a, b in rows}
