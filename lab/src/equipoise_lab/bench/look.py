"""Ways to look at the keys of a DataFrame before a job, in seconds over those of its bare shuffle."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.spark.batch.options import BatchOptions
from equipoise.spark.batch.sample import WeightedRows, resolve_weight, take_sample
from equipoise.spark.rows.keys import Key, resolve_key
from equipoise_lab.bench.harness import Context, Result, interleaved, paired
from equipoise_lab.bench.local_spark import local_spark, run_to_the_end

_PARTITIONS, _CORES, _FILES = 64, 2, 4

Batches = Iterator[pa.RecordBatch]


def run(context: Context) -> Result:
    """Time the library's look, a count and a sample, and the first rows of each input partition, fetched in Python."""
    rows = 2_000_000 if context.quick else 24_000_000
    with local_spark(_CORES) as spark, tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rows")
        columns = [F.xxhash64("id").alias("key"), F.col("id").alias("a"), (F.col("id") * 3).alias("b")]
        spark.range(0, rows, 1, _FILES).select(*columns).write.parquet(path)
        df = spark.read.parquet(path)
        key = resolve_key(df, "key")
        wanted = BatchOptions().sample_rows(_PARTITIONS)
        assert wanted is not None  # noqa: S101 - this tells the type checker
        seconds = interleaved(
            {
                "repartition": lambda: run_to_the_end(df.repartition(_PARTITIONS, "key")),
                "look": partial(_look, df, key),
                "count and sample": partial(_count_and_sample, df, key, wanted),
                "first rows in python": partial(_first_rows, df, key, wanted // _FILES, stops=True),
                "first rows in python, rest read": partial(_first_rows, df, key, wanted // _FILES, stops=False),
            },
            context.repeats(7, 3),
        )
    ratios = {name: paired(values, seconds["repartition"]) for name, values in seconds.items() if name != "repartition"}
    metrics = {f"{name.replace(',', '').replace(' ', '_')}_over_shuffle": each.median for name, each in ratios.items()}
    return Result(metrics, {"seconds": seconds, "rows": rows})


def _look(df: DataFrame, key: Key) -> None:
    take_sample(WeightedRows(df, key, resolve_weight(df, None)), BatchOptions(), _PARTITIONS, _CORES)


def _count_and_sample(df: DataFrame, key: Key, wanted: int) -> None:
    df.where(F.rand(0) * df.count() < wanted).select(*_needed(key)).toArrow()


def _first_rows(df: DataFrame, key: Key, quota: int, *, stops: bool) -> None:
    """Fetch the first rows of every input partition by ``mapInArrow``."""

    def first(batches: Batches) -> Batches:
        left = quota
        for batch in batches:
            if left > 0:
                yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0 and stops:
                return

    df.select(*_needed(key)).mapInArrow(first, "fingerprint long, hash int, null boolean").toArrow()


def _needed(key: Key) -> tuple[Column, ...]:
    return key.fingerprint.alias("fingerprint"), key.spark_hash.alias("hash"), key.has_null.alias("null")
