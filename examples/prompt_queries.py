"""The queries of the Prompt paper, over a live stream whose micro-batches are planned before they run.

Run me with `python examples/prompt_queries.py [QUERY ...]`; without names, word-count. A second stands for the slide of
each query: a minute in the taxi ride of DEBS query 2, five minutes in query 1. Every query is checked: over all
results, each row must have been counted in exactly as many windows as cover it.

Abdelhamid, Mahmood, Daghistani, Aref: Prompt: Dynamic Data-Partitioning for Distributed Micro-batch Stream Processing
Systems, SIGMOD 2020, section 6.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from equipoise.spark import Aggregator, microbatch, register

Row = tuple[Any, ...]


class Sums(Aggregator):
    """Sums of columns, and the number of rows; what falls out of a window is taken off again.

    Parameters
    ----------
    columns
        Names of the columns.
    """

    def __init__(self, *columns: str) -> None:
        self.columns = list(columns)
        self.bufferSchema = ", ".join([*(f"{name} double" for name in columns), "rows bigint"])

    def zero(self) -> Row:
        """Nothing."""
        return (*(0.0 for _ in self.columns), 0)

    def reduce(self, buffer: Row, rows: pd.DataFrame) -> Row:
        """Add rows."""
        return self.merge(buffer, (*(float(rows[name].sum()) for name in self.columns), len(rows)))

    def merge(self, one: Row, other: Row) -> Row:
        """Add up."""
        return tuple(a + b for a, b in zip(one, other, strict=True))

    def inverse(self, whole: Row, part: Row) -> Row:
        """Take off."""
        return tuple(a - b for a, b in zip(whole, part, strict=True))

    def finish(self, key: Row, buffer: Row) -> Row:
        """Key, sums, rows."""
        return (*key, *buffer)


@dataclass(frozen=True)
class Query:
    """A query over a stream.

    Parameters
    ----------
    title
        What it answers.
    rows
        Makes its stream, in the order of arrival.
    schema, key
        Of the stream.
    columns
        Columns that are summed for each key.
    slides
        Length of its window, in slides.
    map
        From the stream's rows to those that are summed.
    show
        From the sums of a window to what is shown.
    """

    title: str
    rows: Callable[[int], pa.Table]
    schema: str
    key: str
    columns: tuple[str, ...]
    slides: int
    map: Callable[[DataFrame], DataFrame] | None = None
    show: Callable[[DataFrame], DataFrame] = lambda df: df.orderBy(F.desc("rows")).limit(5)


def words(count: int) -> pa.Table:
    """Words of a text, by Zipf's law."""
    ranks = np.random.default_rng(1).zipf(1.3, count) % 5000
    return pa.table({"word": [f"word{rank}" for rank in ranks]})


def rides(count: int) -> pa.Table:
    """Taxi rides: few taxis drive much."""
    rng = np.random.default_rng(2)
    taxis = rng.zipf(1.5, count) % 800
    return pa.table({"taxi": taxis, "fare": rng.gamma(2, 6, count).round(2), "distance": rng.gamma(2, 1.5, count)})


def events(count: int) -> pa.Table:
    """Events of tasks in a cluster: few jobs have most of the tasks."""
    rng = np.random.default_rng(3)
    kinds = rng.choice(["SUBMIT", "SCHEDULE", "EVICT", "FAIL", "FINISH"], count, p=[0.4, 0.4, 0.05, 0.05, 0.1])
    return pa.table({"job": rng.zipf(1.4, count) % 2000, "kind": kinds, "cpu": rng.random(count)})


def lineitems(count: int) -> pa.Table:
    """Rows of TPC-H's lineitem, from the generator `tpchgen-cli`."""
    beside = Path(sys.executable).with_name("tpchgen-cli")
    generator = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if generator is None:
        sys.exit("the TPC-H queries need tpchgen-cli; install it with: pip install tpchgen-cli")
    with tempfile.TemporaryDirectory() as folder:
        command = [generator, "parquet", "-s", "0.01", "--tables", "lineitem", "--output-dir", folder]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - a fixed command
        table = pq.read_table(next(Path(folder).rglob("lineitem*.parquet")))
    names = {
        "l_returnflag": "flag", "l_linestatus": "status", "l_quantity": "quantity", "l_extendedprice": "price",
        "l_discount": "discount", "l_tax": "tax", "l_shipdate": "shipped",
    }  # fmt: skip
    table = table.select(list(names)).rename_columns(list(names.values())).slice(0, count)
    numbers = {name: pc.cast(table[name], pa.float64()) for name in ("quantity", "price", "discount", "tax")}
    texts = {name: pc.cast(table[name], pa.string()) for name in ("flag", "status")}
    group = pc.binary_join_element_wise(texts["flag"], texts["status"], "")
    return pa.table({"group": group, **numbers, "shipped": pc.cast(table["shipped"], pa.date32())})


_LINEITEM = "group string, quantity double, price double, discount double, tax double, shipped date"


def pricing(rows: DataFrame) -> DataFrame:
    """TPC-H query 1: prices with discount and tax."""
    discounted = F.col("price") * (1 - F.col("discount"))
    shipped = rows.where(F.col("shipped") <= F.lit("1998-09-02").cast("date"))
    return shipped.withColumn("discounted", discounted).withColumn("charge", discounted * (1 + F.col("tax")))


