"""Time to look at a micro-batch of 2 million rows, plan it and place it by the new plan, over the rest of its time."""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.adapt import Policy
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.spark import batch_log
from equipoise.spark.stream import jobs
from equipoise.spark.stream.placement import RowPlacement
from equipoise.spark.stream.planning import Choice, Planning
from equipoise_lab.bench.harness import Context, Result, median
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import TOTALS, VectorTotals, read_batches, run_stateful, scratch, write_batches

_CORES, _PARTITIONS, _KEYS, _EXPONENT, _SETTLED = 2, 16, 17_000, 1.1, 2
_SCHEMA = "key long, value long"

Keys = NDArray[np.int64]


@dataclass
class _Spent:
    """Seconds that choosing the plan of a batch took, its look included, and making its placement; 0 if it was kept."""

    choosing: float = 0.0
    placement: float = 0.0


def run(context: Context) -> Result:
    """Run streams whose keys get other names with each batch, so that each has a look and a plan of its own."""
    rows, batches = (200_000, 5) if context.quick else (2_000_000, 9)
    rng = np.random.default_rng(context.seed)
    shares = zipf_shares(_KEYS, _EXPONENT)
    keys = [rng.permutation(_KEYS)[sample(shares, rows, rng)] for _ in range(batches)]
    metrics: dict[str, float] = {}
    samples: dict[str, object] = {"rows": rows}
    with local_spark(_CORES) as spark, scratch() as folder:
        for source, suffix in _sources(spark, folder, keys, context):
            found, raw = _measured(spark, source(), folder / f"query{suffix}")
            metrics |= {f"{name}{suffix}": value for name, value in found.items()}
            samples |= {f"{name}{suffix}": value for name, value in raw.items()}
    return Result(metrics, samples)


def _sources(
    spark: SparkSession, folder: Path, keys: Sequence[Keys], context: Context
) -> Iterator[tuple[Callable[[], DataFrame], str]]:
    """Yield functions that make streams of the same batches, and a suffix for the metrics of each."""
    yield lambda: _parquet(spark, folder / "rows", keys), ""
    yield lambda: _json(spark, folder / "lines", keys), "_json"
    broker = context.kafka
    if broker is None:
        context.console.print("look-cost: without --kafka HOST:PORT there is no look_over_batch_kafka")
        return
    yield lambda: _kafka(spark, broker, keys), "_kafka"


def _measured(spark: SparkSession, stream: DataFrame, at: Path) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Run a stream; return the metrics of its settled batches, and the ratios and seconds behind them."""
    policy = Policy(load="rows", move_rate=1e12)
    with _timed() as spent:
        run_stateful(stream, VectorTotals(), TOTALS, _PARTITIONS, at, policy=policy, look="always")
    log = batch_log(str(at), spark=spark).dataframe().orderBy("batch").collect()
    both = list(zip(log, spent, strict=True))[_SETTLED:]
    before = [each.choosing + each.placement for _, each in both]
    over = [mine / (row.seconds - mine) for mine, (row, _) in zip(before, both, strict=True)]
    metrics = {
        "look_over_batch": median(over),
        "look_over_batch_worst": max(over),
        "look_seconds": median(row.look_seconds for row, _ in both),
        "plan_seconds": median(each.choosing - row.look_seconds for row, each in both),
        "placement_seconds": median(each.placement for _, each in both),
        "batch_seconds": median(row.seconds for row, _ in both),
        "rows_seen": median(row.look_rows for row, _ in both),
        "new_plans": float(sum(row.applied for row, _ in both)),
    }
    looks, placements = [row.look_seconds for row, _ in both], [each.placement for _, each in both]
    return metrics, {"over": over, "looks": looks, "placements": placements}


def _parquet(spark: SparkSession, folder: Path, keys: Sequence[Keys]) -> DataFrame:
    write_batches(folder, [{"key": batch, "value": batch % 7} for batch in keys], _CORES)
    return read_batches(spark, folder, _SCHEMA, _CORES)


def _json(spark: SparkSession, folder: Path, keys: Sequence[Keys]) -> DataFrame:
    """Write a JSON object for each row, in as many files for each batch as there are cores; Spark parses the text."""
    folder.mkdir()
    for number, batch in enumerate(keys):
        for part, share in enumerate(np.array_split(batch, _CORES)):
            path = folder / f"{number:05d}-{part}.txt"
            path.write_text("".join(f"{line}\n" for line in _lines(share)), encoding="utf-8")
            os.utime(path, (number + 1, number + 1))  # the stream reads in the order of times
    lines = spark.readStream.option("maxFilesPerTrigger", _CORES).option("latestFirst", value=False).text(str(folder))
    return _parsed(lines)


def _kafka(spark: SparkSession, broker: str, keys: Sequence[Keys]) -> DataFrame:
    """Send a JSON object for each row to a new topic; Spark reads as many at a time as a batch has."""
    topic = f"equipoise-look-cost-{uuid.uuid4().hex}"
    servers = {"kafka.bootstrap.servers": broker}
    for batch in keys:
        rows = spark.createDataFrame([(line,) for line in _lines(batch)], "value string")
        rows.write.format("kafka").options(**servers, topic=topic).save()
    options = {**servers, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(len(keys[0]))}
    return _parsed(spark.readStream.format("kafka").options(**options).load())


def _lines(keys: Keys) -> Iterable[str]:
    return (json.dumps({"key": key, "value": key % 7}) for key in keys.tolist())


def _parsed(lines: DataFrame) -> DataFrame:
    return lines.select(F.from_json(F.col("value").cast("string"), _SCHEMA).alias("row")).select("row.*")


@contextmanager
def _timed() -> Iterator[list[_Spent]]:
    """Time how the plan of every batch within the block is chosen, and how its placement is made."""
    spent: list[_Spent] = []
    choose = Planning.choose

    def chosen(*given: Any, **named: Any) -> Choice:
        start = time.perf_counter()
        choice = choose(*given, **named)
        spent.append(_Spent(time.perf_counter() - start))
        return choice

    def placed(*given: Any, **named: Any) -> RowPlacement:
        start = time.perf_counter()
        made = RowPlacement(*given, **named)
        spent[-1].placement += time.perf_counter() - start
        return made

    with mock.patch.object(Planning, "choose", chosen), mock.patch.object(jobs, "RowPlacement", placed):
        yield spent
