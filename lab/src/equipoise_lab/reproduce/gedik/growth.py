"""The set-up of Gedik's experiments: from one channel on, one more at a time, with a plan at every step."""

import time
from collections.abc import Iterator
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.metrics import overall_imbalance, relative_load_imbalance, relative_migration
from equipoise.microbatch.zipf import zipf_shares
from equipoise.plan import Consistent, Plan, Planner, Readj, Redist, Resource, Scan, Uniform, Utility, uniform_plan
from equipoise.plan.consistent import ring_tail
from equipoise.sketch import Histogram
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.exhibit import Setting, as_in_paper
from equipoise_lab.reproduce.rows import Row
from equipoise_lab.simulate.workloads import key_fingerprints

ALPHA = 1.2
METHODS = ("uniform", "consistent", "scan", "redist", "readj")
"""Those of the paper."""

THREE = ("scan", "redist", "readj")
"""The three algorithms that the paper introduces."""

REPAIRED = "readj, repaired"
"""Readj with gains measured from the placement at hand, as equipoise plans with it."""

MEASURES = {"migration": "relative migration cost", "imbalance": "relative load imbalance"}

NOTE = (
    "Frequencies are exact, where the paper's are those of a lossy counter, so that the construction is measured and "
    "not the counting. Computation load is the sum of beta_c(f), as the paper's example and equation 17 need it, not "
    "of f beta_c(f) as equation 3 prints. Readj takes its gains from the base that algorithm 4 prints; the one of "
    "equipoise, with the base repaired, is beside it. Keys that are not tracked are placed in up to 131,072 groups "
    "of the ring."
)

_LETTERS = {"C": Resource.CONSTANT, "L": Resource.LINEAR, "Q": Resource.QUADRATIC}
_MOST_GROUPS = 2**17
_LISTED = 20_000  # keys that planners are shown; far more than any of them tracks

SETTINGS = {
    "domain size": Setting("1,000,000", 5_000, 1_000_000, 1_000_000),
    "runs": Setting("5", 1, 2, 5),
    "channels": as_in_paper(10, tiny=4),
    "alpha": as_in_paper(ALPHA),
}
"""Defaults of table 1 of the paper."""


class Step(NamedTuple):
    """One plan of a growing region: for how many channels, what it does, and the seconds it took to make."""

    channels: int
    plan: Plan
    row: Row


def resources(letters: str) -> tuple[Resource, ...]:
    """Resource functions of state, computation and communication, by their letters."""
    return tuple(_LETTERS[letter] for letter in letters)


def planner(method: str, letters: str, domain: int, *, sigma: float = 0.1, utility: Utility = Utility.APM) -> Planner:
    """A method with the parameters of the paper."""
    if method == "uniform":
        return Uniform()
    if method == "consistent":
        return Consistent()
    state, computation, communication = resources(letters)
    kind: Any = {"scan": Scan, "redist": Redist, "readj": Readj, REPAIRED: Readj}[method]
    made: Planner = kind(
        state=state,
        computation=computation,
        communication=communication,
        utility=utility,
        alpha=ALPHA,
        sigma=sigma,
        domain_size=domain,
        as_printed=method != REPAIRED,
    )
    return made


def grow(
    made: Planner, letters: str, shares: NDArray[np.float64], seed: int, channels: int, *, every_step: bool = False
) -> Iterator[Step]:
    """Grow a region from one channel; gives the last step, or every one, with what the paper measures of it.

    The time is that of the whole function, the ring included.
    """
    keys = key_fingerprints(np.arange(len(shares)), seed)
    histogram = Histogram(keys[:_LISTED], shares[:_LISTED])
    plan = uniform_plan(1, min(_MOST_GROUPS, 1 << (len(shares) - 1).bit_length()))
    for count in range(2, channels + 1):
        ring_tail.cache_clear()
        start = time.perf_counter()
        following = made.plan(plan, histogram, partitions=count)
        seconds = time.perf_counter() - start
        if every_step or count == channels:
            row = _measured(plan, following, keys, shares, letters)
            yield Step(count, following, {**row, "seconds": seconds, "mappings": len(following.isolated)})
        plan = following


def _measured(before: Plan, after: Plan, keys: NDArray[np.int64], shares: NDArray[np.float64], letters: str) -> Row:
    """Relative imbalance, overall and of each resource, and relative migration (equations 11 and 12)."""
    old, new = before.assign(keys), after.assign(keys)
    uses = [resource(shares) for resource in resources(letters)]
    each = [relative_load_imbalance(np.bincount(new, use, after.partitions), ALPHA) for use in uses]
    moved = float(uses[0][old != new].sum())
    return {
        "imbalance": overall_imbalance(each),
        "state": each[0],
        "computation": each[1],
        "communication": each[2],
        "migration": relative_migration(moved, float(uses[0].sum()), after.partitions),
    }


def averaged(
    context: Context,
    method: str,
    letters: str,
    *,
    skew: float = 1.0,
    domain: int | None = None,
    sigma: float = 0.1,
    utility: Utility = Utility.APM,
) -> Row:
    """Measures of the last step, averaged over runs with other hashes."""
    size = domain or context["domain size"]
    shares = zipf_shares(size, skew)
    made = planner(method, letters, size, sigma=sigma, utility=utility)
    runs = [
        step.row
        for seed in context.seeds(context["runs"])
        for step in grow(made, letters, shares, seed, context["channels"])
    ]
    return {"method": method, "resources": letters, **{name: fmean(row[name] for row in runs) for name in runs[0]}}
