# ruff: noqa: ARG002, N802, N803, N815 - the names belong to Spark's protocol
"""``balance`` on a stream: pyspark's methods with pyspark's signatures, and refusals with the way out."""

import inspect
import re
import sys

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import GroupedData
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from equipoise import InvalidArgumentError
from equipoise.adapt import Elastic, Policy
from equipoise.spark import Action, Aggregator, KeyedStream, balance
from equipoise.spark.stream.options import StreamOptions

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules


class Total(StatefulProcessor):
    """Begins with what the initial state says."""

    def init(self, handle):
        self.total = handle.getValueState("total", "v long")

    def handleInitialState(self, key, initialState, timerValues):
        self.total.update((int(initialState["v"].sum()),))

    def handleInputRows(self, key, rows, timerValues):
        total = (self.total.get() or (0,))[0] + sum(int(frame["v"].sum()) for frame in rows)
        self.total.update((total,))
        yield pd.DataFrame({"k": [key[0]], "v": [total]})

    def close(self):
        pass


@pytest.fixture(scope="module")
def rates(spark):
    return spark.readStream.format("rate").load().selectExpr("value % 3 AS k", "value AS v", "timestamp AS t")


@pytest.mark.parametrize("method", ["transformWithStateInPandas", "transformWithState", "applyInPandasWithState"])
def test_methods_have_the_arguments_of_pyspark(method):
    if not hasattr(GroupedData, method):
        pytest.skip(f"this Spark has no {method}")
    ours, theirs = (inspect.signature(getattr(kind, method)).parameters for kind in (KeyedStream, GroupedData))
    assert list(ours) == list(theirs)
    assert [each.default for each in ours.values()] == [each.default for each in theirs.values()]


@pytest.mark.parametrize(
    "method", ["apply", "applyInPandas", "applyInArrow", "cogroup", "dataframe", "window", "pivot"]
)
def test_what_only_a_batch_has_is_refused_with_the_way_out(rates, method):
    with pytest.raises(InvalidArgumentError, match=rf"{method} works on batch DataFrames, and this is a stream; use "):
        getattr(balance(rates, "k"), method)
    assert not hasattr(balance(rates, "k"), method)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        balance(rates, "k").nothing  # noqa: B018 - looking is what fails


def test_arguments_that_cannot_be_are_refused_by_name(rates):
    groups = balance(rates, "k")
    for mode, said in (("complete", "use 'update', and read all keys with read_state"), ("some", "got 'some'")):
        with pytest.raises(InvalidArgumentError, match=said):
            groups.transformWithStateInPandas(Total(), "k long, v long", mode, "none")
    with pytest.raises(InvalidArgumentError, match="eventTimeColumnName='t' needs a watermark on the input"):
        groups.transformWithStateInPandas(Total(), "k long, v long", "update", "none", None, "t")
    with pytest.raises(InvalidArgumentError, match="initialState must be a DataFrame, or a grouped one, got a list"):
        groups.transformWithStateInPandas(Total(), "k long, v long", "update", "none", [])
    with pytest.raises(
        InvalidArgumentError, match="timeoutConf EventTimeTimeout needs a watermark; call withWatermark"
    ):
        groups.applyInPandasWithState(print, "k long", "n long", "update", "EventTimeTimeout")
    with pytest.raises(InvalidArgumentError, match="aggregate needs an Aggregator, got a Total"):
        groups.aggregate(Total(), "k long, v long")
    with pytest.raises(InvalidArgumentError, match=r"process needs a VectorProcessor, got the class Total; give"):
        groups.process(Total, "k long, v long")
    with pytest.raises(InvalidArgumentError, match="the schema 'n lon g' is neither a StructType nor a DDL string"):
        groups.transformWithStateInPandas(Total(), "n lon g", "update", "none")
    for name in ("k2", "k"):
        with pytest.raises(InvalidArgumentError, match=f"stream needs key .* {name!r} is computed; add it with"):
            balance(rates, (F.col("k") + 1).alias(name))
    nested = rates.withColumn("s", F.struct(F.lit("other").alias("k")))
    with pytest.raises(InvalidArgumentError, match="'k' is computed; add it with withColumn first"):
        balance(nested, "s.k")
    assert balance(rates, F.col("k"), rates["v"]).count().columns == ["k", "v", "count"]


def test_initial_state_may_be_grouped_as_spark_takes_it(spark, feed, begin, collected, tmp_path):
    source = feed("k string, v long", [("a", 1), ("b", 2)])
    initial = spark.createDataFrame([("a", 100), ("a", 10)], "k string, v long").groupBy("k")
    groups = balance(source.stream(), "k", numPartitions=1)
    made = groups.transformWithStateInPandas(Total(), "k string, v long", "Update", "None", initial)
    begin(made, collected, tmp_path / "cp", {"availableNow": True}).awaitTermination()
    assert [tuple(row) for row in collected.rows] == [("a", 111), ("b", 2)]


