"""Base of Gedik's three planners: tracked keys, their loads, balance penalty and migration penalty."""

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

_NOWHERE = -1  # source partition of an item that is not placed yet
_FLOOR = 1e-3  # smallest factor of the geometric mean, so that one balanced resource does not hide the others
_ROUNDING = 1e-12  # smaller differences are rounding errors and count as ties

_PLUS_MIGRATION = Utility.APM.number
_PLUS_LOG_MIGRATION = Utility.APLM.number
_TIMES_MIGRATION = Utility.ATM.number
_TIMES_LOG_MIGRATION = Utility.ATLM.number


class Adaptation(NamedTuple):
    """Step from plan t to plan t + 1 in the paper's terms, in a form that compiled kernels read.

    Items are the tracked keys D_p^(t+1), by decreasing share.
    """

    keys: NDArray[np.int64]
    """Their fingerprints."""
    shares: NDArray[np.float64]
    """f(d), all above 0."""
    loads: NDArray[np.float64]
    """beta_k(f(d)): a row for each resource that is balanced, a column for each item."""
    state: NDArray[np.float64]
    """State of each item: measured, else beta_s(f(d))."""
    old: NDArray[np.int64]
    """p^(t)(d); may be a partition that no longer exists."""
    fallback: NDArray[np.int64]
    """H_c^(t+1)(d)."""
    forgotten: float
    """State that moves because its key is no longer tracked: the part of m that does not depend on the placement."""
    ideal: float
    """m-bar: state of all items of plan t or t + 1, divided by N; infinite if there is no state."""
    partitions: int
    """N^(t+1)."""
    theta: float
    """Allowed relative deviation from the mean load."""
    floor: float
    """Smallest factor of the geometric mean of the balance penalty."""
    utility: int
    """Number of the utility function."""

    def balance_penalty(self, placement: NDArray[np.int64]) -> float:
        """Return rho, the balance penalty of a placement (equation 20); 1 is the largest allowed value."""
        loads = partition_loads(self, placement)
        return float(geometric_mean(current_product(self, loads, order_partitions(loads)), len(loads)))

    def migration_penalty(self, placement: NDArray[np.int64]) -> float:
        """Return gamma, the state that moves relative to an ideal step by one partition (equation 18)."""
        moved = self.forgotten + float(self.state[placement != self.old].sum())
        return moved / self.ideal


@kernel(inline="always")
def clearly_less(a: float, b: float) -> bool:
    """Return whether ``a`` is below ``b`` by more than rounding; so the first of equal values wins."""
    return a + _ROUNDING * (1 + abs(a)) < b


@kernel
def partition_loads(step: Any, placement: Any) -> Any:
    """Return the load of each resource (rows) in each partition (columns)."""
    loads = np.zeros((len(step.loads), step.partitions))
    for item in range(len(placement)):
        loads[:, placement[item]] += step.loads[:, item]
    return loads


@kernel
def order_partitions(loads: Any) -> Any:
    """Return the partitions by increasing load, for each resource."""
    order = np.empty(loads.shape, dtype=np.int64)
    for resource in range(len(loads)):
        order[resource] = np.argsort(loads[resource])
    return order


@kernel
def extremes_besides(loads: Any, order: Any, one: int, other: int, largest: Any, smallest: Any) -> None:
    """Fill in the largest and smallest load of each resource over all partitions except two (or one, given twice)."""
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
    """Return 1 / (theta mean load) of each resource, the factor from a spread to rho_k; 0 without any load."""
    scales = np.zeros(len(totals))
    for resource in range(len(totals)):
        if totals[resource] > 0:
            scales[resource] = step.partitions / (step.theta * totals[resource])
    return scales


