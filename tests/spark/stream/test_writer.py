# ruff: noqa: N815 - as Spark names schemas
"""``writeStream``: Spark's methods; what cannot be is refused by name, and transformations are delivered once."""

import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F

from equipoise import InvalidArgumentError, UserFunctionError
from equipoise.spark import Aggregator, StreamWriter, balance
from equipoise.spark.stream import sinks
from equipoise.spark.stream.delivery import Delivery
from equipoise.spark.stream.transformed_files import TransformedFiles, write_transformed
from equipoise.storage import Storage

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules


class Count(Aggregator):
    bufferSchema = "n long"

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + len(rows),)

    def merge(self, one, other):
        return (one[0] + other[0],)

    def finish(self, key, buffer):
        return (*key, *buffer)


def counted(stream):
    return balance(stream, "k", numPartitions=2, tailGroups=8).aggregate(Count(), "k string, n long")


@pytest.fixture(scope="module")
def counts(spark):
    return counted(spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS k"))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda writer: writer.foreach(print), r"foreach\(f\) is not supported, .*use foreachBatch\(f\)"),
        (lambda writer: writer.partitionBy("k"), r"partitionBy\(k\) rewrites files, .*foreachBatch"),
        (lambda writer: writer.start("out", partitionBy=["k", "n"]), r"partitionBy\(k, n\) rewrites files"),
        (lambda writer: writer.outputMode("complete"), "outputMode 'complete' delivers the rows of all keys .*update"),
        (lambda writer: writer.start("out", outputMode="Complete"), "outputMode 'complete'"),
        (lambda writer: writer.outputMode(None), "outputMode must be 'append' or 'update', got None"),
        (lambda writer: writer.trigger(continuous="1 second"), r"trigger\(continuous=...\) runs without micro-batches"),
        (
            lambda writer: writer.trigger(),
            "trigger needs exactly one of .* availableNow, got none",
        ),
        (lambda writer: writer.trigger(once=True, availableNow=True), "got once, availableNow"),
        (lambda writer: writer.trigger(availableNow=False), "availableNow must be True"),
        (lambda writer: writer.queryName(""), "queryName must be a text that is not empty"),
        (
            lambda writer: writer.start("out"),
            r"no checkpoint, which holds its state; call option\(",
        ),
        (lambda writer: writer.start("out", format="delta", checkpointLocation="c"), "cannot write the format 'delta'"),
        (lambda writer: writer.start(checkpointLocation="c"), "the format parquet needs a path"),
        (lambda writer: writer.toTable("t", format="delta", checkpointLocation="c"), "cannot write a table of format"),
        (lambda writer: writer.start("o", checkpointLocation="c", compression="gzip"), "the option compression='gzip'"),
        (lambda writer: writer.foreachBatch(print).start("out", checkpointLocation="c"), "foreachBatch has no path"),
        (
            lambda writer: writer.foreachBatch(print).option("a", 1).start(checkpointLocation="c"),
            "foreachBatch has no option a; give it to the writer inside the function",
        ),
    ],
    ids=range(18),
)
def test_what_cannot_be_is_refused_by_name(counts, ask, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match=said):
        ask(counts.writeStream)
    assert not list(tmp_path.iterdir())


def test_of_format_and_foreachbatch_the_last_call_counts(counts):
    writer = counts.writeStream.foreachBatch(print).format("orc").option("checkpointLocation", "unused")
    with pytest.raises(InvalidArgumentError, match="cannot write the format 'orc'"):
        writer.start("out")


def test_options_are_remembered_whatever_their_case_and_the_last_counts(counts):
    writer = counts.writeStream.option("CheckpointLocation", "a").options(checkpointlocation="b", flag=True, none=None)
    assert isinstance(writer, StreamWriter)
    assert writer._options == {"checkpointlocation": "b", "flag": "true"}
    assert writer._checkpoint() == "b"


def test_the_checkpoint_of_the_session_is_joined_with_the_name_of_the_query_as_spark_does(counts, conf):
    with conf(spark__sql__streaming__checkpointLocation="/base/"):
        assert counts.writeStream.queryName("visits")._checkpoint() == "/base/visits"
        assert counts.writeStream.queryName("visits").option("checkpointLocation", "own")._checkpoint() == "own"
        with pytest.raises(InvalidArgumentError, match=r"the query has no name, .*call queryName\(name\), or option"):
            counts.writeStream._checkpoint()


def test_transformations_are_checked_at_once(counts, capfd):
    made = counts.select("k", (F.col("n") * 2).alias("twice")).where("twice > 2").withColumn("day", F.lit(1)).drop("k")
    assert made.columns == ["twice", "day"]
    assert counts.columns == ["k", "n"], "the stream itself is as it was"
    assert counts.filter(F.col("n") > 1).selectExpr("n + 1 AS m").schema.simpleString() == "struct<m:bigint>"
    assert repr(made) == "StatefulStream[twice: bigint, day: int]"
    for ask, said in (
        (lambda: counts.select("nothing"), r"select does not fit the output, .*k string, n bigint: .*nothing"),
        (
            lambda: made.where("nothing > 1"),
            "where does not fit the output, .* twice bigint, day int: ",
        ),
        (lambda: counts.transform(lambda _: 7), "transform must return a DataFrame, got a int"),
        (lambda: counts.drop("k", "n"), "drop leaves no columns"),
        (lambda: counts.transform(lambda df: df.sparkSession.readStream.format("rate").load()), "is a stream"),
    ):
        with pytest.raises(InvalidArgumentError, match=said) as caught:
            ask()
        assert "\n" not in str(caught.value)
        assert "SQLSTATE" not in str(caught.value)
    assert "errorClass" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["groupBy", "join", "agg", "distinct", "orderBy", "union", "withWatermark"])
