"""A running query: Spark's query with the batch log, the state and overrides."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from equipoise.arguments import whole
from equipoise.errors import EquipoiseError, FencedError, InvalidArgumentError
from equipoise.readable import count_text
from equipoise.spark.stream.batch_log_frame import BatchLog, batch_log
from equipoise.spark.stream.failures import translated, translating
from equipoise.spark.stream.overrides import Overridable
from equipoise.spark.stream.state_reader import read_state
from equipoise.state.fencing import Epoch
from equipoise.storage import Storage

_POLL_SECONDS = 0.05
_log = logging.getLogger(__name__)
_active: dict[str, StreamingQuery] = {}


def is_active_here(owner: str) -> bool:
    """Return whether the query of an owner was started by this process and still runs."""
    query = _active.get(owner)
    return query is not None and query.isActive


class QueryStage(Overridable):
    """One keyed operator of a query: its batch log, its state and its overrides.

    Overrides are files in the checkpoint, so other processes can make them too. They take effect with the next
    batch.

    Parameters
    ----------
    storage
        Folder of the stage.
    spark
        The session.
    """

    def __init__(self, storage: Storage, spark: SparkSession) -> None:
        super().__init__(storage)
        self._location = storage.location
        self._spark = spark

    def batch_log(self) -> BatchLog:
        """Return the log of all batches; see ``equipoise.spark.batch_log``."""
        return batch_log(self._location, spark=self._spark)

    def state(self, version: int | None = None) -> DataFrame:
        """Return keys and states; see ``equipoise.spark.read_state``."""
        return read_state(self._location, version, spark=self._spark)


class StatefulQuery(QueryStage):
    """A running query. Its batch log, state and overrides are those of its first keyed operator; see ``stage``.

    All other attributes are those of Spark's query: ``lastProgress``, ``status``, ``isActive`` and so on. If a query
    failed with an error of equipoise, that error is raised, with Spark's trace below it.
    """

    def __init__(
        self,
        query: StreamingQuery,
        epochs: Sequence[Epoch],
        spark: SparkSession,
        deliver_last: Callable[[], bool] | None,
        *,
        never_idle: bool = False,
        clean_up: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(epochs[0].storage, spark)
        self._clean_up = clean_up
        self._never_idle = never_idle  # batches without rows may run at every trigger
        self._deliver_last = deliver_last
        self._stopping = False
        self._epochs = epochs
        self.query = query
        _active.update((epoch.owner, query) for epoch in epochs)
        self._releasing = threading.Thread(target=self._release, name="equipoise-release", daemon=True)
        self._releasing.start()

    def __getattr__(self, name: str) -> Any:
        if name == "query":  # not set yet: while a copy is made, or if the initialisation failed
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.query, name)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802 - Spark's own name
        """Wait for the end of the query, as Spark's method does, and raise the error that ended it."""
        with translating():
            return self.query.awaitTermination(timeout)  # type: ignore[arg-type]  # it takes fractions of a second

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's own name
        """Wait until all available rows have been processed, as Spark's method does.

        With processing-time timers Spark runs batches without rows all the time, and its own method would not return;
        this one returns after the first of them.
        """
        with translating():
            if self._never_idle:
                self._wait_for_a_batch_without_rows()
            else:
                self.query.processAllAvailable()

    def exception(self) -> PySparkException | EquipoiseError | None:
        """Return the error that ended the query; ``None`` if it runs or was stopped."""
        failure = self.query.exception()
        return None if failure is None else translated(failure)

    def stop(self) -> None:
        """Stop the query and wait until it has ended and the checkpoint is free.

        On Classic, a batch that was committed and not delivered is delivered before this returns. If that fails, a
        warning says so, and the next start delivers the batch. On Connect the sink runs on the server, and the next
        start delivers the batch.
        """
        with translating():
            if self.query.isActive:  # only ever set to true, so concurrent callers agree
                self._stopping = True
            self.query.stop()
        self._releasing.join()

    def stage(self, number: int) -> QueryStage:
        """Return a keyed operator of the query, by its position from 1."""
        if whole("number", number, 1) > len(self._epochs):
            raise InvalidArgumentError(
                f"the query has {count_text(len(self._epochs), 'stage')}, got stage {number}; give "
                f"{' or '.join(str(each + 1) for each in range(len(self._epochs)))}"
            )
        return QueryStage(self._epochs[number - 1].storage, self._spark)

    def _wait_for_a_batch_without_rows(self) -> None:
        """Wait for a batch without new rows whose offsets Spark has chosen after this call."""
        before = self.query.lastProgress
        running = -1 if before is None else before.batchId + 1
        while self.query.isActive:
            last = self.query.lastProgress
            if last is not None and last.batchId > running and not has_new_rows(last):
                return
            time.sleep(_POLL_SECONDS)
        self.query.awaitTermination()  # raises the error of the query

    def _release(self) -> None:
        """Release the checkpoint when the query has ended, however it ended."""
        if _has_ended(self.query):
            if self._clean_up is not None:
                self._clean_up()
            if self._stopping:
                self._deliver_rest()
            for epoch in reversed(self._epochs):
                with suppress(EquipoiseError):  # the checkpoint may have been deleted
                    epoch.release()
        for epoch in self._epochs:
            _active.pop(epoch.owner, None)

    def _deliver_rest(self) -> None:
        if self._deliver_last is None:
            return
        try:
            self._deliver_last()
        except FencedError as error:
            _log.warning("the last committed batch is left to the query that has taken over: %s", error)
        except Exception as error:  # noqa: BLE001 - whatever the sink raises
            _log.warning(
                "the last committed batch is not delivered; the next start delivers it: %s: %s",
                type(error).__name__,
                error,
                exc_info=True,
            )


def has_new_rows(progress: StreamingQueryProgress) -> bool:
    """Return whether a batch had new offsets of the sources; the last one, of ticks, does not count."""
    return any(source.startOffset != source.endOffset for source in progress.sources[:-1])


def _has_ended(query: StreamingQuery) -> bool:
    """Wait for the end of a query; return false if that is unknown, for example because the connection was lost.

    Such a query may still run, so its checkpoint is not released. The next start takes it over and fences it off.
    """
    try:
        query.awaitTermination()
    except StreamingQueryException:  # awaitTermination of the user raises it
        return True
    except Exception:  # noqa: BLE001 - whatever a broken connection raises
        try:
            return not query.isActive
        except Exception:  # noqa: BLE001 - as above
            return False
    return True
