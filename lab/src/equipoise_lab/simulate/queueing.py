"""Simulation of queues at workers: throughput and latency of routes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.kernels import kernel

_BINS_AN_OCTAVE = 8
_BINS = 64 * _BINS_AN_OCTAVE
_SHORTEST = 2.0**-30  # seconds; the lower edge of the first bin of the latency histogram


@dataclass(frozen=True)
class QueueOptions:
    """Options of the queues: service time, rate and room.

    Parameters
    ----------
    service
        Seconds that a worker needs for a message.
    rate
        Messages per second that all sources together receive; ``None``: sources send as fast as the queues accept,
        which measures the throughput at saturation and needs a ``capacity`` or ``pending``.
    capacity
        Largest number of messages at a worker, the one in service included. A source whose next message finds no room
        waits, and so do all its later messages. ``None``: no limit.
    pending
        Largest number of unfinished messages of a source, as Storm's ``max.spout.pending``; the source waits for one of
        them before it sends the next. The latency then counts from the sending of a message, as in Storm. ``None``: no
        limit.
    exponential
        Whether service times are drawn from the exponential distribution with that mean, instead of being constant.
    seed
        Seed of the service times.
    """

    service: float = 1e-3
    rate: float | None = None
    capacity: int | None = 1000
    pending: int | None = None
    exponential: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if at_least("service", self.service, 0) == 0:
            raise InvalidArgumentError("service must be above 0 seconds, got 0")
        if self.rate is not None and at_least("rate", self.rate, 0) == 0:
            raise InvalidArgumentError("rate must be above 0 messages a second, got 0")
        if self.capacity is not None:
            whole("capacity", self.capacity, 1)
        if self.pending is not None:
            whole("pending", self.pending, 1)
        if self.rate is None and self.capacity is None and self.pending is None:
            raise InvalidArgumentError(
                "without rate, capacity and pending all messages would arrive at once; set at least one of them"
            )


@dataclass(frozen=True)
class QueueReport:
    """Throughput and latency of the queues.

    Parameters
    ----------
    throughput
        Messages per second, from the first message sent to the last one done.
    latency
        Mean seconds from the arrival of a message at its source to its completion; without a rate, from when the source
        was ready for it; with ``pending``, from when it was sent.
    latency_median, latency_99
        Quantiles of the same, to within 9 %.
    utilisation
        Fraction of the time that each worker was busy.
    """

    throughput: float
    latency: float
    latency_median: float
    latency_99: float
    utilisation: NDArray[np.float64]


@kernel
def _replace_earliest(ends: Any, size: int, end: float) -> None:
    """Replace the earliest time of a binary heap."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and ends[child + 1] < ends[child]:
            child += 1
        if ends[child] >= end:
            break
        ends[at] = ends[child]
        at = child
    ends[at] = end


@kernel
def _serve(
    targets: Any,
    sources: Any,
    services: Any,
    first: int,
    gap: float,
    free: Any,
    ready: Any,
    done: Any,
    taken: Any,
    flying: Any,
    busy: Any,
    histogram: Any,
) -> float:
    """Pass messages through the queues; return the sum of latencies. ``gap`` is the time between arrivals, 0 for none.

    ``done`` has for each worker a ring of the times at which its last messages were done. ``flying`` has for each
    source a heap of the times at which its unfinished messages will be done, 0 for free places.
    """
    capacity, pending = done.shape[1], flying.shape[1]
    stride = 0 if len(services) == 1 else 1
    total = 0.0
    for i in range(len(targets)):
        worker, source, service = targets[i], sources[i], services[i * stride]
        due = ready[source] if gap == 0.0 else (first + i) * gap
        admitted = max(due, ready[source])
        if capacity > 0:
            place = taken[worker] % capacity
            admitted = max(admitted, done[worker, place])
        if pending > 0:
            admitted = max(admitted, flying[source, 0])
            due = admitted
        ready[source] = admitted
        end = max(admitted, free[worker]) + service
        if pending > 0:
            _replace_earliest(flying[source], pending, end)
        free[worker] = end
        busy[worker] += service
        if capacity > 0:
            done[worker, place] = end
            taken[worker] += 1
        total += end - due
        octaves = np.log2((end - due) / _SHORTEST)
        histogram[max(0, min(len(histogram) - 1, int(octaves * _BINS_AN_OCTAVE)))] += 1
    return total


class Queues:
    """Simulation of a queue for each worker, filled by sources that wait while a queue is full.

    Messages are served in the order of the stream. In reality, a source could overtake one that waits, by as many
    messages as the queues hold; this is not modelled.

    Parameters
    ----------
    workers
        W, number of workers.
    sources
        S, number of sources.
    options
        Service time, rate and room.

    Examples
    --------
    >>> queues = Queues(2, 1, QueueOptions(service=0.001, capacity=10))
    >>> queues.feed(np.array([0, 1] * 500), np.zeros(1000, dtype=np.int64))
    >>> round(queues.report().throughput)
    2000
    """

    def __init__(self, workers: int, sources: int, options: QueueOptions) -> None:
        workers, sources = whole("workers", workers, 1), whole("sources", sources, 1)
        self.options = options
        self.messages = 0
        self._free = np.zeros(workers)
        self._ready = np.zeros(sources)
        self._done = np.zeros((workers, options.capacity or 0))
        self._taken = np.zeros(workers, dtype=np.int64)
        self._flying = np.zeros((sources, options.pending or 0))
        self._busy = np.zeros(workers)
        self._histogram = np.zeros(_BINS, dtype=np.int64)
        self._latency = 0.0
        self._rng = np.random.default_rng(options.seed)

    @property
    def now(self) -> float:
        """Average time, in seconds, at which the sources are ready for their next messages."""
        if self.options.rate is not None:
            return max(self.messages / self.options.rate, float(self._ready.mean()))
        return float(self._ready.mean())

    def feed(self, targets: NDArray[Any], sources: NDArray[np.int64]) -> None:
        """Send messages, each from its source to its worker, in the order of the stream."""
        service = self.options.service
        count = len(targets)
        services = self._rng.exponential(service, count) if self.options.exponential else np.full(1, service)
        self._latency += _serve(
            targets,
            sources,
            services,
            self.messages,
            0.0 if self.options.rate is None else 1 / self.options.rate,
            self._free,
            self._ready,
            self._done,
            self._taken,
            self._flying,
            self._busy,
            self._histogram,
        )
        self.messages += count

    def occupy(self, seconds: NDArray[np.float64]) -> None:
        """Keep each worker busy with other work for a time, after the messages in its queue."""
        self._free = np.maximum(self._free, self.now) + seconds
        self._busy += seconds

    def report(self) -> QueueReport:
        """Return throughput and latency so far."""
        if self.messages == 0:
            raise InvalidArgumentError("no message has passed the queues yet; call feed() first")
        elapsed = float(self._free.max())
        return QueueReport(
            throughput=self.messages / elapsed,
            latency=self._latency / self.messages,
            latency_median=self._quantile(0.5),
            latency_99=self._quantile(0.99),
            utilisation=self._busy / elapsed,
        )

    def _quantile(self, fraction: float) -> float:
        """Return the upper edge of the bin of the quantile."""
        bin_number = int(np.searchsorted(np.cumsum(self._histogram), fraction * self.messages))
        return float(_SHORTEST * 2.0 ** ((bin_number + 1) / _BINS_AN_OCTAVE))
