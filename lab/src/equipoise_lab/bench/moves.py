"""A change of the number of partitions that moves half of a large state, on two executors with caches of their own."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.spark import KeyBatch, StatefulQuery, VectorProcessor, balance, batch_log
from equipoise_lab.bench.harness import Context, Result, median
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import discard, read_batches, scratch, write_batches

_CORES, _BEFORE, _AFTER = 2, 16, 32
_CHANGE = 5  # batches before the change
_SCHEMA = "key long, value long"


class Texts(VectorProcessor):
    """A sum and a text of about 180 bytes for each key."""

    stateSchema = "total long, text string"  # noqa: N815 - as Spark names schemas

    def process(self, batch: KeyBatch) -> pa.Table:
        """Add up, and keep the text."""
        sums = np.add.reduceat(batch.rows["value"].to_numpy(), batch.offsets[:-1])
        total = sums + batch.state["total"].fill_null(0).to_numpy()
        batch.update(pa.table({"total": total, "text": batch.state["text"]}))
        return pa.table({"key": batch.keys["key"], "total": total})


def run(context: Context) -> Result:
    """Fill the state, run some batches, change N, and go on until nothing moves any more."""
    keys, rows, batches = (100_000, 20_000, 14) if context.quick else (10_000_000, 200_000, 45)
    rng = np.random.default_rng(context.seed)
    with local_spark(_CORES, executors=True) as spark, scratch() as folder:
        touched = [rng.choice(keys, rows, replace=False) for _ in range(batches)]
        write_batches(folder / "rows", [{"key": batch, "value": batch % 7} for batch in touched])
        at = folder / "query"
        _run(spark, folder, at, keys)
        log = batch_log(str(at), spark=spark).dataframe().orderBy("batch").collect()
    seconds = [row.seconds for row in log]
    changed = [row.batch for row, before in zip(log[1:], log, strict=False) if row.plan != before.plan]
    moving = [number for number in changed if number >= _CHANGE]
    usual = median(seconds[2:_CHANGE] + seconds[moving[-1] + 1 :])
    metrics = {
        "worst_over_median": max(seconds[_CHANGE : moving[-1] + 1]) / usual,
        "batches_to_complete": float(moving[-1] - moving[0] + 1),
        "moved_share": sum(row.moved_bytes for row in log[_CHANGE:]) / log[_CHANGE].state_bytes,
        "state_gigabytes": log[_CHANGE].state_bytes / 1e9,
        "imbalance_at_end": log[-1].imbalance_rows,
        "median_seconds": usual,
        "move_megabytes_per_second": median(row.move_rate or 0.0 for row in log if row.moved_bytes) / 1e6,
    }
    samples: dict[str, object] = {
        "seconds": seconds,
        "moved_bytes": [row.moved_bytes for row in log],
        "imbalance": [row.imbalance_rows for row in log],
        "partitions": [len(row.partition_rows) for row in log],
        "reasons": [row.reason for row in log],
        "gaps": [after - before for before, after in pairwise(changed)],
    }
    return Result(metrics, samples)


def _run(spark: SparkSession, folder: Path, at: Path, keys: int) -> None:
    """Run the query; its number of partitions changes while it runs."""
    stream = read_batches(spark, folder / "rows", _SCHEMA)
    text = F.rpad(F.lit(""), 180, "state ").alias("text")
    initial = spark.range(0, keys).select(F.col("id").alias("key"), F.lit(0).cast("long").alias("total"), text)
    groups = balance(stream, "key", numPartitions=_BEFORE, cache="cache")  # below each executor's own folder
    made = groups.process(Texts(), "key long, total long", initial)
    running: list[StatefulQuery] = []

    def sink(df: DataFrame, batch: int) -> None:
        discard(df, batch)
        if batch == _CHANGE - 1:
            running[0].rescale(_AFTER)

    writer = made.writeStream.foreachBatch(sink).option("checkpointLocation", str(at))
    running.append(writer.trigger(availableNow=True).start())
    running[0].awaitTermination()
