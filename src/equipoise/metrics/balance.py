"""Measures of balance: how evenly load is spread over workers, and how much state a new plan moves."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.metrics.inputs import ROUNDING, as_amounts, as_assignment, as_numbers, as_vector


def load_imbalance(loads: ArrayLike) -> float:
    """Load imbalance: largest load divided by average load [DR, section 5].

    It ranges from 1 (perfect balance) to the number of workers (one worker has all the load).

    Examples
    --------
    >>> load_imbalance([6, 2, 2])
    1.8
    """
    values = as_amounts(loads, "loads")
    total = float(values.sum())
    if total == 0:
        return 1.0
    return max(1.0, len(values) * float(values.max()) / total)  # rounding alone could fall below 1


def imbalance(loads: ArrayLike) -> float:
    """I(t), imbalance: largest load minus average load [PKG, section 2].

    Examples
    --------
    >>> imbalance([6, 2, 1])
    3.0
    """
    values = as_amounts(loads, "loads")
    return max(0.0, float(values.max() - values.mean()))  # rounding alone could fall below 0


def average_imbalance_fraction(assignment: ArrayLike, workers: int) -> float:
    """Fraction of average imbalance: average over t of I(t), divided by m [PKG, section 6].

    I(t) is the imbalance of the loads after message t = 1 .. m.

    Parameters
    ----------
    assignment
        Worker of each of the m messages, in the order of the stream, counted from 0.
    workers
        W, number of workers.

    Examples
    --------
    >>> average_imbalance_fraction([0, 1, 0, 1], workers=2)
    0.0625
    """
    workers = whole("workers", workers, 1)
    targets = as_assignment(assignment, workers)
    messages = len(targets)
    largest = np.maximum.accumulate(_loads_on_arrival(targets, workers))
    average = np.arange(1, messages + 1) / workers
    return float((largest - average).mean() / messages)


def average_imbalance_fraction_of_loads(loads_over_time: ArrayLike) -> float:
    """Fraction of average imbalance, from recorded loads: average over t of I(t), divided by m [PKG, section 6].

    With one record for every message the result equals :func:`average_imbalance_fraction`. With fewer records, t runs
    over the records.

    Parameters
    ----------
    loads_over_time
        One row for each record, oldest first: the load of every worker since the start of the stream. The last
        row adds up to m.

    Examples
    --------
    >>> average_imbalance_fraction_of_loads([[1, 0], [1, 1], [2, 1], [2, 2]])
    0.0625
    """
    rows = as_numbers(loads_over_time, "loads_over_time")
    if rows.ndim != 2:
        raise InvalidArgumentError(
            f"loads_over_time must have one row of loads for each record, got shape {rows.shape}"
        )
    as_amounts(rows.reshape(-1), "loads_over_time")
    if np.any(np.diff(rows, axis=0) < 0):
        raise InvalidArgumentError(
            "a load in loads_over_time decreases; loads count from the start of the stream: pass cumulative sums"
        )
    total = float(rows[-1].sum())
    if total == 0:
        return 0.0
    return max(0.0, float((rows.max(axis=1) - rows.mean(axis=1)).mean() / total))


def load_ratio(loads: ArrayLike) -> float:
    """r_k, load imbalance of one resource: largest load divided by smallest load [Gedik, equation 2].

    It is infinite if one worker is idle and another is not.

    Examples
    --------
    >>> load_ratio([12, 10])
    1.2
    """
    values = as_amounts(loads, "loads")
    smallest, largest = float(values.min()), float(values.max())
    if largest == 0:
        return 1.0
    return largest / smallest if smallest > 0 else float("inf")


def relative_load_imbalance(loads: ArrayLike, alpha: float) -> float:
    """b_k, relative load imbalance of one resource: r_k / alpha_k [Gedik, equation 11].

    It is at most 1 if the resource is balanced within the tolerance.

    Parameters
    ----------
    loads
        Use of the resource by each worker.
    alpha
        alpha_k, the tolerated ratio of largest to smallest load, at least 1.

    Examples
    --------
    >>> relative_load_imbalance([15, 10], alpha=1.2)
    1.25
    """
    return load_ratio(loads) / at_least("alpha", alpha, 1)


def overall_imbalance(relative_imbalances: ArrayLike) -> float:
    """b, overall relative load imbalance: geometric mean of the b_k of all resources [Gedik, equation 11].

    Parameters
    ----------
    relative_imbalances
        The b_k of each resource, above 0. If one is infinite, so is the mean.

    Examples
    --------
    >>> overall_imbalance([0.5, 1.0, 2.0])
    1.0
    """
    values = as_vector(relative_imbalances, "relative_imbalances")
    if not np.all(values > 0):
        raise InvalidArgumentError("relative imbalances are ratios above 0; get each from relative_load_imbalance()")
    return _geometric_mean(values)


def balance_penalty(loads: ArrayLike, theta: float) -> float:
    """rho_k, balance penalty: (largest - smallest load) / (theta_k * average load) [Gedik, equation 19].

    Unlike b_k, it stays finite if some workers are idle.

    Parameters
    ----------
    loads
        Use of the resource by each worker.
    theta
        theta_k, the allowed relative deviation from the average, above 0: see
        :func:`equipoise.plan.cost.imbalance_threshold`.

    Examples
    --------
    >>> round(balance_penalty([8, 7, 7], theta=1 / 8), 4)
    1.0909
    """
    theta = at_least("theta", theta, 0)
    if theta == 0:
        raise InvalidArgumentError(
            f"theta is the allowed deviation from the average load and must exceed 0, got {theta}"
        )
    values = as_amounts(loads, "loads")
    total = float(values.sum())
    if total == 0:
        return 0.0
    return float(values.max() - values.min()) / total * len(values) / theta


def overall_balance_penalty(penalties: ArrayLike) -> float:
    """rho, overall balance penalty: geometric mean of the rho_k of all resources [Gedik, equation 20].

    This is the mean as printed: a single rho_k of 0 makes it 0 and hides the others. Leave out resources of constant
    use, as section 4.4 of the paper does.

    Parameters
    ----------
    penalties
        The rho_k of each resource.

    Examples
    --------
    >>> overall_balance_penalty([0.5, 1.0, 2.0])
    1.0
    """
    return _geometric_mean(as_amounts(penalties, "penalties"))


def relative_migration(migrated: float, total: float, partitions: int) -> float:
    """m, relative migration cost: migrated state divided by the ideal, total state / N [Gedik, equation 12].

    The ideal is the state that must move when one partition is added. With ``partitions=1`` the result is the share of
    all state that moves. Without any state it is 0.

    Parameters
    ----------
    migrated
        M, state of all keys whose partition changes.
    total
        State of all keys, in the same unit.
    partitions
        N, number of partitions.

    Examples
    --------
    >>> relative_migration(migrated=10, total=22, partitions=3)
    1.3636363636363635
    """
    partitions = whole("partitions", partitions, 1)
    moved, state = at_least("migrated", migrated, 0), at_least("total", total, 0)
    if moved > state * (1 + ROUNDING):
        raise InvalidArgumentError(f"migrated state {moved} exceeds the total {state}; give both in the same unit")
    return moved * partitions / state if state > 0 else 0.0


def standard_deviation(loads: ArrayLike) -> float:
    """StdDev: population standard deviation of the loads in percent of all load [DKG, equation 7].

    Examples
    --------
    >>> standard_deviation([68, 8, 8, 8, 8])
    24.0
    """
    values = as_amounts(loads, "loads")
    total = float(values.sum())
    return float(np.std(100 * values / total)) if total > 0 else 0.0


def lower_bound(partitions: int, hottest_share: float) -> float:
    """Load imbalance that no plan can beat without splitting a key: max(1, N * f_1).

    Parameters
    ----------
    partitions
        N, number of partitions.
    hottest_share
        f_1, share of the hottest key in the whole load.

    Examples
    --------
    >>> lower_bound(20, 0.25), lower_bound(20, 0.01)
    (5.0, 1.0)
    """
    share = at_least("hottest_share", hottest_share, 0)
    if share > 1:
        raise InvalidArgumentError(f"the hottest share is a fraction of the whole load, in [0, 1], got {hottest_share}")
    return max(1.0, whole("partitions", partitions, 1) * share)


def _geometric_mean(values: NDArray[np.float64]) -> float:
    return float(np.prod(values ** (1 / len(values))))


def _loads_on_arrival(targets: NDArray[np.int64], workers: int) -> NDArray[np.int64]:
    """Return, for each message, the load of its worker after the message."""
    order = np.argsort(targets, kind="stable")
    counts = np.bincount(targets, minlength=workers)
    first = np.cumsum(counts) - counts
    loads = np.empty_like(order)
    loads[order] = np.arange(1, len(targets) + 1) - np.repeat(first, counts)
    return loads
