"""Figure 4 of DR: imbalance and processing time of a grouped function on Spark, over the skew of its keys."""

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from equipoise.metrics import load_imbalance
from equipoise.reproduce.context import Context
from equipoise.reproduce.dr.gains import middle_gains_most, told
from equipoise.reproduce.drawing import lines
from equipoise.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise.reproduce.rows import Row, Rows
from equipoise.reproduce.verdict import Finding, judged
from equipoise.simulate.workloads import sample, shifted_power_law_shares

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FILES = 8


def run(context: Context) -> Iterator[Row]:
    """Group by key with a service time for each record, by hash and balanced."""
    from equipoise.bench.contenders import grouped  # noqa: PLC0415 - needs Spark
    from equipoise.bench.harness import interleaved  # noqa: PLC0415 - as above
    from equipoise.bench.local_spark import as_parquet, local_spark, run_to_the_end  # noqa: PLC0415 - as above
    from equipoise.spark import balance  # noqa: PLC0415 - as above

    partitions, rng = context["partitions"], np.random.default_rng(context.seed)
    serve = grouped.waiting(context["seconds of an even task"] * partitions / context["records"])
    with local_spark(partitions) as spark:
        for number, exponent in enumerate(context.track(context["exponents"])):
            shares = shifted_power_law_shares(context["keys"], exponent, context["shift of the law"])
            with as_parquet(spark, {"key": sample(shares, context["records"], rng)}, _FILES) as df:
                methods = {
                    "hash": lambda df=df: run_to_the_end(grouped.by_hash(df, partitions, serve)),
                    "DR": lambda df=df: run_to_the_end(grouped.by_balance(df, partitions, serve, partitions)),
                }
                seconds = interleaved(methods, context["runs"], warm_up=methods if number == 0 else {})
                plan = balance(df, "key", partitions, slots=partitions)
                loads = {
                    "hash": records_by_hash(df, partitions),
                    "DR": records_of_partitions(df, plan.partition, partitions),
                }
                for method in methods:
                    yield {
                        "exponent": exponent,
                        "method": method,
                        "imbalance": load_imbalance(loads[method]),
                        "seconds": median(seconds[method]),
                        "hottest": shares[0],
                    }


def records_by_hash(df: "DataFrame", partitions: int) -> list[int]:
    """Records that Spark's hash puts into each partition."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the name every Spark user knows; needs Spark

    return records_of_partitions(df.repartition(partitions, "key"), F.spark_partition_id(), partitions)


def records_of_partitions(df: "DataFrame", partition: "Column", partitions: int) -> list[int]:
    """Records of each partition, whose number a column tells."""
    found = df.groupBy(partition.alias("partition")).count().collect()
    counts = {row["partition"]: row["count"] for row in found}
    return [counts.get(number, 0) for number in range(partitions)]


def _balanced(rows: Rows) -> Finding:
    found = {m: dict(zip(*rows.line("exponent", "imbalance", method=m), strict=True)) for m in ("hash", "DR")}
    return judged(
        "; ".join(f"{m} {told(line)}" for m, line in found.items()),
        shape={
            "DR is more even than hash at every exponent": all(found["DR"][z] < found["hash"][z] for z in found["DR"])
        },
    )


EXHIBIT = Exhibit(
    name="dr/figure-4",
    title="imbalance and Spark time over the exponent of the keys",
    section="Section 5, evaluation of Apache Spark DR",
    settings={
        "records": Setting("10 M", 800, 16_000, 50_000),
        "keys": Setting("1 M", 50, 1_000, 2_000),
        "shift of the law": Setting("10, in the code of the paper", 10, 10, 10),
        "partitions": Setting("35", 4, 16, 35),
        "exponents": Setting("1 to 2", (1.0, 1.5, 3.0), (1.0, 1.5, 2.0, 4.0), (1.0, 1.25, 1.5, 1.75, 2.0, 3.0, 4.0)),
        "seconds of an even task": Setting("not given", 0.1, 2.0, 8.0),
        "runs": Setting("not given", 1, 1, 2),
    },
    claims=(
        Claim("DR improves the balance", "a lower line", _balanced),
        Claim(
            "DR is beneficial for moderate exponents, not near 1, nor where the heaviest key dominates",
            "a gain in the middle",
            middle_gains_most("seconds"),
        ),
    ),
    run=run,
    draw=lambda rows: lines(
        rows, "exponent", {"imbalance": "largest partition over mean", "seconds": "seconds"}, line="method"
    ),
    note="One grouped Python function over all records instead of a streaming program, on as many emulated slots as "
    "partitions; a record takes a service time that waits, instead of an NLP model. DR samples, plans and routes "
    "within its time. Fewer keys, since each takes Python a moment of its own; the heaviest of few dominates only at "
    "higher exponents, which were added.",
    spark=True,
)
