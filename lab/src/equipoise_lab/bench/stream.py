"""Shared by the streaming benchmarks: batches in files, a query over them, and the time of each of its batches."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from equipoise.spark import Aggregator, KeyBatch, StatefulStream, VectorProcessor, balance

ONCE: dict[str, Any] = {"availableNow": True}
TOTALS = "key long, n long, total long"

Sink = Callable[[DataFrame, int], None]
"""Function that takes the output of a batch."""


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="equipoise-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_batches(folder: Path, batches: Iterable[dict[str, Any]], files: int = 2) -> None:
    """Write each batch as so many files, in the order in which a stream reads them, after those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    first = len(list(folder.glob("*-0.parquet")))
    for number, columns in enumerate(batches, first):
        table = pa.table(columns)
        step = -(-table.num_rows // files)
        for part in range(files):
            path = folder / f"{number:05d}-{part}.parquet"
            pq.write_table(table.slice(part * step, step), path)
            os.utime(path, (number + 1, number + 1))  # the stream reads in the order of times, which may be too coarse


def read_batches(spark: SparkSession, folder: Path, schema: str, files: int = 2) -> DataFrame:
    """A stream over the files, a batch at a time."""
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", files).option("latestFirst", value=False)
    return reader.parquet(str(folder))


def discard(df: DataFrame, batch: int) -> None:  # noqa: ARG001 - the shape of a sink
    """A sink that computes every row and keeps none."""
    df.write.format("noop").mode("overwrite").save()


def batch_seconds(query: Any) -> list[float]:
    """Time of each batch of a query that has ended."""
    query.awaitTermination()
    progress = [each for each in query.recentProgress if each["numInputRows"] or each["durationMs"].get("addBatch")]
    return [each["durationMs"]["triggerExecution"] / 1000 for each in progress]


def run_stateful(
    stream: DataFrame,
    processor: Any,
    schema: str,
    partitions: int,
    checkpoint: Path,
    sink: Sink = discard,
    **options: Any,
) -> list[float]:
    """Run a query of ours to the end; time of each batch."""
    made = keyed(stream, processor, schema, partitions, **options)
    writer = made.writeStream.foreachBatch(sink).trigger(**ONCE).option("checkpointLocation", str(checkpoint))
    return batch_seconds(writer.start())


def keyed(stream: DataFrame, processor: Any, schema: str, partitions: int, **options: Any) -> StatefulStream:
    """A processor of any kind over the column ``key``; options are those of ``balance``."""
    groups = balance(stream, "key", numPartitions=partitions, **options)
    made: StatefulStream
    if isinstance(processor, VectorProcessor):
        made = groups.process(processor, schema)
    elif isinstance(processor, Aggregator):
        made = groups.aggregate(processor, schema)
    else:
        made = groups.transformWithStateInPandas(processor, schema, "update", "none")
    return made


class VectorTotals(VectorProcessor):
    """Rows and sum of each key, over many keys at once; may take a service time for each row.

    Parameters
    ----------
    wait, seconds_per_row
        How to wait, and how long for each row.
    """

    stateSchema = "n long, total long"  # noqa: N815 - as Spark names schemas

    def __init__(self, wait: Callable[[float], None] | None = None, seconds_per_row: float = 0.0) -> None:
        self._wait = wait
        self._seconds_per_row = seconds_per_row

    def process(self, batch: KeyBatch) -> pa.Table:
        """Add up."""
        if self._wait is not None:
            self._wait(self._seconds_per_row * batch.rows.num_rows)
        starts = batch.offsets[:-1]
        n = np.diff(batch.offsets) + batch.state["n"].fill_null(0).to_numpy()
        total = np.add.reduceat(batch.rows["value"].to_numpy(), starts) + batch.state["total"].fill_null(0).to_numpy()
        batch.update(pa.table({"n": n, "total": total}))
        return pa.table({"key": batch.keys["key"], "n": n, "total": total})