def test_keyed_operations_on_the_output_are_refused(counts, name):
    with pytest.raises(InvalidArgumentError, match=rf"{name} needs the rows of several batches, .*transform\(f\)"):
        getattr(counts, name)("k")
    assert not hasattr(counts, name)


def test_a_query_that_has_not_started_has_no_rows(counts):
    assert not hasattr(counts, "collect")
    with pytest.raises(InvalidArgumentError, match="collect needs a result, and this query has not started"):
        counts.collect()
    with pytest.raises(AttributeError):
        counts.nothing  # noqa: B018 - looking is what fails


def ordered(df, column):
    return df.orderBy(column)


def test_rows_are_transformed_before_the_function_and_the_files(feed, spark, tmp_path):
    source = feed("k string", [(f"k{place}",) for place in range(9)], [("k1",), ("k2",), ("k2",)])
    made = (
        counted(source.stream()).where("k <> 'k0'").transform(ordered, column="k").select("n", F.upper("k").alias("K"))
    )
    given = []
    writer = made.writeStream.foreachBatch(
        lambda df, batch: given.append((batch, [tuple(row) for row in df.collect()]))
    )
    writer.option("checkpointLocation", str(tmp_path / "c1")).trigger(availableNow=True).start().awaitTermination()
    assert given == [(0, [(1, f"K{place}") for place in range(1, 9)]), (1, [(2, "K1"), (3, "K2")])]

    def to_files():
        writer = made.writeStream.format("parquet").outputMode("update").trigger(availableNow=True)
        writer.start(str(tmp_path / "out"), checkpointLocation=str(tmp_path / "c2")).awaitTermination()
        return {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    first = to_files()
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.schema == made.schema
    assert sorted(map(tuple, found.collect())) == sorted(row for _, rows in given for row in rows)
    for path in (tmp_path / "c2/spark/commits/1", tmp_path / "c2/spark/commits/.1.crc"):
        path.unlink(missing_ok=True)  # Spark died before it knew that the batch was done
    assert to_files() == first
    source.add([("k5",)])
    assert set(to_files()) > set(first)
    assert [tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).where("n = 2 AND K = 'K5'").collect()]
    assert len(list((tmp_path / "c2/outputs").iterdir())) <= 2, "what was delivered is deleted with the rest"


def test_a_table_takes_transformed_rows_too(feed, spark, tmp_path):
    name = f"writer_{tmp_path.name}".lower()
    made = counted(feed("k string", [("a",), ("b",), ("a",)]).stream()).withColumn("more", F.col("n") + 1)
    writer = made.writeStream.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True)
    try:
        writer.toTable(name, path=str(tmp_path / "table")).awaitTermination()
        assert sorted(map(tuple, spark.table(name).collect())) == [("a", 2, 3, 0), ("b", 1, 2, 0)]
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_transformation_that_fails_on_rows_is_named_and_the_batch_is_due(feed, tmp_path):
    def failing(df):
        if df.inputFiles():
            raise OSError("the list of hosts is gone")
        return df

    made = counted(feed("k string", [("a",)]).stream()).transform(failing)
    query = made.writeStream.foreachBatch(print).start(checkpointLocation=str(tmp_path / "cp"))
    said = r"^OSError in a transformation of the output \(.*test_writer.py, line \d+, in failing\): .*\n.*not delivered"
    with pytest.raises(UserFunctionError, match=said):
        query.awaitTermination()


def test_a_batch_whose_transformed_files_are_listed_is_not_transformed_again(spark, tmp_path):
    """Whoever comes first writes the list; transformations may give other bytes every time."""
    storage, asked = Storage(str(tmp_path / "cp")), []

    def rows():
        asked.append(1)
        return spark.range(100).select(F.rand().alias("x"))

    schema = spark.range(0).select(F.rand().alias("x")).toArrow().schema
    write = partial(write_transformed, schema)
    delivery = Delivery(3, 1, storage, [], rows, lambda: spark.range(0), check=lambda: None)
    for _ in range(2):
        TransformedFiles(sinks.parquet(f"{tmp_path}/out"), write).deliver(delivery)
    first = {path.name: path.read_bytes() for path in Path(tmp_path, "out").iterdir()}
    assert asked == [1]
    shutil.rmtree(tmp_path / "out")
    TransformedFiles(sinks.parquet(f"{tmp_path}/out"), write).deliver(delivery)
    assert {path.name: path.read_bytes() for path in Path(tmp_path, "out").iterdir()} == first


def test_a_driver_that_was_taken_over_delivers_nothing_transformed(spark, tmp_path):
    def taken_over():
        raise RuntimeError("another query has taken over")

    rows = spark.range(5)
    delivery = Delivery(0, 1, Storage(str(tmp_path / "cp")), [], lambda: rows, lambda: rows, check=taken_over)
    write = partial(write_transformed, rows.toArrow().schema)
    with pytest.raises(RuntimeError, match="taken over"):
        TransformedFiles(sinks.parquet(f"{tmp_path}/out"), write).deliver(delivery)
    assert not (tmp_path / "out").exists()
