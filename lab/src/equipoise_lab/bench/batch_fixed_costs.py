"""Fixed costs of a first run of a short job: jobs, seconds and driver CPU before its work, and its time over plain."""

import time
import uuid
from collections.abc import Callable
from functools import partial

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.spark import join
from equipoise_lab.bench.batch import SLOTS
from equipoise_lab.bench.contenders.grouped import by_aggregate, by_balance, by_hash, waiting
from equipoise_lab.bench.contenders.joins import sides
from equipoise_lab.bench.harness import Context, Result, interleaved, median, paired
from equipoise_lab.bench.local_spark import as_parquet, local_spark, run_to_the_end
from equipoise_lab.spark_settings import settings

_ROWS, _KEYS, _PARTITIONS = 30_000, 1000, 16

Make = Callable[[], DataFrame]


def run(context: Context) -> Result:
    """Measure a grouped function, an aggregate and a join of even keys, each without work of its own."""
    rng = np.random.default_rng(context.seed)
    skewed, even = sample(zipf_shares(_KEYS, 1.0), _ROWS, rng), rng.integers(0, _KEYS, _ROWS)
    no_broadcast = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": str(_PARTITIONS)}
    metrics: dict[str, float] = {}
    samples: dict[str, object] = {}
    with (
        local_spark(SLOTS) as spark,
        settings(spark, no_broadcast),
        as_parquet(spark, {"key": skewed}, SLOTS) as df,
        sides(spark, even, _KEYS, 1, 0, SLOTS, context.seed) as (left, right),
    ):
        serve = waiting(0.0)
        pairs: dict[str, tuple[Make, Make]] = {
            "balance": (
                lambda: by_hash(df, _PARTITIONS, serve),
                lambda: by_balance(df, _PARTITIONS, serve, SLOTS),
            ),
            "aggregate": (
                lambda: by_hash(df, _PARTITIONS, serve),
                lambda: by_aggregate(df, _PARTITIONS, 0.0, SLOTS),
            ),
            "join_even": (
                lambda: left.join(right, "key"),
                lambda: join(left, right, "key", "inner", _PARTITIONS, slots=SLOTS).dataframe(),
            ),
        }
        for name, (plain, ours) in context.track(pairs.items(), "fixed costs"):
            contenders = {"plain": partial(_work, plain), name: partial(_work, ours)}
            seconds = interleaved(contenders, context.repeats(15, 5))
            before = [_before_the_work(spark, ours) for _ in range(context.repeats(15, 5))]
            metrics[f"{name}_jobs_before_the_work"] = max(jobs for jobs, _, _ in before)
            metrics[f"{name}_seconds_before_the_work"] = median(wall for _, wall, _ in before)
            metrics[f"{name}_driver_cpu_seconds"] = median(cpu for _, _, cpu in before)
            metrics[f"{name}_over_plain"] = paired(seconds[name], seconds["plain"]).median
            samples[name] = {"seconds": seconds, "before_the_work": before}
    return Result(metrics, samples)


def _work(make: Make) -> None:
    run_to_the_end(make())


def _before_the_work(spark: SparkSession, make: Make) -> tuple[float, float, float]:
    """Return the Spark jobs, the seconds and the driver's CPU seconds that it takes to make a result lazily."""
    context, group = spark.sparkContext, uuid.uuid4().hex
    context.setJobGroup(group, "before the work")
    started, cpu = time.perf_counter(), time.process_time()
    make()
    spent = time.perf_counter() - started, time.process_time() - cpu
    context.setJobGroup("", "")
    return float(len(context.statusTracker().getJobIdsForGroup(group))), *spent
