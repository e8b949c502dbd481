"""Ways to run a grouped Python function, here one that counts the rows of a key and takes a service time for each."""

import time
from collections.abc import Callable
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.adapt import Policy
from equipoise.plan import Planner
from equipoise.spark import Aggregator, balance

Serve = Callable[[pd.DataFrame], pd.DataFrame]


def waiting(seconds_per_unit: float, unit: str | None = None) -> Serve:
    """A function of a group that takes a service time for each row, or each unit of a column, and counts its rows."""

    def serve(group: pd.DataFrame) -> pd.DataFrame:
        time.sleep(seconds_per_unit * (len(group) if unit is None else float(group[unit].sum())))
        return pd.DataFrame({"key": group["key"].iloc[:1], "n": [len(group)]})

    return serve


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


def counted(df: DataFrame) -> str:
    """Schema of the result: a key and its number of rows."""
    return f"key {df.schema['key'].dataType.simpleString()}, n long"


def by_hash(df: DataFrame, partitions: int, serve: Serve) -> DataFrame:
    """Spark's own way: keys go by their hash."""
    return df.repartition(partitions, "key").groupBy("key").applyInPandas(serve, counted(df))


def by_range(df: DataFrame, partitions: int, serve: Serve) -> DataFrame:
    """Keys in order, cut where a sample of Spark's says that the parts are even."""
    return df.repartitionByRange(partitions, "key").groupBy("key").applyInPandas(serve, counted(df))


def by_salt(df: DataFrame, partitions: int, serve: Serve, salts: int) -> DataFrame:
    """Salted by hand: the rows of every key in so many parts, whose counts are added up afterwards."""
    salted = df.withColumn("salt", F.pmod(F.monotonically_increasing_id(), F.lit(salts)))
    parts = salted.repartition(partitions, "key", "salt").groupBy("key", "salt").applyInPandas(serve, counted(df))
    return parts.groupBy("key").agg(F.sum("n").alias("n"))


def by_jvm(df: DataFrame) -> DataFrame:
    """Spark's built-in aggregate, which needs no Python."""
    return df.groupBy("key").agg(F.count("*").alias("n"))


def by_balance(
    df: DataFrame, partitions: int, serve: Serve, slots: int, weight: str | None = None, planner: str | Planner = "kip"
) -> DataFrame:
    """Ours for any function: keys are packed into partitions by a sample of their loads."""
    policy = Policy(planner=planner)
    groups = balance(df, "key", numPartitions=partitions, policy=policy, weight=weight, slots=slots)
    result: DataFrame = groups.applyInPandas(serve, counted(df))
    return result


def by_aggregate(
    df: DataFrame, partitions: int, seconds_per_row: float, slots: int, split: str | None = "auto"
) -> DataFrame:
    """Ours for functions whose partial buffers can be merged: hot keys in as many shards as their load needs."""
    groups = balance(df, "key", numPartitions=partitions, slots=slots)
    result: DataFrame = groups.aggregate(SlowCount(seconds_per_row), counted(df), split=split)
    return result
