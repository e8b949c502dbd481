"""Ways to keep rows and sum of every key in a stream: Spark's operators and ours."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from equipoise.spark import KeyedStream, StatefulStream, balance
from equipoise_lab.bench.stream import ONCE, TOTALS, Sink, VectorTotals, batch_seconds, discard, run_stateful

_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

SCHEMA = "key long, value long"

OURS = ("equipoise", "equipoise, vectorised")

RunStream = Callable[[DataFrame, Path], list[float]]
"""Runs a stream to its end on a checkpoint; gives the seconds of each batch."""


class Totals(StatefulProcessor):
    """Rows and sum of each key, as a user would write it for Spark."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self._state = handle.getValueState("totals", "n long, total long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803, ARG002 - Spark's own names
        """Add up."""
        n, total = self._state.get() or (0, 0)
        for frame in rows:
            n += len(frame)
            total += int(frame["value"].sum())
        self._state.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

    def close(self) -> None:
        """Nothing to clean up."""


class RowTotals(StatefulProcessor):
    """Rows and sum of each key, by Rows."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self._state = handle.getValueState("totals", "n long, total long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002 - Spark's own names
        """Add up."""
        n, total = self._state.get() or (0, 0)
        for row in rows:
            n += 1
            total += row.value
        self._state.update((n, total))
        yield Row(key=key[0], n=n, total=total)

    def close(self) -> None:
        """Nothing to clean up."""


def _with_group_state(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n, total = state.get if state.exists else (0, 0)
    for frame in frames:
        n += len(frame)
        total += int(frame["value"].sum())
    state.update((n, total))
    yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


class LatestTotals:
    """A sink that keeps the last totals of every key, to compare contenders by."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, int]] = {}

    def __call__(self, df: DataFrame, batch: int) -> None:  # noqa: ARG002 - the shape of a sink
        """Take in a batch."""
        self.rows |= {row["key"]: (row["n"], row["total"]) for row in df.collect()}


def built_in_and_row_contenders(partitions: int) -> dict[str, RunStream]:
    """Built-in aggregates by ours, and a processor of Rows by Spark and by ours."""

    def on_keys(df: DataFrame) -> KeyedStream:
        groups: KeyedStream = balance(df, "key", numPartitions=partitions)
        return groups

    return {
        "equipoise, built-in": lambda df, at: _run(on_keys(df).agg(*aggregates()), at, discard),
        "equipoise, rows": lambda df, at: _run(
            on_keys(df).transformWithState(RowTotals(), TOTALS, "Update", "None"), at, discard
        ),
        "transformWithState": lambda df, at: _run(
            df.groupBy("key").transformWithState(RowTotals(), TOTALS, "Update", "None"), at, discard
        ),
    }


def aggregates() -> list[Column]:
    """Rows and sum of a key."""
    return [F.count("*").alias("n"), F.sum("value").alias("total")]


def _run(keyed: DataFrame | StatefulStream, checkpoint: Path, sink: Sink) -> list[float]:
    """Run a stream to its end; give the seconds of each batch."""
    writer = keyed.writeStream.foreachBatch(sink).outputMode("update").trigger(**ONCE)
    return batch_seconds(writer.option("checkpointLocation", str(checkpoint)).start())


def stream_settings(partitions: int) -> dict[str, str]:
    """Settings of the session: N of Spark's operators, and the store that its Python state asks for."""
    return {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.stateStore.providerClass": _STORE,
    }


def stream_contenders(partitions: int, sink: Sink = discard) -> dict[str, RunStream]:
    """Every contender, the quickest first.

    Parameters
    ----------
    partitions
        N of ours; that of Spark's is in :func:`stream_settings`.
    sink
        What is done with the output of a batch.
    """

    def by_spark(make: Callable[[DataFrame], DataFrame]) -> RunStream:
        return lambda df, at: _run(make(df), at, sink)

    def by_ours(processor: Any) -> RunStream:
        return lambda df, at: run_stateful(df, processor, TOTALS, partitions, at, sink)

    return {
        "JVM aggregation": by_spark(lambda df: df.groupBy("key").agg(*aggregates())),
        "equipoise, vectorised": by_ours(VectorTotals()),
        "equipoise": by_ours(Totals()),
        "applyInPandasWithState": by_spark(
            lambda df: df.groupBy("key").applyInPandasWithState(
                _with_group_state, TOTALS, "n long, total long", "update", GroupStateTimeout.NoTimeout
            )
        ),
        "transformWithStateInPandas": by_spark(
            lambda df: df.groupBy("key").transformWithStateInPandas(Totals(), TOTALS, "Update", "None")
        ),
    }
