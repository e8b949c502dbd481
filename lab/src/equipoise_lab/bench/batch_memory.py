"""One batch several times as large as the memory of driver, JVM and Python workers together, by kind of operator.

Each query runs in a process of its own, in a memory cgroup with a limit that ends processes which exceed it (root only;
without one ``memory_limited`` is 0 and the figures say nothing). The JVM has a fixed heap below the limit. A query has
finished if it has counted every row of the batch.
"""

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.cli.quiet_spark import start_quietly
from equipoise.spark import StatefulStream, balance
from equipoise_lab.bench.contenders.grouped import SlowCount
from equipoise_lab.bench.contenders.streams import Totals, aggregates
from equipoise_lab.bench.harness import Context, Result
from equipoise_lab.bench.page_cache import memory_group
from equipoise_lab.bench.stream import ONCE, TOTALS, VectorTotals, keyed, read_batches, scratch

_PARTITIONS, _CORES, _KEYS, _PAYLOAD, _FILE_ROWS = 16, 2, 10_000, 1000, 40_000
_SCHEMA = "key long, value long, payload binary"
_SHOWN = 1000  # characters of an error

_FORMS: dict[str, Callable[[DataFrame], StatefulStream]] = {
    "vector": lambda rows: keyed(rows, VectorTotals(), TOTALS, _PARTITIONS),
    "pandas": lambda rows: keyed(rows, Totals(), TOTALS, _PARTITIONS),
    "built_in": lambda rows: balance(rows, "key", numPartitions=_PARTITIONS).agg(*aggregates()),
    "aggregator": lambda rows: keyed(rows, SlowCount(0.0), "key long, n long", _PARTITIONS, combine="always"),
}
"""Queries whose output has the number of rows of each key."""


def run(context: Context) -> Result:
    """Run every form over the same batch, one after the other."""
    limit, heap, times = (1_536 << 20, "512m", 1.5) if context.quick else (2 << 30, "768m", 4.0)
    files = int(limit * times / (_FILE_ROWS * _PAYLOAD))
    metrics: dict[str, float] = {"limit_bytes": float(limit)}
    with scratch() as folder:
        _write(folder / "rows", files, context.seed)
        rows = files * _FILE_ROWS
        stored = sum(path.stat().st_size for path in (folder / "rows").iterdir())
        metrics |= {"batch_over_limit": stored / limit}
        ends: dict[str, str] = {}
        for form in context.track(_FORMS, "batch and memory"):
            start = time.perf_counter()
            ends[form], memory = _limited(limit, form, folder, files, rows, heap)
            metrics[f"finished_{form}"] = float(not ends[form])
            metrics[f"seconds_{form}"] = time.perf_counter() - start
            metrics["memory_limited"] = float(memory.startswith("cgroup"))
    return Result(metrics, {"failures": ends, "memory": memory, "rows": rows, "heap": heap})


def _limited(limit: int, form: str, folder: Path, files: int, rows: int, heap: str) -> tuple[str, str]:
    """Run a form in a process with limited memory; return how it failed, empty if it did not, and what limits it."""
    spawn = multiprocessing.get_context("spawn")
    with memory_group() as group:
        group.limit(limit)
        with ProcessPoolExecutor(1, spawn, initializer=group.join) as pool:
            try:
                found = pool.submit(_counted, form, folder, files, heap).result()
            except BrokenProcessPool as error:
                found = str(error)
    return "" if found == f"{rows} rows" else found, group.found


def _counted(form: str, folder: Path, files: int, heap: str) -> str:
    """Run a form over the batch; return the rows that it has counted, or how it failed."""
    try:
        return f"{_run(form, folder, files, heap)} rows"
    except Exception as error:  # noqa: BLE001 - whatever ends the query is what was found; some errors cannot be pickled
        return f"{type(error).__name__}: {error}"[:_SHOWN]


def _run(form: str, folder: Path, files: int, heap: str) -> int:
    counted: list[Any] = []

    def sink(df: DataFrame, batch: int) -> None:  # noqa: ARG001 - the shape of a sink
        counted.append(df.agg(F.sum("n")).collect()[0][0])

    conf = {"spark.master": f"local[{_CORES}]", "spark.driver.memory": heap, "spark.local.dir": str(folder / "spill")}
    spark = start_quietly(conf | {"spark.app.name": "equipoise-lab"})
    try:
        writer = _FORMS[form](read_batches(spark, folder / "rows", _SCHEMA, files)).writeStream.foreachBatch(sink)
        at = str(folder / form)
        writer.outputMode("update").trigger(**ONCE).option("checkpointLocation", at).start().awaitTermination()
    finally:
        spark.stop()
    return sum(each or 0 for each in counted)


def _write(folder: Path, files: int, seed: int) -> None:
    """Write the batch, with bytes that cannot be compressed in every row."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    ends = pa.py_buffer(np.arange(_FILE_ROWS + 1, dtype=np.int32) * _PAYLOAD)
    for number in range(files):
        payload = [None, ends, pa.py_buffer(rng.bytes(_FILE_ROWS * _PAYLOAD))]
        keys = rng.integers(0, _KEYS, _FILE_ROWS)
        table = {"key": keys, "value": keys % 7, "payload": pa.Array.from_buffers(pa.binary(), _FILE_ROWS, payload)}
        pq.write_table(pa.table(table), folder / f"{number:05d}.parquet")