def test_aggregates_by_name_keep_running(feed, begin, collected, tmp_path):
    source = feed("k string, v long, w double", [("a", 1, 0.5), ("b", 2, 1.5), ("a", 3, 2.5)], [("a", 5, 0.0)])
    groups = balance(source.stream(), "k", numPartitions=1)
    assert groups.count().columns == ["k", "count"]
    for method in ("sum", "avg", "mean", "min", "max"):
        assert len(getattr(groups, method)().columns) == 3, "all numbers but the key"
        assert len(getattr(groups, method)("w").columns) == 2
    begin(groups.count(), collected, tmp_path / "cp", {"availableNow": True}).awaitTermination()
    assert [tuple(row) for row in collected.rows] == [("a", 2), ("b", 1), ("a", 3)]


def facts_of(capsys):
    """The facts that ``explain()`` has printed, by their names."""
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "== Keyed stream =="
    return dict(re.split("  +", line, maxsplit=1) for line in lines)


def test_a_stream_says_what_it_is_going_to_do(rates, capsys):
    groups = balance(rates, "k", "v", numPartitions=4, orderBy="t", targetSeconds=2)
    assert groups.plan.partitions == 4
    assert not groups.plan.isolated
    assert groups.advice.reason.startswith("look at the keys of the first batch, and of later ones where that pays")
    groups.explain()
    facts = facts_of(capsys)
    assert facts.pop("advice") == str(groups.advice)
    assert facts.items() >= {"partitions": "4", "rows of a key": "sorted by t", "target": "2 s for each batch"}.items()
    assert facts["key"].startswith("k, v")
    assert "<caption>Keyed stream</caption>" in groups._repr_html_()
    assert "&#x27;hash&#x27;" in balance(rates, "k", placement="hash")._repr_html_()
    elastic = balance(rates, "k", numPartitions=64, elastic=Elastic(2, 16), policy=Policy("advise"))
    elastic.explain()
    assert facts_of(capsys)["partitions"] == "16 at the start, between 2 and 16 by the load"
    assert "report better plans without using them" in elastic.advice.reason
    assert elastic.advice.action is Action.MEASURE
    assert balance(rates, "k", placement="hash").advice.action is Action.NOTHING
    made = groups.transformWithStateInPandas(Total(), "k long, v long", "update", "none").where("v > 1")
    made.explain()
    facts = facts_of(capsys)
    assert facts["operator"] == "Total, time mode none"
    assert facts["transformations"].startswith("1, ")
    assert facts["output"] == "struct<k:bigint,v:bigint>"
    assert (str(made.advice), made.plan) == (str(groups.advice), groups.plan)


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


def test_one_options_object_travels_from_the_call_to_the_driver(rates):
    options = {"numPartitions": 3, "policy": Policy("observe"), "orderBy": ["t"], "tailGroups": 8, "retain": 4}
    options |= {"look": "never"}
    pipeline = balance(rates, "k", **options).aggregate(Count(), "k long, n long")._pipeline
    assert pipeline.options == StreamOptions(**options | {"orderBy": ("t",)})
    assert pipeline.query.slots is None, "rows in order are not split nor looked at, so nobody asks for the slots"


@pytest.mark.parametrize(
    ("options", "known", "groups"),
    [({}, None, 64), ({}, 32, 32), ({"numPartitions": 8}, None, 128), ({"tailGroups": 10}, None, 10)],
)
def test_tail_groups_are_as_given_else_those_of_the_query_else_by_the_partitions(options, known, groups):
    assert StreamOptions(**options).tail_groups(4, known) == groups


@pytest.mark.parametrize(("operator", "writer"), [("update", "append"), ("append", "update")])
def test_the_writer_must_have_the_output_mode_of_a_function_with_state_as_in_spark(rates, tmp_path, operator, writer):
    made = balance(rates, "k").applyInPandasWithState(print, "k long", "n long", operator, "NoTimeout")
    started = made.where("k > 1").writeStream.foreachBatch(print).option("checkpointLocation", str(tmp_path / "cp"))
    with pytest.raises(InvalidArgumentError, match=f"has outputMode '{operator}', and the writer has '{writer}'"):
        started.outputMode(writer).start()
    assert not list(tmp_path.iterdir()), "nothing has begun"


def test_the_output_mode_of_a_writer_is_append_unless_it_is_set_as_in_spark(rates, tmp_path):
    made = balance(rates, "k").applyInPandasWithState(print, "k long", "n long", "Update", "NoTimeout")
    writer = made.writeStream.foreachBatch(print).option("checkpointLocation", str(tmp_path / "cp"))
    with pytest.raises(InvalidArgumentError, match=r"the writer has 'append'; call outputMode\('update'\)"):
        writer.start()