@kernel
def product_after(
    loads: Any, largest: Any, smallest: Any, source: int, target: int, change: Any, scales: Any, floor: float
) -> float:
    """Return the product of all rho_k after ``change`` has moved from ``source`` (or from nowhere) to ``target``.

    It takes constant time: ``largest`` and ``smallest`` are the extremes over all other partitions.
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
    """Return the root of the product of one, two or three factors."""
    if count == 1:
        return product
    return np.sqrt(product) if count == 2 else np.cbrt(product)  # type: ignore[no-any-return]


@kernel
def current_product(step: Any, loads: Any, order: Any) -> float:
    """Return the product of all rho_k of the present loads."""
    count = len(loads)
    largest, smallest, nothing = np.empty(count), np.empty(count), np.zeros(count)
    extremes_besides(loads, order, 0, 0, largest, smallest)
    scales = penalty_scales(step, loads.sum(axis=1))
    return product_after(loads, largest, smallest, _NOWHERE, 0, nothing, scales, step.floor)


@kernel
def combined(utility: int, rho: float, gamma: float) -> float:
    """Return the value of the utility function with the given number; lower is better."""
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
    """Return, for each partition (rows), the largest and smallest load of each resource over all others."""
    count, partitions = loads.shape
    largest, smallest = np.empty((partitions, count)), np.empty((partitions, count))
    order = order_partitions(loads)
    for partition in range(partitions):
        extremes_besides(loads, order, partition, partition, largest[partition], smallest[partition])
    return largest, smallest


@kernel
def best_target(step: Any, item: int, loads: Any, largest: Any, smallest: Any, moved: float) -> Any:
    """Return the first best partition for an item that is not placed yet, and its utility."""
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
    """Base of Gedik's planners: an explicit table for frequent keys over a consistent hash for all others.

    The planners :class:`Scan`, :class:`Redist` and :class:`Readj` differ in how they place the frequent keys.

    Guarantees
    ----------
    - Every tracked key is isolated; all others follow the consistent hash for the new N.
    - With one partition, nothing to track, or constant resources only, the plan is the plain consistent hash.

    Differs from the paper
    ----------------------
    - The computation load is the sum of beta_c(f), as required by the paper's example and equation 17, not of
      f beta_c(f) as printed in equation 3.
    - Constant resources are dropped (section 4.4), and the root is taken over the remaining ones, not over three.
    - Each factor of the geometric mean is at least 0.001; otherwise one balanced resource would hide the others.
    - m is summed over D_o and m-bar over D_a, as equation 18 says; algorithms 2 to 4 print other sets.
    - The mean quadratic load predicted to raise delta is divided by N.
    - Measured states, if there are any, replace beta_s(f), for balance and for migration.
    - Utilities that differ by rounding only are ties; the first in order of share and partition wins.

    Parameters
    ----------
    state, computation, communication
        Growth of state, work and traffic of a key with its share (beta_s, beta_c, beta_n).
    utility
        Combination of balance and migration penalty (U).
    alpha
        Tolerated ratio of largest to smallest load.
    theta
        Allowed relative deviation from the mean load; ``None``: computed from ``alpha``.
    sigma
        Part of the allowed imbalance that untracked keys may use up. It sets delta, the smallest tracked share.
    domain_size
        |D|, number of distinct keys; used by quadratic resources only.
    tracked
        Number of hottest keys to track, whatever their share, as in DR's runs; ``None``: the keys with a share of delta
        or more.
    replicas
        Points on the ring for each partition.
    as_printed
        Use the geometric mean without the smallest factor; for :class:`Readj` also the printed base of gains.

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
            return Proposal(tail, {}, f"no key to track; consistent hash over {problem.partitions} partitions")
        placement = self.place(step)
        reason = (
            f"placed {len(step.keys)} keys on {step.partitions} partitions, "
            f"balance penalty {step.balance_penalty(placement):.4g}, "
            f"migration penalty {step.migration_penalty(placement):.4g}"
        )
        return Proposal(tail, dict(zip(step.keys.tolist(), placement.tolist(), strict=True)), reason)

    @abstractmethod
    def place(self, step: Adaptation) -> NDArray[np.int64]:
        """Choose the partition of each tracked item; there is at least one."""

    def adaptation(self, problem: Problem) -> Adaptation:
        """Convert a planning problem to the paper's terms."""
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
        """Return the number of tracked keys."""
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
    """Predict the mean quadratic load from the listed shares; all other keys count as equal (text to equation 17)."""
    others = max(1, domain_size - len(listed))
    rest = max(0.0, 1.0 - float(listed.sum()))
    return (float((listed * listed).sum()) + rest * rest / others) / partitions


def _states(priced: Priced, keys: NDArray[np.int64], resource: Resource) -> NDArray[np.float64]:
    """Return the state of each key: measured, else computed from its share; an unlisted key has a share of 0."""
    load, state = priced.of_keys(keys)
    return state if priced.state_is_measured else resource(load)
