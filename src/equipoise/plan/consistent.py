"""Consistent-hash partitioning: tail groups on a ring, no key isolated."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.plan.planner import Planner, Problem, Proposal
from equipoise.plan.ring import HashRing


@lru_cache(maxsize=32)
def ring_tail(partitions: int, groups: int, replicas: int) -> NDArray[np.int32]:
    """Return the partition of each tail group on the ring, as a cached read-only array."""
    tail = HashRing(partitions, replicas=replicas).tail(groups)
    tail.setflags(write=False)
    return tail


@dataclass(frozen=True)
class Consistent(Planner):
    """Place tail groups by consistent hashing: few moves when N changes, without regard to load.

    Guarantees
    ----------
    - Growing by one partition moves about 1/N of the groups, all of them to the new partition.
    - Without a budget, the plan depends on N and H only.

    Differs from the paper
    ----------------------
    Tail groups are placed on the ring instead of single keys, so that a plan is one table and the state of a group
    moves together.

    Parameters
    ----------
    replicas
        Points on the ring for each partition.

    References
    ----------
    Gedik, "Partitioning functions for stateful data parallelism in stream processing", section 4.1.1.

    Examples
    --------
    >>> from equipoise.plan import Consistent, uniform_plan
    >>> from equipoise.sketch import Histogram
    >>> four = Consistent().plan(uniform_plan(4), Histogram([], []))
    >>> five = Consistent().plan(four, Histogram([], []), partitions=5)
    >>> set(five.tail[five.tail != four.tail].tolist())  # all moves go to the new partition
    {4}
    """

    name: ClassVar[str] = "consistent"
    replicas: int = 1000

    def __post_init__(self) -> None:
        whole("replicas", self.replicas, 1)

    def propose(self, problem: Problem) -> Proposal:
        """Look up every group on the ring for the new N."""
        tail = ring_tail(problem.partitions, problem.previous.tail_groups, self.replicas)
        return Proposal(tail, {}, f"consistent hash over {problem.partitions} partitions")
