"""Every measure of balance that the papers use, one function each.

``loads`` is always the load of each worker (partition, channel, block), idle ones included: finite numbers of at
least 0, in any unit. Where nothing was processed at all, every load being 0, the work counts as balanced: ratios
are 1, differences and deviations 0.

References
----------
.. [DR] Zvara et al., "System-aware dynamic partitioning for batch and streaming workloads".
.. [PKG] Nasir et al., "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams".
.. [Gedik] Gedik, "Partitioning Functions for Stateful Data Parallelism in Stream Processing".
.. [Prompt] Abdelhamid et al., "Prompt: Dynamic Data-Partitioning for Distributed Micro-batch Stream Processing
   Systems".
.. [DKG] Dalabasmaz and Can, "Dynamic Key Grouping: A Load Balancing Algorithm for Distributed Stream Processing
   Engines".
"""

from heapq import heapify, heapreplace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError

_ROUNDING = 1e-9  # sums taken in another order differ by less than this part of their value


def load_imbalance(loads: ArrayLike) -> float:
    """Load imbalance: largest load over average load [DR, section 5].

    From 1, perfect balance, to the number of workers, when one of them has everything.

    Examples
    --------
    >>> load_imbalance([6, 2, 2])
    1.8
    """
    values = _amounts(loads, "loads")
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
    values = _amounts(loads, "loads")
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
    targets = _assignment(assignment, workers)
    messages = len(targets)
    largest = np.maximum.accumulate(_loads_on_arrival(targets, workers))
    average = np.arange(1, messages + 1) / workers
    return float((largest - average).mean() / messages)


def average_imbalance_fraction_of_loads(history: ArrayLike) -> float:
    """Fraction of average imbalance, from recorded loads: average over t of I(t), divided by m [PKG, section 6].

    Equal to :func:`average_imbalance_fraction` when there is one record for every message; with fewer, t runs over
    the records.

    Parameters
    ----------
    history
        One row for each record, oldest first: the load of every worker since the start of the stream. The last
        row adds up to m.

    Examples
    --------
    >>> average_imbalance_fraction_of_loads([[1, 0], [1, 1], [2, 1], [2, 2]])
    0.0625
    """
    rows = _numbers(history, "history")
    if rows.ndim != 2:
        raise InvalidArgumentError(f"history must have one row of loads for each record, got shape {rows.shape}")
    _amounts(rows.reshape(-1), "history")
    if np.any(np.diff(rows, axis=0) < 0):
        raise InvalidArgumentError(
            "a load in history falls; loads count from the start of the stream, add up the records"
        )
    total = float(rows[-1].sum())
    if total == 0:
        return 0.0
    return max(0.0, float((rows.max(axis=1) - rows.mean(axis=1)).mean() / total))


def load_ratio(loads: ArrayLike) -> float:
    """r_k, load imbalance of one resource: largest load over smallest load [Gedik, equation 2].

    Infinite where a worker is idle while another is not.

    Examples
    --------
    >>> load_ratio([12, 10])
    1.2
    """
    values = _amounts(loads, "loads")
    smallest, largest = float(values.min()), float(values.max())
    if largest == 0:
        return 1.0
    return largest / smallest if smallest > 0 else float("inf")


def relative_load_imbalance(loads: ArrayLike, alpha: float) -> float:
    """b_k, relative load imbalance of one resource: r_k / alpha_k [Gedik, equation 11].

    At most 1 where the resource is balanced well enough.

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
        The b_k of each resource, above 0; infinite ones make the mean infinite.

    Examples
    --------
    >>> overall_imbalance([0.5, 1.0, 2.0])
    1.0
    """
    values = _vector(relative_imbalances, "relative_imbalances")
    if not np.all(values > 0):
        raise InvalidArgumentError("relative imbalances are ratios above 0; get each from relative_load_imbalance()")
    return _geometric_mean(values)


def balance_penalty(loads: ArrayLike, theta: float) -> float:
    """rho_k, balance penalty: (largest - smallest load) / (theta_k * average load) [Gedik, equation 19].

    Unlike b_k it stays finite while some workers are idle.

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
    values = _amounts(loads, "loads")
    total = float(values.sum())
    if total == 0:
        return 0.0
    return float(values.max() - values.min()) / total * len(values) / theta


def overall_balance_penalty(penalties: ArrayLike) -> float:
    """rho, overall balance penalty: geometric mean of the rho_k of all resources [Gedik, equation 20].

    As printed: a single rho_k of 0 makes the mean 0 and hides the others. Leave out resources of constant use, as
    section 4.4 of the paper does.

    Parameters
    ----------
    penalties
        The rho_k of each resource.

    Examples
    --------
    >>> overall_balance_penalty([0.5, 1.0, 2.0])
    1.0
    """
    return _geometric_mean(_amounts(penalties, "penalties"))


def relative_migration(migrated: float, total: float, partitions: int) -> float:
    """m, relative migration cost: migrated state over the ideal, total state / N [Gedik, equation 12].

    The ideal is what must move when one partition is added. With ``partitions=1`` this is the share of all state
    that moves. Where there is no state it is 0.

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
    if moved > state * (1 + _ROUNDING):
        raise InvalidArgumentError(f"migrated state {moved} exceeds the total {state}; give both in the same unit")
    return moved * partitions / state if state > 0 else 0.0


