"""An aggregate with hot keys in shards gives what the same aggregate over whole keys gives."""

import math
import re
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.errors import PythonException
from pyspark.sql import functions as F
from pyspark.testing.utils import assertDataFrameEqual

from equipoise import CheckError, Histogram, InvalidArgumentError, uniform_plan
from equipoise.adapt import Policy
from equipoise.checks import check_merge
from equipoise.spark import Action, Aggregator, PartialFunction, SplitPlan, advise, balance
from equipoise.spark.batch.aggregate import aggregation
from equipoise.spark.batch.key_loads import KeyLoads
from equipoise.spark.batch.options import BatchOptions, batch_planner
from equipoise.spark.batch.sample import WeightedRows, resolve_weight, take_sample
from equipoise.spark.batch.split_plan import plan_split
from equipoise.spark.rows.keys import resolve_key
from equipoise.split import SPLITTERS, PartialKey

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

KEYS = {
    "int": "k",
    "string with NULL": "if(k = 1, NULL, concat('key ', k))",
    "double": "CASE WHEN k = 1 THEN double('NaN') WHEN k = 2 THEN -0.0D WHEN k = 3 THEN 0.0D ELSE k / 2 END",
    "timestamp": "timestamp_seconds(k * 86400)",
    "struct": "named_struct('a', k, 'b', if(k < 3, NULL, 'x'))",
    "decimal": "CAST(k AS decimal(30,4))",
}


class Moments(Aggregator):
    """Rows, sum and set of values: state of a fixed size, and state that grows."""

    bufferSchema = "n long, total long, seen array<long>"  # noqa: N815 - as Spark names schemas

    def zero(self):
        return 0, 0, []

    def reduce(self, buffer, rows):
        assert list(rows.columns) == ["key", "v"]
        n, total, seen = buffer
        return n + len(rows), total + int(rows["v"].sum()), sorted({*seen, *(rows["v"] % 7).tolist()})

    def merge(self, one, other):
        return one[0] + other[0], one[1] + other[1], sorted({*one[2], *other[2]})

    def finish(self, key, buffer):
        n, total, seen = buffer
        return None if n == 1 and total % 2 else (*key, n, total, ",".join(map(str, seen)))


def output(df):
    return f"key {df.schema['key'].dataType.simpleString()}, n long, total long, seen string"


OUTPUT = "key int, n long, total long, seen string"


def planned_aggregate(df, aggregator, schema, partitions, *, split="auto", splitter=None, check=False, **options):
    """What ``aggregate`` is going to run."""
    look = balance(df, "key", numPartitions=partitions, **options)._look
    return aggregation(look, aggregator, schema, split=split, splitter=splitter, check=check)


def aggregate(df, aggregator, schema, partitions, **options):
    return balance(df, "key", numPartitions=partitions).aggregate(aggregator, schema, **options)


def expected(df):
    found = df.groupBy("key").agg(
        F.count("*").alias("n"),
        F.sum("v").alias("total"),
        F.array_join(F.array_sort(F.collect_set(F.col("v") % 7)), ",").alias("seen"),
    )
    return found.where("NOT (n = 1 AND total % 2 = 1)").select("key", "n", "total", "seen")


@pytest.fixture(scope="module")
def rows(spark):
    rng = np.random.default_rng(5)
    data = pd.DataFrame({"k": np.minimum(rng.zipf(1.4, 4000), 200), "v": np.arange(4000)})
    return spark.createDataFrame(data.astype({"k": "int32"})).repartition(3).cache()


def keyed(rows, name="int"):
    return rows.select(F.expr(KEYS[name]).alias("key"), "v")


@pytest.mark.parametrize("name", KEYS)
def test_shards_give_what_whole_keys_give(rows, name):
    df = keyed(rows, name)
    planned = planned_aggregate(df, Moments(), output(df), 6, slots=6)
    assert planned.is_split
    assert planned.advice.action is Action.SPLIT
    assert planned.advice.numbers["split_over_ideal"] < planned.advice.numbers["whole_over_ideal"]
    assertDataFrameEqual(planned.dataframe(), expected(df))


