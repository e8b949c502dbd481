"""The tables: every contender on the same work."""

from functools import partial
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise_lab.bench.batch import SLOTS
from equipoise_lab.bench.contenders import grouped
from equipoise_lab.bench.contenders.contender import Contender, require_equal, timed
from equipoise_lab.bench.contenders.joins import join_contenders, sides
from equipoise_lab.bench.contenders.streams import OURS, SCHEMA, LatestTotals, stream_contenders, stream_settings
from equipoise_lab.bench.harness import Context
from equipoise_lab.bench.local_spark import as_parquet, local_spark
from equipoise_lab.bench.peers.results import Comparison
from equipoise_lab.bench.peers.sizes import Sizes
from equipoise_lab.bench.stream import read_batches, scratch, write_batches
from equipoise_lab.spark_settings import settings

_WHOLE = ("hash", "over-partitioned", "repartitionByRange", "equipoise balance")
"""Beginnings of the names of contenders that keep every key whole."""

_STREAM_CORES, _STREAM_PARTITIONS = 2, 4
_JOIN_KEYS, _HOT = 2000, 0.4
_JOINS = (
    ("hot key, other side thin", _HOT, 1, 0),
    ("hot key, other side thick", _HOT, 4, 0),
    ("hot key, rows of 3 kB", _HOT, 1, 3000),
    ("even keys", 0.0, 1, 0),
)
"""Name, share of the hot key, rows of it on the other side, and characters that a row has besides."""


def all_tables(sizes: Sizes, context: Context) -> list[Comparison]:
    """Time all tables, in two sessions of Spark: one of emulated slots and one of real work."""
    with local_spark(SLOTS) as spark:
        work = [
            *(partial(grouped_table, spark, exponent, sizes, context.seed) for exponent in sizes.skews),
            partial(cheap_table, spark, sizes, context.seed),
            *(partial(join_table, spark, *case, sizes, context.seed) for case in _JOINS[: sizes.join_cases]),
        ]
        tables = [measure() for measure in context.track(work, "peers, batch")]
    with local_spark(_STREAM_CORES) as spark, scratch() as folder:
        tables.append(stream_table(spark, folder, sizes, context))
    return tables


def grouped_contenders(
    df: DataFrame,
    partitions: int,
    slots: int,
    factors: tuple[int, ...],
    salts: tuple[int, ...],
    seconds_per_row: float,
) -> dict[str, Contender]:
    """Ways to count rows in Python, each with a service time for a row."""
    serve = grouped.waiting(seconds_per_row)

    def over(factor: int) -> Contender:
        return Contender(lambda: grouped.by_hash(df, factor * partitions, serve))

    def salted(salts: int) -> Contender:
        return Contender(lambda: grouped.by_salt(df, partitions, serve, salts))

    return {
        "hash": Contender(lambda: grouped.by_hash(df, partitions, serve)),
        **{f"over-partitioned x{factor}": over(factor) for factor in factors},
        "repartitionByRange": Contender(lambda: grouped.by_range(df, partitions, serve)),
        **{f"salted {count}": salted(count) for count in salts},
        "equipoise balance": Contender(lambda: grouped.by_balance(df, partitions, serve, slots)),
        "equipoise aggregate": Contender(lambda: grouped.by_aggregate(df, partitions, seconds_per_row, slots)),
    }


def grouped_table(spark: SparkSession, exponent: float, sizes: Sizes, seed: int) -> Comparison:
    """Grouped Python work of one skew."""
    keys = sample(zipf_shares(sizes.keys, exponent), sizes.rows, np.random.default_rng(seed))
    hottest = np.bincount(keys).max() / len(keys)
    with as_parquet(spark, {"key": keys}, SLOTS) as df:
        make = partial(grouped_contenders, df, sizes.partitions, SLOTS, sizes.factors, sizes.salts)
        seconds = timed(make, sizes.ideal * SLOTS / sizes.rows, sizes.repeats)
    skew = f"Zipf {exponent:g}" if exponent else "even keys"
    return Comparison(
        f"grouped Python function, {skew}",
        f"{sizes.rows:,} rows of {sizes.keys:,} keys, the hottest with {hottest:.0%} of them, on {sizes.partitions} "
        f"partitions and {SLOTS} emulated slots; spread evenly, the work takes {sizes.ideal:g} s. A key that stays "
        f"whole takes at least {hottest * SLOTS * sizes.ideal:.2g} s. Salting and `aggregate` cut keys, which only "
        "functions whose parts can be merged allow; the others run any function.",
        ("equipoise balance", "equipoise aggregate"),
        seconds,
        tuple(name for name in seconds if name.startswith(_WHOLE)),
    )