def forecast(rows: DataFrame) -> DataFrame:
    """TPC-H query 6: revenue that discounts cost; one key for all, split over all blocks."""
    wanted = (F.year("shipped") == 1994) & F.col("discount").between(0.05, 0.07) & (F.col("quantity") < 24)
    return (
        rows.where(wanted).withColumn("revenue", F.col("price") * F.col("discount")).withColumn("group", F.lit("all"))
    )


QUERIES = {
    "word-count": Query("words in 30 s", words, "word string", "word", (), 30),
    "top-k": Query(
        "the ten most frequent words in 30 s", words, "word string", "word", (), 30,
        show=lambda df: df.orderBy(F.desc("rows"), "word").limit(10),
    ),
    "debs-1": Query("fare of each taxi in 2 hours, every 5 minutes", rides, "taxi bigint, fare double, distance double",
                    "taxi", ("fare",), 24, show=lambda df: df.orderBy(F.desc("fare")).limit(5)),
    "debs-2": Query("distance of each taxi in 45 minutes, every minute", rides,
                    "taxi bigint, fare double, distance double", "taxi", ("distance",), 45,
                    show=lambda df: df.orderBy(F.desc("distance")).limit(5)),
    "jobs": Query("tasks and mean CPU request of each job", events, "job bigint, kind string, cpu double", "job",
                  ("cpu",), 60, show=lambda df: df.withColumn("cpu", F.col("cpu") / F.col("rows")).limit(5)),
    "kinds": Query("events of each kind", events, "job bigint, kind string, cpu double", "kind", (), 60),
    "tpch-1": Query("TPC-H query 1: pricing summary", lineitems, _LINEITEM, "group",
                    ("quantity", "price", "discounted", "charge", "discount"), 10, map=pricing),
    "tpch-6": Query("TPC-H query 6: revenue change", lineitems, _LINEITEM, "group", ("revenue",), 10, map=forecast),
}  # fmt: skip


def run(spark: SparkSession, name: str, folder: Path, *, rows: int, rate: int, slides: int, interval: float) -> bool:
    """Run a query until its stream has passed through all windows; tells whether every row counted as it should."""
    query = QUERIES[name]
    stream_rows = query.rows(rows)
    pq.write_table(stream_rows, folder / "rows.parquet")
    schema = query.schema
    register(spark)
    stream = spark.readStream.format("equipoise").options(
        schema=schema, key=query.key, spool=str(folder / "spool"), feed="replay", path=str(folder / "rows.parquet"),
        rate=rate, interval=interval, blocks=4, buckets=4,
    )  # fmt: skip
    sums = Sums(*query.columns)
    results: dict[int, pd.DataFrame] = {}

    def sink(df: DataFrame, batch: int) -> None:
        result = results[batch] = df.toPandas()  # by number: a batch may be delivered twice
        if len(result) and batch % 5 == 0:
            print(f"batch {batch}: {query.title}")
            query.show(df).show()

    kind = schema.split(query.key + " ")[1].split(",")[0]
    output = f"{query.key} {kind}, {sums.bufferSchema}"
    made = microbatch(
        stream.load(), query.key, reduce=sums, outputStructType=output, numPartitions=4, map=query.map,
        spool=str(folder / "spool"), interval=interval, window=slides * interval, slide=interval,
    )  # fmt: skip
    started = made.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint")).start()
    wanted = reference(spark, query, folder / "rows.parquet", slides)
    until = time.monotonic() + 600
    while not same(total(results), wanted) and time.monotonic() < until:
        if started.exception() is not None:
            raise started.exception()
        time.sleep(0.2)
    started.stop()
    return same(total(results), wanted)


def total(results: dict[int, pd.DataFrame]) -> dict[Any, np.ndarray]:
    """Sums over the results of all batches."""
    sums: dict[Any, np.ndarray] = {}
    for result in list(results.values()):
        for row in result.itertuples(index=False):
            sums[row[0]] = sums.get(row[0], 0.0) + np.array(row[1:], dtype=float)
    return sums


def reference(spark: SparkSession, query: Query, path: Path, slides: int) -> dict[Any, np.ndarray]:
    """Sums over all results, by Spark alone: each row is in as many windows as they are long."""
    rows = spark.read.parquet(str(path))
    rows = query.map(rows) if query.map else rows
    sums = [F.sum(name) for name in query.columns]
    grouped = rows.groupBy(query.key).agg(*sums, F.count(F.lit(1))).collect()
    return {row[0]: slides * np.array(row[1:], dtype=float) for row in grouped}


def same(found: dict[Any, np.ndarray], wanted: dict[Any, np.ndarray]) -> bool:
    """Whether sums are equal, up to rounding."""
    return found.keys() == wanted.keys() and all(np.allclose(found[key], wanted[key]) for key in wanted)


def main() -> None:
    """Run the queries that were named."""
    names = sys.argv[1:] or ["word-count"]
    unknown = [name for name in names if name not in QUERIES]
    if unknown:
        sys.exit(f"no query {unknown[0]}; there are {', '.join(QUERIES)}")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[4]").config("spark.log.level", "ERROR").getOrCreate()
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            slides = QUERIES[name].slides
            right = run(spark, name, Path(folder), rows=20_000, rate=1000, slides=slides, interval=1.0)
        print(f"{name}: same result: {right}")
    spark.stop()


if __name__ == "__main__":
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    main()
