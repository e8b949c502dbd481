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


class _Kept:
    """A session that outlives its use, so that the next one of the same kind finds it, and its workers, running."""

    def __init__(self) -> None:
        self._master: str | None = None
        self._session: SparkSession | None = None

    def take(self, master: str) -> SparkSession | None:
        """The session that was left, if it is of this kind; one of another kind is stopped."""
        session, fits = self._session, self._master == master
        self._session = None
        if session is not None and not fits:
            session.stop()
        return session if fits else None

    def leave(self, master: str, session: SparkSession) -> None:
        """Keep a session for the next."""
        self._master, self._session = master, session

    def stop(self) -> None:
        """Stop what is left."""
        if self._session is not None:
            self._session.stop()
            self._session = None


_kept: list[_Kept] = []  # at most one, while sessions are kept


@contextmanager
def kept_sessions() -> Iterator[None]:
    """For a while, a session of ``local_spark`` stays until one with other slots is wanted: starting takes long."""
    kept = _Kept()
    _kept.append(kept)
    try:
        yield
    finally:
        _kept.remove(kept)
        kept.stop()


@contextmanager
def local_spark(slots: int, *, executors: bool = False) -> Iterator[SparkSession]:
    """Spark on this machine, stopped at the end, unless within ``kept_sessions``.

    Parameters
    ----------
    slots
        Tasks that run at a time.
    executors
        Whether each slot is an executor, with a JVM and memory of its own, as on a cluster.
    """
    require_java()
    master = f"local-cluster[{slots},1,1024]" if executors else f"local[{slots}]"
    session = (_kept[0].take(master) if _kept else None) or _started(master)
    try:
        yield session
    except BaseException:
        session.stop()
        raise
    if _kept:
        _kept[0].leave(master, session)
    else:
        session.stop()


def _started(master: str) -> SparkSession:
    if SparkSession.getActiveSession() is not None:
        raise InvalidArgument("a Spark session is active in this process, with slots of its own; stop it first")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master(master)
        .appName("equipoise bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


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