@pytest.mark.parametrize("split", [None, 2, 6, lambda share, n: max(1, round(share * n))])
def test_shards_may_be_asked_for(rows, split):
    df = keyed(rows)
    planned = planned_aggregate(df, Moments(), OUTPUT, 6, split=split)
    assert planned.is_split is (split is not None)
    assertDataFrameEqual(planned.dataframe(), expected(df))


@pytest.mark.parametrize("splitter", SPLITTERS)
def test_every_splitter_gives_what_whole_keys_give(rows, splitter):
    df = keyed(rows)
    assertDataFrameEqual(aggregate(df, Moments(), OUTPUT, 4, splitter=splitter), expected(df))


def test_rows_of_a_hot_key_go_to_all_its_shards(spark):
    df = spark.range(0, 8000, 1, 4).select(F.when(F.col("id") % 10 < 6, 0).otherwise(F.col("id")).alias("key"))
    planned = planned_aggregate(df, Counting(), "n long", 8, slots=8)
    [width] = planned.plan.widths.values()
    assert width == 5
    placed = planned._placed()
    counts = [row["count"] for row in placed.groupBy("__equipoise_group").count().collect()]
    assert len(counts) == 8
    assert max(counts) <= 1.1 * 1000
    assert max(planned.plan.loads) * 8 == pytest.approx(max(counts) / 1000, abs=0.1)


class Counting(Aggregator):
    bufferSchema = "n long"  # noqa: N815 - as Spark names schemas

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + len(rows),)

    def finish(self, key, buffer):  # noqa: ARG002 - the name belongs to the protocol
        return buffer

    def merge(self, one, other):
        return (one[0] + other[0],)


class Whole(Counting):
    """Has no merge."""

    merge = Aggregator.merge


def test_an_aggregator_without_merge_stays_whole(rows):
    df = keyed(rows)
    for asked in ({"split": 3}, {"splitter": "partial-key"}):
        with pytest.raises(InvalidArgumentError, match="Whole has no merge"):
            planned_aggregate(df, Whole(), "n long", 4, **asked)
    planned = planned_aggregate(df, Whole(), "n long", 4, slots=4)
    assert not planned.is_split
    assert "has no merge" in planned.reason
    assert "split_over_ideal" not in planned.advice.numbers
    assert planned.dataframe().agg(F.sum("n")).first()[0] == 4000
    with pytest.raises(InvalidArgumentError, match="Whole has no merge"):
        Whole().merge((1,), (2,))


def test_even_keys_stay_whole(spark):
    df = spark.range(0, 20_000, 1, 2).select((F.col("id") % 5000).alias("key"))
    planned = planned_aggregate(df, Counting(), "n long", 8, slots=8)
    assert not planned.is_split
    assert planned.advice.action is Action.NOTHING
    assert {row.n for row in planned.dataframe().collect()} == {4}


def top(frame):
    return frame.nlargest(2, "v")[["v"]]


def arrow_top(key, table):
    assert key[0] == table["key"][0].as_py() if "key" in table.column_names else key
    return table.sort_by([("v", "descending")]).slice(0, 2).select(["v"])


@pytest.mark.parametrize(
    "function",
    [PartialFunction(top, top, "v long"), PartialFunction(arrow_top, arrow_top, "v long", arrow=True)],
    ids=["pandas", "arrow"],
)
@pytest.mark.parametrize("split", [None, 3])
def test_partial_functions_are_merged(rows, function, split):
    df = keyed(rows)
    found = aggregate(df, function, "v long", 4, split=split)
    ranked = df.toPandas().sort_values("v").groupby("key").tail(2)
    assert sorted(row.v for row in found.collect()) == sorted(ranked["v"].tolist())


@pytest.mark.parametrize("arrow", [False, True])
def test_a_partial_function_that_returns_something_else_is_reported(rows, arrow):
    function = PartialFunction(lambda rows: 7, top, "v long", arrow=arrow)  # noqa: ARG005 - it looks at nothing
    with pytest.raises(PythonException, match=r"the function must return a (DataFrame|Table), got int"):
        aggregate(keyed(rows), function, "v long", 4).collect()
    wrong = PartialFunction(
        lambda rows: rows.rename(columns={"v": "w"}) if not arrow else rows.rename_columns(["key", "w"]),
        top,
        "v long",
        arrow=arrow,
    )
    with pytest.raises(PythonException, match="v is missing"):
        aggregate(keyed(rows), wrong, "v long", 4).collect()


