"""Mixed (Fang et al.): a small routing table over a hash, within a bound on imbalance, with little migration."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import PlanningError
from equipoise.kernels import kernel
from equipoise.plan.consistent import ring_tail
from equipoise.plan.planner import Planner, Problem, Proposal

_ROUNDING = 1e-9  # relative rounding error of sums of shares, by which a load may exceed its limit
_STEP = 1.01  # ratio of neighbouring load limits in the search for the least imbalance


class _Routing(NamedTuple):
    """Keys that may move, by decreasing load (ties by fingerprint), with loads and present places."""

    keys: NDArray[np.int64]
    load: NDArray[np.float64]
    """c(k); 0 for keys of the routing table that are not listed."""
    home: NDArray[np.int64]
    """h(k)."""
    start: NDArray[np.int64]
    """F(k): partition by the routing table, else by the hash."""
    movable: NDArray[np.int64]
    """Keys with load, by decreasing migration priority."""
    table: NDArray[np.int64]
    """Keys that the routing table sends away from their hash partition, by increasing state."""
    base: NDArray[np.float64]
    """Load of the unlisted keys in each partition, which cannot move."""

    @property
    def mean(self) -> float:
        """Mean load of a partition."""
        return float(self.load.sum() + self.base.sum()) / len(self.base)

    def largest(self, placement: NDArray[np.int64]) -> float:
        """Return the load of the fullest partition."""
        return float((self.base + np.bincount(placement, self.load, len(self.base))).max())

    def cleaned(self, count: int) -> NDArray[np.int64]:
        """Phase I: return the placement after the ``count`` table keys of smallest state went home."""
        placement = self.start.copy()
        placement[self.table[:count]] = self.home[self.table[:count]]
        return placement


@kernel
def _group(movable: Any, placement: Any, partitions: int) -> Any:
    """Group movable keys by partition: those of p are ``members[starts[p]:starts[p + 1]]``, by decreasing priority."""
    members = movable[np.argsort(placement[movable], kind="mergesort")]
    starts = np.zeros(partitions + 1, dtype=np.int64)
    for key in movable:
        starts[placement[key] + 1] += 1
    return members, np.cumsum(starts)


@kernel(inline="always")
def _gives_way(other: int, key: int, taken: Any, load: Any) -> bool:
    """Return whether ``other`` may be exchanged for ``key``; if not, nor may it for the lighter keys that follow."""
    return not taken[other] and load[other] < load[key]


@kernel
def _exchange_end(members: Any, first: int, end: int, taken: Any, load: Any, key: int, excess: float) -> int:
    """Return the end of the shortest run of lighter keys whose load covers ``excess``; -1 if there is none."""
    at = first
    while excess > 0:
        if at == end:
            return -1
        if _gives_way(members[at], key, taken, load):
            excess -= load[members[at]]
        at += 1
    return at


@kernel
def _assign(
    key: int, members: Any, firsts: Any, ends: Any, taken: Any, load: Any, loads: Any, limit: float, placement: Any
) -> bool:
    """Place a key on the least loaded partition that has room for it, if needed after removing lighter keys."""
    # rounded, so that loads that differ by rounding are equal and the first partition wins
    for partition in np.argsort(np.rint(loads / (_ROUNDING * limit)), kind="mergesort"):
        end, excess = ends[partition], loads[partition] + load[key] - limit
        while firsts[partition] < end and not _gives_way(members[firsts[partition]], key, taken, load):
            firsts[partition] += 1
        stop = _exchange_end(members, firsts[partition], end, taken, load, key, excess)
        if stop >= 0:
            for other in members[firsts[partition] : stop]:
                if _gives_way(other, key, taken, load):
                    taken[other] = True
                    loads[partition] -= load[other]
            loads[partition] += load[key]
            placement[key] = partition
            return True
    return False


@kernel
def _rebalance(movable: Any, load: Any, base: Any, limit: float, placement: Any) -> bool:
    """Phases II and III: change ``placement`` so that no partition exceeds ``limit``; return whether this succeeded.

    A key is exchanged for lighter ones only, and keys are assigned by decreasing load. So one pass over the keys
    assigns them all, and keys that may be exchanged are still in their initial place.
    """
    members, starts = _group(movable, placement, len(base))
    taken = np.zeros(len(load), dtype=np.bool_)
    loads = base.copy()
    for key in movable:
        loads[placement[key]] += load[key]
    for partition in range(len(base)):
        for key in members[starts[partition] : starts[partition + 1]]:
            if loads[partition] <= limit:
                break
            taken[key] = True
            loads[partition] -= load[key]
        if loads[partition] > limit:
            return False
    firsts, ends = starts[:-1].copy(), starts[1:]
    for key in range(len(load)):
        if taken[key] and not _assign(key, members, firsts, ends, taken, load, loads, limit, placement):
            return False
    return True


@dataclass(frozen=True)
class Mixed(Planner):
    """Adapt a routing table over a hash by moving the keys with the most load for their state.

    Guarantees
    ----------
    - No partition has more than 1 + theta_max times the mean load; theta_max is given or found by the search.
    - At most ``table_size`` keys are isolated, each in another partition than its tail group.
    - Tail groups stay where they are as long as N does; a new N puts them on the ring for it.
    - Planning always ends: a search at the latest at the imbalance at which nothing has to move, a given bound with a
      plan or a :class:`PlanningError`.

    Differs from the paper
    ----------------------
    - Only listed keys move; all others stay in their tail groups.
    - An exchange removes strictly lighter keys only: with equal ones it might not end.
    - Keys of the routing table that are no longer listed keep their entry until the table is cleaned.
    - In the paper, the bound on imbalance is given. Here, as in DR's runs, a search tries ascending bounds and takes
      the first that succeeds. It starts at the imbalance that the hottest key and the unlisted load make unavoidable.
      Each step allows 1 % more load than the one before: 0.01 in theta_max near balance, and about 100 ln N steps at
      most.
    - There is no compact representation of keys, which saves time only.

    Parameters
    ----------
    table_size
        A_max, largest size of the routing table; ``None``: 2 N + 1, as in DR's runs.
    max_imbalance
        theta_max, largest allowed load above the mean, relative to the mean; ``None``: the smallest that the search
        finds.
    beta
        Weight of load against state in the migration priority, load^beta / state.
    replicas
        Points on the ring for each partition.

    References
    ----------
    Fang et al., "Parallel stream processing against workload skewness and variance".
    Zvara, Szabo, Lorant, Benczur, "System-aware dynamic partitioning for batch and streaming workloads", section 5.

    Examples
    --------
    >>> from equipoise.plan.plan import Plan
    >>> from equipoise.sketch.histogram import Histogram
    >>> hot = Histogram([0, 1, 2, 3], [0.6, 0.2, 0.1, 0.1])
    >>> plan = Mixed(max_imbalance=0.2).plan(Plan(2, [0, 1, 1, 0]), hot)
    >>> dict(plan.isolated)
    {3: 1}
    """

    name: ClassVar[str] = "mixed"
    table_size: int | None = None
    max_imbalance: float | None = None
    beta: float = 1.5
    replicas: int = 1000

    def __post_init__(self) -> None:
        if self.table_size is not None:
            whole("table_size", self.table_size, 0)
        if self.max_imbalance is not None:
            at_least("max_imbalance", self.max_imbalance, 0)
        at_least("beta", self.beta, 0)
        whole("replicas", self.replicas, 1)

    def propose(self, problem: Problem) -> Proposal:
        """Adapt the routing table, within the given bound on imbalance or the smallest that can be found."""
        previous, partitions = problem.previous, problem.partitions
        keeps_tail = partitions == previous.partitions
        tail = previous.tail if keeps_tail else ring_tail(partitions, previous.tail_groups, self.replicas)
        routing = self._routing(problem, tail)
        table_size = 2 * partitions + 1 if self.table_size is None else self.table_size
        if self.max_imbalance is None:
            placement = _search(routing, table_size)
        else:
            placement = _bounded(routing, table_size, self.max_imbalance)
        away = placement != routing.home
        isolated = dict(zip(routing.keys[away].tolist(), placement[away].tolist(), strict=True))
        reason = (
            f"routing table of {len(isolated)} keys (at most {table_size}), "
            f"largest load {routing.largest(placement) / routing.mean:.4g} times the mean"
        )
        return Proposal(tail, isolated, reason)

    def _routing(self, problem: Problem, tail: NDArray[np.int32]) -> _Routing:
        previous, priced = problem.previous, problem.priced
        listed = problem.histogram.fingerprints
        silent = previous.isolated_keys[~np.isin(previous.isolated_keys, listed)]
        keys = np.concatenate([listed, silent])
        load, state = priced.of_keys(keys)
        home = tail[np.mod(keys, len(tail))].astype(np.int64)
        before = previous.assign(keys).astype(np.int64)
        routed = np.isin(keys, previous.isolated_keys) & (before < problem.partitions)
        start = np.where(routed, before, home)
        priority = load**self.beta / np.maximum(state, np.finfo(float).tiny)
        by_priority = np.argsort(-priority, kind="stable")
        table = np.flatnonzero(start != home)
        return _Routing(
            keys=keys,
            load=load,
            home=home,
            start=start,
            movable=by_priority[load[by_priority] > 0],
            table=table[np.lexsort((keys[table], state[table]))],
            base=np.bincount(tail, priced.group_load, problem.partitions).astype(np.float64),
        )


def _bounded(routing: _Routing, table_size: int, max_imbalance: float) -> NDArray[np.int64]:
    """Return a placement within a given bound on imbalance."""
    placement = _adapt(routing, table_size, (1 + max_imbalance) * routing.mean)
    if placement is None:
        least = _unavoidable(routing) / routing.mean - 1
        raise PlanningError(
            f"mixed found no plan with an imbalance of at most {max_imbalance:.4g} and at most {table_size} isolated "
            f"keys; the smallest possible imbalance is {least:.4g}, and the greedy method may need more; "
            "raise max_imbalance or table_size, or leave out max_imbalance to search for the smallest"
        )
    return placement


def _search(routing: _Routing, table_size: int) -> NDArray[np.int64]:
    """Return the placement of the first of ascending bounds on imbalance that can be met."""
    too_many = max(0, len(routing.table) - table_size)
    fallback = routing.cleaned(too_many)
    # at this limit no partition is overloaded, before or after cleaning, so the result is the fallback
    certain = max(routing.largest(routing.start), routing.largest(fallback))
    limit = _unavoidable(routing)
    while limit < certain:
        placement = _adapt(routing, table_size, limit)
        if placement is not None:
            return placement
        limit *= _STEP
    return fallback


def _unavoidable(routing: _Routing) -> float:
    """Return a lower bound of the largest load of any placement."""
    hottest = float(routing.load.max(initial=0.0))
    return max(routing.mean, float(routing.base.max()), hottest + float(routing.base.min()))


def _adapt(routing: _Routing, table_size: int, limit: float) -> NDArray[np.int64] | None:
    """Run all three phases, cleaning more and more keys from the table until it is small enough."""
    count = 0
    while count <= len(routing.table):
        placement = routing.cleaned(count)
        if not _rebalance(routing.movable, routing.load, routing.base, limit * (1 + _ROUNDING), placement):
            return None
        too_many = int(np.count_nonzero(placement != routing.home)) - table_size
        if too_many <= 0:
            return placement
        count += too_many
    return None
