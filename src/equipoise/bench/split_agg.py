"""A Python aggregate with a hot key on 8 emulated slots: in pieces against key-grouped, and on even keys."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame

from equipoise.bench.batch import SLOTS
from equipoise.bench.harness import Context, Result, interleaved, median
from equipoise.bench.local_spark import as_parquet, local_spark, run_to_the_end, waiting
from equipoise.spark import Aggregator, aggregate

_ROWS, _KEYS, _PARTITIONS = 40_000, 300, 16
_SCHEMA = "key long, n long"


class SlowCount(Aggregator):
    """Counts rows, with a service time for each."""

    bufferSchema = "n long"  # noqa: N815 - as Spark names schemas

    def __init__(self, seconds_per_row: float) -> None:
        self.seconds_per_row = seconds_per_row

    def zero(self) -> tuple[Any, ...]:
        """No rows."""
        return (0,)

    def reduce(self, buffer: tuple[Any, ...], rows: pd.DataFrame) -> tuple[Any, ...]:
        """Wait and count."""
        time.sleep(self.seconds_per_row * len(rows))
        return (buffer[0] + len(rows),)

    def merge(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add up."""
        return (one[0] + other[0],)

    def finish(self, key: tuple[Any, ...], buffer: tuple[Any, ...]) -> tuple[Any, ...]:
        """The count."""
        return (*key, *buffer)


def run(context: Context) -> Result:
    """Time both on a hot key of 30 % and of 60 %, and on even keys; sampling and planning included."""
    rng = np.random.default_rng(context.seed)
    even = rng.integers(1, _KEYS, _ROWS)
    cases = {f"p{share:.0%}".rstrip("%"): np.where(rng.random(_ROWS) < share, 0, even) for share in (0.3, 0.6)}
    cases["even"] = even
    ideal = 2.0 if context.quick else 8.0
    seconds: dict[str, dict[str, list[float]]] = {}
    with local_spark(SLOTS) as spark:
        for name, keys in context.track(cases.items(), "split aggregate"):
            with as_parquet(spark, {"key": keys}, SLOTS) as df:
                seconds[name] = interleaved(_contenders(df, ideal * SLOTS / _ROWS), context.repeats(2, 1))
    time_of = {name: {who: median(values) for who, values in found.items()} for name, found in seconds.items()}
    metrics = {f"speedup_{name}": time_of[name]["key-grouped"] / time_of[name]["split"] for name in ("p30", "p60")}
    metrics["even_over_grouped"] = time_of["even"]["split"] / time_of["even"]["key-grouped"]
    metrics |= {f"over_ideal_{name}": found["split"] / ideal for name, found in time_of.items()}
    return Result(metrics, {"seconds": seconds, "ideal_seconds": ideal, "slots": SLOTS, "partitions": _PARTITIONS})


def _contenders(df: DataFrame, seconds_per_row: float) -> dict[str, Callable[[], object]]:
    serve, slow = waiting(seconds_per_row), SlowCount(seconds_per_row)
    grouped = df.repartition(_PARTITIONS, "key").groupBy("key")
    return {
        "key-grouped": lambda: run_to_the_end(grouped.applyInPandas(serve, "n long")),
        "split": lambda: run_to_the_end(aggregate(df, "key", slow, _SCHEMA, _PARTITIONS, slots=SLOTS)),
        "whole": lambda: run_to_the_end(aggregate(df, "key", slow, _SCHEMA, _PARTITIONS, slots=SLOTS, split=None)),
    }
