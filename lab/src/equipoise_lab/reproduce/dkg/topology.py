"""The topology of DKG's experiments, spouts and workers of one service time, and its data sets."""

from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.microbatch.zipf import zipf_shares
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.exhibit import Setting, as_in_paper
from equipoise_lab.reproduce.rows import Row
from equipoise_lab.simulate.cluster import Cluster, ClusterOptions, splitter_of
from equipoise_lab.simulate.queueing import QueueOptions
from equipoise_lab.simulate.streams import stream

METHODS = {
    "SG": "shuffle",
    "KG": "key-grouping",
    "PKG": "partial-key",
    "DKG": "dynamic-key-coded",
    "DKG, ours": "dynamic-key",
}
"""The methods of the paper, DKG as its authors coded it, and DKG with counts that decay."""

MEASURES = {
    "latency": "latency, s",
    "deviation": "StdDev of the loads, %",
    "cost": "DistCost",
    "throughput": "messages / s",
}

SETTINGS = {
    "workers": as_in_paper(10),
    "sources": as_in_paper(5),
    "service, ms": Setting("not given", 1.051, 1.051, 1.051),
    "room of a worker": Setting("not given", 1000, 1000, 1000),
    "runs": Setting("not given", 1, 1, 3),
}

NOTE = (
    "In the queueing model: every worker takes 1.051 ms for a message, which is what SG's printed throughput on 10 "
    "workers implies, and has room for 1000; sources wait when there is none. Kafka and the aggregators take no "
    "time. Latency is the paper's: the time for the whole stream. DKG is run as its authors coded it; the claims are "
    "held against that one, and ours, with counts that decay, is shown beside it. At the full scale each number "
    "is the median of three hash seeds, for where the hot key goes is a matter of chance."
)

_ELECTION_TAIL = 300_000
_LOOK = 2.0  # seconds of work between two looks at the clock, which ten workers do in a fifth of a second


def election_shares(context: Context) -> NDArray[np.float64]:
    """A hot key of 68 %, all others by Zipf's law, over as many keys as SG's printed DistCost implies."""
    tail = 0.32 * zipf_shares(min(_ELECTION_TAIL, context["messages"]), 1.0)
    return np.concatenate([[0.68], tail])


def measure(
    context: Context,
    shares: NDArray[np.float64],
    messages: int,
    method: str,
    *,
    workers: int | None = None,
    sources: int | None = None,
) -> Row:
    """Medians over several seeds of the paper's four metrics."""
    runs = [
        _once(context, _drawn(shares, messages, seed), method, workers, sources)
        for seed in context.seeds(context["runs"])
    ]
    return {"method": method, **{name: median(each[name] for each in runs) for name in MEASURES}}


def measure_recorded(context: Context, keys: NDArray[np.int64], method: str) -> Row:
    """The same of recorded keys, once."""
    return {"method": method, **_once(context, [keys], method, None, None)}


def _drawn(shares: NDArray[np.float64], messages: int, seed: int) -> Any:
    return stream(shares, messages, seed=seed)


def _once(context: Context, chunks: Any, method: str, workers: int | None, sources: int | None) -> Row:
    service = context["service, ms"] / 1000
    options = ClusterOptions(
        sources=sources or context["sources"],
        queue=QueueOptions(service=service, capacity=context["room of a worker"]),
        step=round(_LOOK / service),
    )
    cluster = Cluster(splitter_of(METHODS[method], workers or context["workers"]), options)
    for chunk in chunks:
        cluster.feed(chunk)
    result = cluster.result()
    assert result.queue is not None  # noqa: S101 - queues were asked for; this tells the type checker
    assert result.distribution_cost is not None  # noqa: S101 - and so were the keys
    return {
        "latency": result.messages / result.queue.throughput,
        "deviation": result.standard_deviation,
        "cost": result.distribution_cost,
        "throughput": result.queue.throughput,
    }
