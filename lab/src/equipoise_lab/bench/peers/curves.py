"""The curves: how times change with rows, keys, partitions, skew, state and executors."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise_lab.bench.batch import SLOTS
from equipoise_lab.bench.contenders.contender import Contender, timed
from equipoise_lab.bench.contenders.streams import SCHEMA, stream_contenders, stream_settings
from equipoise_lab.bench.harness import Context
from equipoise_lab.bench.local_spark import as_parquet, local_spark
from equipoise_lab.bench.peers.results import Curve, Point
from equipoise_lab.bench.peers.sizes import Sizes
from equipoise_lab.bench.peers.tables import grouped_contenders
from equipoise_lab.bench.stream import read_batches, scratch, write_batches
from equipoise_lab.spark_settings import settings

_EXPONENT = 1.0
_TOUCHED = 10_000  # keys that a batch touches, or all where there are fewer
_STATE_PARTITIONS, _CORES = 4, 2
_STATEFUL = ("JVM aggregation", "equipoise, vectorised")


def all_curves(sizes: Sizes, context: Context) -> list[Curve]:
    """Measure all curves."""
    with local_spark(SLOTS) as spark:
        curves = [grouped_curve(spark, axis, sizes, context) for axis in _GROUPED]
    with local_spark(_CORES) as spark, scratch() as folder:
        curves.append(state_curve(spark, folder, sizes, context))
    return [*curves, executor_curve(sizes, context)]


_GROUPED: Mapping[str, Callable[[Sizes], tuple[float, ...]]] = {
    "rows": lambda sizes: sizes.curve_rows,
    "keys": lambda sizes: sizes.curve_keys,
    "partitions": lambda sizes: sizes.curve_partitions,
    "skew": lambda sizes: sizes.curve_skews,
}
"""Points of the curves of grouped work."""


def grouped_curve(spark: SparkSession, axis: str, sizes: Sizes, context: Context) -> Curve:
    """Grouped Python work with one of its sizes changed and the others as they are."""
    points = []
    for at in context.track(_GROUPED[axis](sizes), f"curve of {axis}"):
        chosen = {"rows": sizes.rows, "keys": sizes.keys, "partitions": sizes.partitions, "skew": _EXPONENT, axis: at}
        rows, partitions = int(chosen["rows"]), int(chosen["partitions"])
        shares = zipf_shares(int(chosen["keys"]), chosen["skew"])
        with as_parquet(spark, {"key": sample(shares, rows, np.random.default_rng(context.seed))}, SLOTS) as df:
            make = partial(grouped_contenders, df, partitions, SLOTS, sizes.curve_factors, ())
            points.append(Point(at, timed(make, sizes.curve_ideal * SLOTS / sizes.rows, sizes.curve_repeats)))
    others = {
        "rows": f"{sizes.rows:,} rows",
        "keys": f"{sizes.keys:,} keys",
        "partitions": f"{sizes.partitions} partitions",
        "skew": f"Zipf {_EXPONENT:g}",
    }
    fixed = ", ".join(text for name, text in others.items() if name != axis)
    per_row = 1000 * sizes.curve_ideal * SLOTS / sizes.rows
    return Curve(
        "Zipf exponent" if axis == "skew" else axis,
        f"Grouped Python function, otherwise {fixed}; {SLOTS} emulated slots, {per_row:.2g} ms a row.",
        points,
    )


def state_curve(spark: SparkSession, folder: Path, sizes: Sizes, context: Context) -> Curve:
    """Batches that touch some keys, with ever more keys in state."""
    rng = np.random.default_rng(context.seed)
    contenders = {name: each for name, each in stream_contenders(_STATE_PARTITIONS).items() if name in _STATEFUL}
    points = []
    for size in context.track(sizes.states, "curve of state"):
        touched = min(_TOUCHED, size)
        batches = [np.arange(size), *(rng.choice(size, touched, replace=False) for _ in range(sizes.state_batches))]
        rows = folder / f"rows-{size}"
        write_batches(rows, [{"key": keys, "value": keys % 7} for keys in batches])
        # the first batch fills the state, the second brings caches up to it
        with settings(spark, stream_settings(_STATE_PARTITIONS)):
            seconds = {
                name: run_once(read_batches(spark, rows, SCHEMA), folder / f"{name}-{size}")[2:]
                for name, run_once in contenders.items()
            }
        points.append(Point(size, seconds))
    return Curve(
        "keys in state",
        f"Rows and sum of every key; each batch touches {_TOUCHED:,} keys (all where there are fewer), on "
        f"{_STATE_PARTITIONS} partitions and {_CORES} cores, real work; seconds of a batch.",
        points,
    )


def executor_curve(sizes: Sizes, context: Context) -> Curve:
    """The same work on ever more executors, each a JVM of its own with one core."""
    keys = sample(zipf_shares(sizes.keys, _EXPONENT), sizes.rows, np.random.default_rng(context.seed))
    total = sizes.curve_ideal * SLOTS
    points = []
    for count in context.track(sizes.executors, "curve of executors"):
        with local_spark(count, executors=True) as spark, as_parquet(spark, {"key": keys}, SLOTS) as df:
            seconds = timed(partial(_on_executors, df, count), total / sizes.rows, sizes.curve_repeats)
        points.append(Point(count, seconds))
    return Curve(
        "executors",
        f"Grouped Python function, {sizes.rows:,} rows, {sizes.keys:,} keys, Zipf {_EXPONENT:g}, {total:g} s of "
        "service time in all; `local-cluster`, one core for each executor, two partitions for each.",
        points,
    )


def _on_executors(df: DataFrame, count: int, seconds_per_row: float) -> dict[str, Contender]:
    return grouped_contenders(df, 2 * count, count, (), (), seconds_per_row)
