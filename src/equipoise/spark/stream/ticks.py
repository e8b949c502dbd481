"""Batches without rows: a data source that makes Spark run the ones that it runs for its own operators with state.

Spark runs a batch without new rows after a batch that has moved the watermark, so that timers fire, and with
processing-time timers at every trigger. It asks the operators of the plan whether they need one, and it does not know
an operator that runs in ``foreachBatch``. The stream is therefore united with the source ``equipoise_ticks``, which has
no rows. Its offset is a number of ticks; where a batch is due, it grows by one. Each query registers the source under
a name of its own, because Spark refuses a name that another session of the process has registered.

Whether the watermark has moved is read from what Spark has recorded about the last batch. The source runs in a Python
process beside the driver, and learns the number of that batch from a small local file. On Classic the driver deletes
the file when the query ends; under Connect it stays in the temporary folder of the server.
"""

import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from equipoise.state.halves import SparkHalf
from equipoise.storage import Storage

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _Reader
except ImportError:  # before Spark 4.2
    _Reader = object  # type: ignore[misc, assignment]  # a base class without methods

NAME = "equipoise_ticks"
ENDS_WITH_AVAILABLE_NOW = _Reader is not object
"""Whether the running Spark lets a source decide how many batches ``availableNow`` runs; since 4.2."""

_PACE = 1.0  # seconds without a batch, if the trigger has no interval

Offset = dict[str, int]


class LastBatch:
    """Number of the last batch that this run of a query has finished, in a local file.

    Parameters
    ----------
    name
        Name of the file.
    folder
        Its folder; empty for the temporary folder of the process, which driver and source share under Connect.
    """

    def __init__(self, name: str, folder: str = "") -> None:
        self.name, self.folder = name, folder

    @property
    def _path(self) -> Path:
        return Path(self.folder or tempfile.gettempdir()) / self.name

    def set(self, batch: int) -> None:
        """Replace the number."""
        new = self._path.with_suffix(".new")
        new.write_text(str(batch))
        new.replace(self._path)

    def get(self) -> int | None:
        """Return the number; ``None`` before the first batch."""
        try:
            return int(self._path.read_text())
        except FileNotFoundError:
            return None

    def forget(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)


class TickReader(DataSourceStreamReader, _Reader):
    """Counts the batches without rows that are due.

    Parameters
    ----------
    checkpoint
        The checkpoint of the query.
    last
        The last batch.
    modes
        Time modes of the operators of the query; empty where no batch without rows may run.
    pace
        Seconds without a batch before one is due for processing-time timers.
    """

    def __init__(self, checkpoint: str, last: LastBatch, modes: Collection[str], pace: float) -> None:
        self._half = SparkHalf(Storage(checkpoint))
        self._last, self._modes, self._pace = last, modes, pace
        self._ends = False
        self._batch: int | None = None
        self._known: tuple[int | None, Offset] | None = None  # offset after the last batch of this run, for Spark 4.1
        self._since = 0.0
        self._moved = False

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's own name
        """Return the offset before the first tick."""
        return {"ticks": 0}

    def latestOffset(self, *given: Any) -> Offset:  # noqa: N802 - Spark's own name
        """Return the offset of the next batch; ``given`` is that of the last one, and a limit, since Spark 4.2."""
        before = given[0] if given else self._planned()
        return {"ticks": before["ticks"] + int(self._due())}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's own name
        """Run no more batches for processing-time timers: the query would never end."""
        self._ends = True

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:  # noqa: ARG002 - as Spark calls it
        """Return no partition."""
        return []

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002 - as Spark calls it
        """Return no rows."""
        return iter(())

    def _planned(self) -> Offset:
        """Return the offset of the last batch, as Spark has recorded it."""
        batch = self._last.get()
        if self._known is None or batch != self._known[0]:
            planned = self._half.last_planned() if batch is None else batch
            self._known = batch, self.initialOffset() if planned < 0 else self._half.last_source(planned)
        return self._known[1]

    def _due(self) -> bool:
        batch = self._last.get() if self._modes else None
        if batch is None:
            return False
        if batch != self._batch:
            self._batch, self._since = batch, time.monotonic()
            self._moved = "eventTime" in self._modes and self._half.moved_watermark(batch)
        paced = "processingTime" in self._modes and not self._ends
        return self._moved or (paced and time.monotonic() - self._since >= self._pace)


class Ticks(DataSource):
    """The data source; made by Spark."""

    def schema(self) -> str:
        """Return one column, which never has a value."""
        return "tick boolean"

    def streamReader(self, schema: StructType) -> TickReader:  # noqa: ARG002, N802 - Spark's own name
        """Return the reader."""
        found = {name.lower(): value for name, value in self.options.items()}
        last = LastBatch(found["file"], found["folder"])
        return TickReader(found["checkpoint"], last, found["modes"].split(), float(found["pace"]))


def with_ticks(
    stream: DataFrame, checkpoint: str, last: LastBatch, modes: Collection[str], *, paced: bool
) -> DataFrame:
    """Return a stream with the batches without rows that Spark would run.

    Parameters
    ----------
    stream
        The input of the query.
    checkpoint
        Its checkpoint.
    last
        The last batch; the caller sets it.
    modes
        Time modes of the operators of the query; empty where no batch without rows may run.
    paced
        Whether the trigger has an interval. Without one, batches for processing-time timers are a second apart.
    """
    spark = stream.sparkSession
    source = f"{NAME}_{last.name}"

    class Named(Ticks):
        @classmethod
        def name(cls) -> str:
            return source

    spark.dataSource.register(Named)
    ticks = spark.readStream.format(source).options(
        checkpoint=checkpoint, file=last.name, folder=last.folder, modes=" ".join(modes), pace=0.0 if paced else _PACE
    )
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in stream.schema.fields]
    return stream.union(ticks.load().select(*nothing))