class Failing(Counting):
    def reduce(self, buffer, rows):  # noqa: ARG002 - the names belong to the protocol
        raise ZeroDivisionError("of the user's own")


def test_when_measuring_fails_keys_go_by_hash_with_a_warning(rows, monkeypatch):
    def broken(*_args, **_options):
        raise OSError("no space left")

    monkeypatch.setattr("equipoise.spark.batch.look.take_sample", broken)
    df = keyed(rows, "int")
    with pytest.warns(RuntimeWarning, match="keys go by hash: no space left"):
        planned = planned_aggregate(df, Moments(), output(df), 4)
    assert planned.advice is None
    assert "could not be measured: no space left" in planned.reason
    assertDataFrameEqual(planned.dataframe(), expected(df))


class HourOfKey(Moments):
    """The hour that a key, a point in time, is shown with."""

    def finish(self, key, buffer):  # noqa: ARG002 - the name belongs to the protocol
        return (key[0].hour,)


def test_a_time_zone_may_be_an_offset(spark, rows):
    df = keyed(rows, "timestamp")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "+01:00")
    try:
        hours = aggregate(df, HourOfKey(), "hour long", 4, split=None).distinct().collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert [row.hour for row in hours] == [1]


def test_keys_that_cannot_be_distinguished_by_bytes_are_refused_before_anything_runs(spark):
    df = spark.sql("SELECT INTERVAL '1' YEAR AS key, 1L AS v")
    with pytest.raises(InvalidArgumentError, match="key"):
        planned_aggregate(df, Moments(), "n long", 4)


def test_the_users_own_error_is_reported(rows):
    with pytest.raises(PythonException, match=r"reduce failed: ZeroDivisionError: of the user's own(.|\n)*in reduce"):
        aggregate(keyed(rows), Failing(), "n long", 4).collect()


class Last(Counting):
    """Keeps the last of two: not commutative."""

    def reduce(self, buffer, rows):  # noqa: ARG002 - the name belongs to the protocol
        return (int(rows["v"].iloc[-1]),)

    def merge(self, one, other):
        return other if other != (0,) else one


class Halving(Counting):
    """The mean of two means: not associative."""

    bufferSchema = "mean double"  # noqa: N815 - as Spark names schemas

    def zero(self):
        return (math.nan,)

    def reduce(self, buffer, rows):
        mean = float(rows["v"].mean())
        return (mean if math.isnan(buffer[0]) else (buffer[0] + mean) / 2,)

    def merge(self, one, other):
        if math.isnan(one[0]):
            return other
        return one if math.isnan(other[0]) else ((one[0] + other[0]) / 2,)


@pytest.mark.parametrize(
    ("aggregator", "law"), [(Last(), r"merge\(a, b\) == merge\(b, a\)"), (Halving(), r"merge\(merge\(a, b\), c\)")]
)
def test_a_merge_that_breaks_its_laws_is_reported_when_asked(rows, aggregator, law):
    with pytest.raises(CheckError, match=law):
        planned_aggregate(keyed(rows), aggregator, "n long", 4, check=True)
    with pytest.raises(InvalidArgumentError, match="check=True is for an Aggregator"):
        planned_aggregate(keyed(rows), PartialFunction(top, top, "v long"), "v long", 4, check=True)
    planned_aggregate(keyed(rows), Moments(), OUTPUT, 4, check=True)
    check_merge(aggregator, pd.DataFrame({"v": []}))


