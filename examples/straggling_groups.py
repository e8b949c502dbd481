"""A skewed applyInPandas, plain and balanced, side by side: run me with `python examples/straggling_groups.py`.

Eight slots are emulated on this machine: each row "works" by sleeping, so slots may outnumber cores.
"""

import os
import sys
import time

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from equipoise.requirements import require_java
from equipoise.spark import advise, balance, profile

SLOTS, PARTITIONS, ROWS = 8, 16, 20_000


def work(group: pd.DataFrame) -> pd.DataFrame:
    """Take 2 ms for each row."""
    time.sleep(0.002 * len(group))
    return pd.DataFrame({"host": [group["host"].iloc[0]], "rows": [len(group)]})


def timed(name: str, result: DataFrame) -> list[tuple[str, int]]:
    """Run a job to its end and print how long it took."""
    start = time.perf_counter()
    rows = sorted((row["host"], row["rows"]) for row in result.collect())
    print(f"{name:12} {time.perf_counter() - start:5.1f} s")
    return rows


def main() -> None:
    """Profile, advise, run both, compare."""
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{SLOTS}]").config("spark.log.level", "ERROR")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    # twelve big hosts with 5 % of the rows each, a long tail with the rest
    big = F.concat(F.lit("big-"), F.col("id") % 20)
    small = F.concat(F.lit("host-"), F.col("id") % 801)
    visits = spark.range(ROWS).select(F.when(F.col("id") % 20 < 12, big).otherwise(small).alias("host"))

    print(profile(visits, "host", numPartitions=PARTITIONS))
    print(advise(visits, "host", operation="applyInPandas", numPartitions=PARTITIONS))

    schema = "host string, rows long"
    plain = visits.repartition(PARTITIONS, "host").groupBy("host").applyInPandas(work, schema)
    plain.limit(1).collect()  # start the Python workers
    theirs = timed("plain hash", plain)
    ours = timed("balanced", balance(visits, "host", numPartitions=PARTITIONS).applyInPandas(work, schema))
    print("same result:", ours == theirs)
    spark.stop()


if __name__ == "__main__":
    main()
