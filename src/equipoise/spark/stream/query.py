"""A running stateful query, and what users can ask of it while it runs."""

import threading
from contextlib import suppress
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from equipoise.errors import EquipoiseError
from equipoise.spark.stream.query_history import QueryHistory, history
from equipoise.spark.stream.state_reader import read_state
from equipoise.spark.stream.steering import Steering
from equipoise.state.fencing import Epoch

_active: dict[str, StreamingQuery] = {}


def is_active_here(owner: str) -> bool:
    """Whether the query of an owner, started by this process, still runs."""
    query = _active.get(owner)
    return query is not None and query.isActive


class StatefulQuery(Steering):
    """A running query.

    Everything that is not named here is Spark's own: ``awaitTermination``, ``lastProgress``, ``exception`` and so on.
    Wishes are files in the checkpoint, so they can be made from another process too, and take effect with the batch
    after the next.
    """

    def __init__(self, query: StreamingQuery, epoch: Epoch, spark: SparkSession) -> None:
        super().__init__(epoch.storage)
        self._epoch = epoch
        self.query = query
        self._spark = spark
        _active[epoch.owner] = query
        self._releasing = threading.Thread(target=self._release, name="equipoise-release", daemon=True)
        self._releasing.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.query, name)

    def stop(self) -> None:
        """Stop the query and wait until it has ended and the checkpoint is free."""
        self.query.stop()
        self._releasing.join()

    def history(self) -> QueryHistory:
        """What became of every batch; see ``equipoise.spark.history``."""
        return history(self._epoch.storage.location, spark=self._spark)

    def state(self, version: int | None = None) -> DataFrame:
        """Keys and states; see ``equipoise.spark.read_state``."""
        return read_state(self._epoch.storage.location, version, spark=self._spark)

    def _release(self) -> None:
        """Say that the query has ended when it has, however it did."""
        if _has_ended(self.query):
            with suppress(EquipoiseError):  # where the checkpoint is gone there is nothing to release
                self._epoch.release()
        _active.pop(self._epoch.owner, None)


def _has_ended(query: StreamingQuery) -> bool:
    """Wait for the end of a query; false where it cannot be told, for example because the connection was lost.

    Such a query may run on. It is not released; whoever starts it again takes it over, and it is fenced off.
    """
    try:
        query.awaitTermination()
    except StreamingQueryException:  # the query's failure is for whoever waits for it
        return True
    except Exception:  # noqa: BLE001 - whatever a broken connection raises
        try:
            return not query.isActive
        except Exception:  # noqa: BLE001 - as above
            return False
    return True
