"""What Gedik's three constructions share: the tracked items, their loads, and the two penalties they weigh."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.kernels import kernel
from equipoise.plan.consistent import ring_tail
from equipoise.plan.cost import Priced, Resource, Utility, imbalance_threshold, tracking_threshold
from equipoise.plan.plan import Plan
from equipoise.plan.planner import Planner, Problem, Proposal

_NOWHERE = -1  # source of an item that is not placed yet
_FLOOR = 1e-3  # smallest factor of the geometric mean: one balanced resource must not hide the others
_ROUNDING = 1e-12  # differences below this are noise of the arithmetic and count as ties

_PLUS_MIGRATION = Utility.APM.number
_PLUS_LOG_MIGRATION = Utility.APLM.number
_TIMES_MIGRATION = Utility.ATM.number
_TIMES_LOG_MIGRATION = Utility.ATLM.number


class Adaptation(NamedTuple):
    """The step from plan t to plan t + 1 in the paper's terms; compiled kernels read it as it is.

    Items are the tracked keys D_p^(t+1), by decreasing share.
    """

    keys: NDArray[np.int64]
    """Their fingerprints."""
    shares: NDArray[np.float64]
    """f(d), all above 0."""
    loads: NDArray[np.float64]
    """beta_k(f(d)): a row for each resource that is balanced, a column for each item."""
    state: NDArray[np.float64]
    """State of each item: as measured, else beta_s(f(d))."""
    old: NDArray[np.int64]
    """p^(t)(d); may be a partition that exists no more."""
    fallback: NDArray[np.int64]
    """H_c^(t+1)(d)."""
    forgotten: float
    """State that moves because its key is tracked no more: the part of m that no placement changes."""
    ideal: float
    """m-bar: state of all items of plan t or t + 1, for each partition; infinite if there is none."""
    partitions: int
    """N^(t+1)."""
    theta: float
    """Allowed relative deviation from the mean load."""
    floor: float
    """Smallest factor of the geometric mean of the balance penalty."""
    utility: int
    """Number of the utility function."""

    def balance_penalty(self, placement: NDArray[np.int64]) -> float:
        """How far the placement is from balance, rho (equation 20); 1 is the limit of what is allowed."""
        loads = partition_loads(self, placement)
        return float(geometric_mean(current_product(self, loads, order_partitions(loads)), len(loads)))

    def migration_penalty(self, placement: NDArray[np.int64]) -> float:
        """How much state moves, relative to an ideal step by one partition, gamma (equation 18)."""
        moved = self.forgotten + float(self.state[placement != self.old].sum())
        return moved / self.ideal


@kernel(inline="always")
def clearly_less(a: float, b: float) -> bool:
    """Whether ``a`` is below ``b`` by more than rounding, so that the first of equals wins."""
    return a + _ROUNDING * (1 + abs(a)) < b


@kernel
def partition_loads(step: Any, placement: Any) -> Any:
    """Load of each resource (rows) in each partition (columns)."""
    loads = np.zeros((len(step.loads), step.partitions))
    for item in range(len(placement)):
        loads[:, placement[item]] += step.loads[:, item]
    return loads


@kernel
def order_partitions(loads: Any) -> Any:
    """Partitions by increasing load, for each resource."""
    order = np.empty(loads.shape, dtype=np.int64)
    for resource in range(len(loads)):
        order[resource] = np.argsort(loads[resource])
    return order


@kernel
def extremes_besides(loads: Any, order: Any, one: int, other: int, largest: Any, smallest: Any) -> None:
    """Largest and smallest load of each resource in all partitions but two (or one, given twice)."""
    for resource in range(len(loads)):
        largest[resource], smallest[resource] = -np.inf, np.inf
        for partition in order[resource, ::-1]:
            if partition not in (one, other):
                largest[resource] = loads[resource, partition]
                break
        for partition in order[resource]:
            if partition not in (one, other):
                smallest[resource] = loads[resource, partition]
                break


@kernel
def penalty_scales(step: Any, totals: Any) -> Any:
    """1 / (theta mean load) of each resource, by which a spread becomes a rho_k; 0 where there is no load at all."""
    scales = np.zeros(len(totals))
    for resource in range(len(totals)):
        if totals[resource] > 0:
            scales[resource] = step.partitions / (step.theta * totals[resource])
    return scales


@kernel
def product_after(
    loads: Any, largest: Any, smallest: Any, source: int, target: int, change: Any, scales: Any, floor: float
) -> float:
    """Product of all rho_k once ``change`` has moved from ``source`` (or from nowhere) to ``target``.

    Takes constant time: ``largest`` and ``smallest`` are those of all other partitions.
    """
    product = 1.0
    for resource in range(len(loads)):
        raised = loads[resource, target] + change[resource]
        lowered = raised if source == _NOWHERE else loads[resource, source] - change[resource]
        spread = max(largest[resource], raised, lowered) - min(smallest[resource], raised, lowered)
        product *= max(floor, spread * scales[resource])
    return product


@kernel
def geometric_mean(product: float, count: int) -> float:
    """Root of the product of one, two or three factors."""
    if count == 1:
        return product
    return np.sqrt(product) if count == 2 else np.cbrt(product)  # type: ignore[no-any-return]


@kernel
def current_product(step: Any, loads: Any, order: Any) -> float:
    """Product of all rho_k of the loads as they are: after nothing has come to partition 0."""
    count = len(loads)
    largest, smallest, nothing = np.empty(count), np.empty(count), np.zeros(count)
    extremes_besides(loads, order, 0, 0, largest, smallest)
    scales = penalty_scales(step, loads.sum(axis=1))
    return product_after(loads, largest, smallest, _NOWHERE, 0, nothing, scales, step.floor)


@kernel
def combined(utility: int, rho: float, gamma: float) -> float:
    """Value of the numbered utility function; lower is better."""
    if utility == _PLUS_MIGRATION:
        return rho + gamma
    if utility == _PLUS_LOG_MIGRATION:
        return rho + np.log1p(gamma)  # type: ignore[no-any-return]
    if utility == _TIMES_MIGRATION:
        return rho * (1 + gamma)
    if utility == _TIMES_LOG_MIGRATION:
        return rho * (1 + np.log1p(gamma))  # type: ignore[no-any-return]
    return rho


@kernel
def extremes_besides_each(loads: Any) -> Any:
    """For each partition (rows), largest and smallest load of each resource in all others."""
    count, partitions = loads.shape
    largest, smallest = np.empty((partitions, count)), np.empty((partitions, count))
    order = order_partitions(loads)
    for partition in range(partitions):
        extremes_besides(loads, order, partition, partition, largest[partition], smallest[partition])
    return largest, smallest


@kernel
def best_target(step: Any, item: int, loads: Any, largest: Any, smallest: Any, moved: float) -> Any:
    """First best partition for an item not placed yet, and the utility there."""
    change = step.loads[:, item]
    scales = penalty_scales(step, loads.sum(axis=1) + change)
    best, lowest = 0, np.inf
    for target in range(step.partitions):
        product = product_after(loads, largest[target], smallest[target], _NOWHERE, target, change, scales, step.floor)
        migrated = step.state[item] if target != step.old[item] else 0.0
        value = combined(step.utility, geometric_mean(product, len(loads)), (moved + migrated) / step.ideal)
        if clearly_less(value, lowest):
            best, lowest = target, value
    return best, lowest


@dataclass(frozen=True)
class Gedik(Planner):
    """Partitioning functions with an explicit hash for the frequent keys and a consistent hash for all others.

    The planners :class:`Scan`, :class:`Redist` and :class:`Readj` differ in how they place the frequent keys.

    Guarantees
    ----------
    - Every tracked key is isolated; all others follow the consistent hash for the new N.
    - With one partition, nothing to track, or constant resources only, the plan is the plain consistent hash.

    Differs from the paper
    ----------------------
    - The computation load is the sum of beta_c(f), as the paper's example and equation 17 need it, not of f beta_c(f)
      as equation 3 prints.
    - Constant resources are dropped (section 4.4), and the root is taken over those that are left, not over three.
    - Each factor of the geometric mean is at least 0.001, or one balanced resource would hide the others.
    - m is summed over D_o and m-bar over D_a, as equation 18 says; algorithms 2 to 4 print other sets.
    - The mean quadratic load predicted to raise delta is divided by N.
    - Measured states, where there are any, take the place of beta_s(f), for balance and for migration.
    - Utilities closer than rounding are ties, and the first in order of share and partition wins.

    Parameters
    ----------
    state, computation, communication
        How state, work and traffic of a key grow with its share, beta_s, beta_c, beta_n.
    utility
        How balance and migration penalty combine, U.
    alpha
        Tolerated ratio of largest to smallest load.
    theta
        Allowed relative deviation from the mean load; ``None``: what ``alpha`` implies.
    sigma
        Part of the allowed imbalance that untracked keys may use up; sets the smallest share that is tracked, delta.
    domain_size
        |D|, number of distinct keys; used by quadratic resources only.
    tracked
        Track this many of the hottest keys, whatever their share, as DR's runs do; ``None``: those of delta or more.
    replicas
        Points on the ring for each partition.
    as_printed
        Pure geometric mean, without the least factor; for :class:`Readj` also the printed base of gains.

    References
    ----------
    Gedik, "Partitioning functions for stateful data parallelism in stream processing", sections 3 and 4.
    """

    state: Resource = Resource.LINEAR
    computation: Resource = Resource.CONSTANT
    communication: Resource = Resource.LINEAR
    utility: Utility = Utility.APM
    alpha: float = 1.2
    theta: float | None = None
    sigma: float = 0.1
    domain_size: int = 1_000_000
    tracked: int | None = None
    replicas: int = 1000
    as_printed: bool = False

    def __post_init__(self) -> None:
        for name in ("state", "computation", "communication"):
            if not isinstance(getattr(self, name), Resource):
                raise InvalidArgumentError(
                    f"{name} must be a Resource such as Resource.LINEAR, got {getattr(self, name)!r}"
                )
        if not isinstance(self.utility, Utility):
            raise InvalidArgumentError(f"utility must be a Utility such as Utility.APM, got {self.utility!r}")
        if self.theta is not None and not at_least("theta", self.theta, 0) > 0:
            raise InvalidArgumentError(
                f"theta is an allowed deviation from the mean and must exceed 0, got {self.theta}"
            )
        whole("domain_size", self.domain_size, 1)
        whole("replicas", self.replicas, 1)
        if self.tracked is not None:
            whole("tracked", self.tracked, 0)
        tracking_threshold(Resource.LINEAR, self.sigma, imbalance_threshold(self.alpha, 2), 2, 1)  # checks both

    def propose(self, problem: Problem) -> Proposal:
        """Put all keys on the ring for the new N, then place the tracked ones."""
        step = self.adaptation(problem)
        tail = ring_tail(problem.partitions, problem.previous.tail_groups, self.replicas)
        if len(step.keys) == 0:
            return Proposal(tail, {}, f"nothing to track; consistent hash over {problem.partitions} partitions")
        placement = self.place(step)
        reason = (
            f"placed {len(step.keys)} keys on {step.partitions} partitions, "
            f"balance penalty {step.balance_penalty(placement):.4g}, "
            f"migration penalty {step.migration_penalty(placement):.4g}"
        )
        return Proposal(tail, dict(zip(step.keys.tolist(), placement.tolist(), strict=True)), reason)

    @abstractmethod
    def place(self, step: Adaptation) -> NDArray[np.int64]:
        """Choose the partition of each tracked item, of which there is at least one."""

    def adaptation(self, problem: Problem) -> Adaptation:
        """Put a planning problem into the paper's terms."""
        previous, histogram, partitions = problem.previous, problem.histogram, problem.partitions
        theta = imbalance_threshold(self.alpha, partitions) if self.theta is None else self.theta
        count = self._tracked_count(histogram.shares, theta, partitions)
        keys, shares = histogram.fingerprints[:count].copy(), histogram.shares[:count].copy()
        dropped = previous.isolated_keys[~np.isin(previous.isolated_keys, keys)]
        states = _states(problem.priced, np.concatenate([keys, dropped]), self.state)
        state, dropped_state = states[:count], states[count:]
        loads = [state] if self.state is not Resource.CONSTANT else []
        loads += [r(shares) for r in (self.computation, self.communication) if r is not Resource.CONSTANT]
        next_hash = Plan(partitions, ring_tail(partitions, previous.tail_groups, self.replicas))
        leaves = previous.assign(dropped) != next_hash.assign(dropped)
        return Adaptation(
            keys=keys,
            shares=shares,
            loads=np.array(loads).reshape(len(loads), count),
            state=state,
            old=previous.assign(keys).astype(np.int64),
            fallback=next_hash.assign(keys).astype(np.int64),
            forgotten=float(dropped_state[leaves].sum()),
            ideal=float(states.sum()) / partitions or np.inf,
            partitions=partitions,
            theta=float(theta),
            floor=0.0 if self.as_printed else _FLOOR,
            utility=self.utility.number,
        )

    def _tracked_count(self, shares: NDArray[np.float64], theta: float, partitions: int) -> int:
        """How many of the hottest keys are tracked."""
        balanced = {self.state, self.computation, self.communication} - {Resource.CONSTANT}
        if not balanced or partitions == 1:
            return 0
        if self.tracked is not None:
            return min(self.tracked, int(np.count_nonzero(shares)))
        deltas = {r: tracking_threshold(r, self.sigma, theta, partitions, self.domain_size) for r in balanced}
        count = int(np.count_nonzero(shares >= min(deltas.values())))
        if Resource.QUADRATIC in deltas:
            mean = _mean_quadratic_load(shares[:count], self.domain_size, partitions)
            deltas[Resource.QUADRATIC] = float(np.sqrt(self.sigma * theta * mean))
            count = int(np.count_nonzero(shares >= min(deltas.values())))
        return count


def _mean_quadratic_load(listed: NDArray[np.float64], domain_size: int, partitions: int) -> float:
    """Predict the mean quadratic load from the listed shares, taking all other keys for equal (text to equation 17)."""
    others = max(1, domain_size - len(listed))
    rest = max(0.0, 1.0 - float(listed.sum()))
    return (float((listed * listed).sum()) + rest * rest / others) / partitions


def _states(priced: Priced, keys: NDArray[np.int64], resource: Resource) -> NDArray[np.float64]:
    """State of each key: as measured, else the resource function of its share, taking a key not listed for share 0."""
    load, state = priced.of_keys(keys)
    return state if priced.state_is_measured else resource(load)
