"""Cost of placing rows by a plan, and of observing them on the way, against Spark's own repartition on even data."""

import tempfile
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.hashing import fingerprints
from equipoise.plan import Plan, uniform_plan
from equipoise.spark import balance
from equipoise_lab.bench.harness import Context, Result, interleaved, paired
from equipoise_lab.bench.local_spark import local_spark, run_to_the_end

_PARTITIONS = 64
_ISOLATED = 64


def run(context: Context) -> Result:
    """Shuffle even data by repartition, by a plan, by a plan with isolated keys, and observed."""
    rows = 2_000_000 if context.quick else 24_000_000
    with local_spark(2) as spark, tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rows")
        columns = [F.xxhash64("id").alias("key"), F.col("id").alias("a"), (F.col("id") * 3).alias("b")]
        spark.range(0, rows, 1, 4).select(*columns).write.parquet(path)
        df = spark.read.parquet(path)
        first = uniform_plan(_PARTITIONS)
        hot = fingerprints([row.key for row in df.limit(_ISOLATED).collect()])
        isolating = Plan(_PARTITIONS, first.tail, {int(key): i % _PARTITIONS for i, key in enumerate(hot)})
        record = str(Path(folder) / "record")
        observed = []

        def observing() -> None:
            observed.append(balance(df, "key", numPartitions=_PARTITIONS, record=record))
            run_to_the_end(observed[-1].dataframe())

        observing()
        observed[0].wait_for_record()
        seconds = interleaved(
            {
                "repartition": lambda: run_to_the_end(df.repartition(_PARTITIONS, "key")),
                "balance, plan given": lambda: run_to_the_end(balance(df, "key", plan=first).dataframe()),
                "balance, 64 isolated": lambda: run_to_the_end(balance(df, "key", plan=isolating).dataframe()),
                "balance, sampled": lambda: run_to_the_end(balance(df, "key", numPartitions=_PARTITIONS).dataframe()),
                "balance, recorded plan": lambda: run_to_the_end(balance(df, "key", plan=observed[0].plan).dataframe()),
                "balance, observed": observing,
            },
            context.repeats(7, 3),
        )
        for each in observed:
            each.wait_for_record()
    plain = seconds["repartition"]
    ratios = {
        "balance_over_repartition": paired(seconds["balance, plan given"], plain),
        "observe_over_plain": paired(seconds["balance, observed"], seconds["balance, recorded plan"]),
        "isolated_over_repartition": paired(seconds["balance, 64 isolated"], plain),
        "sampled_over_repartition": paired(seconds["balance, sampled"], plain),
    }
    metrics = {name: ratio.median for name, ratio in ratios.items()}
    spread = {name: ratio._asdict() for name, ratio in ratios.items()}
    return Result(metrics, {"seconds": seconds, "ratios": spread, "rows": rows})
