"""Replay of a stream of batches with a planner, as in Figure 3 of DR: plan from past batches, measure on the next."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.hashing import as_fingerprints
from equipoise.metrics import load_imbalance, lower_bound
from equipoise.plan import Costs, Plan, Planner, uniform_plan
from equipoise.sketch import Histogram


@dataclass(frozen=True)
class Step:
    """One batch of a replay.

    Parameters
    ----------
    batch
        Number of the batch, from 0.
    plan
        The plan of the batch, made from earlier batches only.
    loads
        Rows in each partition.
    imbalance
        Largest load divided by the mean.
    bound
        Smallest imbalance that any plan can reach on this batch.
    migration
        Fraction of all state that moved when ``plan`` was applied.
    """

    batch: int
    plan: Plan
    loads: NDArray[np.int64]
    imbalance: float
    bound: float
    migration: float


@dataclass(frozen=True)
class ReplayOptions:
    """Options of a replay: partitions, and the input of the planner.

    Parameters
    ----------
    partitions
        N, number of partitions.
    tail_groups
        H, number of tail groups; default that of ``uniform_plan``.
    listed
        Number of keys in the histogram for the planner; default 2 N + 1, as in DR; 0: all keys.
    retention
        Weight of the past in the averages of histograms and group loads.
    state_window
        Number of last batches whose rows make up the state of a key.
    """

    partitions: int
    tail_groups: int | None = None
    listed: int | None = None
    retention: float = 0.5
    state_window: int = 5

    def __post_init__(self) -> None:
        whole("partitions", self.partitions, 1)
        whole("state_window", self.state_window, 1)
        if self.listed is not None:
            whole("listed", self.listed, 0)
        if not 0 <= at_least("retention", self.retention, 0) <= 1:
            raise InvalidArgumentError(f"retention must be the weight of the past, in [0, 1], got {self.retention}")


def replay(planner: Planner, batches: Iterable[NDArray[np.int64]], options: ReplayOptions) -> Iterator[Step]:
    """Run a stream of batches with a new plan after every batch.

    Batch 0 runs under plain hash. Counts are exact, so that planners are compared and not sketches. Every planner gets
    the same input: the histogram, load and state of each tail group, and the state of the listed keys.

    Parameters
    ----------
    planner
        Planner that makes the plan of each next batch.
    batches
        Fingerprints of the rows of each batch.
    options
        Options of the replay.
    """
    plan = uniform_plan(options.partitions, options.tail_groups)
    past = _Past(plan.tail_groups, options)
    migration = 0.0
    for number, batch in enumerate(batches):
        keys, counts = np.unique(as_fingerprints(batch), return_counts=True)
        loads = np.bincount(plan.assign(keys), counts, plan.partitions).astype(np.int64)
        hottest = counts.max() / counts.sum() if len(counts) else 0.0
        yield Step(number, plan, loads, load_imbalance(loads), lower_bound(plan.partitions, hottest), migration)
        if len(counts) == 0:  # no new data, so nothing moves
            migration = 0.0
            continue
        past.add(keys, counts)
        histogram = past.histogram(2 * plan.partitions + 1 if options.listed is None else options.listed)
        following = planner.plan(plan, histogram, costs=past.costs(plan, histogram))
        migration = past.migration(plan, following)
        plan = following


class _Past:
    """Decayed histogram and group loads, and the state of the last batches."""

    def __init__(self, groups: int, options: ReplayOptions) -> None:
        self._groups = groups
        self._options = options
        self._histogram: Histogram | None = None
        self._group_load = np.zeros(groups)
        self._window: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def add(self, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Add one batch."""
        shares = counts / counts.sum()
        batch = Histogram(keys, shares, total=float(counts.sum()))
        group_load = np.bincount(np.mod(keys, self._groups), shares, self._groups).astype(np.float64)
        if self._histogram is None:
            self._histogram, self._group_load = batch, group_load
        else:
            weight = self._options.retention
            self._histogram = self._histogram.blend(batch, weight)
            self._group_load = weight * self._group_load + (1 - weight) * group_load
        self._window = [*self._window, (keys, counts)][-self._options.state_window :]
        keys, inverse = np.unique(np.concatenate([k for k, _ in self._window]), return_inverse=True)
        self._state_keys = keys
        self._state = np.bincount(inverse, np.concatenate([c for _, c in self._window]), len(keys))

    def histogram(self, listed: int) -> Histogram:
        """Return the averaged histogram of the hottest keys."""
        assert self._histogram is not None  # noqa: S101 - add() was called first; for the type checker
        return self._histogram.top(listed) if listed else self._histogram

    def costs(self, plan: Plan, histogram: Histogram) -> Costs:
        """Return the costs that an engine would have measured."""
        group_state = np.bincount(np.mod(self._state_keys, self._groups), self._state, self._groups)
        asked = np.union1d(histogram.fingerprints, plan.isolated_keys)
        known = np.isin(self._state_keys, asked)
        key_state = dict(zip(self._state_keys[known].tolist(), self._state[known].tolist(), strict=True))
        return Costs(group_load=self._group_load, group_state=group_state.astype(np.float64), key_state=key_state)

    def migration(self, before: Plan, after: Plan) -> float:
        """Return the fraction of the state that changes its partition."""
        moved = before.assign(self._state_keys) != after.assign(self._state_keys)
        return float(self._state[moved].sum() / self._state.sum())
