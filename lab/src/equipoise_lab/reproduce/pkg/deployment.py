"""The Storm deployment of section 6.2, Q5, as a queueing model."""

from typing import Any

from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.exhibit import Setting, as_in_paper
from equipoise_lab.reproduce.pkg.data_sets import KEYS, MESSAGES, route
from equipoise_lab.reproduce.rows import Row
from equipoise_lab.simulate.cluster import ClusterOptions
from equipoise_lab.simulate.queueing import QueueOptions

METHODS = {"PKG": "partial-key", "SG": "shuffle", "KG": "key-grouping"}

SETTINGS = {
    "messages": MESSAGES._replace(quick=4_000_000),
    "keys": KEYS,
    "sources": as_in_paper(8),
    "workers on WP": as_in_paper({"KG": 10, "PKG": 8, "SG": 8}),
    "pending of a source": Setting("not given", 11, 11, 11),
    "CPU delay with aggregation, ms": as_in_paper(0.4),
}

NOTE = (
    "In the queueing model: a worker takes the CPU delay for a message and, where counters are handed over to the "
    "aggregators, as much for each of them; aggregators are never the bottleneck, and the network takes no time. "
    "Sources send as many messages as KG can just take at a delay of 0.4 ms, its saturation point in the paper, and "
    "have 11 on their way each: what PKG's printed latency at 1 ms and 8 busy workers imply (11.01 ms x 8,000 / s / "
    "8 sources). With aggregation they send as fast as they can."
)


def saturation_rate(context: Context) -> float:
    """Messages a second at which the fullest worker of KG is just busy at a delay of 0.4 ms."""
    options = ClusterOptions(spread=False, step=1_000_000)
    loads = route("WP", context, "key-grouping", context["workers on WP"]["KG"], options).loads
    return float(loads.sum() / loads.max() / (context["CPU delay with aggregation, ms"] / 1000))


def run_topology(
    context: Context,
    data: str,
    method: str,
    workers: int,
    delay_ms: float,
    *,
    rate: float | None = None,
    period: float | None = None,
) -> Row:
    """Throughput, latency and counters of one method; ``period`` in seconds."""
    service = delay_ms / 1000
    queue = QueueOptions(service=service, rate=rate, capacity=None, pending=context["pending of a source"])
    aggregation: dict[str, Any] = {}
    if period is not None and method != "KG":
        every = max(1, int(period * workers / service))
        aggregation = {"aggregation_period": every, "hand_over": service}
    options = ClusterOptions(sources=context["sources"], queue=queue, step=100_000, **aggregation)
    result = route(data, context, METHODS[method], workers, options)
    assert result.queue is not None  # noqa: S101 - queues were asked for; this tells the type checker
    return {
        "data": data,
        "method": method,
        "workers": workers,
        "delay": delay_ms,
        "period": period,
        "throughput": result.queue.throughput,
        "latency": 1000 * result.queue.latency,
        "counters": int(result.keys_at_workers.sum()),
        "held": result.partial_results / workers,
    }