def cheap_table(spark: SparkSession, sizes: Sizes, seed: int) -> Comparison:
    """Grouped work that costs nothing but its handling: a count, which Spark has built in."""
    keys = sample(zipf_shares(sizes.keys, 1.2), sizes.cheap_rows, np.random.default_rng(seed))

    def make(df: DataFrame, seconds_per_row: float) -> dict[str, Contender]:
        contenders = grouped_contenders(df, sizes.partitions, SLOTS, (), (), seconds_per_row)
        return {"JVM aggregation": Contender(lambda: grouped.by_jvm(df))} | contenders

    with as_parquet(spark, {"key": keys}, SLOTS) as df:
        seconds = timed(partial(make, df), 0.0, sizes.repeats)
    return Comparison(
        "grouped count without work",
        f"{sizes.cheap_rows:,} rows of {sizes.keys:,} keys, Zipf 1.2, real work: each row is only counted. Spark's "
        "built-in aggregates combine before the shuffle, so that no key is hot after it.",
        ("equipoise balance", "equipoise aggregate"),
        seconds,
        tuple(name for name in seconds if name.startswith(_WHOLE)),
    )


def join_table(
    spark: SparkSession, name: str, hot: float, matches: int, payload: int, sizes: Sizes, seed: int
) -> Comparison:
    """A join of one kind of data."""
    rng = np.random.default_rng(seed)
    rows = sizes.join_rows
    keys = np.where(rng.random(rows) < hot, 0, rng.integers(1, _JOIN_KEYS, rows))
    with sides(spark, keys, _JOIN_KEYS, matches, payload, SLOTS, seed) as (left, right):
        make = partial(join_contenders, left, right, sizes.partitions, SLOTS, sizes.salts)
        seconds = timed(make, sizes.ideal * SLOTS / (rows * (1 + hot * (matches - 1))), sizes.repeats)
    return Comparison(
        f"join, {name}",
        f"{rows:,} rows, {hot:.0%} of them of one key, with {_JOIN_KEYS:,} keys, {matches} row{'s' * (matches > 1)} of "
        f"the hot one, on {sizes.partitions} partitions and {SLOTS} emulated slots; spread evenly, the work on the "
        f"joined rows takes {sizes.ideal:g} s. `broadcast` shuffles nothing, but needs the other side in the memory of "
        "every executor.",
        ("equipoise",),
        seconds,
    )


def stream_table(spark: SparkSession, folder: Path, sizes: Sizes, context: Context) -> Comparison:
    """Keyed state in a stream: real work on real cores."""
    rng = np.random.default_rng(context.seed)
    rows = [
        {"key": rng.integers(0, sizes.stream_keys, sizes.stream_rows), "value": rng.integers(0, 100, sizes.stream_rows)}
        for _ in range(sizes.stream_batches)
    ]
    write_batches(folder / "few", [{name: values[:1000] for name, values in batch.items()} for batch in rows])
    write_batches(folder / "rows", rows)
    contenders = stream_contenders(_STREAM_PARTITIONS)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    with settings(spark, stream_settings(_STREAM_PARTITIONS)):
        require_equal(_totals(spark, folder))
        for number in context.track(range(sizes.stream_rounds), "peers, streams"):
            for name in rng.permutation(list(contenders)).tolist():
                stream = read_batches(spark, folder / "rows", SCHEMA)
                seconds[name] += contenders[name](stream, folder / f"{name}-{number}")[1:]
    return Comparison(
        "keyed state in a stream",
        f"rows and sum of every key: batches of {sizes.stream_rows:,} rows and {sizes.stream_keys:,} keys, even, on "
        f"{_STREAM_PARTITIONS} partitions and {_STREAM_CORES} cores, real work; seconds of a batch after the first. "
        "`equipoise` runs the very class that `transformWithStateInPandas` runs. JVM aggregation runs no Python.",
        OURS,
        seconds,
    )


def _totals(spark: SparkSession, folder: Path) -> dict[str, dict[int, tuple[int, int]]]:
    """Results of every contender on a few rows."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for name in stream_contenders(_STREAM_PARTITIONS):
        sink = LatestTotals()
        run_once = stream_contenders(_STREAM_PARTITIONS, sink)[name]
        run_once(read_batches(spark, folder / "few", SCHEMA), folder / f"{name}-few")
        found[name] = sink.rows
    return found
