# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""What cannot work is refused at the start, in words that help."""

import shutil
import sys

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

from equipoise import CheckpointInUseError, InvalidArgumentError, LogBrokenError, MismatchError
from equipoise.adapt import Elastic, Policy
from equipoise.spark import VectorProcessor, read_state
from equipoise.spark.stream.user_code import UserCode

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules


class Count(StatefulProcessor):
    def __init__(self, schema="n long", ttl=None):
        self.schema = schema
        self.ttl = ttl

    def init(self, handle):
        self.n = handle.getValueState("n", self.schema, self.ttl)

    def handleInputRows(self, key, rows, timerValues):
        n = (self.n.get() or (0,))[0] + sum(map(len, rows))
        self.n.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    def close(self):
        pass


class NoSchema(VectorProcessor):
    def process(self, batch):
        return None


class Twice(Count):
    def init(self, handle):
        super().init(handle)
        super().init(handle)


OUT = "k string, n long"


@pytest.fixture(scope="module")
def stream(spark):
    made = "CAST(value AS STRING) AS k", "value AS v", "map(1, 2) AS m", "timestamp AS t", "struct(map(1, 2) AS x) AS s"
    lower = "collate('a', 'UTF8_LCASE') AS c"
    return spark.readStream.format("rate").load().selectExpr(*made, lower, "value AS `dot.ted`")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": []}, "the key has no column"),
        ({"key": "K2"}, "there is no column `K2` for the key; there are k, v, m"),
        ({"key": "m"}, "key column 'm' holds a map, which Spark can neither hash nor group by"),
        ({"key": ["k", "s"]}, "key column 's' holds a map"),
        ({"key": "c"}, "key column 'c' has collation UTF8_LCASE"),
        ({"key": "s.x"}, "holds a map"),
        ({"orderBy": "nothing"}, "orderBy column 'nothing' does not exist; there are k, v"),
        ({"orderBy": ["k", "m"]}, "orderBy column 'm' is map<int,int>, which Spark cannot sort by"),
        ({"numPartitions": 0}, "numPartitions"),
        ({"numPartitions": "many"}, "numPartitions must be a whole number of at least 1, got 'many'"),
        ({"numPartitions": 9, "tailGroups": 8}, "tailGroups 8 is below the number of partitions, 9"),
        ({"tailGroups": 0}, "tailGroups"),
        ({"elastic": Elastic(1, 20), "tailGroups": 8}, "tailGroups 8 is below .* 20"),
        (
            {"elastic": (1, 4)},
            r"elastic must be an equipoise.adapt.Elastic, for example Elastic\(1, 64\), got \(1, 4\)",
        ),
        ({"placement": "none such"}, "placement must be 'plan' or 'hash', got 'none such'"),
        ({"policy": "advise"}, r"policy must be an equipoise.adapt.Policy, .*Policy\(mode='advise'\), got 'advise'"),
        ({"timeMode": "sometimes"}, "timeMode must be one of none, processingTime, eventTime, got 'sometimes'"),
        ({"retain": 0}, "retain"),
        ({"targetSeconds": -1}, "targetSeconds"),
        ({"targetSeconds": 0}, "targetSeconds is the time that a batch may take and must exceed 0"),
        ({"processor": print}, "statefulProcessor must be a StatefulProcessor, got a builtin"),
        ({"processor": Count}, r"statefulProcessor must be .*got the class Count; give an instance, Count\(...\)"),
        ({"processor": NoSchema()}, "NoSchema has no stateSchema"),
        ({"processor": Twice()}, "init declares the state variable 'n' twice"),
        ({"processor": Count(ttl=5)}, "ttlDurationMs 5, which needs timeMode processingTime"),
        (
            {"processor": Count("n interval year to month")},
            "'n' has the type interval year to month, which state cannot",
        ),
        ({"schema": "k string, i interval year to month"}, "column 'i' has the type interval year to month"),
        ({"schema": "k string, i array<variant>"}, "column 'i' has the type variant, which outputs cannot have"),
        ({"schema": "k char(3)"}, r"column 'k' has the type char\(3\)"),
        ({"schema": StructType([])}, "the output schema has no columns"),
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(value),
)
def test_an_operator_refuses(stream, keyed, options, said):
    given = {"key": "k", "processor": Count(), "schema": OUT} | options
    given["partitions"] = given.pop("numPartitions", None)
    with pytest.raises(InvalidArgumentError, match=said):
        keyed(stream, **given)


@pytest.mark.parametrize("options", [{"mode": "maybe"}, {"planner": "none such"}], ids=["mode", "planner"])
def test_a_policy_refuses_what_it_does_not_know(options):
    with pytest.raises(InvalidArgumentError, match=r"maybe|none such"):
        Policy(**options)


def test_code_of_no_known_shape_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"processor must be a StatefulProcessor, .*got a builtin"):
        UserCode(None, print, [], "none")


