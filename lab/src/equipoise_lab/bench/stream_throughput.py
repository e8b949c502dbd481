"""The same keyed state by Spark's own operators and by ours: 200,000 rows and about 17,000 keys a batch."""

import time
from typing import Any

import numpy as np
import pandas as pd

from equipoise_lab.bench.contenders.streams import SCHEMA, Totals, stream_contenders, stream_settings
from equipoise_lab.bench.harness import Context, Result, median
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import read_batches, scratch, write_batches
from equipoise_lab.spark_settings import settings

_ROWS, _KEYS, _PARTITIONS, _CORES = 200_000, 17_000, 4, 2


def run(context: Context) -> Result:
    """Run every contender over the same files, in turn; medians of the batches after the first."""
    batches, rounds = (2, 1) if context.quick else (4, 3)
    rng = np.random.default_rng(context.seed)
    rows = [{"key": rng.integers(0, _KEYS, _ROWS), "value": rng.integers(0, 100, _ROWS)} for _ in range(batches)]
    with local_spark(_CORES) as spark, settings(spark, stream_settings(_PARTITIONS)), scratch() as folder:
        write_batches(folder / "rows", rows)
        contenders = stream_contenders(_PARTITIONS)
        seconds: dict[str, list[float]] = {name: [] for name in [*contenders, "floor"]}
        for number in context.track(range(rounds), "stream throughput"):
            for name, run_once in contenders.items():
                stream = read_batches(spark, folder / "rows", SCHEMA)
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
