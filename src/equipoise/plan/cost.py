"""Load and state of keys and tail groups: measured values, and assumptions where nothing was measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.plan.plan import Plan
from equipoise.sketch.histogram import Histogram


class Resource(Enum):
    """Growth of a key's use of a resource with the key's share (beta_k of Gedik, section 3.1)."""

    CONSTANT = "constant"
    LINEAR = "linear"
    QUADRATIC = "quadratic"

    def __call__(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the use of the resource by keys of the given shares."""
        if self is Resource.CONSTANT:
            return np.ones_like(shares)
        return shares if self is Resource.LINEAR else shares * shares


@dataclass(frozen=True, eq=False)
class Costs:
    """Measured load and state of tail groups and keys; missing values are assumed.

    Parameters
    ----------
    group_load
        Load of each tail group, in any unit. It covers all keys whose fingerprint falls into the group, isolated or
        not, so that it means the same under every plan. ``None``: the share of the unlisted keys is assumed to be
        spread evenly over the groups.
    group_state
        State of each tail group, isolated keys included, in any unit, usually bytes. ``None``: state is assumed to grow
        with the share by ``state_of_share``; a group counts as one key of its share.
    key_state
        State of single keys by fingerprint, in the unit of ``group_state``, which includes it. Needed only for hot keys
        whose state is not in proportion to their load.
    state_of_share
        Assumed growth of state with a key's share if no state was measured.

    Examples
    --------
    >>> from equipoise.plan import KIP
    >>> costs = Costs(group_load=[5, 1, 1, 1], group_state=[100, 10, 10, 10])
    >>> KIP().plan(Plan(2, [0, 1, 0, 1]), Histogram([], []), costs=costs).tail.tolist()
    [0, 1, 1, 1]
    """

    group_load: NDArray[Any] | None = None
    group_state: NDArray[Any] | None = None
    key_state: Mapping[int, float] = field(default_factory=dict)
    state_of_share: Resource = Resource.LINEAR

    def __post_init__(self) -> None:
        for name in ("group_load", "group_state"):
            values = getattr(self, name)
            if values is not None:
                try:
                    array = np.asarray(values, dtype=np.float64)
                except (TypeError, ValueError) as error:
                    raise InvalidArgumentError(f"{name} must hold numbers, one for each tail group: {error}") from error
                impossible = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
                if array.ndim != 1 or len(impossible):
                    where = f"; number {impossible[0]} is {array.flat[impossible[0]]}" if len(impossible) else ""
                    raise InvalidArgumentError(
                        f"{name} must hold finite numbers of at least 0, one for each tail group{where}"
                    )
                object.__setattr__(self, name, array)
        if not all(np.isfinite(value) and value >= 0 for value in self.key_state.values()):
            raise InvalidArgumentError("key_state must hold finite numbers of at least 0")
        if self.key_state and self.group_state is None:
            raise InvalidArgumentError("key_state was given without group_state; give both, in the same unit")

    def check(self, groups: int) -> None:
        """Raise ``MismatchError`` if the number of tail groups differs from ``groups``."""
        for name in ("group_load", "group_state"):
            values = getattr(self, name)
            if values is not None and len(values) != groups:
                raise MismatchError(
                    f"{name} covers {len(values)} tail groups but the plan has {groups}; "
                    "measure with the number of groups of the plan"
                )


