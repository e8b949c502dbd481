"""Delivery of a batch of one gigabyte to the sink ``parquet`` against a plain ``df.write.parquet`` of the same files.

The copy is verified by SHA-256 and synced to disk; Spark's writer does neither. Both read the same committed files.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from equipoise.spark.stream import sinks
from equipoise.spark.stream.delivery import Delivery
from equipoise.state.commit import OutputFile
from equipoise.storage import Storage
from equipoise_lab.bench.harness import Context, Result
from equipoise_lab.bench.local_spark import local_spark

_FILES = 4
_BYTES, _QUICK_BYTES = 1 << 30, 64 << 20
_COLUMNS = 4


def run(context: Context) -> Result:
    """Take turns, and compare medians."""
    copies, writes, empties = [], [], []
    with tempfile.TemporaryDirectory() as folder, local_spark(2) as spark:
        storage = Storage(f"{folder}/checkpoint")
        files = _files(storage, _QUICK_BYTES if context.quick else _BYTES, context.seed)
        _written(spark, storage, files[:1], f"{folder}/warm")
        for turn in context.track(range(context.repeats(5, 2)), "deliveries"):
            copies.append(_delivered(storage, files, turn, f"{folder}/copied-{turn}"))
            writes.append(_written(spark, storage, files, f"{folder}/written-{turn}"))
            empties.append(_delivered(storage, [], turn, f"{folder}/copied-{turn}"))
    metrics = {
        "gigabyte_over_write": float(np.median(copies) / np.median(writes)),
        "deliver_seconds": float(np.median(copies)),
        "write_seconds": float(np.median(writes)),
        "empty_seconds": float(np.median(empties)),
        "bytes": float(sum(file.size for file in files)),
    }
    return Result(metrics, {"copies": copies, "writes": writes, "empties": empties})


def _files(storage: Storage, size: int, seed: int) -> list[OutputFile]:
    """Output files of a batch: numbers that hardly compress."""
    draw = np.random.default_rng(seed)
    rows = size // _FILES // _COLUMNS // 8
    files = []
    for place in range(_FILES):
        path = f"outputs/{1:020d}/{place}.parquet"
        with storage.writing(path) as file:
            names = [f"column_{number}" for number in range(_COLUMNS)]
            table = pa.table({name: draw.integers(0, 2**62, rows) for name in names})
            with pq.ParquetWriter(file, table.schema, compression="zstd") as writer:
                writer.write_table(table)
        files.append(OutputFile(path, file.size, file.sha256, rows))
    return files


def _delivered(storage: Storage, files: list[OutputFile], batch: int, path: str) -> float:
    sink = sinks.parquet(path)
    start = time.perf_counter()
    sink.deliver(Delivery(batch, 1, storage, files, rows=lambda: None, empty=lambda: None, check=lambda: None))
    return time.perf_counter() - start


def _written(spark: SparkSession, storage: Storage, files: list[OutputFile], path: str) -> float:
    start = time.perf_counter()
    spark.read.parquet(*(storage.at(file.path) for file in files)).write.parquet(path)
    seconds = time.perf_counter() - start
    assert any(Path(path).glob("*.parquet"))  # noqa: S101 - a benchmark of nothing would be fast
    return seconds
