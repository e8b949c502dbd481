"""Conformance checks for planners: the guarantees that the library and the streaming engine need."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from equipoise.errors import CheckError, InvalidArgumentError, MismatchError
from equipoise.plan.cost import Costs, price
from equipoise.plan.plan import Plan
from equipoise.plan.planner import Planner
from equipoise.plan.uniform import uniform_plan
from equipoise.sketch.histogram import Histogram

_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Case:
    """Planning problem of the checks, with a name for messages."""

    name: str
    previous: Plan
    histogram: Histogram
    partitions: int
    costs: Costs | None = None


def cases() -> Iterator[Case]:
    """Yield problems with unusual histograms, at an unchanged, a larger and a smaller number of partitions."""
    rng = np.random.default_rng(7)
    keys = rng.integers(-(2**63), 2**63 - 1, 60)
    zipf = 1 / np.arange(1, 61)
    histograms = {
        "an empty histogram": Histogram([], []),
        "one key": Histogram(keys[:1], [0.3]),
        "one key with all the load": Histogram(keys[:1], [1.0]),
        "all keys equal": Histogram(keys, np.full(60, 0.01)),
        "keys without load": Histogram(keys[:5], np.zeros(5)),
        "a skewed histogram": Histogram(keys, 0.8 * zipf / zipf.sum()),
        "two hot keys of one tail group": Histogram([5, 5 + 256], [0.3, 0.3]),
    }
    groups = 256
    state = rng.random(groups) * 1e6
    single = {int(key): 1e5 * (1 + i) for i, key in enumerate(keys[:30:3])}  # some histograms do not list these keys
    measured = Costs(group_load=rng.random(groups), group_state=state + 1e6, key_state=single)
    for partitions, following in ((6, 6), (6, 9), (9, 6), (6, 1), (1, 6), (1, 1)):
        scattered = {int(key): int(rng.integers(partitions)) for key in keys[10:40]}
        plans = {
            "plain hash": uniform_plan(partitions, groups),
            "scattered": Plan(partitions, rng.integers(0, partitions, groups), scattered, version=3, parent=2),
        }
        for plan_name, plan in plans.items():
            for name, histogram in histograms.items():
                change = f"{name}, {partitions} to {following} partitions, from {plan_name}"
                yield Case(change, plan, histogram, following)
                yield Case(f"{change}, measured", plan, histogram, following, measured)


def check_groups_are_owned_once(planner: Planner, case: Case) -> None:
    """Every tail group and isolated key belongs to one of the N partitions; H and the hash seed do not change."""
    plan = _plan(planner, case)
    if plan.partitions != case.partitions:
        _fail(planner, case, f"asked for {case.partitions} partitions, got {plan.partitions}")
    if plan.tail_groups != case.previous.tail_groups or plan.hash_seed != case.previous.hash_seed:
        _fail(planner, case, "the number of tail groups or the hash seed changed")
    owners = np.concatenate([plan.tail, plan.assign(case.histogram.fingerprints)])
    if owners.min() < 0 or owners.max() >= case.partitions:
        _fail(planner, case, f"a partition lies outside 0..{case.partitions - 1}")
    loads = price(case.histogram, plan.tail_groups, case.costs).loads(plan)
    if not np.all(np.isfinite(loads)):
        _fail(planner, case, f"predicted loads are not numbers: {loads}")


def check_versions_follow(planner: Planner, case: Case) -> None:
    """A new plan is the next version of the previous one and has a reason; if nothing changes, no plan is made."""
    plan = _plan(planner, case)
    if plan is case.previous:
        return
    if plan.same_routing(case.previous):
        _fail(planner, case, "a new version was made although the routing did not change")
    version = case.previous.version
    if (plan.version, plan.parent) != (version + 1, version):
        _fail(planner, case, f"version {plan.version} with parent {plan.parent} does not follow {version}")
    if plan.planner != planner.name or not plan.reason:
        _fail(planner, case, "the plan does not name its planner and its reason")


def check_deterministic(planner: Planner, case: Case) -> None:
    """Equal inputs give equal plans, and the inputs do not change."""
    before = case.previous.to_json()
    if _plan(planner, case) != _plan(planner, case):
        _fail(planner, case, "two equal calls gave different plans")
    if case.previous.to_json() != before:
        _fail(planner, case, "the previous plan was changed")


def check_respects_budget(planner: Planner, case: Case) -> None:
    """The moved state stays within the budget, apart from the state of partitions that are removed."""
    priced = price(case.histogram, case.previous.tail_groups, case.costs)
    for fraction in (0.0, 0.01, 0.2, 1.0):
        budget = fraction * priced.total_state
        plan = planner.plan(case.previous, case.histogram, partitions=case.partitions, costs=case.costs, budget=budget)
        moved = 0.0
        for before, after, state in (
            (case.previous.tail, plan.tail, priced.group_state),
            (case.previous.assign(priced.keys), plan.assign(priced.keys), priced.key_state),
        ):
            moved += float(state[(before != after) & (before < case.partitions)].sum())
        if moved > budget + _ROUNDING * max(1.0, priced.total_state):
            _fail(planner, case, f"moved state {moved} with a budget of {budget}")


def check_refuses_bad_input(planner: Planner) -> None:
    """Another hash seed, no partition, more partitions than groups and a negative budget are refused."""
    plan, histogram = uniform_plan(4, 16), Histogram([1], [0.5])
    attempts: dict[str, tuple[type[Exception], Callable[[], object]]] = {
        "a histogram of another hash seed": (
            MismatchError,
            lambda: planner.plan(plan, Histogram([1], [0.5], hash_seed=plan.hash_seed + 1)),
        ),
        "costs of another number of groups": (
            MismatchError,
            lambda: planner.plan(plan, histogram, costs=Costs(group_load=np.ones(8))),
        ),
        "0 partitions": (InvalidArgumentError, lambda: planner.plan(plan, histogram, partitions=0)),
        "17 partitions of 16 groups": (InvalidArgumentError, lambda: planner.plan(plan, histogram, partitions=17)),
        "a negative budget": (InvalidArgumentError, lambda: planner.plan(plan, histogram, budget=-1.0)),
        "a budget that is not a number": (InvalidArgumentError, lambda: planner.plan(plan, histogram, budget=np.nan)),
    }
    for what, (expected, attempt) in attempts.items():
        try:
            attempt()
        except expected:
            continue
        raise CheckError(f"{planner.name}: {what} was accepted; expected {expected.__name__}")


PLANNER_CHECKS: tuple[Callable[[Planner, Case], None], ...] = (
    check_groups_are_owned_once,
    check_versions_follow,
    check_deterministic,
    check_respects_budget,
)
"""Checks that run on every case."""


def check_planner(planner: Planner) -> None:
    """Run all checks of a planner; raise ``CheckError`` at the first that fails.

    Parameters
    ----------
    planner
        Planner to check.

    Examples
    --------
    >>> from equipoise.plan import KIP
    >>> check_planner(KIP())
    """
    check_refuses_bad_input(planner)
    for case in cases():
        for check in PLANNER_CHECKS:
            check(planner, case)


def _plan(planner: Planner, case: Case) -> Plan:
    return planner.plan(case.previous, case.histogram, partitions=case.partitions, costs=case.costs)


def _fail(planner: Planner, case: Case, what: str) -> None:
    raise CheckError(f"{planner.name}: {case.name}: {what}")