def count_distinct_keys(keys: ArrayLike, assignment: ArrayLike, parts: int) -> NDArray[np.int64]:
    """||Block_i||, the number of distinct keys in each part: what the measures below are made from.

    Parameters
    ----------
    keys
        Key (fingerprint) of each message, or of each fragment of a key.
    assignment
        The block or worker it is in, counted from 0.
    parts
        Number of blocks or workers.

    Examples
    --------
    >>> count_distinct_keys([7, 7, 9, 9], [0, 1, 1, 1], parts=3).tolist()
    [1, 2, 0]
    """
    parts = whole("parts", parts, 1)
    targets = _assignment(assignment, parts)
    names = _array(keys, "keys")
    if names.shape != targets.shape:
        raise InvalidArgumentError(f"{names.size} keys but {targets.size} assignments; give one for each message")
    try:
        distinct, index = np.unique(names, return_inverse=True)
    except TypeError as error:  # objects without an order among them
        raise InvalidArgumentError(f"keys must be of one kind, {error}; give their fingerprints") from error
    fragments = np.unique(targets * len(distinct) + index)
    return np.bincount(fragments // len(distinct), minlength=parts)


def block_size_imbalance(sizes: ArrayLike) -> float:
    """BSI, block size imbalance: largest minus average block size [Prompt, equations 2 and 3].

    Parameters
    ----------
    sizes
        Tuples in each block, or in each reduce bucket.

    Examples
    --------
    >>> block_size_imbalance([97, 97, 97, 94])
    0.75
    """
    return imbalance(sizes)


def block_cardinality_imbalance(cardinalities: ArrayLike) -> float:
    """BCI, block cardinality imbalance: largest minus average number of distinct keys [Prompt, equation 4].

    Parameters
    ----------
    cardinalities
        Distinct keys in each block.

    Examples
    --------
    >>> block_cardinality_imbalance([2, 3, 3, 3])
    0.25
    """
    return imbalance(cardinalities)


def key_split_ratio(cardinalities: ArrayLike, distinct_keys: int) -> float:
    """KSR, key split ratio: number of key fragments over number of keys [Prompt, equation 5].

    A fragment is all that one block holds of one key, so there are as many as the cardinalities add up to. 1 where
    no key is split. The sentence before equation 5 has the ratio upside down; the equation is followed.

    Parameters
    ----------
    cardinalities
        Distinct keys in each block.
    distinct_keys
        K, distinct keys in all blocks together.

    Examples
    --------
    >>> key_split_ratio([2, 3, 3, 3], distinct_keys=8)
    1.375
    """
    counts = _amounts(cardinalities, "cardinalities")
    distinct_keys = whole("distinct_keys", distinct_keys, 0)
    fragments = float(counts.sum())
    if not counts.max() <= distinct_keys <= fragments:
        raise InvalidArgumentError(
            f"{distinct_keys} distinct keys cannot make {fragments:g} fragments, up to {counts.max():g} in one block; "
            "count a key once in distinct_keys and once for each block it is in"
        )
    return fragments / distinct_keys if distinct_keys else 1.0


def micropartitioning_imbalance(
    sizes: ArrayLike,
    cardinalities: ArrayLike,
    distinct_keys: int,
    *,
    size_weight: float = 1 / 3,
    cardinality_weight: float = 1 / 3,
    split_weight: float = 1 / 3,
) -> float:
    """MPI, micro-batch partitioning imbalance: p_1 * BSI + p_2 * BCI + p_3 * KSR [Prompt, equation 6].

    Parameters
    ----------
    sizes
        Tuples in each block.
    cardinalities
        Distinct keys in each block.
    distinct_keys
        K, distinct keys in all blocks together.
    size_weight, cardinality_weight, split_weight
        p_1, p_2 and p_3, which add up to 1.

    Examples
    --------
    >>> round(micropartitioning_imbalance([97, 97, 97, 94], [2, 3, 3, 3], distinct_keys=8), 4)
    0.7917
    """
    weights = _amounts([size_weight, cardinality_weight, split_weight], "weights")
    sizes, cardinalities = _amounts(sizes, "sizes"), _amounts(cardinalities, "cardinalities")
    if abs(weights.sum() - 1) > _ROUNDING:
        raise InvalidArgumentError(f"the three weights must add up to 1, got {weights.sum():.6g}")
    if len(sizes) != len(cardinalities):
        raise InvalidArgumentError(
            f"{len(sizes)} sizes but {len(cardinalities)} cardinalities; give one of each for every block"
        )
    measures = (
        block_size_imbalance(sizes),
        block_cardinality_imbalance(cardinalities),
        key_split_ratio(cardinalities, distinct_keys),
    )
    return float(weights @ measures)


def standard_deviation(loads: ArrayLike) -> float:
    """StdDev: population standard deviation of the loads in percent of all load [DKG, equation 7].

    Examples
    --------
    >>> standard_deviation([68, 8, 8, 8, 8])
    24.0
    """
    values = _amounts(loads, "loads")
    total = float(values.sum())
    return float(np.std(100 * values / total)) if total > 0 else 0.0


def distribution_cost(cardinalities: ArrayLike, distinct_keys: int) -> float:
    """DistCost, distribution cost: sum over workers of their distinct keys / distinct keys overall [DKG, equation 8].

    The number of workers that hold a key, averaged over keys: from 1 to the number of workers. Prompt's key split
    ratio is the same quantity.

    Parameters
    ----------
    cardinalities
        Distinct keys at each worker.
    distinct_keys
        Distinct keys at all workers together.

    Examples
    --------
    >>> distribution_cost([1, 2, 1], distinct_keys=2)
    2.0
    """
    return key_split_ratio(cardinalities, distinct_keys)


def makespan(durations: ArrayLike, slots: int) -> float:
    """Time from the first start to the last end of the tasks of one stage, in Spark's order.

    Tasks start in the order of the list, each on the slot that is free first (Graham's list scheduling); delays of
    scheduling and locality are left out. At most twice :func:`makespan_lower_bound`.

    Parameters
    ----------
    durations
        Time that each task takes.
    slots
        Number of tasks that run at a time.

    Examples
    --------
    >>> makespan([1, 1, 4], slots=2)
    5.0
    """
    times = _amounts(durations, "durations")
    slots = whole("slots", slots, 1)
    free_at = times[:slots].tolist()
    heapify(free_at)
    for duration in times[slots:].tolist():
        heapreplace(free_at, free_at[0] + duration)
    return float(max(free_at))


def makespan_lower_bound(durations: ArrayLike, slots: int) -> float:
    """Time that no order of the tasks can beat: max(sum of durations / slots, longest duration).

    Parameters
    ----------
    durations
        Time that each task takes.
    slots
        Number of tasks that run at a time.

    Examples
    --------
    >>> makespan_lower_bound([1, 1, 4], slots=2)
    4.0
    """
    times = _amounts(durations, "durations")
    return max(float(times.sum()) / whole("slots", slots, 1), float(times.max()))


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


def _array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Array of whatever is given, unless it is rows of different lengths."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InvalidArgumentError(f"{name} cannot be read as an array: {error}") from error


def _numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Array of numbers; text is none, even where it spells one."""
    array = _array(values, name)
    if array.dtype.kind not in "iuf":
        raise InvalidArgumentError(
            f"{name} must be numbers, got an array of {array.dtype}; convert them to float first"
        )
    return array.astype(np.float64, copy=False)


def _vector(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """One-dimensional array with at least one number, none of them NaN."""
    array = _numbers(values, name)
    if array.ndim != 1 or array.size == 0:
        raise InvalidArgumentError(f"{name} must be a list of at least one number, got shape {array.shape}")
    if np.isnan(array).any():
        raise InvalidArgumentError(f"{name} holds NaN; replace what is unknown by a number first")
    return array


def _amounts(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Vector of finite numbers of at least 0."""
    array = _vector(values, name)
    if not np.all(np.isfinite(array) & (array >= 0)):
        bad = array[~(np.isfinite(array) & (array >= 0))][0]
        raise InvalidArgumentError(f"{name} must be finite numbers of at least 0, got {bad}")
    return array


def _assignment(values: ArrayLike, workers: int) -> NDArray[np.int64]:
    """Vector of workers in 0 .. workers - 1."""
    array = _array(values, "an assignment")
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"an assignment is a list of at least one worker number, got {array.dtype} of shape {array.shape}"
        )
    if array.min() < 0 or array.max() >= workers:
        raise InvalidArgumentError(f"an assignment names a worker outside 0..{workers - 1}")
    return array.astype(np.int64, copy=False)


def _geometric_mean(values: NDArray[np.float64]) -> float:
    return float(np.prod(values ** (1 / len(values))))


def _loads_on_arrival(targets: NDArray[np.int64], workers: int) -> NDArray[np.int64]:
    """Load of the worker that takes each message, that message included."""
    order = np.argsort(targets, kind="stable")
    counts = np.bincount(targets, minlength=workers)
    first = np.cumsum(counts) - counts
    loads = np.empty_like(order)
    loads[order] = np.arange(1, len(targets) + 1) - np.repeat(first, counts)
    return loads
