"""Simulation of planners and splitters at the size of a large cluster.

Splitters route every message of a Zipf stream, one by one. Planners get the counts of keys, drawn from their exact
distribution, hour by hour; the loads of their plans are exact sums of those counts. Memory does not grow with the
messages or the keys.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.metrics import load_imbalance, lower_bound
from equipoise.plan import Costs, Plan, default_tail_groups, uniform_plan
from equipoise.plan.lookup import routing_bytes
from equipoise_lab.simulate.cluster import Cluster, ClusterOptions, splitter_of
from equipoise_lab.simulate.hourly_counts import Hour, HourlyCounts
from equipoise_lab.simulate.timed_planning import TimedPlanning
from equipoise_lab.simulate.zipf_stream import zipf_stream
from equipoise_lab.variants import PLANNERS, SPLITTERS

_HOUR = 3600  # seconds
_LOOKS = 100  # D- and W-Choices update the hot keys after this many messages per worker
_STEP = 100_000  # messages between two readings of the clock

HOURS = "hours"
"""Name under which progress of drawing the hourly counts is reported."""

Advance = Callable[[str, int], None]
"""Function that reports progress, called with a name and an amount of work."""


@dataclass(frozen=True)
class ScaleOptions:
    """Size and drift of the load.

    Parameters
    ----------
    partitions
        N, number of partitions; for splitters number of workers.
    messages
        Messages of the stream for splitters, and of each hour for planners.
    keys
        K, number of keys at a time.
    exponent
        z of Zipf's law.
    sources
        S, number of sources of the stream; each knows only the messages that it has sent.
    hours
        Number of hours with plans, after one under plain hash.
    drift
        Fraction of the 2 N + 1 hottest keys that are replaced by new ones every hour.
    state_hours
        Number of last hours whose messages make up the state of a key.
    plan_limit
        Seconds that a plan may take.
    stream_limit
        Seconds that a splitter may take for the whole stream.
    seed
        Seed of everything random.
    """

    partitions: int
    messages: int
    keys: int
    exponent: float = 1.0
    sources: int = 5
    hours: int = 3
    drift: float = 0.05
    state_hours: int = 3
    plan_limit: float = 90.0
    stream_limit: float = 600.0
    seed: int = 1

    def __post_init__(self) -> None:
        whole("partitions", self.partitions, 2)
        whole("messages", self.messages, 2)
        if whole("keys", self.keys, 1) < 2 * self.listed:
            raise InvalidArgumentError(
                f"{self.partitions} partitions need at least {2 * self.listed:,} keys, twice the 2 N + 1 hottest, "
                f"got {self.keys:,}; raise --keys or lower --partitions"
            )
        whole("sources", self.sources, 1)
        whole("hours", self.hours, 1)
        whole("state_hours", self.state_hours, 1)
        if min(at_least("plan_limit", self.plan_limit, 0), at_least("stream_limit", self.stream_limit, 0)) == 0:
            raise InvalidArgumentError("plan_limit and stream_limit must be above 0 seconds, got 0")

    @property
    def listed(self) -> int:
        """Number of keys in the histogram for planners."""
        return 2 * self.partitions + 1


FULL = ScaleOptions(partitions=10_000, messages=1_000_000_000, keys=100_000_000)
"""A load beyond the capacity of one machine."""

QUICK = ScaleOptions(partitions=500, messages=3_000_000, keys=1_000_000, hours=2, plan_limit=8.0)
"""A smaller load, which takes a minute on two idle cores."""


@dataclass(frozen=True)
class SplitterFigures:
    """Results of a splitter.

    Parameters
    ----------
    messages
        Number of routed messages; fewer than the stream if the time limit was reached.
    fullest
        Messages of the fullest worker divided by the mean.
    average_imbalance
        Fraction of average imbalance.
    seconds
        Time of routing.
    memory
        Memory of all sources, in bytes.
    trouble
        Why it did not route the whole stream; empty if it did.
    """

    messages: int
    fullest: float
    average_imbalance: float
    seconds: float
    memory: int
    trouble: str


@dataclass
class PlannerFigures:
    """Results of a planner, hour by hour.

    Parameters
    ----------
    fullest
        Messages of the fullest partition divided by the mean, in each hour, under a plan made from the hours before.
    over_bound
        The same, divided by the smallest imbalance that any plan without split keys can reach.
    planning
        Planning time of each plan, in seconds.
    moved
        Fraction of the state that each plan moved, including the first one, which replaced plain hash.
    plan_bytes
        Bytes of the last plan as a file.
    routing_bytes
        Bytes of the literal arrays in the expression that routes by the last plan.
    isolated
        Number of isolated keys of the last plan.
    trouble
        Why it stopped making plans; empty if it did not.
    """

    fullest: list[float] = field(default_factory=list)
    over_bound: list[float] = field(default_factory=list)
    planning: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    plan_bytes: int = 0
    routing_bytes: int = 0
    isolated: int = 0
    trouble: str = ""

    @property
    def moved_per_replan(self) -> float | None:
        """Average fraction of the state that a new plan moved, without the first one; ``None`` if there was none."""
        later = [fraction for fraction in self.moved[1:] if fraction > 0]
        return mean(later) if later else None

    @property
    def moved_per_hour(self) -> float | None:
        """Average fraction of the state that moved in an hour of drift, without the first plan."""
        return mean(self.moved[1:]) if len(self.moved) > 1 else None


def check_names(names: list[str]) -> tuple[list[str], list[str]]:
    """Return the splitters and the planners among the names; refuse unknown names."""
    for name in names:
        if name not in SPLITTERS and name not in PLANNERS:
            raise InvalidArgumentError(
                f"there is no splitter or planner {name!r}; choose one of {', '.join([*SPLITTERS, *PLANNERS])}"
            )
        if name in SPLITTERS and SPLITTERS[name].memory == "keys":
            raise InvalidArgumentError(
                f"{name!r} stores every key, which needs too much memory at this scale; leave it out"
            )
    return [name for name in names if name in SPLITTERS], [name for name in names if name in PLANNERS]


def splitters_at_scale(
    names: list[str], options: ScaleOptions, advance: Advance = lambda _name, _done: None, *, threads: int = 2
) -> dict[str, SplitterFigures]:
    """Run every splitter on the same stream, chunk by chunk.

    Parameters
    ----------
    names
        Names in ``equipoise_lab.variants.SPLITTERS``.
    options
        Size of the load.
    advance
        Called with the name of a splitter and the number of messages it has routed.
    threads
        Number of splitters that run at the same time.
    """
    runs = [_Run(name, options) for name in names]
    stream = zipf_stream(options.keys, options.exponent, options.messages, seed=options.seed)
    with ThreadPoolExecutor(threads) as pool:
        for chunk in stream:
            going = [run for run in runs if not run.gave_up]
            if not going:
                break
            for run in pool.map(lambda run, chunk=chunk: run.feed(chunk), going):
                advance(run.name, len(chunk))
    return {run.name: run.figures() for run in runs}


class _Run:
    """Run of one splitter."""

    def __init__(self, name: str, options: ScaleOptions) -> None:
        self.name, self._limit = name, options.stream_limit
        more = {"refresh": _LOOKS * options.partitions} if name in {"d-choices", "w-choices"} else {}
        settings = ClusterOptions(
            sources=options.sources, spread=False, rate=options.messages / _HOUR, step=_STEP, seed=options.seed
        )
        make = splitter_of(name, options.partitions, seed=options.seed, **more)
        Cluster(make, settings).feed(np.arange(1000))  # compiles
        self._cluster = Cluster(make, settings)
        self._seconds = 0.0

    @property
    def gave_up(self) -> bool:
        return self._seconds > self._limit

    def feed(self, chunk: NDArray[np.int64]) -> "_Run":
        start = time.perf_counter()
        self._cluster.feed(chunk)
        self._seconds += time.perf_counter() - start
        return self

    def figures(self) -> SplitterFigures:
        result = self._cluster.result()
        return SplitterFigures(
            result.messages,
            load_imbalance(result.loads),
            result.average_imbalance,
            self._seconds,
            sum(splitter.nbytes for splitter in self._cluster.splitters),
            f"gave up after {self._limit:g} s" if self.gave_up else "",
        )


def planners_at_scale(
    names: list[str], options: ScaleOptions, advance: Advance = lambda _name, _done: None
) -> dict[str, PlannerFigures]:
    """Run every planner: plan each hour from the hours before, and measure the plan on that hour.

    Parameters
    ----------
    names
        Names in ``equipoise_lab.variants.PLANNERS``.
    options
        Size of the load.
    advance
        Called with ``HOURS`` for each hour that was drawn, and with the name of a planner for each of its plans.
    """
    hours = []
    for hour in hours_of(options):
        hours.append(hour)
        advance(HOURS, 1)
    figures: dict[str, PlannerFigures] = {}
    for name in names:
        figures[name] = PlannerFigures()
        for _ in _planned(name, hours, options, figures[name]):
            advance(name, 1)
    return figures


def _planned(name: str, hours: list[Hour], options: ScaleOptions, figures: PlannerFigures) -> Iterator[None]:
    """Run one planner over the hours until it fails, and fill in its results; yield after each plan."""
    plan = uniform_plan(options.partitions)
    with TimedPlanning(name, options.plan_limit) as planning:
        for number, hour in enumerate(hours[1:], start=1):
            past = hours[max(0, number - options.state_hours) : number]
            found = planning.plan(plan, past[-1].histogram(options.listed), _costs(past))
            figures.planning.append(found.seconds)
            figures.trouble = found.trouble
            if found.plan is None:
                break
            figures.moved.append(migration(plan, found.plan, _state(past)))
            plan = found.plan
            fullest = load_imbalance(hour.loads(plan))
            figures.fullest.append(fullest)
            figures.over_bound.append(fullest / lower_bound(plan.partitions, hour.hottest))
            yield
    if figures.moved:
        figures.plan_bytes = len(plan.to_json())
        figures.routing_bytes = routing_bytes(plan)
        figures.isolated = len(plan.isolated)


def hours_of(options: ScaleOptions) -> Iterator[Hour]:
    """Return the hours of the load: one under plain hash, and the hours with plans."""
    counts = HourlyCounts(
        options.keys,
        options.exponent,
        options.messages,
        groups=default_tail_groups(options.partitions),
        hot=options.listed,
        drift=options.drift,
        seed=options.seed,
    )
    return (counts.next_hour() for _ in range(options.hours + 1))


def _state(hours: list[Hour]) -> Hour:
    """Return the sum of some hours."""
    known = hours[-1].known
    counts = np.zeros(len(known), dtype=np.int64)
    for hour in hours:  # later hours have additional keys, at the end
        counts[: len(hour.counts)] += hour.counts
    return Hour(known, counts, np.sum([hour.groups for hour in hours], axis=0))


def _costs(hours: list[Hour]) -> Costs:
    """Return the costs that an engine would have measured: load of the last hour, state of all hours."""
    state = _state(hours)
    return Costs(
        group_load=hours[-1].of_groups(),
        group_state=state.of_groups(),
        key_state=dict(zip(state.known.tolist(), state.counts.tolist(), strict=True)),
    )


def migration(before: Plan, after: Plan, state: Hour) -> float:
    """Return the fraction of the state that moves between two plans that isolate known keys only."""
    keys = state.counts[before.assign(state.known) != after.assign(state.known)].sum()
    return float(keys + state.groups[before.tail != after.tail].sum()) / state.messages
