"""Partitioning plans and the planners that make them."""

from typing import Any

from equipoise.arguments import make_by_name
from equipoise.plan.consistent import Consistent
from equipoise.plan.cost import Costs, Resource, Utility
from equipoise.plan.kip import KIP
from equipoise.plan.mixed import Mixed
from equipoise.plan.plan import Plan
from equipoise.plan.plan_diff import PlanDiff, diff
from equipoise.plan.planner import Planner, default_tail_groups
from equipoise.plan.readj import Readj
from equipoise.plan.redist import Redist
from equipoise.plan.ring import HashRing
from equipoise.plan.scan import Scan
from equipoise.plan.uniform import Uniform, uniform_plan

__all__ = [
    "KIP",
    "PLANNERS",
    "Consistent",
    "Costs",
    "HashRing",
    "Mixed",
    "Plan",
    "PlanDiff",
    "Planner",
    "Readj",
    "Redist",
    "Resource",
    "Scan",
    "Uniform",
    "Utility",
    "default_tail_groups",
    "diff",
    "make_planner",
    "uniform_plan",
]

PLANNERS: dict[str, type[Planner]] = {
    each.name: each for each in (Uniform, Consistent, KIP, Scan, Redist, Readj, Mixed)
}
"""Planners by name."""


def make_planner(name: str, **options: Any) -> Planner:
    """Make a planner by its name, with options of its class.

    Examples
    --------
    >>> make_planner("kip", slack=0.05)
    KIP(histogram_scale=2.0, slack=0.05, repack=False, slots=None)
    """
    return make_by_name("planner", PLANNERS, name, options)
