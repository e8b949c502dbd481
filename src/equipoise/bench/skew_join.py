"""A join with a hot key on 8 emulated slots: against plain Spark, its adaptive skew join, and salting by hand."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.bench.batch import SLOTS
from equipoise.bench.harness import Context, Result, interleaved, median
from equipoise.bench.local_spark import as_parquet, local_spark, run_to_the_end
from equipoise.spark import join

_ROWS, _KEYS, _PARTITIONS, _HOT = 40_000, 2000, 16, 0.4
_THICK = 4  # rows of the hot key on the other side where it is thick
_SALTS = (2, 4, 8, 16)
_PAYLOAD = 3000  # bytes of a row where partitions are to be large enough for the adaptive skew join
_AQE = {
    "spark.sql.adaptive.coalescePartitions.enabled": "false",  # or every peer would run as one task
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "8MB",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "4MB",
}
_PLAIN = {
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.sql.adaptive.skewJoin.enabled": "false",
}


def run(context: Context) -> Result:
    """Time every contender with the other side thin and thick, and with rows large enough for Spark to see the skew."""
    rng = np.random.default_rng(context.seed)
    keys = np.where(rng.random(_ROWS) < _HOT, 0, rng.integers(1, _KEYS, _ROWS))
    ideal = 2.0 if context.quick else 15.0
    cases = [("thin", 1, 0), ("thick", _THICK, 0), ("thin, large rows", 1, _PAYLOAD)]
    seconds: dict[str, dict[str, list[float]]] = {}
    with local_spark(SLOTS) as spark:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        spark.conf.set("spark.sql.shuffle.partitions", _PARTITIONS)
        for name, matches, payload in context.track(cases[:1] if context.quick else cases, "skew join"):
            with _sides(spark, keys, matches, payload, rng) as (left, right):
                rows = _ROWS * (1 + _HOT * (matches - 1))
                contenders = _contenders(spark, left, right, ideal * SLOTS / rows)
                seconds[name] = interleaved(contenders, context.repeats(2, 1), _contenders(spark, left, right, 0.0))
    time_of = {name: {who: median(values) for who, values in found.items()} for name, found in seconds.items()}
    over_best = {
        name: found["equipoise"] / min(found[who] for who in found if who != "equipoise")
        for name, found in time_of.items()
    }
    silent = [name for name, found in time_of.items() if found["adaptive"] > 0.9 * found["plain"]]
    metrics = {
        "over_best_peer": max(over_best.values()),
        "wins_where_aqe_silent": float(sum(over_best[name] < 1 for name in silent)),
        "cases_where_aqe_silent": float(len(silent)),
        "speedup_over_plain": min(found["plain"] / found["equipoise"] for found in time_of.values()),
    }
    return Result(metrics, {"seconds": seconds, "over_best_peer": over_best, "ideal_seconds": ideal, "slots": SLOTS})


@contextmanager
def _sides(
    spark: SparkSession, keys: NDArray[np.int64], matches: int, payload: int, rng: np.random.Generator
) -> Iterator[tuple[DataFrame, DataFrame]]:
    columns: dict[str, NDArray[np.generic] | list[str]] = {"key": keys}
    if payload:
        columns["payload"] = [rng.bytes(payload // 2).hex() for _ in range(len(keys))]
    other = np.concatenate([np.zeros(matches, dtype=np.int64), np.arange(1, _KEYS)])
    with ExitStack() as stack:
        left = stack.enter_context(as_parquet(spark, columns, SLOTS))
        yield left, stack.enter_context(as_parquet(spark, {"key": other, "b": other}, SLOTS))


def _contenders(
    spark: SparkSession, left: DataFrame, right: DataFrame, seconds_per_row: float
) -> dict[str, Callable[[], object]]:
    def serve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(seconds_per_row * batch.num_rows)
            yield pa.RecordBatch.from_arrays([pa.array([batch.num_rows])], names=["n"])

    def finish(joined: DataFrame, settings: dict[str, str]) -> None:
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            run_to_the_end(joined.mapInArrow(serve, "n long"))
        finally:
            for name in settings:
                spark.conf.unset(name)

    def salted(salts: int) -> DataFrame:
        one = left.withColumn("salt", F.pmod(F.monotonically_increasing_id(), F.lit(salts)))
        other = right.withColumn("salt", F.explode(F.sequence(F.lit(0).cast("long"), F.lit(salts - 1).cast("long"))))
        return one.join(other, ["key", "salt"])

    contenders: dict[str, Callable[[], object]] = {
        "plain": lambda: finish(left.join(right, "key"), _PLAIN),
        "adaptive": lambda: finish(left.join(right, "key"), _AQE),
        "equipoise": lambda: finish(join(left, right, "key", "inner", _PARTITIONS, slots=SLOTS), _PLAIN),
    }

    def by_hand(salts: int) -> Callable[[], object]:
        return lambda: finish(salted(salts), _PLAIN)

    return contenders | {f"salted {salts}": by_hand(salts) for salts in _SALTS}
