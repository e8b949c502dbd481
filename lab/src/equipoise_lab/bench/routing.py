"""Cost of placing rows by a plan, and of observing them on the way, against Spark's own repartition on even data.

Observing is timed until the load record is saved: on a bare shuffle, and before a grouped Python function that does as
little as one can, over an eighth of the rows.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.errors import CheckError
from equipoise.hashing import fingerprints
from equipoise.plan import Plan, uniform_plan
from equipoise.spark import balance
from equipoise.spark.batch.groups import BalancedGroups
from equipoise_lab.bench.harness import Context, Result, interleaved, paired
from equipoise_lab.bench.local_spark import local_spark, run_to_the_end

_PARTITIONS = 64
_ISOLATED = 64
_GROUPS = 2000  # keys of the grouped function

Use = Callable[[BalancedGroups], DataFrame]


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
        few = df.where(F.col("a") < rows // 8).withColumn("key", F.pmod("key", F.lit(_GROUPS)))
        plan = _observed(df, str(Path(folder) / "record"), _placed)
        plan_of_few = _observed(few, str(Path(folder) / "few"), _grouped)
        seconds = interleaved(
            {
                "repartition": lambda: run_to_the_end(df.repartition(_PARTITIONS, "key")),
                "balance, plan given": lambda: run_to_the_end(balance(df, "key", plan=first).dataframe()),
                "balance, 64 isolated": lambda: run_to_the_end(balance(df, "key", plan=isolating).dataframe()),
                "balance, sampled": lambda: run_to_the_end(balance(df, "key", numPartitions=_PARTITIONS).dataframe()),
                "balance, recorded plan": lambda: run_to_the_end(_placed(balance(df, "key", plan=plan))),
                "balance, observed": lambda: _observed(df, str(Path(folder) / "record"), _placed),
                "function, recorded plan": lambda: run_to_the_end(_grouped(balance(few, "key", plan=plan_of_few))),
                "function, observed": lambda: _observed(few, str(Path(folder) / "few"), _grouped),
            },
            context.repeats(7, 7),
        )
    plain = seconds["repartition"]
    ratios = {
        "balance_over_repartition": paired(seconds["balance, plan given"], plain),
        "observe_over_plain": paired(seconds["balance, observed"], seconds["balance, recorded plan"]),
        "observe_over_function": paired(seconds["function, observed"], seconds["function, recorded plan"]),
        "isolated_over_repartition": paired(seconds["balance, 64 isolated"], plain),
        "sampled_over_repartition": paired(seconds["balance, sampled"], plain),
    }
    metrics = {name: ratio.median for name, ratio in ratios.items()}
    spread = {name: ratio._asdict() for name, ratio in ratios.items()}
    return Result(metrics, {"seconds": seconds, "ratios": spread, "rows": rows})


def _placed(groups: BalancedGroups) -> DataFrame:
    return groups.dataframe()


def _grouped(groups: BalancedGroups) -> DataFrame:
    return groups.applyInArrow(_count, "key long, n long")


def _count(rows: pa.Table) -> pa.Table:
    return pa.table({"key": rows["key"][:1], "n": [rows.num_rows]})


def _observed(df: DataFrame, record: str, use: Use) -> Plan:
    """Run a job with a load record until the record is saved, and return its plan."""
    groups: BalancedGroups = balance(df, "key", numPartitions=_PARTITIONS, record=record)
    run_to_the_end(use(groups))
    if not groups.wait_for_record():
        raise CheckError(f"the run was not recorded in {record}, so observing it was not timed; see the log for why")
    assert isinstance(groups.plan, Plan)  # noqa: S101 - neither operation splits keys
    return groups.plan
