"""Planners and splitters at the size of a large cluster: what happens past one machine, as figures.

Splitters get every message of a Zipf stream, one by one, as each source would route it. Planners are told counts of
keys that are drawn from their exact distribution, hour by hour, and the loads that their plans give are exact sums of
those counts. Neither needs memory that grows with the messages or the keys.
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
_LOOKS = 100  # D- and W-Choices look at the head once in so many messages for each worker
_STEP = 100_000  # messages between two looks at the clock

HOURS = "hours"
"""Name of the work of drawing the counts of the hours."""

Advance = Callable[[str, int], None]
"""Told the name of what was worked on, and how much of it is done."""


@dataclass(frozen=True)
class ScaleOptions:
    """The size of the load, and how it changes.

    Parameters
    ----------
    partitions
        N, number of partitions; for splitters the workers.
    messages
        Messages of the stream that splitters route, and of each hour that planners plan for.
    keys
        K, number of keys at a time.
    exponent
        z of Zipf's law.
    sources
        S, number of sources that split, each by what it has sent itself.
    hours
        Hours for which plans are made, after one under plain hash.
    drift
        Part of the hot keys, the 2 N + 1 hottest, that are replaced by new ones every hour.
    state_hours
        State of a key = its messages in this many last hours.
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
                f"{self.partitions} partitions need at least {2 * self.listed:,} keys, since twice the hottest 2 N + 1 "
                f"are told apart, got {self.keys:,}; raise --keys or lower --partitions"
            )
        whole("sources", self.sources, 1)
        whole("hours", self.hours, 1)
        whole("state_hours", self.state_hours, 1)
        if min(at_least("plan_limit", self.plan_limit, 0), at_least("stream_limit", self.stream_limit, 0)) == 0:
            raise InvalidArgumentError("plan_limit and stream_limit must be above 0 seconds, got 0")

    @property
    def listed(self) -> int:
        """Number of keys in the histogram that planners are given."""
        return 2 * self.partitions + 1


FULL = ScaleOptions(partitions=10_000, messages=1_000_000_000, keys=100_000_000)
"""Past what one machine holds."""

QUICK = ScaleOptions(partitions=500, messages=3_000_000, keys=1_000_000, hours=2, plan_limit=8.0)
"""The same, sized for a minute on two idle cores."""


@dataclass(frozen=True)
class SplitterFigures:
    """What a splitter did to the stream.

    Parameters
    ----------
    messages
        Messages routed; fewer than there were where it was given up.
    fullest
        Messages of the fullest worker over the mean.
    average_imbalance
        Fraction of average imbalance.
    seconds
        Time of routing.
    memory
        Bytes that all its sources hold.
    trouble
        Why it did not get through the stream; empty if it did.
    """

    messages: int
    fullest: float
    average_imbalance: float
    seconds: float
    memory: int
    trouble: str


@dataclass
class PlannerFigures:
    """What a planner did, hour by hour.

    Parameters
    ----------
    fullest
        Messages of the fullest partition over the mean, in each hour, under a plan made from the hours before.
    over_bound
        The same over what no plan can beat as long as keys stay whole.
    planning
        Seconds of each planning.
    moved
        Part of the state that each new plan moved, the first one, away from plain hash, among them.
    plan_bytes
        Bytes of the last plan as a file.
    routing_bytes
        Bytes of the literal arrays in the expression that routes by the last plan.
    isolated
        Keys that the last plan places one by one.
    trouble
        Why it made no further plan; empty if it did.
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
        """Part of the state that a new plan moved, on average, the first one left out; ``None`` if there was none."""
        later = [part for part in self.moved[1:] if part > 0]
        return mean(later) if later else None

    @property
    def moved_per_hour(self) -> float | None:
        """Part of the state that moved in an hour of drift, on average, the first plan left out."""
        return mean(self.moved[1:]) if len(self.moved) > 1 else None


def check_names(names: list[str]) -> tuple[list[str], list[str]]:
    """The splitters and the planners among the names."""
    for name in names:
        if name not in SPLITTERS and name not in PLANNERS:
            raise InvalidArgumentError(
                f"there is no splitter or planner {name!r}; choose one of {', '.join([*SPLITTERS, *PLANNERS])}"
            )
        if name in SPLITTERS and SPLITTERS[name].memory == "keys":
            raise InvalidArgumentError(
                f"{name!r} remembers every key, for which there is no room at this scale; leave it out"
            )
    return [name for name in names if name in SPLITTERS], [name for name in names if name in PLANNERS]


def splitters_at_scale(
    names: list[str], options: ScaleOptions, advance: Advance = lambda _name, _done: None, *, threads: int = 2
) -> dict[str, SplitterFigures]:
    """Give every splitter the same stream, chunk by chunk.

    Parameters
    ----------
    names
        Of ``equipoise_lab.variants.SPLITTERS``.
    options
        Size of the load.
    advance
        Told of the messages that each splitter has routed.
    threads
        Splitters that work at a time.
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
    """One splitter on its way through the stream."""

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
    """Let every planner plan the next hour from the one before, and measure it on that next hour.

    Parameters
    ----------
    names
        Of ``equipoise_lab.variants.PLANNERS``.
    options
        Size of the load.
    advance
        Told of each hour that was drawn, as ``HOURS``, and of each that a planner has planned for.
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
    """Go through the hours with one planner until it fails, and fill in its figures; yields after each plan."""
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
    """The hours of the load: one to plan from, and those that are planned for."""
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
    """Messages of some hours together."""
    known = hours[-1].known
    counts = np.zeros(len(known), dtype=np.int64)
    for hour in hours:  # later hours know more keys, after those of the earlier ones
        counts[: len(hour.counts)] += hour.counts
    return Hour(known, counts, np.sum([hour.groups for hour in hours], axis=0))


def _costs(hours: list[Hour]) -> Costs:
    """What an engine would have measured: the load of the last hour and the state that all of them left."""
    state = _state(hours)
    return Costs(
        group_load=hours[-1].of_groups(),
        group_state=state.of_groups(),
        key_state=dict(zip(state.known.tolist(), state.counts.tolist(), strict=True)),
    )


def migration(before: Plan, after: Plan, state: Hour) -> float:
    """Part of the state that changes its partition between two plans that isolate known keys only."""
    keys = state.counts[before.assign(state.known) != after.assign(state.known)].sum()
    return float(keys + state.groups[before.tail != after.tail].sum()) / state.messages
