"""A change of the number of partitions that moves half of a large state, on two executors with caches of their own.

The change is completed if at least ``_MOVED`` of the state has moved and the fullest task of the last batch has at most
``_LEVEL`` times the mean rows. Else ``batches_to_complete`` is NaN: planning has stopped early, or nothing moves.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any

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
_MOVED = 0.45  # part of the state that a completed change has moved: half, but for the sizes of single key groups
_LEVEL = 1.1  # rows of the fullest task over the mean, at most, after a completed change
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
    return Result(_metrics(log), _samples(log))


def _changes(log: list[Any]) -> list[int]:
    """Return the numbers of the batches with another plan than the batch before."""
    return [row.batch for row, before in zip(log[1:], log, strict=False) if row.plan != before.plan]


def _metrics(log: list[Any]) -> dict[str, float]:
    seconds = [row.seconds for row in log]
    moving = [number for number in _changes(log) if number >= _CHANGE]
    ended = moving[-1] if moving else _CHANGE - 1
    usual = median(seconds[2:_CHANGE] + seconds[ended + 1 :])
    moved = sum(row.moved_bytes for row in log[_CHANGE:]) / log[_CHANGE].state_bytes
    rates = [row.move_rate or 0.0 for row in log if row.moved_bytes]
    return {
        "worst_over_median": max(seconds[_CHANGE : ended + 1], default=nan) / usual,
        "batches_to_complete": batches_to_complete(moving, moved, log[-1].imbalance_rows),
        "moved_share": moved,
        "state_gigabytes": log[_CHANGE].state_bytes / 1e9,
        "imbalance_at_end": log[-1].imbalance_rows,
        "median_seconds": usual,
        "move_megabytes_per_second": median(rates) / 1e6 if rates else nan,
    }


def _samples(log: list[Any]) -> dict[str, object]:
    return {
        "seconds": [row.seconds for row in log],
        "moved_bytes": [row.moved_bytes for row in log],
        "imbalance": [row.imbalance_rows for row in log],
        "partitions": [len(row.partition_rows) for row in log],
        "reasons": [row.reason for row in log],
        "gaps": [after - before for before, after in pairwise(_changes(log))],
    }


def batches_to_complete(moving: Sequence[int], moved: float, imbalance: float) -> float:
    """Return the batches from the first to the last that moved state; NaN if the change was not completed.

    Parameters
    ----------
    moving
        Numbers of the batches with a new plan since the change.
    moved
        Part of the state that has moved.
    imbalance
        Rows of the fullest task over the mean in the last batch.

    Examples
    --------
    >>> batches_to_complete([5, 6, 9], 0.5, 1.03), batches_to_complete([5], 0.1, 1.03)
    (5.0, nan)
    >>> batches_to_complete([], 0.0, 2.0)
    nan
    """
    is_complete = bool(moving) and moved >= _MOVED and imbalance <= _LEVEL
    return float(moving[-1] - moving[0] + 1) if is_complete else nan


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
