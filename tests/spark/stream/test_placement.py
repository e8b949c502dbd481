# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""Where rows go, and in which order tasks see them, whatever Spark is set to."""

import sys

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from equipoise.plan import Plan
from equipoise.spark import read_state
from equipoise.spark.rows.columns import GROUP, marker
from equipoise.spark.stream.jobs import SparkJobs
from equipoise.spark.stream.opening import open_query
from equipoise.spark.stream.placement import RowPlacement
from equipoise.storage import Storage

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules


class InOrder(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        frames = list(rows)
        seen = [row[1:] for frame in frames for row in frame[["k", "a", "b"]].itertuples(index=False, name=None)]
        yield pd.DataFrame({"k": [key[0]], "n": [len(frames)], "seen": [repr(seen)]})

    def close(self):
        pass


@pytest.mark.parametrize("records", ["5", "10000"])
def test_rows_of_a_key_come_in_the_order_asked_for(feed, ours, conf, records):
    rows = [(f"k{place % 3}", place * 7 % 13, chr(97 + place % 5)) for place in range(78)]
    source = feed("k string, a int, b string", rows)
    with conf(spark__sql__execution__arrow__maxRecordsPerBatch=records):
        sink = ours(source.stream(), "k", InOrder(), "k string, n int, seen string", orderBy=["a", "b"])
    expected = {key: repr(sorted(row[1:] for row in rows if row[0] == key)) for key in ("k0", "k1", "k2")}
    assert {row.k: row.seen for row in sink.rows} == expected
    assert all((row.n > 1) == (records == "5") for row in sink.rows)


class Count(StatefulProcessor):
    def init(self, handle):
        self.n = handle.getValueState("n", "n long")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.n.get() or (0,))[0] + sum(map(len, rows))
        self.n.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    def close(self):
        pass


SETTINGS = [
    {"spark.sql.adaptive.enabled": "false"},
    {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.coalescePartitions.minPartitionNum": "1",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1g",
        "spark.sql.adaptive.forceApply": "true",
        "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": "true",
    },
    {"spark.sql.shuffle.partitions": "7", "spark.sql.files.maxPartitionNum": "1"},
    {"spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.CollapseRepartition"},
    {"spark.sql.ansi.enabled": "false", "spark.sql.caseSensitive": "true", "spark.sql.codegen.wholeStage": "false"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: next(iter(settings)))
def test_settings_of_spark_change_nothing(feed, ours, conf, spark, settings):
    source = feed("k string, v long", [(f"k{place % 11}", place) for place in range(90)])
    with conf(**settings):
        ours(source.stream(), "k", Count(), "k string, n long", 3)
    expected = {row.k: row.n for row in source.table().groupBy("k").agg(F.count("*").alias("n")).collect()}
    assert {row.k: row.n.n for row in read_state(ours.checkpoint, spark=spark).collect()} == expected


@pytest.mark.parametrize("settings", SETTINGS[:2], ids=["adaptive off", "adaptive on"])
def test_user_rows_are_exchanged_once(feed, keyed, conf, tmp_path, settings):
    source = feed("k string, v long", [(f"k{place % 11}", place) for place in range(90)])
    made = keyed(source.stream(), "k", Count(), "k string, n long", 3, tailGroups=8, orderBy="v")
    storage = Storage(str(tmp_path / "checkpoint"))
    query, options = made._pipeline.query, made._pipeline.options
    settings_of_query = open_query(storage, query, options, print, SparkJobs, shuffle_partitions=4).settings
    plan = Plan(3, [0, 1, 2, 0, 1, 2, 0, 1])
    table = source.table()
    with conf(**settings):
        rows = RowPlacement(table, settings_of_query, plan, initial=False).placed(table)
        rows.collect()
        executed = rows._jdf.queryExecution().executedPlan().toString().split("== Initial Plan")[0]
        found = [(row.at, row[GROUP]) for row in rows.select(F.spark_partition_id().alias("at"), GROUP).collect()]
    assert executed.startswith("AdaptiveSparkPlan") == (settings["spark.sql.adaptive.enabled"] == "true")
    assert executed.count("Exchange") == 1, executed
    assert all(at == (marker(group) if group < 0 else plan.tail[group]) for at, group in found)
    assert sorted(at for at, group in found if group < 0) == [0, 1, 2]
    assert len(found) == 93
