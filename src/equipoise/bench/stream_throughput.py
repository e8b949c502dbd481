"""The same keyed state by Spark's own operators and by ours: 200,000 rows and about 17,000 keys a batch."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from equipoise.bench.harness import Context, Result, median
from equipoise.bench.local_spark import local_spark
from equipoise.bench.stream import (
    ONCE,
    TOTALS,
    VectorTotals,
    batch_seconds,
    discard,
    read_batches,
    run_stateful,
    scratch,
    write_batches,
)

_ROWS, _KEYS, _PARTITIONS, _CORES = 200_000, 17_000, 4, 2
_SCHEMA = "key long, value long"
_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


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


def _with_group_state(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n, total = state.get if state.exists else (0, 0)
    for frame in frames:
        n += len(frame)
        total += int(frame["value"].sum())
    state.update((n, total))
    yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


def run(context: Context) -> Result:
    """Run every contender over the same files, in turn; medians of the batches after the first."""
    batches, rounds = (2, 1) if context.quick else (4, 3)
    rng = np.random.default_rng(context.seed)
    rows = [{"key": rng.integers(0, _KEYS, _ROWS), "value": rng.integers(0, 100, _ROWS)} for _ in range(batches)]
    with local_spark(_CORES) as spark, scratch() as folder:
        spark.conf.set("spark.sql.shuffle.partitions", _PARTITIONS)
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", _STORE)
        write_batches(folder / "rows", rows)
        contenders = _contenders()
        seconds: dict[str, list[float]] = {name: [] for name in [*contenders, "floor"]}
        for number in context.track(range(rounds), "stream throughput"):
            for name, run_once in contenders.items():
                stream = read_batches(spark, folder / "rows", _SCHEMA)
                seconds[name] += run_once(stream, folder / f"{name}-{number}")[1:]
            seconds["floor"].append(_floor(rows[-1]))
    time_of = {name: median(values) for name, values in seconds.items()}
    tws = time_of["transformWithStateInPandas"]
    metrics = {
        "over_tws": tws / time_of["equipoise"],
        "over_apply_with_state": time_of["applyInPandasWithState"] / time_of["equipoise"],
        "vector_over_tws": tws / time_of["equipoise, vectorised"],
        "vector_over_jvm": time_of["JVM aggregation"] / time_of["equipoise, vectorised"],
        "floor_over_tws": tws / time_of["floor"],
        "over_floor": time_of["equipoise"] / time_of["floor"],
    }
    return Result(metrics, {"seconds": seconds, "rows": _ROWS, "keys": _KEYS, "partitions": _PARTITIONS})


def _contenders() -> dict[str, Callable[[DataFrame, Path], list[float]]]:
    def by_spark(make: Callable[[DataFrame], DataFrame]) -> Callable[[DataFrame, Path], list[float]]:
        def run_once(stream: DataFrame, checkpoint: Path) -> list[float]:
            writer = make(stream).writeStream.foreachBatch(discard).outputMode("update").trigger(**ONCE)
            return batch_seconds(writer.option("checkpointLocation", str(checkpoint)).start())

        return run_once

    return {
        "JVM aggregation": by_spark(
            lambda df: df.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        ),
        "equipoise, vectorised": lambda df, at: run_stateful(df, VectorTotals(), TOTALS, _PARTITIONS, at),
        "equipoise": lambda df, at: run_stateful(df, Totals(), TOTALS, _PARTITIONS, at),
        "applyInPandasWithState": by_spark(
            lambda df: df.groupBy("key").applyInPandasWithState(
                _with_group_state, TOTALS, "n long, total long", "update", GroupStateTimeout.NoTimeout
            )
        ),
        "transformWithStateInPandas": by_spark(
            lambda df: df.groupBy("key").transformWithStateInPandas(Totals(), TOTALS, "Update", "None")
        ),
    }


def _floor(rows: dict[str, Any]) -> float:
    """Seconds of the processor's own pandas work, spread over the cores: frames cut and results kept, no state kept."""
    frame = pd.DataFrame(rows).sort_values("key", ignore_index=True)
    keys, starts = np.unique(frame["key"].to_numpy(), return_index=True)
    bounds = np.append(starts, len(frame)).tolist()
    processor = Totals()
    processor.init(_NoState())
    start = time.perf_counter()
    outputs = []
    for place, key in enumerate(keys.tolist()):
        part = frame.iloc[bounds[place] : bounds[place + 1]]
        outputs += list(processor.handleInputRows((key,), iter((part,)), None))
    return (time.perf_counter() - start) / _CORES


class _NoState:
    """A handle that keeps nothing."""

    def getValueState(self, name: str, schema: str) -> "_NoState":  # noqa: N802, ARG002 - Spark's own names
        return self

    def get(self) -> None:
        return None

    def update(self, value: Any) -> None:
        """Forget it."""
