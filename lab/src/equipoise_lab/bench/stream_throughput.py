"""The same keyed state by Spark's own operators and by ours, at three sizes of a batch.

A ratio is the seconds of the peer over ours, the median over rounds in which all contenders run one after the other.
Spark's Python state takes minutes at 2,000,000 rows, so processors are compared at the smallest size only.
"""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from equipoise_lab.bench.contenders.streams import (
    SCHEMA,
    RunStream,
    Totals,
    built_in_and_row_contenders,
    stream_contenders,
    stream_settings,
)
from equipoise_lab.bench.harness import Context, Ratio, Result, median, paired
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import read_batches, scratch, write_batches
from equipoise_lab.spark_settings import settings

_PARTITIONS, _CORES = 4, 2
_FULL = ((200_000, 17_000), (2_000_000, 17_000), (2_000_000, 500_000))
_QUICK = ((20_000, 1_700), (200_000, 1_700), (200_000, 50_000))
_FLOOR = "floor"
_OF_AGGREGATES = {
    "builtin_over_jvm": ("JVM aggregation", "equipoise, built-in"),
    "vector_over_jvm": ("JVM aggregation", "equipoise, vectorised"),
}
_OF_PROCESSORS = {
    "over_tws": ("transformWithStateInPandas", "equipoise"),
    "over_apply_with_state": ("applyInPandasWithState", "equipoise"),
    "vector_over_tws": ("transformWithStateInPandas", "equipoise, vectorised"),
    "row_over_tws_row": ("transformWithState", "equipoise, rows"),
    "over_floor": (_FLOOR, "equipoise"),
}


class _Size(NamedTuple):
    rows: int
    keys: int

    @property
    def label(self) -> str:
        return f"{_short(self.rows)}_{_short(self.keys)}"


def run(context: Context) -> Result:
    """Run the contenders of each size over the same files, in turn."""
    batches, rounds = (3, 1) if context.quick else (5, 7)
    sizes = [_Size(*each) for each in (_QUICK if context.quick else _FULL)]
    contenders = stream_contenders(_PARTITIONS) | built_in_and_row_contenders(_PARTITIONS)
    metrics: dict[str, float] = {}
    samples: dict[str, object] = {"partitions": _PARTITIONS}
    with local_spark(_CORES) as spark, settings(spark, stream_settings(_PARTITIONS)):
        for size in sizes:
            with_processors = size == sizes[0]
            wanted = _OF_AGGREGATES | (_OF_PROCESSORS if with_processors else {})
            names = sorted({name for pair in wanted.values() for name in pair})
            ours = {name: contenders[name] for name in names if name != _FLOOR}
            rng = np.random.default_rng(context.seed)
            rows = [_batch(rng, size) for _ in range(batches)]
            seconds = _rounds(context, spark, ours, rows, rounds, f"stream throughput, {size.label}")
            ratios = {name: paired(seconds[peer], seconds[mine]) for name, (peer, mine) in wanted.items()}
            metrics |= {_metric(name, size): ratio.median for name, ratio in ratios.items()}
            samples[size.label] = {"seconds": seconds, "ratios": {name: _spread(each) for name, each in ratios.items()}}
    return Result(metrics, samples)


def _metric(name: str, size: _Size) -> str:
    return f"{name}_{size.label}" if name in _OF_AGGREGATES else name


def _batch(rng: np.random.Generator, size: _Size) -> dict[str, Any]:
    return {"key": rng.integers(0, size.keys, size.rows), "value": rng.integers(0, 100, size.rows)}


def _rounds(
    context: Context,
    spark: SparkSession,
    contenders: dict[str, RunStream],
    rows: list[dict[str, Any]],
    rounds: int,
    title: str,
) -> dict[str, list[float]]:
    """Return for each contender the median seconds of a batch after the first, in each round."""
    with_floor = "equipoise" in contenders
    seconds: dict[str, list[float]] = {name: [] for name in [*contenders, *([_FLOOR] if with_floor else [])]}
    with scratch() as folder, _floor(rows) as floor:
        write_batches(folder / "rows", rows)
        for number in context.track(range(rounds), title):
            for name, run_once in contenders.items():
                stream = read_batches(spark, folder / "rows", SCHEMA)
                seconds[name].append(median(run_once(stream, folder / f"{name}-{number}")[1:]))
            if with_floor:
                seconds[_FLOOR].append(median(floor.batch_seconds()[1:]))
    return seconds


class _Floor:
    """The processor's own code over the same rows in as many processes, with a dict for state and no framework.

    Parameters
    ----------
    pool
        Its processes.
    shares
        For each process its rows, batch by batch.
    """

    def __init__(self, pool: Any, shares: list[list[pd.DataFrame]]) -> None:
        self._pool = pool
        self._shares = shares

    def batch_seconds(self) -> list[float]:
        """Seconds of each batch: those of the slower process."""
        found = self._pool.map(_run_share, self._shares, chunksize=1)
        return [max(of_batch) for of_batch in zip(*found, strict=True)]


@contextmanager
def _floor(rows: list[dict[str, Any]]) -> Iterator[_Floor]:
    frames = [pd.DataFrame(each) for each in rows]
    shares = [[frame[frame["key"] % _CORES == place] for frame in frames] for place in range(_CORES)]
    with multiprocessing.get_context("spawn").Pool(_CORES) as pool:
        pool.map(_run_share, [[frame.head(1) for frame in share] for share in shares], chunksize=1)  # warm up
        yield _Floor(pool, shares)


def _run_share(frames: list[pd.DataFrame]) -> list[float]:
    """Run a processor over batches; return the seconds of each."""
    states: dict[int, tuple[int, int]] = {}
    handle = _Handle(states)
    processor = Totals()
    processor.init(handle)
    seconds = []
    for frame in frames:
        start = time.perf_counter()
        outputs: list[pd.DataFrame] = []
        for key, part in frame.groupby("key"):
            handle.key = key
            outputs += processor.handleInputRows((key,), iter((part,)), None)
        pd.concat(outputs)
        seconds.append(time.perf_counter() - start)
    return seconds


class _Handle:
    """Keeps the state of each key in a dict."""

    def __init__(self, states: dict[Any, Any]) -> None:
        self._states = states
        self.key: Any = None

    def getValueState(self, name: str, schema: str) -> "_Handle":  # noqa: N802, ARG002 - Spark's own names
        return self

    def get(self) -> Any:
        return self._states.get(self.key)

    def update(self, value: Any) -> None:
        self._states[self.key] = value


def _short(number: int) -> str:
    return f"{number // 1_000_000}m" if number >= 1_000_000 else f"{number // 1_000}k"


def _spread(ratio: Ratio) -> dict[str, float]:
    return ratio._asdict()
