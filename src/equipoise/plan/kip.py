"""Key Isolator Partitioner (KIP), the default planner: isolate hot keys, and move only what does not fit."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.kernels import kernel
from equipoise.metrics import makespan
from equipoise.plan.planner import Planner, Problem, Proposal

_UNPLACED = -1
_NOTHING = (
    1e-12  # fraction of all load below which a load counts as rounding error, as in a group whose keys are all isolated
)
_ROUNDING = 1e-9  # relative rounding error of sums of loads
_TINY = 1e-300  # keeps load / cost a number where both are 0
_ROUNDS = 8  # of shedding and placing; two or three suffice for all but contrived loads
_BUSY_SLOTS = 16  # largest number of slots assumed to be busy with one hot key each
_NOTEWORTHY = 0.005  # relative gain in time for which partitions are left empty
_HEADROOM = 0.3  # of the other partitions over their mean where one key fills more than a mean partition
_CEILING_STEPS = 20  # bisection steps in the search for the lowest ceiling within the budget


@kernel
def _members(where: Any, partitions: int) -> Any:
    """Group items by partition: those of partition p are ``items[starts[p]:starts[p + 1]]``, in order."""
    starts = np.zeros(partitions + 1, dtype=np.int64)
    for i in range(len(where)):
        if where[i] != _UNPLACED:
            starts[where[i] + 1] += 1
    starts = np.cumsum(starts)
    at = starts.copy()
    items = np.empty(starts[-1], dtype=np.int64)
    for i in range(len(where)):
        if where[i] != _UNPLACED:
            items[at[where[i]]] = i
            at[where[i]] += 1
    return starts, items


@kernel
def _shed(placed: Any, cost: Any, load: Any, loads: Any, ceiling: float) -> bool:
    """Remove items from every partition above the ceiling, largest load per cost first.

    An item larger than the remaining excess stays. If that leaves the partition above the ceiling, the smallest item
    that covers the excess is removed, too.
    """
    starts, items = _members(placed, len(loads))
    shed_any = False
    for p in range(len(loads)):
        excess = loads[p] - ceiling
        if excess <= 0:
            continue
        mine = items[starts[p] : starts[p + 1]]
        density = np.empty(len(mine))
        for j in range(len(mine)):
            density[j] = -(load[mine[j]] + _TINY) / (cost[mine[j]] + _TINY)
        for j in np.argsort(density, kind="mergesort"):
            i = mine[j]
            if 0 < load[i] <= excess:
                placed[i] = _UNPLACED
                excess -= load[i]
        last = _UNPLACED
        for i in mine:
            would_do = placed[i] != _UNPLACED and load[i] >= excess > 0
            if would_do and (last == _UNPLACED or (load[i], cost[i]) < (load[last], cost[last])):
                last = i
        remaining = ceiling + excess
        # moving the only item of a partition gains nothing
        if last != _UNPLACED and load[last] < remaining * (1 - _ROUNDING):
            placed[last] = _UNPLACED
            remaining -= load[last]
        shed_any |= remaining < loads[p]
        loads[p] = remaining
    return shed_any


@kernel
def _cost_of_room(items: Any, placed: Any, partition: int, load: Any, cost: Any, room: float, limit: float) -> float:
    """Return the cost of removing the first of the items that have a load of ``room`` together, if below ``limit``."""
    spent = 0.0
    for i in items:
        if room <= 0 or spent >= limit:
            return spent
        if placed[i] == partition:
            spent += cost[i]
            room -= load[i]
    return spent if room <= 0 else np.inf


@kernel
def _move_largest(placed: Any, cost: Any, load: Any, loads: Any, ceiling: float) -> None:
    """Move items larger than a mean partition out of overfull partitions, to where moving and making room cost least.

    Nearly all other items have to leave the partition of such an item, whichever it is.
    """
    largest = np.flatnonzero(load > loads.mean())
    largest = largest[placed[largest] != _UNPLACED]
    largest = largest[loads[placed[largest]] > ceiling]
    if len(largest) == 0:
        return
    order = np.argsort(-(load + _TINY) / (cost + _TINY), kind="mergesort")
    starts, items = _members(placed[order], len(loads))
    items = order[items]
    for i in largest[np.argsort(-load[largest], kind="mergesort")]:
        home = placed[i]
        if loads[home] <= ceiling:
            continue
        placed[i] = _UNPLACED
        highest = max(ceiling, load[i] * (1 + _ROUNDING))
        mine = items[starts[home] : starts[home + 1]]
        best, least = home, _cost_of_room(mine, placed, home, load, cost, loads[home] - highest, np.inf)
        for p in range(len(loads)):
            if p != home and least > cost[i]:
                room, others = loads[p] + load[i] - highest, items[starts[p] : starts[p + 1]]
                needed = cost[i] + _cost_of_room(others, placed, p, load, cost, room, least - cost[i])
                if needed < least:
                    best, least = p, needed
        loads[home] -= load[i]
        loads[best] += load[i]
        placed[i] = best


@kernel
def _sift_down(heap: Any, loads: Any, at: int) -> None:
    """Restore a heap of partitions ordered by (load, number) after the load at ``at`` has grown."""
    size = len(heap)
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        right = child + 1
        if right < size and (loads[heap[right]], heap[right]) < (loads[heap[child]], heap[child]):
            child = right
        if (loads[heap[at]], heap[at]) <= (loads[heap[child]], heap[child]):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@kernel
def _place(placed: Any, loads: Any, load: Any) -> None:
    """Place every unplaced item, largest first, on the least loaded partition.

    Items without load are dealt out in turn: they do not change loads, so all would go to the same partition.
    """
    heap = np.argsort(loads, kind="mergesort")
    unplaced = np.flatnonzero(placed == _UNPLACED)
    nothing = _NOTHING * load.sum()
    dealt = 0
    for j in np.argsort(-load[unplaced], kind="mergesort"):
        i = unplaced[j]
        if load[i] <= nothing:
            placed[i] = dealt % len(loads)
            dealt += 1
            continue
        p = heap[0]
        placed[i] = p
        loads[p] += load[i]
        _sift_down(heap, loads, 0)


@kernel
def _pack(where: Any, load: Any, state: Any, partitions: int, ceiling: float) -> Any:
    """Return a placement that keeps all items at ``where`` except those that do not fit below the ceiling.

    A large item that moves may lift its new partition above the ceiling; in the next round, smaller items move out of
    its way. An item that has moved already costs nothing to move again. The result is the best round.
    """
    placed = where.copy()
    loads = np.zeros(partitions)
    for i in range(len(where)):
        if where[i] != _UNPLACED:
            loads[where[i]] += load[i]
    cost = state.copy()
    _move_largest(placed, cost, load, loads, ceiling)
    best, best_loads = placed, loads
    for round_number in range(_ROUNDS):
        shed_any = _shed(placed, cost, load, loads, ceiling)
        for i in range(len(placed)):
            if placed[i] == _UNPLACED:
                cost[i] = 0.0
        _place(placed, loads, load)
        if round_number == 0 or loads.max() < best_loads.max():
            best, best_loads = placed.copy(), loads.copy()
        if not shed_any or loads.max() <= ceiling:
            break
    moved = 0.0
    for i in range(len(best)):
        if best[i] != where[i] and where[i] != _UNPLACED:
            moved += state[i]
    return best, best_loads, moved


@dataclass(frozen=True)
class KIP(Planner):
    """Isolate the hottest keys, and move only what lifts a partition above the attainable load (default planner).

    This is the idea of Algorithm 1 of DR, applied to measured loads and states. Isolated keys and tail groups stay
    where they are, unless their partition is above the ceiling ``max(1/N, f_1) * (1 + slack)``. From such a partition,
    the items with the least state for their load are removed until it fits. They are then packed, largest first, into
    the least loaded partitions. A key larger than a mean partition leaves an overfull partition first, if room for it
    costs less elsewhere.

    Where one key is larger than a mean partition, the ceiling of a new plan is lower: 1.3 times the mean of the
    partitions that such keys leave to the others, if that is less. So the others do not fill up to the hottest key, and
    the plan has room for keys that become hotter.

    Guarantees
    ----------
    - With an unchanged number of partitions, a plan is made only if it lowers the predicted largest load by at least
      half of ``slack``. So no plan is worse than the previous one, and planning stops when the load is stable.
    - A previous plan within the ceiling is kept, so an even load moves nothing.
    - Groups without any load that are placed anew are spread evenly, so that new keys do not meet in one partition.
    - The moved state stays within the budget; a small budget raises the ceiling.
    - O(K log K + H log H) time for K listed keys and H tail groups.

    Differs from the paper
    ----------------------
    - Tail groups (the paper's hosts) have their measured loads if known; in the paper all have the same share.
    - Moves cost the measured state if known; in the paper every move costs the same.
    - A heavy key is first kept where it is, as in the paper. It leaves an overfull partition if it is not larger than
      the excess; or if it is larger than a mean partition, to the partition whose other items have the least state to
      move. Else the hottest key stays and the others make room for it.
    - Moved items go to the least loaded partition; the paper first tries the key's hash location, and moves hosts to
      the first partition that has room.
    - A key that has cooled down stays isolated, at no cost, until its place in the table is needed.
    - Beside a key larger than a mean partition, the ceiling of the others is lower; in the paper it is the key's load.
    - There is a budget, and the planner may keep the previous plan.

    Parameters
    ----------
    histogram_scale
        Number of isolated keys for each partition (lambda).
    slack
        Fraction by which a partition may exceed the attainable load before anything moves (epsilon, relative to the
        attainable load).
    repack
        Pack all items anew, largest first, instead of keeping what fits. Use it for work without state, where moves are
        free. The partitions of a new plan are in order of decreasing load, so that the longest task starts first.
    slots
        Number of tasks that run at the same time, for ``repack``: the number of filled partitions is chosen for the
        shortest time on these slots. ``None``: all tasks run at once.

    References
    ----------
    Zvara, Szabo, Lorant, Benczur, "System-aware dynamic partitioning for batch and streaming workloads", section 4.

    Examples
    --------
    >>> from equipoise.plan import KIP, uniform_plan
    >>> from equipoise.sketch import Histogram
    >>> plan = KIP().plan(uniform_plan(4), Histogram([8, 16, 24], [0.25, 0.2, 0.15]))
    >>> sorted(plan.assign([8, 16, 24]).tolist())
    [0, 1, 2]
    >>> print(plan.reason)
    largest load 2.800 -> 1.009 of the mean, bound 1.000
    """

    name: ClassVar[str] = "kip"
    histogram_scale: float = 2.0
    slack: float = 0.01
    repack: bool = False
    slots: int | None = None

    def __post_init__(self) -> None:
        at_least("histogram_scale (lambda)", self.histogram_scale, 0)
        at_least("slack (epsilon)", self.slack, 0)
        if self.slots is not None:
            whole("slots", self.slots, 1)

    @property
    def _least_gain(self) -> float:
        """Fraction of the attainable load that a new plan must gain; above rounding, so that planning stops."""
        return max(1e-9, self.slack / 2)

    def propose(self, problem: Problem) -> Proposal:
        """Keep what fits and pack the rest, or with ``repack`` pack everything anew."""
        items = _Items(problem, round(self.histogram_scale * problem.partitions))
        return self._packed_anew(problem, items) if self.repack else self._adapted(problem, items)

    def _adapted(self, problem: Problem, items: "_Items") -> Proposal:
        """Keep what fits, and pack the rest into the least loaded partitions."""
        previous, count = problem.previous, problem.partitions
        before = problem.priced.loads(previous)
        bound = max(before.sum() / count, problem.priced.largest_share)
        ceiling = bound * (1 + self.slack)
        if previous.partitions == count and before.max() <= ceiling:
            return Proposal(previous.tail, dict(previous.isolated), "already within the ceiling")
        ceiling = min(ceiling, (1 + _HEADROOM) * _water_level(problem.priced.histogram.shares, before.sum(), count))
        where = np.where(items.where < count, items.where, _UNPLACED)
        if problem.budget is not None:
            highest = max(ceiling, float(before.max()))
            ceiling = _affordable_ceiling(where, items, count, ceiling, highest, problem.budget)
        placed, loads, _ = _pack(where, items.load, items.state, count, ceiling)
        if previous.partitions == count and before.max() - loads.max() < self._least_gain * bound:
            return Proposal(previous.tail, dict(previous.isolated), "no better plan found")
        means = before.sum() / previous.partitions, before.sum() / count
        change = f"largest load {before.max() / means[0]:.3f} -> {loads.max() / means[1]:.3f} of the mean"
        return items.proposal(placed, f"{change}, bound {bound / means[1]:.3f}")

    def _packed_anew(self, problem: Problem, items: "_Items") -> Proposal:
        """Pack all items, largest first, into the number of partitions with the shortest time."""
        previous, count = problem.previous, problem.partitions
        slots = min(self.slots or count, count)
        before = problem.priced.loads(previous)
        ideal = max(before.sum() / slots, problem.priced.largest_share)
        time_before = makespan(before, slots)
        if previous.partitions == count and time_before <= ideal * (1 + self.slack):
            return Proposal(previous.tail, dict(previous.isolated), "already within the ceiling")
        best, best_time = items.where, np.inf
        for filled in _fillings(count, slots):
            unplaced = np.full_like(items.where, _UNPLACED)
            placed, loads, _ = _pack(unplaced, items.load, items.state, filled, 0.0)
            order = np.argsort(-loads, kind="stable")
            time = makespan(loads[order], slots)
            if time < best_time * (1 - _NOTEWORTHY):
                best, best_time = np.argsort(order)[placed], time
        if previous.partitions == count and time_before - best_time < self._least_gain * ideal:
            return Proposal(previous.tail, dict(previous.isolated), "no better plan found")
        change = f"time on {slots} slots {time_before / ideal:.3f} -> {best_time / ideal:.3f} of the ideal"
        return items.proposal(best, change)


def _water_level(shares: NDArray[np.float64], total: float, partitions: int) -> float:
    """Return the mean load of the partitions that are left to the tail by keys with more than this mean.

    Examples
    --------
    >>> _water_level(np.array([0.5, 0.25, 0.0625]), 1.0, 4)
    0.125
    """
    largest = shares[: partitions - 1]
    rest = (total - np.concatenate([[0.0], np.cumsum(largest)])) / (partitions - np.arange(len(largest) + 1))
    return float(rest.min())


def _fillings(partitions: int, slots: int) -> list[int]:
    """Return the numbers of partitions worth filling: all, and those that leave no slot idle beside hot keys.

    If h slots are each busy with one hot key, the number of other tasks should be a multiple of the remaining slots.
    """
    busy = range(min(slots, _BUSY_SLOTS))
    return [partitions, *(h + (slots - h) * ((partitions - h) // (slots - h)) for h in busy)]


class _Items:
    """Items that KIP places: first the isolated keys, then the tail groups without them."""

    def __init__(self, problem: Problem, hot: int) -> None:
        previous, priced = problem.previous, problem.priced
        listed = priced.histogram.fingerprints
        hot = min(hot, len(listed))
        cooled = np.setdiff1d(previous.isolated_keys, listed[:hot], assume_unique=True)[: max(hot, problem.partitions)]
        self.hot = hot
        self.keys = np.concatenate([listed[:hot], cooled])
        self.groups = previous.tail_groups
        of_keys, of_groups = priced.of_keys(self.keys), priced.of_groups(self.keys)
        self.load, self.state = (np.concatenate(pair) for pair in zip(of_keys, of_groups, strict=True))
        self.where = np.concatenate([previous.assign(self.keys), previous.tail]).astype(np.int64)

    def proposal(self, placed: NDArray[np.int64], reason: str) -> Proposal:
        """Return the placement as a proposal.

        A key that has cooled down is no longer isolated if it is in the partition of its tail group.
        """
        tail = placed[len(self.keys) :].astype(np.int32)
        at_home = tail[np.mod(self.keys, self.groups)] == placed[: len(self.keys)]
        kept = ~at_home
        kept[: self.hot] = True
        isolated = dict(zip(self.keys[kept].tolist(), placed[: len(self.keys)][kept].tolist(), strict=True))
        return Proposal(tail, isolated, reason)


def _affordable_ceiling(
    where: NDArray[np.int64], items: _Items, partitions: int, lowest: float, highest: float, budget: float
) -> float:
    """Return the lowest ceiling whose moves stay within the budget."""
    if _pack(where, items.load, items.state, partitions, lowest)[2] <= budget:
        return lowest
    for _ in range(_CEILING_STEPS):
        middle = (lowest + highest) / 2
        if _pack(where, items.load, items.state, partitions, middle)[2] <= budget:
            highest = middle
        else:
            lowest = middle
    return highest
