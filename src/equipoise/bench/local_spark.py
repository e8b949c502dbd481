"""A local Spark with as many slots as asked for, to emulate the parallelism of a cluster.

The slots may outnumber the cores: where the work of a task waits (a service time that sleeps) instead of computing,
tasks run side by side as they would on a cluster of that many slots, and the time of a stage is that of its longest
slot.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from equipoise.errors import InvalidArgument
from equipoise.requirements import require_java


@contextmanager
def local_spark(slots: int, *, executors: bool = False) -> Iterator[SparkSession]:
    """Spark on this machine, stopped at the end.

    Parameters
    ----------
    slots
        Tasks that run at a time.
    executors
        Whether each slot is an executor, with a JVM and memory of its own, as on a cluster.
    """
    require_java()
    if SparkSession.getActiveSession() is not None:
        raise InvalidArgument("a Spark session is active in this process, with slots of its own; stop it first")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master(f"local-cluster[{slots},1,1024]" if executors else f"local[{slots}]")
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
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session for a while."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


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