@dataclass(frozen=True, eq=False)
class Priced:
    """Load and state of single keys and of every tail group without those keys.

    Loads are shares of the whole load. States are in the unit of the measured states; if none were measured, they are
    computed from the loads by the assumed growth.

    Parameters
    ----------
    histogram
        The listed keys.
    keys
        The single keys: first the listed ones, hottest first, then those of which only the state was measured.
    key_load, key_state
        Load and state of each of ``keys``.
    group_load, group_state
        Load and state of each tail group without ``keys``.
    state_is_measured
        Whether the states were measured.
    """

    histogram: Histogram
    keys: NDArray[np.int64]
    key_load: NDArray[np.float64]
    key_state: NDArray[np.float64]
    group_load: NDArray[np.float64]
    group_state: NDArray[np.float64]
    state_is_measured: bool

    @property
    def total_state(self) -> float:
        """State of all keys together."""
        return float(self.key_state.sum() + self.group_state.sum())

    @property
    def largest_share(self) -> float:
        """Share of the hottest key: some partition has at least this share while keys are not split."""
        return float(self.histogram.shares[0]) if len(self.histogram) else 0.0

    def of_keys(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return load and state of the given keys; both are 0 for unknown keys."""
        if len(self.keys) == 0:
            return np.zeros(len(keys)), np.zeros(len(keys))
        order = np.argsort(self.keys)
        at = order[np.minimum(np.searchsorted(self.keys, keys, sorter=order), len(order) - 1)]
        known = self.keys[at] == keys
        return np.where(known, self.key_load[at], 0.0), np.where(known, self.key_state[at], 0.0)

    def of_groups(self, isolated: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return load and state of the tail groups with all their keys except the isolated ones."""
        loose = ~np.isin(self.keys, isolated)
        groups = len(self.group_load)
        home = np.mod(self.keys[loose], groups)
        load = self.group_load + np.bincount(home, self.key_load[loose], groups)
        state = self.group_state + np.bincount(home, self.key_state[loose], groups)
        return load, state

    def loads(self, plan: Plan) -> NDArray[np.float64]:
        """Return the predicted share of the load in each partition under a plan."""
        single = np.bincount(plan.assign(self.keys), self.key_load, plan.partitions)
        rest = np.bincount(plan.tail, self.group_load, plan.partitions)
        return np.asarray(single + rest, dtype=np.float64)


def price(histogram: Histogram, groups: int, costs: Costs | None = None) -> Priced:
    """Combine measured and assumed values into one table of loads and states.

    Parameters
    ----------
    histogram
        The listed keys and their shares.
    groups
        H, number of tail groups.
    costs
        Measured values; ``None``: nothing was measured.
    """
    costs = costs or Costs()
    costs.check(groups)
    measured_keys = np.fromiter(costs.key_state.keys(), dtype=np.int64, count=len(costs.key_state))
    silent = np.setdiff1d(measured_keys, histogram.fingerprints)
    keys = np.concatenate([histogram.fingerprints, silent])
    key_load = np.concatenate([histogram.shares, np.zeros(len(silent))])
    listed_load = np.bincount(np.mod(keys, groups), key_load, groups).astype(np.float64)
    measured_load = 0.0 if costs.group_load is None else float(costs.group_load.sum())
    if costs.group_load is not None and measured_load > 0:
        group_load = np.maximum(0.0, costs.group_load / measured_load - listed_load)
    else:
        group_load = np.full(groups, histogram.rest / groups)
    if costs.group_state is None:
        key_state, group_state = costs.state_of_share(key_load), costs.state_of_share(group_load)
    else:
        key_state, group_state = _measured_states(keys, key_load, group_load, costs.group_state, costs.key_state)
    return Priced(histogram, keys, key_load, key_state, group_load, group_state, costs.group_state is not None)


def _measured_states(
    keys: NDArray[np.int64],
    key_load: NDArray[np.float64],
    group_load: NDArray[np.float64],
    group_state: NDArray[np.float64],
    key_state: Mapping[int, float],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the state of single keys, and of the groups without them.

    The state of a key that was not measured is estimated: the state of its group without the measured keys, times the
    key's part of the load of the group without the measured keys.
    """
    groups = len(group_load)
    home = np.mod(keys, groups)
    state = np.array([key_state.get(key, np.nan) for key in keys.tolist()], dtype=np.float64)
    unknown = np.isnan(state)
    left = np.maximum(0.0, group_state - np.bincount(home[~unknown], state[~unknown], groups))
    load_left = group_load + np.bincount(home[unknown], key_load[unknown], groups)
    fraction = key_load[unknown] / np.maximum(load_left[home[unknown]], np.finfo(float).tiny)
    state[unknown] = left[home[unknown]] * np.minimum(1.0, fraction)
    return state, np.maximum(0.0, left - np.bincount(home[unknown], state[unknown], groups))


def imbalance_threshold(alpha: float, partitions: int) -> float:
    """Return theta, the allowed relative deviation from the mean load (Gedik, equation 15).

    Parameters
    ----------
    alpha
        Tolerated ratio of largest to smallest load, above 1.
    partitions
        N, number of partitions.

    Examples
    --------
    >>> round(imbalance_threshold(1.2, 10), 5)
    0.17647
    """
    if not at_least("alpha", alpha, 0) > 1:
        raise InvalidArgumentError(
            f"alpha is the tolerated ratio of largest to smallest load and must exceed 1, got {alpha}"
        )
    return (alpha - 1) * (partitions - 1) / (partitions - 1 + alpha)


def tracking_threshold(resource: Resource, sigma: float, theta: float, partitions: int, domain_size: int) -> float:
    """Return delta_k, the smallest share worth tracking for one resource (Gedik, equation 17).

    Parameters
    ----------
    resource
        Growth of the resource's use with a key's share.
    sigma
        Part of the allowed imbalance that untracked keys may use up, in (0, 1].
    theta
        Allowed relative deviation from the mean load.
    partitions
        N, number of partitions.
    domain_size
        Number of distinct keys; used by the quadratic resource only.

    Examples
    --------
    >>> round(tracking_threshold(Resource.LINEAR, 0.1, imbalance_threshold(1.2, 10), 10, 10**6), 7)
    0.0017647
    """
    if not 0 < at_least("sigma", sigma, 0) <= 1:
        raise InvalidArgumentError(f"sigma is a part of the allowed imbalance, in (0, 1], got {sigma}")
    if resource is Resource.CONSTANT:
        return 1.0
    if resource is Resource.LINEAR:
        return sigma * theta / partitions
    return float(np.sqrt(sigma * theta / (max(1, domain_size) * partitions)))


class Utility(Enum):
    """Combination of the balance penalty rho and the migration penalty gamma (Gedik, section 4.3); lower is better."""

    A = "rho"
    APM = "rho + gamma"
    APLM = "rho + log(1 + gamma)"
    ATM = "rho * (1 + gamma)"
    ATLM = "rho * (1 + log(1 + gamma))"

    @property
    def number(self) -> int:
        """Position in the list above, by which compiled kernels identify the function."""
        return list(Utility).index(self)


def amount_text(amount: float) -> str:
    """Return an amount of state, without a unit, for a message.

    Examples
    --------
    >>> amount_text(0.0312345), amount_text(1_426_000.5)
    ('0.0312', '1,426,000')
    """
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.3g}"