def test_bad_input_is_reported(rows):
    df = keyed(rows)
    with pytest.warns(RuntimeWarning, match=r"1 to 4 shards.*\[9\] were asked for"):
        planned = planned_aggregate(df, Moments(), OUTPUT, 4, split=9)
    assert set(planned.plan.widths.values()) == {4}
    with pytest.warns(RuntimeWarning, match=r"\[0\] were asked for"):
        assert not planned_aggregate(df, Moments(), OUTPUT, 4, split=lambda share, n: 0).is_split  # noqa: ARG005
    for wrong, message in (("some", "split must be 'auto'"), (True, "split must be 'auto'")):
        with pytest.raises(InvalidArgumentError, match=message):
            planned_aggregate(df, Moments(), OUTPUT, 4, split=wrong)
    with pytest.raises(InvalidArgumentError, match="the splitter has 3 workers but numPartitions is 4"):
        planned_aggregate(df, Moments(), OUTPUT, 4, splitter=PartialKey(3))
    with pytest.raises(InvalidArgumentError, match="must be an Aggregator or a PartialFunction, got function"):
        planned_aggregate(df, top, OUTPUT, 4)
    with pytest.raises(InvalidArgumentError, match="'digit' is computed; add it with withColumn first"):
        balance(df, (F.col("key") % 10).alias("digit")).aggregate(Moments(), OUTPUT)
    with pytest.raises(InvalidArgumentError, match="'key' is computed; add it with withColumn first"):
        balance(df, (F.col("key") % 10).alias("key")).aggregate(Moments(), OUTPUT)
    with pytest.raises(InvalidArgumentError, match="split= needs measured loads"):
        planned_aggregate(df, Moments(), OUTPUT, 4, split=2, plan=uniform_plan(4))
    empty = planned_aggregate(df.where("false"), Moments(), OUTPUT, 4)
    assert empty.dataframe().collect() == []


def test_explain_says_how_keys_are_split(rows, capsys):
    groups = balance(keyed(rows), "key", numPartitions=6, slots=6)
    groups.aggregate(Moments(), OUTPUT)
    groups.aggregate(Moments(), OUTPUT, split=None)
    groups.aggregate(Moments(), OUTPUT, splitter="partial-key")
    groups.explain()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("aggregate()")]
    assert re.search(r"\d keys? in \d+ shards, reduced one by one and then merged", lines[0])
    assert "keys placed whole by the plan: no shards were needed" in lines[1]
    assert "routed row by row by partial-key into 6 partitions" in lines[2]


def test_the_plan_is_that_of_the_last_operation(rows):
    groups = balance(keyed(rows), "key", numPartitions=6, slots=6)
    whole = groups.plan
    groups.aggregate(Moments(), OUTPUT, split=3)
    assert isinstance(groups.plan, SplitPlan)
    assert set(groups.plan.widths.values()) == {3}
    groups.aggregate(Moments(), OUTPUT, split=None)
    assert groups.plan == whole
    groups.aggregate(Moments(), OUTPUT, splitter="partial-key")
    assert groups.plan is None
    groups.dataframe()
    assert groups.plan is whole
    left_alone = balance(keyed(rows), "key", numPartitions=6, slots=6, policy=Policy(mode="advise"))
    advised = left_alone.plan
    left_alone.aggregate(Moments(), OUTPUT)
    assert left_alone.plan is advised


def test_explain_gives_the_plan_and_the_advice_of_the_last_operation(rows, capsys):
    def explained():
        groups.explain()
        return dict(re.split(r"  +", line, maxsplit=1) for line in capsys.readouterr().out.strip().splitlines()[1:])

    df = keyed(rows).where("key = 1 or v % 7 = 0")
    groups = balance(df, "key", numPartitions=6, slots=6)
    groups.aggregate(Moments(), OUTPUT, split=lambda share, _: 3 if share > 0.5 else 1)
    facts = explained()
    assert facts["plan"] == "kip: 1 key in 3 shards, all others whole"
    assert "with 1 key in 3 shards" in facts["advice"]
    assert facts["aggregate()"] == "1 key in 3 shards, reduced one by one and then merged"
    assert "cannot be split" not in " ".join(facts.values())
    groups.dataframe()
    facts = explained()
    assert facts["plan"].startswith("kip, version 1: ")
    assert "shards" not in facts["advice"]
    groups.aggregate(Moments(), OUTPUT, splitter="partial-key")
    assert explained()["advice"] == "split the hot keys: the splitter partial-key was given"


def test_the_numbers_are_those_of_advise(rows):
    planned = planned_aggregate(keyed(rows), Moments(), OUTPUT, 6, slots=6)
    asked = advise(keyed(rows), "key", operation="aggregate", numPartitions=6, slots=6)
    assert asked.numbers == planned.advice.numbers
    assert str(asked) == str(planned.advice)


