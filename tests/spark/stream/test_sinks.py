"""Ready sinks, and what they do with a batch that comes again."""

import pytest
from pyspark.errors import AnalysisException

from equipoise import InvalidArgument
from equipoise.spark import sinks


def rows(spark, *values):
    return spark.createDataFrame([(value, f"text {value}") for value in values], "n long, text string")


def test_a_batch_that_comes_again_replaces_its_parquet_files(spark, tmp_path):
    sink = sinks.parquet(f"{tmp_path}/out/", compression="zstd")
    sink(rows(spark, 1, 2), 0)
    sink(rows(spark, 3), 1)
    sink(rows(spark, 3), 1)
    found = spark.read.parquet(f"{tmp_path}/out")
    assert sorted(map(tuple, found.collect())) == [(1, "text 1", 0), (2, "text 2", 0), (3, "text 3", 1)]
    assert list((tmp_path / "out" / "batch=1").glob("*.zstd.parquet"))


def test_a_batch_that_comes_again_replaces_its_partition_of_a_table(spark, tmp_path):
    name = f"table_{tmp_path.name}".lower()
    sink = sinks.table(name, path=f"{tmp_path}/table")
    try:
        for values, batch in (((1, 2), 0), ((3,), 1), ((3,), 1), ((), 2), ((1, 2), 0)):
            sink(rows(spark, *values), batch)
        assert sorted(map(tuple, spark.table(name).collect())) == [(1, "text 1", 0), (2, "text 2", 0), (3, "text 3", 1)]
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_the_console_shows_each_batch(spark, capsys):
    sinks.console(1, truncate=False)(rows(spark, 1, 2), 7)
    shown = capsys.readouterr().out
    assert "-------- batch 7 --------" in shown
    assert "|1  |text 1|" in shown
    assert "only showing top 1 row" in shown


def test_kafka_needs_to_know_where(spark):
    for servers, topic in (("", "t"), ("s:9092", "")):
        with pytest.raises(InvalidArgument, match="servers and a topic"):
            sinks.kafka(servers, topic)
    with pytest.raises(AnalysisException, match=r"(?i)failed to find data source: kafka"):
        sinks.kafka("localhost:9", "t", key="n")(rows(spark, 1), 0)
