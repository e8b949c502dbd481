"""Simulation of sources and workers: balance, memory and cost of aggregation of a splitter over a stream."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.hashing import as_fingerprints
from equipoise.kernels import kernel
from equipoise.metrics import distribution_cost, imbalance, standard_deviation
from equipoise.microbatch.zipf import zipf_shares
from equipoise.split import Splitter
from equipoise_lab.simulate.key_spread import KeySpread
from equipoise_lab.simulate.planned import Planned
from equipoise_lab.simulate.queueing import QueueOptions, QueueReport, Queues
from equipoise_lab.simulate.streams import KeySampler
from equipoise_lab.variants import PLANNERS, SPLITTERS, make_planner, make_splitter

Clock = Callable[[], float]

SplitterOfSource = Callable[[Clock], Splitter]
"""Function that makes the splitter of one source, from the clock of the simulation."""

_SOURCE_KEYS = 10_000  # keys of the other field, by which messages go to skewed sources


@dataclass(frozen=True)
class ClusterOptions:
    """Options of a simulation: sources, knowledge of loads, and measurements.

    Parameters
    ----------
    sources
        S, number of sources; message t goes to source t mod S.
    load
        Loads known to a source: ``"local"``, the messages that it has sent (L_S); ``"global"``, all messages (G);
        ``"probed"``, the loads at the last probe plus the messages that it has sent since (L_S P_T).
    probe_every
        Messages between two probes.
    source_skew
        Exponent of the Zipf law of another field, by whose hash messages go to sources; 0: round robin.
    aggregation_period
        T, messages after which workers hand over their partial results; ``None``: never.
    hand_over
        Seconds that a worker needs to hand over a partial result; used only with queues.
    spread
        Whether to record the workers of each key.
    oracle
        Whether to compare each route with that of one splitter that gets the messages of all sources.
    queue
        Model of service and queues; ``None``: messages are only counted.
    rate
        Messages per second, for splitters that use the clock; ignored with a ``queue``, which has its own time.
    step
        Messages between two readings of the clock.
    seed
        Seed of the random numbers of the simulation itself.
    """

    sources: int = 1
    load: Literal["local", "global", "probed"] = "local"
    probe_every: int = 100_000
    source_skew: float = 0.0
    aggregation_period: int | None = None
    hand_over: float = 0.0
    spread: bool = True
    oracle: bool = False
    queue: QueueOptions | None = None
    rate: float = 10_000.0
    step: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        whole("sources", self.sources, 1)
        whole("probe_every", self.probe_every, 1)
        whole("step", self.step, 1)
        at_least("source_skew", self.source_skew, 0)
        at_least("hand_over", self.hand_over, 0)
        if self.aggregation_period is not None:
            whole("aggregation_period", self.aggregation_period, 1)
        if self.load not in {"local", "global", "probed"}:
            raise InvalidArgumentError(f"load must be 'local', 'global' or 'probed', got {self.load!r}")
        if at_least("rate", self.rate, 0) == 0:
            raise InvalidArgumentError("rate must be above 0 messages a second, got 0")


@dataclass(frozen=True)
class ClusterResult:
    """Result of a simulation.

    Parameters
    ----------
    messages
        m, messages routed.
    loads
        Messages at each worker.
    imbalance
        I(m) / m, where I(m) is the largest load minus the average.
    average_imbalance
        Fraction of average imbalance: average over all t of I(t), divided by m.
    standard_deviation
        DKG's StdDev, of the loads in percent.
    agreement
        Fraction a of the messages that the global oracle routes the same way; ``None`` without ``oracle``. The Jaccard
        overlap of the PKG paper is a / (2 - a).
    keys
        Distinct keys.
    keys_at_workers
        Number of distinct keys at each worker, a measure of its memory.
    distribution_cost
        DKG's DistCost: average number of workers that hold a key.
    aggregation
        Number of partial results handed over, divided by the messages; 0 without a period.
    partial_results
        Average number of partial results at the end of a period.
    imbalance_over_time
        Messages so far and I(t) / t, one row for each chunk of the stream.
    queue
        Throughput and latency; ``None`` without queues.
    """

    messages: int
    loads: NDArray[np.int64]
    imbalance: float
    average_imbalance: float
    standard_deviation: float
    agreement: float | None
    keys: int
    keys_at_workers: NDArray[np.int64]
    distribution_cost: float | None
    aggregation: float
    partial_results: float
    imbalance_over_time: NDArray[np.float64]
    queue: QueueReport | None


@kernel(nogil=True)
def _observe(targets: Any, loads: Any, seen: int) -> float:
    """Count messages; return the sum of I(t) after each of them."""
    total = 0.0
    largest = loads.max()
    for i in range(len(targets)):
        loads[targets[i]] += 1
        largest = max(largest, loads[targets[i]])
        total += largest - (seen + i + 1) / len(loads)
    return float(total)


def splitter_of(name: str, workers: int, *, every: int | None = None, **options: Any) -> SplitterOfSource:
    """Return a function that makes a splitter, or a planner in its place, by name.

    Parameters
    ----------
    name
        One of ``SPLITTERS`` or ``PLANNERS`` of ``equipoise_lab.variants``.
    workers
        W, number of workers.
    every
        Messages between two plans; planners need it.
    **options
        Options of the splitter or planner.
    """
    if name in PLANNERS:
        if every is None:
            raise InvalidArgumentError(
                f"the planner {name!r} needs the number of messages between two plans; give every"
            )
        options.pop("seed", None)  # plans do not hash fingerprints again
        planner = make_planner(name, **options)
        return lambda _clock: Planned(planner, workers, every=every)
    if name not in SPLITTERS:
        raise InvalidArgumentError(
            f"there is no splitter or planner {name!r}; choose one of {', '.join([*SPLITTERS, *PLANNERS])}"
        )
    if "clock" in signature(SPLITTERS[name]).parameters:
        return lambda clock: make_splitter(name, workers=workers, clock=clock, **options)
    return lambda _clock: make_splitter(name, workers=workers, **options)


class Cluster:
    """Simulation of S sources that route a stream to W workers, in memory that does not grow with the stream.

    Coordinated splitters, which store the worker of each key, are one instance for all sources, whatever ``load`` is.

    Parameters
    ----------
    make
        Function that makes the splitter of a source; see :func:`splitter_of`.
    options
        Options of the simulation.

    Examples
    --------
    >>> from equipoise_lab.simulate.streams import make_stream
    >>> cluster = Cluster(splitter_of("partial-key", workers=5), ClusterOptions(sources=3))
    >>> for chunk in make_stream("zipf", 100_000, keys=1000, exponent=0.8, seed=1):
    ...     cluster.feed(chunk)
    >>> result = cluster.result()
    >>> result.average_imbalance < 1e-3, result.distribution_cost <= 2
    (True, True)
    """

    def __init__(self, make: SplitterOfSource, options: ClusterOptions | None = None) -> None:
        self.options = options = options or ClusterOptions()
        self._seen = 0
        self._queues: Queues | None = None
        first = make(self._clock)
        self.workers = first.workers
        alone = first.coordinated or options.load == "global"
        self.splitters = [first] if alone else [first, *(make(self._clock) for _ in range(options.sources - 1))]
        """Splitter of each source, or one for all."""
        self._oracle = make(self._clock) if options.oracle and len(self.splitters) > 1 else None
        if options.queue is not None:
            self._queues = Queues(self.workers, options.sources, options.queue)
        self._spread = KeySpread(self.workers) if options.spread else None
        self._period = None if options.aggregation_period is None else KeySpread(self.workers)
        self._other_field = None
        if options.source_skew > 0:
            self._other_field = KeySampler(zipf_shares(_SOURCE_KEYS, options.source_skew), options.seed)
        self._loads = np.zeros(self.workers, dtype=np.int64)
        self._sum = 0.0
        self._agreed = 0
        self._handed_over: list[int] = []
        self._imbalance_over_time: list[tuple[int, float]] = []

    def _clock(self) -> float:
        """Return the seconds since the start of the stream."""
        return self._seen / self.options.rate if self._queues is None else self._queues.now

    def feed(self, fingerprints: NDArray[np.int64], sources: NDArray[np.int64] | None = None) -> None:
        """Route the next chunk of the stream.

        Parameters
        ----------
        fingerprints
            Keys of the messages.
        sources
            Source of each of them; ``None``: by the options.
        """
        keys = as_fingerprints(fingerprints)
        done = 0
        while done < len(keys):
            stop = min(len(keys), done + self._next_stop())
            self._step(keys[done:stop], None if sources is None else sources[done:stop])
            done = stop
        if len(keys):
            self._imbalance_over_time.append((self._seen, imbalance(self._loads) / self._seen))

    def _next_stop(self) -> int:
        """Return the number of messages up to the next probe, hand-over or reading of the clock."""
        periods = [self.options.step]
        if self.options.load == "probed":
            periods.append(self.options.probe_every)
        if self.options.aggregation_period is not None:
            periods.append(self.options.aggregation_period)
        return min(period - self._seen % period for period in periods)

    def _step(self, keys: NDArray[np.int64], given: NDArray[np.int64] | None) -> None:
        """Route messages between two such events."""
        by_turns = given is None and self._other_field is None
        sources = self._sources(len(keys)) if given is None else given
        targets = self._routes(keys, sources, by_turns=by_turns)
        if self._oracle is not None:
            self._agreed += int(np.count_nonzero(self._oracle.route(keys) == targets))
        self._sum += _observe(targets, self._loads, self._seen)
        if self._spread is not None:
            self._spread.add(keys, targets)
        if self._queues is not None:
            self._queues.feed(targets, sources)
        self._seen += len(keys)
        if self._period is not None:
            self._period.add(keys, targets)
            if self._seen % self.options.aggregation_period == 0:  # type: ignore[operator]  # not None, as there is a period
                self._handed_over.append(self._period.replicas())
                if self._queues is not None and self.options.hand_over > 0:
                    partial = self._period.keys_at_workers().astype(np.float64)
                    self._queues.occupy(partial * self.options.hand_over)
                self._period.clear()
        if self.options.load == "probed" and self._seen % self.options.probe_every == 0:
            for splitter in self.splitters:
                splitter.probe(self._loads, sources=len(self.splitters))

    def _sources(self, count: int) -> NDArray[np.int64]:
        """Return the source of each of the next messages."""
        if self._other_field is None:
            return np.mod(np.arange(self._seen, self._seen + count), self.options.sources)
        return np.mod(self._other_field.draw(count), self.options.sources)

    def _routes(self, keys: NDArray[np.int64], sources: NDArray[np.int64], *, by_turns: bool) -> NDArray[np.int32]:
        if len(self.splitters) == 1:
            return self.splitters[0].route(keys)
        targets = np.empty(len(keys), dtype=np.int32)
        for source, splitter in enumerate(self.splitters):
            mine: slice | NDArray[np.bool_] = sources == source
            if by_turns:
                mine = slice((source - self._seen) % len(self.splitters), None, len(self.splitters))
            targets[mine] = splitter.route(keys[mine])
        return targets

    def _agreement(self) -> float | None:
        """Return the fraction of messages that the global oracle routes the same way."""
        if not self.options.oracle:
            return None
        return 1.0 if self._oracle is None else self._agreed / self._seen

    def result(self) -> ClusterResult:
        """Return the result so far."""
        if self._seen == 0:
            raise InvalidArgumentError("no message was routed yet; call feed() first")
        cost, keys, at_workers = None, 0, np.zeros(self.workers, dtype=np.int64)
        if self._spread is not None:
            keys, at_workers = self._spread.keys(), self._spread.keys_at_workers()
            cost = distribution_cost(at_workers, keys) if keys else None
        return ClusterResult(
            messages=self._seen,
            loads=self._loads.copy(),
            imbalance=imbalance(self._loads) / self._seen,
            average_imbalance=self._sum / self._seen / self._seen,
            standard_deviation=standard_deviation(self._loads),
            agreement=self._agreement(),
            keys=keys,
            keys_at_workers=at_workers,
            distribution_cost=cost,
            aggregation=sum(self._handed_over) / self._seen,
            partial_results=float(np.mean(self._handed_over)) if self._handed_over else 0.0,
            imbalance_over_time=np.array(self._imbalance_over_time),
            queue=None if self._queues is None else self._queues.report(),
        )


def simulate(
    make: SplitterOfSource, stream: Iterable[NDArray[np.int64]], options: ClusterOptions | None = None
) -> ClusterResult:
    """Route a whole stream and measure; see :class:`Cluster`.

    Parameters
    ----------
    make
        Function that makes the splitter of a source; see :func:`splitter_of`.
    stream
        Fingerprints, chunk by chunk.
    options
        Options of the simulation.
    """
    cluster = Cluster(make, options)
    for chunk in stream:
        cluster.feed(chunk)
    return cluster.result()
