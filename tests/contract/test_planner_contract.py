"""Every exported planner keeps the promises of a planner, and the checks notice one that does not."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from equipoise.checks import check_planner
from equipoise.errors import CheckError
from equipoise.plan import KIP, PLANNERS, Mixed, Planner, Readj, Redist, Resource, Scan, Utility
from equipoise.plan.planner import Problem, Proposal

PARAMETERISED = [
    *(each() for each in PLANNERS.values()),
    KIP(histogram_scale=0, slack=0),
    KIP(histogram_scale=5, slack=0.3),
    *(kind(theta=0.2, tracked=20, utility=utility) for kind in (Scan, Redist, Readj) for utility in Utility),
    *(kind(computation=Resource.QUADRATIC, domain_size=1000) for kind in (Scan, Redist, Readj)),
    *(kind(as_printed=True, tracked=20) for kind in (Scan, Redist, Readj)),
    Mixed(table_size=3),
]


@pytest.mark.parametrize("planner", PARAMETERISED, ids=repr)
def test_a_planner_keeps_its_promises(planner):
    check_planner(planner)


@dataclass(frozen=True)
class Broken(Planner):
    """A planner that breaks one promise."""

    name: ClassVar[str] = "broken"

    def propose(self, problem: Problem) -> Proposal:
        return Proposal(problem.previous.tail % problem.partitions, {}, "nothing")


class Random(Broken):
    generator = np.random.default_rng()

    def propose(self, problem):
        tail = self.generator.integers(0, problem.partitions, problem.previous.tail_groups)
        return Proposal(tail, {}, "by chance")


class Silent(Broken):
    def propose(self, problem):
        return Proposal(np.zeros_like(problem.previous.tail), {}, "")


class Deaf(Broken):
    def plan(self, previous, histogram, *, partitions=None, costs=None, budget=None):
        return super().plan(previous, histogram, partitions=partitions or None, costs=costs, budget=budget)


class Spendthrift(Broken):
    name = KIP.name

    def plan(self, previous, histogram, *, partitions=None, costs=None, budget=None):
        super().plan(previous, histogram, partitions=partitions, costs=costs, budget=budget)
        return KIP(slack=0).plan(previous, histogram, partitions=partitions, costs=costs)


class Stubborn(Broken):
    def plan(self, previous, histogram, *, partitions=None, costs=None, budget=None):
        super().plan(previous, histogram, partitions=partitions, costs=costs, budget=budget)
        return previous


@pytest.mark.parametrize(
    ("planner", "complaint"),
    [
        (Random(), "two equal calls gave different plans"),
        (Silent(), "its reason"),
        (Deaf(), "was accepted"),
        (Spendthrift(), "with a budget of"),
        (Stubborn(), "partitions, got"),
    ],
)
def test_a_broken_promise_is_noticed(planner, complaint):
    with pytest.raises(CheckError, match=complaint):
        check_planner(planner)