def test_a_given_plan_and_placement_by_hash_keep_keys_whole(rows):
    for options in ({"plan": uniform_plan(4)}, {"placement": "hash"}, {"policy": Policy(mode="advise")}):
        planned = planned_aggregate(keyed(rows), Moments(), OUTPUT, 4, **options)
        assert not planned.is_split
        assertDataFrameEqual(planned.dataframe(), expected(keyed(rows)))


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 12), st.integers(1, 12))
def test_a_plan_in_shards_is_never_slower_than_whole_keys(counts, partitions, slots):
    keys = np.repeat(np.arange(len(counts), dtype=np.int64) * 7919, counts)
    loads = KeyLoads.of(_histogram(keys), keys, np.ones(len(keys)), len(keys), float(len(keys)))
    planner = batch_planner("kip", slots)
    whole, auto = (plan_split(loads, partitions, planner, slots, split) for split in (None, "auto"))
    assert auto.loads.sum() == pytest.approx(1)
    assert auto.time(slots) <= whole.time(slots) * (1 + 1e-9)
    assert all(2 <= width <= partitions for width in auto.widths.values())


def _histogram(keys):
    found, counts = np.unique(keys, return_counts=True)
    return Histogram(found, counts / len(keys), unlisted=0.0, total=len(keys))


def test_a_sample_in_shards_carries_the_same_load(rows):
    df = keyed(rows)
    loads = take_sample(
        WeightedRows(df, resolve_key(df, "key"), resolve_weight(df, None)), BatchOptions(), 4, 2
    ).key_loads()
    hottest = int(loads.histogram.fingerprints[0])
    shards = loads.in_shards({hottest: 5})
    assert shards.group_load.sum() == pytest.approx(loads.group_load.sum())
    assert shards.histogram.shares.sum() == pytest.approx(loads.histogram.shares.sum())
    assert shards.hottest < loads.hottest


class Exact(Counting):
    """Gives what pandas would change: a large number beside a missing one, and NaN beside NULL."""

    def finish(self, key, buffer):
        return *key, None if buffer[0] % 2 else 2**53 + 1, math.nan if buffer[0] % 2 else None


@pytest.mark.parametrize("split", [None, 3])
def test_values_are_not_changed_on_the_way(spark, split):
    df = spark.range(0, 90, 1, 3).selectExpr(
        "CASE WHEN id < 60 THEN double('NaN') WHEN id < 80 THEN NULL ELSE double(id) END AS key"
    )
    found = aggregate(df, Exact(), "key double, large long, maybe double", 4, split=split).collect()
    assert len(found) == 12
    by_key = {"null" if row.key is None else "nan" if math.isnan(row.key) else row.key: row for row in found}
    assert set(by_key) == {"null", "nan", *map(float, range(80, 90))}
    assert (by_key["nan"].large, by_key["null"].maybe) == (2**53 + 1, None)
    assert by_key[80.0].large is None
    assert math.isnan(by_key[80.0].maybe)


def arrow_types(table):
    assert table.schema.field("big").type == "int64"
    assert table.schema.field("at").type.tz is not None
    return table.select(["big", "at"])


def test_arrow_functions_see_the_types_of_the_data(spark):
    df = spark.range(40).selectExpr(
        "id % 4 AS key", "if(id % 3 = 0, NULL, 9007199254740993 + id) AS big", "timestamp_seconds(id) AS at"
    )
    function = PartialFunction(arrow_types, arrow_types, "big long, at timestamp", arrow=True)
    found = aggregate(df, function, "big long, at timestamp", 4, split=2)
    assertDataFrameEqual(found, df.select("big", "at"))


def test_buffers_of_one_key_are_checked(spark):
    class Named(Counting):
        """Keeps the name of its key, which merges only with itself."""

        bufferSchema = "n long, name string"  # noqa: N815 - as Spark names schemas

        def zero(self):
            return 0, None

        def reduce(self, buffer, rows):
            return buffer[0] + len(rows), rows["key"].iloc[0]

        def merge(self, one, other):
            return one[0] + other[0], one[1] or other[1]

    df = spark.range(200).selectExpr("concat('k', id % 5) AS key")
    planned_aggregate(df, Named(), "n long, name string", 4, check=True)
