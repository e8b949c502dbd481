"""Splitters and planners over a stream, in one process: ``equipoise-lab simulate``."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from equipoise.cli.output import Json, require_folder, write_json
from equipoise.errors import InvalidArgumentError
from equipoise.split import OffGreedy
from equipoise_lab.cli import completion
from equipoise_lab.cli import scale as scaled
from equipoise_lab.simulate.cluster import Cluster, ClusterOptions, ClusterResult, splitter_of
from equipoise_lab.simulate.queueing import QueueOptions
from equipoise_lab.simulate.scale import FULL, QUICK
from equipoise_lab.simulate.streams import CHUNK, WORKLOADS, make_stream
from equipoise_lab.simulate.workloads import load_parquet_keys
from equipoise_lab.variants import PLANNERS

_PLANS = 20  # parts of the stream between which planners make a new plan
_SHOWN = "shuffle,key-grouping,partial-key,d-choices,w-choices,dynamic-key"


def command(
    *,
    splitters: Annotated[
        str | None,
        typer.Option(
            help=f"Splitters or planners, separated by commas; default {_SHOWN}. Planners make a new plan after each "
            f"1/{_PLANS} of the stream.",
            autocompletion=completion.splitters,
        ),
    ] = None,
    workload: Annotated[
        str, typer.Option(help=f"One of {', '.join(WORKLOADS)}.", autocompletion=completion.workloads)
    ] = "zipf",
    parquet: Annotated[
        Path | None, typer.Option(exists=True, help="Keys from a Parquet file or folder instead of a workload.")
    ] = None,
    column: Annotated[str, typer.Option(help="Key column of the Parquet file.")] = "key",
    messages: Annotated[int | None, typer.Option(min=2, help="Length of the stream; default 2,000,000.")] = None,
    keys: Annotated[int | None, typer.Option(min=1, help="Number of keys; default 100,000.")] = None,
    exponent: Annotated[
        float | None, typer.Option(min=0, help="Exponent of the power law; default 1, with --scale 0.5 and 1.")
    ] = None,
    skew: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the hot key: country-skew, half-skew, bursts.")
    ] = 0.3,
    workers: Annotated[
        int | None, typer.Option("--workers", "--partitions", min=1, help="Number of workers; default 10.")
    ] = None,
    sources: Annotated[int, typer.Option(min=1, help="Number of sources.")] = 5,
    load: Annotated[
        Literal["local", "global", "probed"], typer.Option(help="What the sources know about the loads.")
    ] = "local",
    source_skew: Annotated[
        float, typer.Option(min=0, help="Zipf exponent of the shares of the sources; 0: they take turns.")
    ] = 0.0,
    period: Annotated[int | None, typer.Option(min=1, help="Messages after which partial results are merged.")] = None,
    spread: Annotated[bool, typer.Option(help="Track the workers of each key.")] = True,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Compare each route with that of an oracle that knows all loads.")
    ] = False,
    service_ms: Annotated[
        float | None, typer.Option(min=0, help="Milliseconds a message takes: adds queues, throughput and latency.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0, help="Messages a second; default: 10,000, with queues as fast as they take.")
    ] = None,
    queue_capacity: Annotated[int, typer.Option(min=0, help="Messages that may be at a worker; 0: any number.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 1,
    scale: Annotated[
        bool,
        typer.Option(
            "--scale",
            help=f"At the size of a large cluster: by default {FULL.partitions:,} partitions, {FULL.messages:,} "
            f"messages and {FULL.keys:,} keys, in bounded memory; planners over hours of drift.",
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"With --scale: {QUICK.partitions:,} partitions, {QUICK.messages:,} messages and {QUICK.keys:,} keys.",
        ),
    ] = False,
    hours: Annotated[
        int | None, typer.Option(min=1, help=f"With --scale: hours that are planned for; default {FULL.hours}.")
    ] = None,
    drift: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help=f"With --scale: fraction of the hot keys that are new every hour; default {FULL.drift:g}.",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="With --scale: seconds for a plan, and for a splitter; "
            f"default {FULL.plan_limit:g} and {FULL.stream_limit:g}.",
        ),
    ] = None,
    json: Json = None,
) -> None:
    """Simulate sources and workers over a key stream: balance, memory, aggregation, throughput."""
    require_folder(json)
    if scale:
        if workload != "zipf" or parquet is not None or oracle or service_ms is not None:
            raise InvalidArgumentError(
                "--scale has a Zipf stream of its own and only counts; "
                "leave out --workload, --parquet, --oracle and --service-ms"
            )
        preset = QUICK if quick else FULL
        given = {
            "partitions": workers,
            "messages": messages,
            "keys": keys,
            "hours": hours,
            "drift": drift,
            "plan_limit": time_limit,
            "stream_limit": time_limit,
        }
        sizes = {name: value for name, value in given.items() if value is not None}
        options = replace(preset, sources=sources, seed=seed, **sizes)  # type: ignore[arg-type]
        scaled.run(_names(splitters or scaled.SHOWN), options, exponent, json)
        return
    if quick or hours is not None or drift is not None or time_limit is not None:
        raise InvalidArgumentError(
            "--quick, --hours, --drift and --time-limit work with --scale only; add it, or leave them out"
        )
    messages, keys, workers = messages or 2_000_000, keys or 100_000, workers or 10
    exponent = 1.0 if exponent is None else exponent
    queue = None
    if service_ms is not None:
        queue = QueueOptions(service=service_ms / 1000, rate=rate, capacity=queue_capacity or None, seed=seed)
    settings = ClusterOptions(
        sources=sources,
        load=load,
        source_skew=source_skew,
        aggregation_period=period,
        spread=spread,
        oracle=oracle,
        queue=queue,
        rate=10_000.0 if rate is None else rate,
        seed=seed,
    )
    recorded = None if parquet is None else load_parquet_keys(parquet, column)

    def stream() -> Iterator[NDArray[np.int64]]:
        if recorded is None:
            return make_stream(workload, messages, keys=keys, exponent=exponent, skew=skew, seed=seed)
        return (recorded[start : start + CHUNK] for start in range(0, len(recorded), CHUNK))

    length = messages if recorded is None else len(recorded)
    every = max(1, length // _PLANS)
    clusters = {
        name: Cluster(splitter_of(name, workers, every=every), settings) for name in _names(splitters or _SHOWN)
    }
    results = _run(clusters, stream, length)
    if json is None:
        title = f"{length:,} messages, {sources} sources, {workers} workers"
        if any(name in PLANNERS for name in clusters):
            title += f"; planners begin with plain hash and plan every {every:,} messages"
        for table in _tables(results, title):
            Console().print(table)
    else:
        write_json(results, json)


def _names(splitters: str) -> list[str]:
    names = [name.strip() for name in splitters.split(",") if name.strip()]
    if not names:
        raise InvalidArgumentError("no splitter was named; try --splitters partial-key,d-choices")
    return names


def _run(
    clusters: dict[str, Cluster], stream: Callable[[], Iterator[NDArray[np.int64]]], length: int
) -> dict[str, ClusterResult]:
    """Feed the whole stream to each cluster."""
    stream()  # an invalid workload raises before the progress bar is shown
    columns = (TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        for name, cluster in clusters.items():
            task = progress.add_task(name, total=length)
            offline = cluster.splitters[0]
            if isinstance(offline, OffGreedy):
                for chunk in stream():
                    offline.learn(chunk)
            for chunk in stream():
                cluster.feed(chunk)
                progress.advance(task, len(chunk))
    return {name: cluster.result() for name, cluster in clusters.items()}


_BALANCE: dict[str, Callable[[Any], str]] = {
    "average imbalance": lambda r: f"{r.average_imbalance:.2e}",
    "fullest / mean": lambda r: f"{r.loads.max() / r.loads.mean():.3f}",
    "StdDev": lambda r: f"{r.standard_deviation:.3f}",
}
_KEYS: dict[str, Callable[[Any], str]] = {
    "DistCost": lambda r: f"{r.distribution_cost:.3f}",
    "most keys": lambda r: f"{r.keys_at_workers.max():,}",
}
_QUEUES: dict[str, Callable[[Any], str]] = {
    "messages / s": lambda r: f"{r.queue.throughput:,.0f}",
    "latency, ms": lambda r: f"{1000 * r.queue.latency:,.1f}",
    "99 %, ms": lambda r: f"{1000 * r.queue.latency_99:,.1f}",
}


def _tables(results: dict[str, ClusterResult], title: str) -> Iterator[Table]:
    """One row for each splitter: a table of balance and keys, and one of what else was measured."""
    some = next(iter(results.values()))
    yield _table(results, _BALANCE | (_KEYS if some.distribution_cost is not None else {}), title)
    further: dict[str, Callable[[Any], str]] = {}
    if some.agreement is not None:
        further["as the oracle"] = lambda r: f"{r.agreement:.1%}"
    if some.partial_results:
        further["handed over / message"] = lambda r: f"{r.aggregation:.3f}"
    if some.queue is not None:
        further |= _QUEUES
    if further:
        yield _table(results, further, None)


def _table(results: dict[str, ClusterResult], measures: dict[str, Callable[[Any], str]], title: str | None) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("splitter", no_wrap=True)
    for heading in measures:
        table.add_column(heading, justify="right")
    for name, result in results.items():
        table.add_row(name, *(measure(result) for measure in measures.values()))
    return table
