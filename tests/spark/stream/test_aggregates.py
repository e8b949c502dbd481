"""``agg`` on a stream takes the forms of pyspark, and gives Spark's names, types and results."""

import datetime as dt
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from equipoise import InvalidArgumentError
from equipoise.spark.stream.aggregates import aggregates, count_of, numbers_of

TYPES = (
    "k string, i int, `l x` long, `a.b` short, f float, d double, c decimal(8,2), s string, yes boolean, day date, "
    "t timestamp, st struct<x: int>"
)


@pytest.fixture
def stream(feed):
    return feed(TYPES).stream()


def names_and_types(aggregator):
    return [(field.name, field.dataType.simpleString()) for field in aggregator.output_schema(["k"])]


def expected(df):
    return [(field.name, field.dataType.simpleString()) for field in df.schema]


COLUMNS = {
    "sum": lambda: F.sum("i"),
    "another case": lambda: F.sum("I"),
    "a name with a space": lambda: F.sum("l x"),
    "in backticks": lambda: F.avg("`l x`"),
    "a name with a dot": lambda: F.max("`a.b`"),
    "named": lambda: F.min("i").alias("least"),
    "named oddly": lambda: F.sum("i").alias("max(f) AS `t o`"),
    "count of rows": lambda: F.count("*"),
    "count of ones": lambda: F.count(F.lit(1)),
    "count of a struct": lambda: F.count("st"),
    "mean": lambda: F.mean("f"),
    "expr": lambda: F.expr("sum(i) as x"),
    "expr of mean": lambda: F.expr("mean(d)"),
    "decimal": lambda: F.sum("c"),
    "mean of decimals": lambda: F.avg("c"),
    "date": lambda: F.max("day"),
    "timestamp": lambda: F.min("t"),
    "text": lambda: F.max("s"),
    "flag": lambda: F.max("yes"),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_a_column_has_sparks_name_and_type(stream, column):
    assert names_and_types(aggregates(stream, ["k"], column())) == expected(stream.groupBy("k").agg(column()))


def test_a_column_of_the_stream_itself_is_known(stream):
    found = aggregates(stream, ["k"], F.sum(stream["l x"]), F.max(stream.i).alias("most"))
    assert names_and_types(found) == [("k", "string"), ("sum(l x)", "bigint"), ("most", "int")]


REFUSED = {
    "distinct sum": lambda: F.sum_distinct("i"),  # its text on Classic is that of a sum
    "distinct sum with a name": lambda: F.sum_distinct("i").alias("x"),
    "distinct count": lambda: F.countDistinct("i"),
    "literal": lambda: F.min(F.lit("i")),
    "filter": lambda: F.expr("sum(i) filter (where i > 1)"),
    "filter with a name": lambda: F.expr("sum(i) filter (where i > 1) as x"),
    "field of a struct": lambda: F.max("st.x"),
    "cast": lambda: F.sum(F.col("i").cast("long")),
    "expression": lambda: F.sum(F.col("i") + 1),
    "sum of results": lambda: F.max("i") + 1,
    "another function": lambda: F.median("i"),
    "two columns": lambda: F.max_by("i", "d"),
    "unknown column": lambda: F.sum("nothing"),
    "text": lambda: "median(i)",
    "text without brackets": lambda: "count",
    "text without AS": lambda: "sum(i) total",
    "sum of rows": lambda: "sum(*)",
    "sum of ones": lambda: "sum(1)",
    "dict": lambda: {"i": "median"},
    "dict of rows": lambda: {"*": "sum"},
    "number": lambda: 7,
}


@pytest.mark.parametrize("asked", REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused_with_the_way_out(stream, asked):
    with pytest.raises(InvalidArgumentError, match=r"agg of a stream does not take .*with an Aggregator"):
        aggregates(stream, ["k"], asked())


def test_what_cannot_be_computed_says_why(stream):
    for asked, message in [
        ((), "nothing to aggregate"),
        (({"nothing": "sum"},), "there is no column 'nothing'; there are k, i"),
        (("sum(nothing)",), "there is no column 'nothing'"),
        (("sum(s)",), r"sum\(s\): the column is string"),
        (("max(st)",), r"max\(st\): the column is struct<x:int>"),
        (("sum(i)", F.sum("i")), r"two columns of the result are called 'sum\(i\)'; rename one"),
        (("sum(i) AS k",), "two columns of the result are called 'k'"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            aggregates(stream, ["k"], *asked)


def test_dicts_and_texts_give_what_pyspark_gives(stream):
    grouped = stream.groupBy("k")
    for asked in ({"i": "max", "*": "count"}, {"l x": "mean"}, {"f": "SUM"}):
        assert names_and_types(aggregates(stream, ["k"], asked)) == expected(grouped.agg(asked))
    texts = ["sum(i)", "AVG( `l x` ) as `t o`", "count(*) AS n", "count(1)", "min(`a.b`)"]
    columns = [F.expr(text) for text in texts]
    assert names_and_types(aggregates(stream, ["k"], *texts)) == expected(grouped.agg(*columns))


def test_the_methods_of_grouped_data(stream):
    numbered = stream.drop("a.b").withColumn("k", F.lit(1))  # Spark itself fails on the name with a dot
    grouped = numbered.groupBy("k")
    assert names_and_types(count_of(numbered, ["k"])) == expected(grouped.count())
    for function in ("sum", "avg", "mean", "min", "max"):
        for columns in ([], ["i"], ["l x", "d"]):
            found = numbers_of(numbered, ["k"], function, columns)
            assert names_and_types(found) == expected(getattr(grouped, function)(*columns))
    with pytest.raises(InvalidArgumentError, match="max takes numeric columns, and 's' is string"):
        numbers_of(stream, ["k"], "max", ["s"])
    with pytest.raises(InvalidArgumentError, match="there is no column 'nothing'"):
        numbers_of(stream, ["k"], "max", ["nothing"])
    with pytest.raises(InvalidArgumentError, match="there is no numeric column; there are k, s"):
        numbers_of(stream.select("k", "s"), ["k"], "sum", [])


def some_rows(batch):
    for place in range(24):
        key, i = ["a", "b", "nulls", None][place % 4], place * 7 % 11 + batch
        moment = dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC) + dt.timedelta(minutes=place * 7)
        if key == "nulls":
            yield key, *[None] * 11
        else:
            d = math.nan if key == "b" and batch == 1 else None if place == 4 else i / 8
            price = Decimal(i * 100 + batch).scaleb(-2)
            day = dt.date(2024, 1, 1 + place)
            yield key, None if place == 5 else i, 2**60 + i, i, i / 4, d, price, f"t{i}", i % 2 == 0, day, moment, (i,)


@pytest.mark.parametrize("combine", ["always", "never"])
def test_results_are_those_of_spark(feed, ours, conf, combine):
    source = feed(TYPES, *(some_rows(batch) for batch in range(3)))
    columns = ["i", "`l x`", "f", "d", "c"]
    asked = [function(name) for name in columns for function in (F.count, F.sum, F.min, F.max, F.avg)]
    asked = [each for each in asked if str(each) != str(F.sum("`l x`"))]  # does not fit into a long
    asked += [function(name) for name in ("s", "yes", "day", "t") for function in (F.count, F.min, F.max)]
    asked += [F.count("*").alias("rows"), F.count("st")]
    with conf(spark__sql__session__timeZone="Europe/Berlin"):
        stream = source.stream().drop("a.b")  # Spark's mapInArrow fails on a name with a dot
        totals = aggregates(stream, ["k"], *asked)
        mine = ours(stream, "k", totals, totals.output_schema(["k"]), combine=combine)
        theirs = source.table().groupBy("k").agg(*asked).collect()
    last = {row[0]: row for row in mine.rows}
    assert len(last) == 4
    assert {key: shown(row) for key, row in last.items()} == {row[0]: shown(row) for row in theirs}


def shown(row):
    """A row as text, in which NaN equals NaN."""
    return repr(row)


CONNECT = """
import os, sys, tempfile
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession, functions as F
from equipoise import InvalidArgumentError
from equipoise.spark.stream.aggregates import aggregates
spark = SparkSession.builder.remote("local[1]").getOrCreate()
stream = spark.readStream.schema("k string, i int, `l x` double").parquet(tempfile.mkdtemp())
taken = [F.sum("i"), F.avg("`l x`"), F.max(stream["l x"]), F.count("*"), F.min("i").alias("t o"), F.expr("max(i) as m")]
made = aggregates(stream, ["k"], *taken).output_schema(["k"])
assert made.simpleString() == stream.groupBy("k").agg(*taken).schema.simpleString(), made
for refused in (F.sum_distinct("i"), F.countDistinct("i").alias("x"), F.min(F.lit("i")), F.sum(F.col("i") + 1)):
    try:
        aggregates(stream, ["k"], refused)
        raise AssertionError(refused)
    except InvalidArgumentError:
        pass
spark.stop()
print("as on Classic")
"""


@pytest.mark.usefixtures("spark")  # asks for Java in the same words
def test_columns_of_connect_are_understood(tmp_path):
    story = Path(tmp_path / "story.py")
    story.write_text(CONNECT)
    result = subprocess.run([sys.executable, str(story)], capture_output=True, text=True, timeout=300, check=False)
    assert result.stdout.endswith("as on Classic\n"), result.stderr[-3000:]
