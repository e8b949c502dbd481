"""Buffers that Spark makes of columns are those that Python makes, whatever the values, and exchanges stay few."""

import datetime as dt
import math
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from equipoise.adapt import Combine
from equipoise.plan import Plan
from equipoise.spark import batch_log
from equipoise.spark.rows.column_aggregator import Aggregate, ColumnAggregator
from equipoise.spark.rows.columns import BUFFER, BUFFER_ROWS, GROUP, marker
from equipoise.spark.rows.runs import plain_values
from equipoise.spark.stream.column_buffers import ColumnBuffers
from equipoise.spark.stream.jobs import SparkJobs
from equipoise.spark.stream.map_side import combined
from equipoise.spark.stream.opening import open_query
from equipoise.spark.stream.placement import RowPlacement
from equipoise.storage import Storage
from equipoise_lab.bench.prompt import _batch_spec as batch_spec

SCHEMA = (
    "k string, w timestamp, i int, l long, f float, d double, c decimal(20,3), s string, yes boolean, day date, "
    "t timestamp, n timestamp_ntz"
)
NUMBERS = ("i", "l", "f", "d", "c")
ASKED = [("count", None), *((function, name) for name in NUMBERS for function in ("count", "sum", "min", "max", "avg"))]
ASKED += [(function, name) for name in ("s", "yes", "day", "t", "n") for function in ("count", "min", "max")]


def moment_of(micros):
    return dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=micros)  # noqa: DTZ001 - it has no zone


MOMENTS = st.integers(-(10**15), 10**15).map(moment_of)
INSTANTS = MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC))
WHOLE = st.integers(-1000, 1000)  # sums of floats that do not depend on their order
ROWS = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.sampled_from([dt.datetime(2024, 10, 27, 0, minute, tzinfo=dt.UTC) for minute in (10, 50)]),
    *(
        st.none() | each
        for each in (
            st.integers(-(2**31), 2**31 - 1),
            st.integers(-(2**55), 2**55),
            WHOLE.map(float) | st.sampled_from([math.nan, -0.0]),
            WHOLE.map(float) | st.sampled_from([math.nan, 0.5]),
            st.integers(-(10**20) + 1, 10**20 - 1).map(lambda value: Decimal(value).scaleb(-3)),
            st.text("aé😀\x00 ", max_size=3),
            st.booleans(),
            st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)),
            INSTANTS,
            MOMENTS,
        )
    ),
)


def table_of(df):
    return df.toArrow().combine_chunks()


def shown(values):
    """Values as text, in which NaN equals NaN, and other values if they are equal."""
    return repr([each + 0 if isinstance(each, float) else each for each in map(_plain, values)])


def _plain(value):
    return value.normalize() + 0 if isinstance(value, Decimal) else value


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ROWS, min_size=1, max_size=40))
def test_the_buffers_of_spark_are_those_of_python(spark, conf, rows):
    with conf(spark__sql__session__timeZone="America/New_York"):
        df = spark.createDataFrame(rows, SCHEMA).repartition(3).withColumn("w", F.window("w", "30 minutes")).cache()
        made = ColumnAggregator(
            [Aggregate(function, name, f"r{at}") for at, (function, name) in enumerate(ASKED)], df.schema
        )
        found = table_of(ColumnBuffers(made, ("k", "w"))(df))
        read = table_of(df)
        df.unpersist()
    expected, keys = {}, plain_keys(read)
    for key in set(keys):
        own = read.filter(pa.array([each == key for each in keys]))
        expected[key] = own.num_rows, shown(made.reduce(made.zero(), own))
    buffers = [shown(values) for values in plain_values(found.column(BUFFER))]
    assert (
        dict(zip(plain_keys(found), zip(found.column(BUFFER_ROWS).to_pylist(), buffers, strict=True), strict=True))
        == expected
    )


def plain_keys(table):
    return list(zip(table["k"].to_pylist(), plain_values(table["w"]), strict=True))


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_sum_that_does_not_fit_is_an_error_in_either_mode(spark, conf, ansi):
    with conf(spark__sql__ansi__enabled=ansi):
        df = spark.createDataFrame([("a", 2**62)] * 3, "k string, l long")
        made = ColumnAggregator([Aggregate("sum", "l", "total")], df.schema)
        with pytest.raises(PySparkException, match="the sum of l in a batch does not fit into bigint; cast the column"):
            ColumnBuffers(made, ("k",))(df).collect()


@pytest.mark.parametrize("combine", ["auto", "always", "never"])
def test_each_key_arrives_as_one_row(feed, ours, spark, combine):
    few = [(f"k{number % 10}", number) for number in range(1000)]
    source = feed("k string, v long", few, [(f"k{number}", number) for number in range(1000)])
    df = source.stream()
    made = ColumnAggregator([Aggregate("sum", "v", "total"), Aggregate("count", None, "n")], df.schema)
    found = ours(df, "k", made, made.output_schema(["k"]), 4, combine=combine, look="never")
    wanted = source.table().groupBy("k").agg(F.sum("v"), F.count("*")).collect()
    assert sorted({row[0]: tuple(row) for row in found.rows}.values()) == sorted(map(tuple, wanted))
    log = batch_log(ours.checkpoint, spark=spark).rows
    assert [(row["rows"], row["keys"]) for row in log] == [(1000, 10), (1000, 1000)]
    assert [row["sent_rows"] for row in log] == ([1000, 1000] if combine == "never" else [10, 1000])
    assert [row["combined_rows"] for row in log] == ([0, 0] if combine == "never" else [1000, 1000])


@pytest.mark.parametrize("combine", ["all", "none"])
def test_rows_cross_one_exchange(feed, keyed, conf, tmp_path, combine):
    source = feed("k string, v long", [(f"k{place % 11}", place) for place in range(90)])
    made = ColumnAggregator([Aggregate("sum", "v", "total")], source.stream().schema)
    stream = keyed(source.stream(), "k", made, made.output_schema(["k"]), 3, tailGroups=8)
    query, options = stream._pipeline.query, stream._pipeline.options
    storage = Storage(str(tmp_path / "checkpoint"))
    opened = open_query(storage, query, options, print, SparkJobs, shuffle_partitions=4).settings
    plan, table = Plan(3, [0, 1, 2, 0, 1, 2, 0, 1], {7: 1}), source.table()
    spec = replace(batch_spec(), key_fields=[0], combine=Combine(combine))
    with conf(spark__sql__adaptive__enabled="false"):
        rows, spec, aggregate = combined(table, query.code, spec)
        placed = RowPlacement(rows, opened, plan, initial=False).placed(rows, aggregate)
        found = placed.select(F.spark_partition_id().alias("at"), GROUP, BUFFER_ROWS).collect()
        executed = placed._jdf.queryExecution().executedPlan().toString()
    assert executed.count("Exchange") == (1 if combine == "none" else 2), executed
    assert combine == "none" or executed.rindex("partial_count") > executed.rindex("Exchange"), "in the map tasks"
    assert all(row.at == (marker(row[GROUP]) if row[GROUP] < 0 else plan.tail[row[GROUP]]) for row in found)
    assert sum(row[BUFFER_ROWS] for row in found if row[GROUP] >= 0) == 90
    assert len(found) == 14
    assert spec.has_buffers
    assert spec.key_fields == [0]
