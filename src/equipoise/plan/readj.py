"""Gedik's Readj: keeps frequent keys where they are, then makes moves and swaps while balance improves."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.kernels import kernel
from equipoise.plan.gedik import (
    Adaptation,
    Gedik,
    clearly_less,
    combined,
    current_product,
    extremes_besides,
    geometric_mean,
    order_partitions,
    partition_loads,
    penalty_scales,
    product_after,
)


class _Sweep(NamedTuple):
    """Values that are constant during one sweep over all readjustments."""

    loads: NDArray[np.float64]
    """Load of each resource (rows) in each partition."""
    order: NDArray[np.int64]
    """Partitions by increasing load, for each resource."""
    scales: NDArray[np.float64]
    """Factor from a spread of loads to a penalty, for each resource."""
    product: float
    """Product of the penalties of all resources at the start of the sweep."""
    moved: float
    """State that has moved so far."""
    members: NDArray[np.int64]
    """Items that may still move, by partition."""
    starts: NDArray[np.int64]
    """Position in ``members`` at which the items of each partition start."""
    drifts: bool
    """Whether the base of gains follows the best readjustment so far, as in the printed algorithm."""


class _Readjustment(NamedTuple):
    """Readjustment: ``item`` moves to ``target``, ``other`` (the last item: none) moves back in exchange."""

    gain: float
    item: int
    other: int
    target: int
    base: float


@kernel
def _group(placement: Any, movable: Any, partitions: int) -> Any:
    """Group movable items by partition: those of p are ``members[starts[p]:starts[p + 1]]``, in item order."""
    chosen = np.flatnonzero(movable)
    members = chosen[np.argsort(placement[chosen], kind="mergesort")]
    starts = np.zeros(partitions + 1, dtype=np.int64)
    for item in chosen:
        starts[placement[item] + 1] += 1
    return members, np.cumsum(starts)


@kernel(inline="always")
def _brings_closer(uses: Any, loads: Any, item: int, other: int, source: int, target: int, change: Any) -> bool:
    """Fill in the change of loads by an exchange; return whether it brings the two partitions closer in some resource.

    If it does not, the larger load does not fall and the smaller does not rise, so no spread narrows.
    """
    closer = False
    for resource in range(len(change)):
        change[resource] = uses[resource, item] - uses[resource, other]
        gap = loads[resource, source] - loads[resource, target]
        closer |= change[resource] * (gap - change[resource]) > 0
    return closer


@kernel(inline="always")
def _migration(state: Any, old: Any, item: int, source: int, target: int) -> float:
    """Return the change in migrated state when an item moves; negative when it moves back to its old place."""
    return state[item] * (int(target != old[item]) - int(source != old[item]))  # type: ignore[no-any-return]


@kernel
def _best_of_pair(
    step: Any, sweep: Any, source: int, target: int, largest: Any, smallest: Any, change: Any, best: Any
) -> Any:
    """Return the best of ``best`` and the moves and swaps of an item from ``source`` to ``target``."""
    shares, uses, state, old, none = step.shares, step.loads, step.state, step.old, len(step.shares) - 1
    loads, scales, starts, members = sweep.loads, sweep.scales, sweep.starts, sweep.members
    # each swap is found from both sides; the second time it can win only if the base has changed
    swaps = starts[target + 1] - starts[target] if sweep.drifts or source < target else 0
    for item in members[starts[source] : starts[source + 1]]:
        for at in range(-1, swaps):
            other = members[starts[target] + at] if at >= 0 else none
            if not _brings_closer(uses, loads, item, other, source, target, change):
                continue
            product = product_after(loads, largest, smallest, source, target, change, scales, step.floor)
            share = abs(shares[item] - shares[other])
            if share == 0 or not clearly_less(product, sweep.product):
                continue
            migrated = _migration(state, old, item, source, target) + _migration(state, old, other, target, source)
            value = combined(step.utility, geometric_mean(product, len(loads)), (sweep.moved + migrated) / step.ideal)
            if clearly_less(value, best.base - best.gain * share):
                gain = (best.base - value) / share
                best = _Readjustment(gain, item, other, target, value if sweep.drifts else best.base)
    return best


@kernel
def _best_readjustment(step: Any, sweep: Any, base: float) -> Any:
    """Return the first readjustment of largest gain that improves balance; its item is the last if there is none."""
    count, none = len(sweep.loads), len(step.shares) - 1
    largest, smallest, change = np.empty(count), np.empty(count), np.empty(count)
    best = _Readjustment(-np.inf, none, none, 0, base)
    is_extreme = np.zeros(step.partitions, dtype=np.bool_)
    for resource in range(count):
        is_extreme[sweep.order[resource, 0]] = is_extreme[sweep.order[resource, -1]] = True
    for source in range(step.partitions):
        for target in range(step.partitions):
            # if neither is extreme, other partitions determine every spread, which then cannot narrow
            if source != target and (is_extreme[source] or is_extreme[target]):
                extremes_besides(sweep.loads, sweep.order, source, target, largest, smallest)
                best = _best_of_pair(step, sweep, source, target, largest, smallest, change, best)
    return best


@kernel
def _readj(step: Any, max_moves: int, as_printed: bool) -> Any:
    """Make readjustments until none improves balance; return the partition of each item."""
    none = len(step.shares) - 1
    placement = np.where(step.old < step.partitions, step.old, step.fallback)
    moves = np.zeros(none + 1, dtype=np.int64)
    loads = partition_loads(step, placement[:none])
    scales = penalty_scales(step, loads.sum(axis=1))
    moved = step.forgotten + step.state[placement != step.old].sum()
    base = 0.0
    while True:
        order = order_partitions(loads)
        product = current_product(step, loads, order)
        if not as_printed:
            base = combined(step.utility, geometric_mean(product, len(loads)), moved / step.ideal)
        members, starts = _group(placement[:none], moves[:none] < max_moves, step.partitions)
        sweep = _Sweep(loads, order, scales, product, moved, members, starts, as_printed)
        best = _best_readjustment(step, sweep, base)
        if best.item == none:
            return placement[:none]
        source, target, base = placement[best.item], best.target, best.base
        for item, here, there in ((best.item, source, target), (best.other, target, source)):
            loads[:, here] -= step.loads[:, item]
            loads[:, there] += step.loads[:, item]
            moved += _migration(step.state, step.old, item, here, there)
            placement[item] = there
            moves[item] += 1


@dataclass(frozen=True)
class Readj(Gedik):
    """Gedik's Readj: frequent keys stay where they are, then the best move or swap is made while balance improves.

    Guarantees
    ----------
    - Those of :class:`Gedik`.
    - No key moves more than ``max_moves`` times within one plan; the balance penalty falls with every move.
    - It suits changes of N by a few partitions. If many empty partitions are added at once, moves to them are ties, all
      keys pass through the first, and ``max_moves`` may end the search far from balance.

    Differs from the paper
    ----------------------
    - A readjustment that worsens balance is skipped; algorithm 4 prints ``break``, which could miss the best one.
    - Gains of one sweep are measured from the utility of the current placement. Algorithm 4 starts from 0 and lets the
      base follow the best candidate, so that candidates are compared with different bases (``as_printed`` does so).
    - Swaps of keys with equal shares are left out: their gain per share moved is 0 / 0.
    - The differences listed for :class:`Gedik`.

    Parameters
    ----------
    state, computation, communication, utility, alpha, theta, sigma, domain_size, tracked, replicas, as_printed
        See :class:`Gedik`.
    max_moves
        Largest number of times that one key may move (c).

    References
    ----------
    Gedik, "Partitioning functions for stateful data parallelism in stream processing", algorithm 4.

    Examples
    --------
    >>> from equipoise.plan.uniform import uniform_plan
    >>> from equipoise.sketch.histogram import Histogram
    >>> hot = Histogram([1, 2, 3, 4], [0.3, 0.3, 0.2, 0.2])
    >>> plan = Readj().plan(uniform_plan(1), hot, partitions=2)
    >>> sorted(plan.isolated.values())
    [0, 0, 1, 1]
    """

    name: ClassVar[str] = "readj"
    max_moves: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("max_moves", self.max_moves, 1)

    def place(self, step: Adaptation) -> NDArray[np.int64]:
        """Run algorithm 4, with one additional item without share, load or state, which stands for none."""
        padded = step._replace(
            shares=np.append(step.shares, 0.0),
            loads=np.pad(step.loads, ((0, 0), (0, 1))),
            state=np.append(step.state, 0.0),
            old=np.append(step.old, 0),
            fallback=np.append(step.fallback, 0),
        )
        return np.asarray(_readj(padded, self.max_moves, self.as_printed))
