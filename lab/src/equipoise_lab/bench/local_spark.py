"""A local Spark with as many slots as asked for, to emulate the parallelism of a cluster.

The slots may outnumber the cores: where the work of a task waits (a service time that sleeps) instead of computing,
tasks run side by side as they would on a cluster of that many slots, and the time of a stage is that of its longest
slot.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from equipoise.cli.quiet_spark import start_quietly
from equipoise.errors import InvalidArgumentError
from equipoise.requirements import require_java


class _Kind(NamedTuple):
    slots: int
    executors: bool

    @property
    def master(self) -> str:
        return f"local-cluster[{self.slots},1,1024]" if self.executors else f"local[{self.slots}]"


class _Kept:
    """A session that is kept after its use, so that the next use finds it and its workers running."""

    def __init__(self) -> None:
        self._left: tuple[_Kind, SparkSession] | None = None

    def take(self, wanted: _Kind, *, or_more: bool) -> tuple[_Kind, SparkSession] | None:
        """Return the kept session if it fits, and stop it if it does not."""
        left, self._left = self._left, None
        if left is None:
            return None
        kind, session = left
        if kind == wanted or (or_more and kind.executors == wanted.executors and kind.slots > wanted.slots):
            return left
        session.stop()
        return None

    def leave(self, kind: _Kind, session: SparkSession) -> None:
        """Keep a session for the next use."""
        self._left = kind, session

    def stop(self) -> None:
        """Stop the kept session."""
        if self._left is not None:
            self._left[1].stop()
            self._left = None


_kept: list[_Kept] = []  # at most one, while sessions are kept


@contextmanager
def kept_sessions() -> Iterator[None]:
    """Keep sessions of ``local_spark`` for the next use within the block, because starting one takes long."""
    kept = _Kept()
    _kept.append(kept)
    try:
        yield
    finally:
        _kept.remove(kept)
        kept.stop()


@contextmanager
def local_spark(slots: int, *, executors: bool = False, or_more: bool = False) -> Iterator[SparkSession]:
    """Start Spark on this machine, and stop it at the end, except within ``kept_sessions``.

    Parameters
    ----------
    slots
        Tasks that run at a time.
    executors
        Whether each slot is an executor, with a JVM and memory of its own, as on a cluster.
    or_more
        Whether a kept session with more slots will do, as it does where no more than ``slots`` tasks wait at a time.
    """
    require_java()
    wanted = _Kind(slots, executors)
    kept = _kept[0].take(wanted, or_more=or_more) if _kept else None
    kind, session = kept or (wanted, _started(wanted.master))
    try:
        yield session
    except BaseException:
        session.stop()
        raise
    if _kept:
        _kept[0].leave(kind, session)
    else:
        session.stop()


def _started(master: str) -> SparkSession:
    if SparkSession.getActiveSession() is not None:
        raise InvalidArgumentError(
            "a Spark session is active in this process, and a benchmark needs its own; stop it first"
        )
    return start_quietly({"spark.master": master, "spark.app.name": "equipoise-lab", "spark.driver.memory": "4g"})


@contextmanager
def as_parquet(
    spark: SparkSession, columns: dict[str, NDArray[np.generic] | list[str]], files: int
) -> Iterator[DataFrame]:
    """Write columns to temporary Parquet files and read them as a DataFrame."""
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table(columns)
        step = -(-table.num_rows // files)
        for number in range(files):
            pq.write_table(table.slice(number * step, step), Path(folder) / f"part-{number}.parquet")
        yield spark.read.parquet(folder)


def run_to_the_end(df: DataFrame) -> None:
    """Compute every row and keep none."""
    df.write.format("noop").mode("overwrite").save()
