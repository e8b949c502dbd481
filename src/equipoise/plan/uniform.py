"""Uniform hash partitioning: tail groups dealt out evenly, no key isolated."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equipoise.arguments import whole
from equipoise.hashing import FINGERPRINT_SEED
from equipoise.plan.plan import Plan
from equipoise.plan.planner import Planner, Problem, Proposal, default_tail_groups


@dataclass(frozen=True)
class Uniform(Planner):
    """Plain hash partitioning without regard to load (UHP of DR): the baseline of every comparison.

    Guarantees
    ----------
    - A key goes to ``(fingerprint mod H) mod N``; when N divides H that is ``fingerprint mod N``.
    - Without a budget, the plan depends on N and H only.

    Differs from the paper
    ----------------------
    Only in the hash function, which is Spark's ``xxhash64``.

    Examples
    --------
    >>> uniform_plan(4).assign([0, 5, 10]).tolist()
    [0, 1, 2]
    """

    name: ClassVar[str] = "uniform"

    def propose(self, problem: Problem) -> Proposal:
        """Deal out the groups for the new N."""
        tail = np.arange(problem.previous.tail_groups, dtype=np.int32) % problem.partitions
        return Proposal(tail, {}, f"plain hash over {problem.partitions} partitions")


def uniform_plan(partitions: int, tail_groups: int | None = None, *, hash_seed: int = FINGERPRINT_SEED) -> Plan:
    """Return a first plan: plain hash, no key isolated.

    Parameters
    ----------
    partitions
        N, number of partitions.
    tail_groups
        H, number of tail groups, the same for all plans that follow; default 64 or more for each partition.
    hash_seed
        Seed of the fingerprints.

    Examples
    --------
    >>> plan = uniform_plan(4)
    >>> plan.tail[:6].tolist(), plan.reason
    ([0, 1, 2, 3, 0, 1], 'plain hash over 4 partitions')
    """
    partitions = whole("partitions", partitions, 1)
    groups = default_tail_groups(partitions) if tail_groups is None else whole("tail_groups", tail_groups, partitions)
    tail = np.arange(groups) % partitions
    reason = f"plain hash over {partitions} partitions"
    return Plan(partitions, tail, planner=Uniform.name, reason=reason, hash_seed=hash_seed)