def test_two_watermarks_are_refused(spark, keyed):
    rates = spark.readStream.format("rate").load()
    one, other = (rates.selectExpr("value AS k", f"timestamp AS {name}") for name in "tu")
    joined = one.withWatermark("t", "1 hour").join(other.withWatermark("u", "1 hour"), "k")
    with pytest.raises(InvalidArgumentError, match=r"a watermark on each of t, u, .*withWatermark on one column only"):
        keyed(joined, "k", Count(), OUT)


def test_a_column_with_a_dot_is_a_key_like_any_other(stream, keyed):
    keyed(stream, "dot.ted", Count(), OUT)


def test_initial_state_must_have_the_key(stream, spark, keyed):
    for initial, said in (
        (spark.createDataFrame([(1,)], "x int"), "initialState lacks the key column 'k'; it has x"),
        (
            spark.createDataFrame([(1,)], "k int"),
            "initialState has the key 'k' as int, but the stream has it as string",
        ),
        (stream, "initialState must be a batch DataFrame"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            keyed(stream, "k", Count(), OUT, initialState=initial)


def test_a_sink_must_be_callable(stream, keyed, tmp_path):
    with pytest.raises(InvalidArgumentError, match="foreachBatch needs a function of"):
        keyed(stream, "k", Count(), OUT).writeStream.foreachBatch("parquet")
    assert not list(tmp_path.iterdir())


def test_an_existing_checkpoint_must_fit(feed, ours, keyed, begin, tmp_path):
    source = feed("k string, j string, v long, t timestamp", [("a", "b", 1, None), ("b", "c", 2, None)])
    ours(source.stream(), "k", Count(), OUT)

    def refused(said, stream=None, key="k", processor=None, **options):
        given = {"partitions": 2, "tailGroups": 8} | options
        made = keyed(stream or source.stream(), key, processor or Count(), OUT, **given)
        with pytest.raises(MismatchError, match=said):
            begin(made, print, ours.checkpoint, {"availableNow": True})

    refused(r"has key \['k'\] but \['j'\] was given; a query keeps its key", key="j")
    refused(
        "has key_schema .* was given; a query keeps the types of its key", source.stream().withColumn("k", F.col("v"))
    )
    refused("has time_mode 'none' but 'processingTime' was given; timeMode is fixed", timeMode="processingTime")
    refused("has tail_groups 8 but 16 was given; tailGroups is fixed", tailGroups=16)
    refused(
        "^Count.init: state variable 'n' of this checkpoint cannot be read as it is declared now: value.n was long and "
        "is string",
        processor=Count("n string"),
    )
    refused("value.n was long and is integer", processor=Count("n int"))
    refused("value.m is new and not nullable, and earlier values lack it", processor=Count("n long, m long not null"))

    source.add([("a", "b", 1, None)])  # none of this did any harm
    assert [tuple(row) for row in ours(source.stream(), "k", Count(), OUT).rows] == [("a", 2)]
    source.add([("a", "b", 1, None)])  # nor does a watermark on another column, or other numbers of partitions
    watermarked = source.stream().withWatermark("t", "1 hour")
    assert [tuple(row) for row in ours(watermarked, "k", Count(), OUT, 5).rows] == [("a", 3)]

    source.add([("a", "b", 1, None)])  # nor where tailGroups is not named: the query has what it was created with
    sink, once = [], {"availableNow": True}
    made = keyed(source.stream(), "k", Count(), OUT, 3)
    begin(made, lambda df, _: sink.extend(df.collect()), ours.checkpoint, once).awaitTermination()
    assert [tuple(row) for row in sink] == [("a", 4)]
    with pytest.raises(InvalidArgumentError, match="was created with 8 tail groups, so it cannot use 9 partitions"):
        begin(keyed(source.stream(), "k", Count(), OUT, 9), print, ours.checkpoint, once)

    shutil.rmtree(f"{ours.checkpoint}/spark")
    with pytest.raises(
        LogBrokenError, match=r"Spark's half is missing: the log .* ends with batch 3, .*both halves, from one copy"
    ):
        ours(source.stream(), "k", Count(), OUT)
    shutil.move(f"{ours.checkpoint}/query", tmp_path)
    with pytest.raises(LogBrokenError, match=r"query is missing, but .*log exists"):
        ours(source.stream(), "k", Count(), OUT)


def test_a_checkpoint_is_for_one_query_at_a_time(feed, ours, keyed, begin, spark, collected):
    source = feed("k string, v long", [("a", 1)])
    made = keyed(source.stream(), "k", Count(), OUT, 2, tailGroups=8)
    query = begin(made, collected, ours.checkpoint)
    try:
        query.processAllAvailable()
        with pytest.raises(CheckpointInUseError, match=r"is running on .*; stop it first"):
            begin(made, print, ours.checkpoint)
        assert query.isActive
    finally:
        query.stop()
    source.add([("a", 1)])
    assert [tuple(row) for row in ours(source.stream(), "k", Count(), OUT).rows] == [("a", 2)]
    assert read_state(ours.checkpoint, spark=spark).first().n.n == 2
