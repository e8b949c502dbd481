"""A local Spark with as many slots as asked for, to emulate the parallelism of a cluster.

The slots may outnumber the cores: where the work of a task waits (a service time that sleeps) instead of computing,
tasks run side by side as they would on a cluster of that many slots, and the time of a stage is that of its longest
slot.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from equipoise.requirements import require_java


@contextmanager
def local_spark(slots: int) -> Iterator[SparkSession]:
    """Spark on this machine, stopped at the end."""
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master(f"local[{slots}]")
        .appName("equipoise bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def as_parquet(
    spark: SparkSession, columns: dict[str, NDArray[np.generic] | list[str]], files: int
) -> Iterator[DataFrame]:
    """A DataFrame read from Parquet files that are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table(columns)
        step = -(-table.num_rows // files)
        for number in range(files):
            pq.write_table(table.slice(number * step, step), Path(folder) / f"part-{number}.parquet")
        yield spark.read.parquet(folder)


def run_to_the_end(df: DataFrame) -> None:
    """Compute every row and keep none."""
    df.write.format("noop").mode("overwrite").save()


def waiting(seconds_per_unit: float, unit: str | None = None) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """A function of a group that takes a service time for each row, or each unit of a column, and counts its rows."""

    def serve(group: pd.DataFrame) -> pd.DataFrame:
        time.sleep(seconds_per_unit * (len(group) if unit is None else float(group[unit].sum())))
        return pd.DataFrame({"n": [len(group)]})

    return serve
