"""Base class of planners, which make the next plan from the last one, a histogram and measured costs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.plan.cost import Costs, Priced, amount_text, price
from equipoise.plan.plan import Plan
from equipoise.sketch.histogram import Histogram


def default_tail_groups(partitions: int) -> int:
    """Return the default number of tail groups for N partitions: a power of two, at least 64 for each partition.

    With 64 groups per partition, the tail is placed in steps of about 1.5 % of a partition's load.

    Examples
    --------
    >>> default_tail_groups(4), default_tail_groups(100)
    (1024, 8192)
    """
    partitions = whole("partitions", partitions, 1)
    return max(1024, 1 << (64 * partitions - 1).bit_length())


@dataclass(frozen=True, eq=False)
class Problem:
    """Planning problem: previous plan, new number of partitions, loads and states, budget."""

    previous: Plan
    partitions: int
    priced: Priced
    budget: float | None

    @property
    def histogram(self) -> Histogram:
        """The listed keys."""
        return self.priced.histogram


@dataclass(frozen=True, eq=False)
class Proposal:
    """Proposal of a planner: the partition of every tail group and every isolated key, and the reason."""

    tail: NDArray[np.int32]
    isolated: dict[int, int]
    reason: str

    def after(self, previous: Plan, partitions: int, planner: str) -> Plan:
        """Return the proposal as the plan that follows ``previous``."""
        return Plan(
            partitions,
            self.tail,
            self.isolated,
            version=previous.version + 1,
            planner=planner,
            reason=self.reason,
            parent=previous.version,
            hash_seed=previous.hash_seed,
        )


class Planner(ABC):
    """Base class of planners.

    Guarantees
    ----------
    - Pure and deterministic: equal inputs give equal plans.
    - Every tail group and every isolated key belongs to exactly one of the N partitions.
    - The state that moves stays within ``budget``, apart from the state of partitions that are removed. If the budget
      cuts a plan, no other guarantee of the method holds for it.
    - If nothing would change, the previous plan is returned instead of an equal one.
    """

    name: ClassVar[str]
    """Name in plans, options and benchmarks."""

    def plan(
        self,
        previous: Plan,
        histogram: Histogram,
        *,
        partitions: int | None = None,
        costs: Costs | None = None,
        budget: float | None = None,
    ) -> Plan:
        """Make the next plan after ``previous``.

        Parameters
        ----------
        previous
            The plan in force.
        histogram
            Hot keys and their shares of the load that the new plan is for.
        partitions
            New number of partitions; ``None`` keeps the number.
        costs
            Measured load and state of tail groups and keys.
        budget
            Largest amount of state that may move, in the unit of the measured states. If none were measured, in the
            unit of ``Costs.state_of_share``, which for linear growth is a fraction of all state. ``None``: no limit.

        Returns
        -------
        Plan
            The next version, or ``previous`` itself if nothing changes.
        """
        count = previous.partitions if partitions is None else whole("partitions", partitions, 1)
        if count > previous.tail_groups:
            raise InvalidArgumentError(
                f"{count} partitions need at least {count} tail groups, but plan {previous.version} "
                f"has {previous.tail_groups}; start from a plan with more tail groups"
            )
        if histogram.hash_seed != previous.hash_seed:
            raise MismatchError(
                f"the histogram was made with hash seed {histogram.hash_seed} but plan {previous.version} with "
                f"{previous.hash_seed}; fingerprint both with the same seed"
            )
        if budget is not None and not (isinstance(budget, int | float | np.number) and budget >= 0):
            raise InvalidArgumentError(f"budget must be a number of at least 0, got {budget!r}")
        problem = Problem(previous, count, price(histogram, previous.tail_groups, costs), budget)
        proposal = self.propose(problem)
        if budget is not None:
            proposal = within_budget(problem, proposal)
        proposed = proposal.after(previous, count, self.name)
        return previous if proposed.same_routing(previous) else proposed

    @abstractmethod
    def propose(self, problem: Problem) -> Proposal:
        """Solve one problem; the method may ignore the budget, which ``plan`` enforces."""


def within_budget(problem: Problem, proposal: Proposal, received: float = inf) -> Proposal:
    """Reduce a proposal to the best moves within the budget, of which each partition receives a limited part.

    A proposal within the budget is returned unchanged. Otherwise moves are taken one by one, starting from the previous
    placement: always the move with the most load per state from the most loaded partition that has one left. A move
    that exceeds the budget, or that would lift its target above its source, is skipped. So the cut never raises the
    largest load. Moves from partitions that are removed are always made and not charged.

    Parameters
    ----------
    problem
        The planning problem, with a budget.
    proposal
        A solution.
    received
        Largest amount of state that one partition may receive.
    """
    previous, priced = problem.previous, problem.priced
    assert problem.budget is not None  # noqa: S101 - checked by the caller; for the type checker
    groups = len(proposal.tail)
    keys = np.array(sorted({*proposal.isolated, *previous.isolated}), dtype=np.int64)
    before = np.concatenate([previous.tail, previous.assign(keys)])
    after = np.concatenate([proposal.tail, Plan(problem.partitions, proposal.tail, proposal.isolated).assign(keys)])
    load, state = (np.concatenate(pair) for pair in zip(priced.of_groups(keys), priced.of_keys(keys), strict=True))
    moving = before != after
    charged = moving & (before < problem.partitions)
    incoming = np.bincount(after[charged], state[charged], problem.partitions)
    if incoming.sum() <= problem.budget and incoming.max() <= received:
        return proposal
    placed, spent = _affordable(before, after, load, state, problem.partitions, problem.budget, received)
    tail = placed[:groups].astype(np.int32)
    home_partition = tail[np.mod(keys, groups)]
    isolated = {
        key: where
        for key, where, at_home in zip(keys.tolist(), placed[groups:].tolist(), home_partition, strict=True)
        if where != at_home or key in proposal.isolated
    }
    return Proposal(
        tail,
        isolated,
        f"{proposal.reason}; cut to a budget of {amount_text(problem.budget)}, moves {amount_text(spent)}",
    )


def _affordable(
    before: NDArray[np.int32],
    after: NDArray[np.int32],
    load: NDArray[np.float64],
    state: NDArray[np.float64],
    partitions: int,
    budget: float,
    received: float,
) -> tuple[NDArray[np.int32], float]:
    """Return the placement after the moves that are taken, and the state they move."""
    forced = before >= partitions
    placed = np.where(forced, after, before)
    loads = np.bincount(placed, load, partitions)
    pending: list[list[int]] = [[] for _ in range(partitions)]
    moves = np.flatnonzero((before != after) & ~forced)
    for move in moves[np.argsort(load[moves] / np.maximum(state[moves], np.finfo(float).tiny), kind="stable")].tolist():
        pending[placed[move]].append(move)
    spent, incoming = 0.0, np.zeros(partitions)
    sources = [(-loads[p], p) for p in range(partitions) if pending[p]]
    heapify(sources)
    while sources:
        key, source = heappop(sources)
        if -key != loads[source]:
            heappush(sources, (-loads[source], source))
            continue
        move = pending[source].pop()
        target = after[move]
        is_affordable = spent + state[move] <= budget and incoming[target] + state[move] <= received
        if is_affordable and loads[target] + load[move] <= loads[source]:
            placed[move] = target
            spent += state[move]
            incoming[target] += state[move]
            loads[source] -= load[move]
            loads[target] += load[move]
        if pending[source]:
            heappush(sources, (-loads[source], source))
    return placed, spent
