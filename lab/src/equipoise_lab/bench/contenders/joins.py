"""Ways to join on a skewed key, with a service time for each row of the result."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.spark import join
from equipoise_lab.bench.contenders.contender import Contender
from equipoise_lab.bench.local_spark import as_parquet

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


@contextmanager
def sides(
    spark: SparkSession, keys: NDArray[np.int64], distinct: int, matches: int, payload: int, files: int, seed: int
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """The two sides of a join, in files that are gone afterwards.

    Parameters
    ----------
    spark
        The session.
    keys
        Key of each row of the left side, in ``0 .. distinct - 1``.
    distinct
        Number of keys, each with one row on the right side.
    matches
        Rows of key 0, the hot one, on the right side.
    payload
        Characters that every row of the left side has besides.
    files
        Number of files of each side.
    seed
        Seed of the payload.
    """
    rng = np.random.default_rng(seed)
    columns: dict[str, NDArray[np.generic] | list[str]] = {"key": keys}
    if payload:
        columns["payload"] = [rng.bytes(payload // 2).hex() for _ in range(len(keys))]
    other = np.concatenate([np.zeros(matches, dtype=np.int64), np.arange(1, distinct)])
    with ExitStack() as stack:
        left = stack.enter_context(as_parquet(spark, columns, files))
        yield left, stack.enter_context(as_parquet(spark, {"key": other, "b": np.arange(len(other))}, files))


def join_contenders(
    left: DataFrame, right: DataFrame, partitions: int, slots: int, salts: tuple[int, ...], seconds_per_row: float
) -> dict[str, Contender]:
    """Spark's sort-merge join, its adaptive skew join, salting by hand, a broadcast, and ours.

    Parameters
    ----------
    left, right
        The sides that :func:`sides` makes.
    partitions
        N; the session's shuffle partitions for all but ours.
    slots
        Tasks that run at a time.
    salts
        Numbers of parts to salt by.
    seconds_per_row
        Service time of a row of the result.
    """

    def serve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(seconds_per_row * batch.num_rows)
            yield pa.RecordBatch.from_arrays([pa.array([batch.num_rows])], names=["n"])

    def contender(make: Callable[[], DataFrame], settings: dict[str, str]) -> Contender:
        shuffled = settings | {"spark.sql.shuffle.partitions": str(partitions)}
        no_broadcast = shuffled | {"spark.sql.autoBroadcastJoinThreshold": "-1"}
        return Contender(make, lambda df: df.mapInArrow(serve, "n long"), _digest, no_broadcast)

    def by_hand(count: int) -> DataFrame:
        one = left.withColumn("salt", F.pmod(F.monotonically_increasing_id(), F.lit(count)))
        other = right.withColumn("salt", F.explode(F.sequence(F.lit(0).cast("long"), F.lit(count - 1).cast("long"))))
        return one.join(other, ["key", "salt"])

    def salted(count: int) -> Contender:
        return contender(lambda: by_hand(count), _PLAIN)

    return {
        "plain": contender(lambda: left.join(right, "key"), _PLAIN),
        "adaptive": contender(lambda: left.join(right, "key"), _AQE),
        "equipoise": contender(lambda: join(left, right, "key", "inner", partitions, slots=slots).dataframe(), _PLAIN),
        "broadcast": contender(lambda: left.join(F.broadcast(right), "key"), _PLAIN),
    } | {f"salted {count}": salted(count) for count in salts}


def _digest(joined: DataFrame) -> DataFrame:
    return joined.groupBy("key").agg(F.count("*").alias("n"), F.sum("b").alias("b"))
