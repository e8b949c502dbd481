"""Fixed costs of a micro-batch: an empty one and one of 1,000 rows, over a ``foreachBatch`` that only counts them."""

import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from py4j.clientserver import JavaClient  # type: ignore[import-untyped]  # it has no annotations
from pyspark.sql import DataFrame, SparkSession

from equipoise.spark.stream.engine import Engine
from equipoise.spark.stream.local import LocalQuery
from equipoise.storage.local_disk import LocalDisk
from equipoise_lab.bench.harness import Context, Ratio, Result, median, paired
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.process_cpu import tree_cpu_seconds
from equipoise_lab.bench.stream import (
    ONCE,
    TOTALS,
    VectorTotals,
    batch_seconds,
    keyed,
    read_batches,
    scratch,
    write_batches,
)
from equipoise_lab.spark_settings import settings

_KEYS, _ROWS, _PARTITIONS, _CORES = 500, 1000, 4, 2
_SCHEMA = "key long, value long"
_WARM = 4  # batches that start workers, compile plans and fill caches
_KINDS = ("empty", "small")  # batches take turns

Handler = Callable[[DataFrame, int], None]


def run(context: Context) -> Result:
    """Time a query of equipoise and one that only counts over the same files, in turn; then count calls and files."""
    pairs, rounds = (4, 3) if context.quick else (12, 9)
    rng = np.random.default_rng(context.seed)
    batches = [_rows(rng, rows) for _ in range(_WARM // 2 + pairs) for rows in (0, _ROWS)]
    seconds: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    quiet = {"spark.sql.shuffle.partitions": str(_PARTITIONS)}
    with local_spark(_CORES) as spark, settings(spark, quiet), scratch() as folder:
        write_batches(folder / "rows", batches, 1)
        stream = read_batches(spark, folder / "rows", _SCHEMA, 1)
        contenders = {"count": partial(_counting, stream), "engine": partial(_ours, stream)}
        for number in context.track(range(-1, rounds), "micro-batches"):
            for name in rng.permutation(list(contenders)).tolist():
                times, spent = contenders[name](folder / f"{name}-{number}")
                if number < 0:  # warms up
                    continue
                for place, kind in enumerate(_KINDS):
                    seconds.setdefault(f"{kind}, {name}", []).append(median(times[_WARM + place :: 2]))
                    cpu.setdefault(f"{kind}, {name}", []).append(median(spent[_WARM + place :: 2]))
        trips = _round_trips(spark, stream, folder / "counted")
    files = _file_operations(batches)
    metrics: dict[str, float] = {}
    ratios: dict[str, Ratio] = {}
    for kind in _KINDS:
        ours, theirs = f"{kind}, engine", f"{kind}, count"
        ratios[f"{kind}_over_count"] = paired(seconds[ours], seconds[theirs])
        ratios[f"{kind}_cpu_over_count"] = paired(cpu[ours], cpu[theirs])
        metrics[f"{kind}_seconds"], metrics[f"{kind}_cpu_seconds"] = median(seconds[ours]), median(cpu[ours])
    metrics |= {name: ratio.median for name, ratio in ratios.items()}
    for place, kind in enumerate(_KINDS):
        for what in trips[0] | files[0]:
            found = [each[what] for each in (trips if what in trips[0] else files)[_WARM + place :: 2]]
            metrics[f"{kind}_{what}"] = median(found)
    spread = {name: ratio._asdict() for name, ratio in ratios.items()}
    return Result(metrics, {"seconds": seconds, "cpu": cpu, "ratios": spread, "round_trips": trips, "files": files})


def _rows(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    return {"key": rng.integers(0, _KEYS, rows), "value": rng.integers(0, 100, rows)}


def _keep_nothing(df: DataFrame, batch: int) -> None:
    """A sink without work of its own: the costs are those of the engine."""


def _counting(stream: DataFrame, checkpoint: Path) -> tuple[list[float], list[float]]:
    """Run a query that counts; return the seconds and the CPU seconds of each batch."""
    clock: list[float] = []

    def count(df: DataFrame, batch: int) -> None:  # noqa: ARG001 - the shape of a sink
        clock.append(tree_cpu_seconds())
        df.count()

    writer = stream.writeStream.foreachBatch(count).trigger(**ONCE)
    seconds = batch_seconds(writer.option("checkpointLocation", str(checkpoint)).start())
    return seconds, np.diff([*clock, tree_cpu_seconds()]).tolist()


def _ours(stream: DataFrame, checkpoint: Path) -> tuple[list[float], list[float]]:
    """Run a query of equipoise; return the seconds and the CPU seconds of each batch."""
    clock: list[float] = []

    def costed(call: Callable[..., None], engine: Any, rows: DataFrame, batch: int) -> None:
        clock.append(tree_cpu_seconds())
        call(engine, rows, batch)

    with _around_batches(costed):
        seconds = _run(stream, checkpoint)
    return seconds, np.diff([*clock, tree_cpu_seconds()]).tolist()


@contextmanager
def _around_batches(wrapped: Callable[..., None]) -> Iterator[None]:
    """Run each batch of an engine by ``wrapped(call, engine, rows, batch)``."""
    call = Engine.__call__
    with patch.object(Engine, "__call__", lambda engine, rows, batch: wrapped(call, engine, rows, batch)):
        yield


def _run(stream: DataFrame, checkpoint: Path) -> list[float]:
    writer = keyed(stream, VectorTotals(), TOTALS, _PARTITIONS).writeStream.foreachBatch(_keep_nothing)
    return batch_seconds(writer.trigger(**ONCE).option("checkpointLocation", str(checkpoint)).start())


def _round_trips(spark: SparkSession, stream: DataFrame, checkpoint: Path) -> list[dict[str, int]]:
    """Return the Spark jobs and the calls from the driver to the JVM of each batch."""
    found: list[dict[str, int]] = []
    tracker = spark.sparkContext.statusTracker()

    def counted(call: Callable[..., None], engine: Any, rows: DataFrame, batch: int) -> None:
        group = uuid.uuid4().hex
        spark.sparkContext.setJobGroup(group, "counted")
        calls, send = Counter[str](), JavaClient.send_command

        def counting(client: Any, *given: Any, **named: Any) -> Any:
            calls["trips"] += 1
            return send(client, *given, **named)

        with patch.object(JavaClient, "send_command", counting):
            call(engine, rows, batch)
        found.append({"round_trips": calls["trips"], "jobs": len(tracker.getJobIdsForGroup(group))})

    with _around_batches(counted):
        _run(stream, checkpoint)
    return found


def _file_operations(batches: list[dict[str, Any]]) -> list[dict[str, int]]:
    """Return what driver and tasks of each batch do with files; both run in this process."""
    found: list[dict[str, int]] = []

    def counted(call: Callable[..., None], engine: Any, rows: pa.Table, batch: int) -> None:
        operations = Counter[str](files=0, syncs=0, listings=0, looks=0, reads=0, deletions=0)
        with _counting_files(operations):
            call(engine, rows, batch)
        found.append(dict(operations))

    with tempfile.TemporaryDirectory() as folder, _around_batches(counted):
        query = LocalQuery(VectorTotals(), "key", _SCHEMA, TOTALS, folder, numPartitions=_PARTITIONS)
        for rows in batches:
            query.process_arrow(pa.table(rows))
        query.close()
    return found


@contextmanager
def _counting_files(operations: Counter[str]) -> Iterator[None]:
    """Count operations on the local disk within the block."""
    names = {"upload": "files", "entries": "listings", "look": "looks", "read": "reads", "delete": "deletions"}
    names["delete_folder"] = "deletions"
    targets: list[tuple[Any, str, str]] = [(LocalDisk, name, what) for name, what in names.items()]
    targets.append((os, "fsync", "syncs"))
    patches = []
    for owner, name, what in targets:
        real = getattr(owner, name)

        def counting(*given: Any, real: Any = real, what: str = what, **named: Any) -> Any:
            operations[what] += 1
            return real(*given, **named)

        patches.append(patch.object(owner, name, counting))
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
