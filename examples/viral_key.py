"""A keyed stream in which other hosts go viral in mid-run, by plain hash and with state that moves.

Run me with `python examples/viral_key.py`. Eight slots are emulated on this machine: each row "works" by sleeping, so
slots may outnumber cores.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from equipoise.requirements import require_java
from equipoise.spark import balance, batch_log, read_state

SLOTS, PARTITIONS, BATCHES, ROWS = 8, 16, 4, 3000


class Visits(StatefulProcessor):
    """Count the visits of each host; every row takes 3 ms."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self.visits = handle.getValueState("visits", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803 - Spark's own names
        """Add up."""
        (n,) = self.visits.get() or (0,)
        for frame in rows:
            time.sleep(0.003 * len(frame))
            n += len(frame)
        self.visits.update((n,))
        yield pd.DataFrame({"host": [key[0]], "n": [n]})

    def close(self) -> None:
        """Nothing to clean up."""


def write_visits(spark: SparkSession, folder: str) -> None:
    """Twelve hosts have 5 % of the visits each; from the middle on, twelve other hosts do."""
    for batch in range(BATCHES):
        first = 0 if batch < BATCHES // 2 else 500
        viral = F.concat(F.lit("host-"), first + F.col("id") % 20)
        other = F.concat(F.lit("host-"), 40 + F.col("id") % 211)
        visits = spark.range(ROWS).select(F.when(F.col("id") % 20 < 12, viral).otherwise(other).alias("host"))
        visits.coalesce(1).write.mode("append").parquet(folder)


def run(spark: SparkSession, folder: str, name: str, **options: Any) -> list[tuple[str, int]]:
    """Run the stream to its end, print what became of each batch, and give the final state."""
    stream = spark.readStream.schema("host string").option("maxFilesPerTrigger", 1).parquet(f"{folder}/visits")
    checkpoint = f"{folder}/{name}"
    visits = balance(stream, "host", numPartitions=PARTITIONS, **options).transformWithStateInPandas(
        Visits(), "host string, n long", outputMode="update", timeMode="none"
    )
    writer = visits.writeStream.format("parquet").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    start = time.perf_counter()
    query = writer.start(f"{folder}/{name}-out")
    query.awaitTermination()
    print(f"\n{name}: {time.perf_counter() - start:.1f} s")
    for row in batch_log(checkpoint).dataframe().orderBy("batch").collect():
        print(
            f"  batch {row.batch}  {row.seconds:4.1f} s  imbalance {row.imbalance_rows:.2f}  {row.action}: {row.reason}"
        )
    return sorted((row.host, row.visits.n) for row in read_state(checkpoint).collect())


def main() -> None:
    """Write the stream, run both, compare."""
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{SLOTS}]").config("spark.log.level", "ERROR")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    folder = tempfile.mkdtemp()
    try:
        write_visits(spark, f"{folder}/visits")
        theirs = run(spark, folder, "plain-hash", placement="hash")
        ours = run(spark, folder, "balanced")
        print("\nsame result:", ours == theirs)
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
