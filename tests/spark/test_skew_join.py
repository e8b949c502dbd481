"""A join with hot keys in shards gives the rows of the plain join, for every type and every kind of key."""

import re
import sys

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import functions as F
from pyspark.testing.utils import assertDataFrameEqual

from equipoise import InvalidArgumentError, MismatchError
from equipoise.adapt import Policy
from equipoise.spark import Action, advise, join
from equipoise.spark.batch.join_sizes import JOIN_TYPES, SIDES

KEYS = {
    "int": "k",
    "string": "concat('key ', k)",
    "double": "CASE WHEN k = 1 THEN double('NaN') WHEN k = 2 THEN -0.0D WHEN k = 3 THEN 0.0D ELSE k / 2 END",
    "timestamp": "timestamp_seconds(k * 86400)",
    "struct": "named_struct('a', k, 'b', if(k < 3, NULL, 'x'))",
}


@pytest.fixture(scope="module", autouse=True)
def no_broadcast(spark):
    """Small data would be broadcast and nothing be tested."""
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    yield
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)


def side(spark, rows, skew, seed, name):
    rng = np.random.default_rng(seed)
    keys = np.minimum(rng.zipf(skew, rows), 60) if skew else rng.integers(1, 60, rows)
    data = pd.DataFrame({"k": keys.astype("int32"), name: np.arange(rows)})
    return spark.createDataFrame(data).repartition(3)


@pytest.fixture(scope="module")
def hot(spark):
    return side(spark, 1500, 1.5, 1, "a").cache()


@pytest.fixture(scope="module")
def thin(spark):
    return side(spark, 60, 0, 2, "b").cache()


def keyed(df, kind="int", null_from=None):
    value = F.expr(KEYS[kind])
    if null_from is not None:
        value = F.when(F.col("k") < null_from, value)
    return df.withColumn("key", value).drop("k")


@pytest.mark.parametrize("how", JOIN_TYPES)
@pytest.mark.parametrize("split_side", ["left", "right"])
def test_every_type_of_join_gives_the_plain_rows(hot, thin, how, split_side):
    sides = (keyed(hot), keyed(thin)) if split_side == "left" else (keyed(thin), keyed(hot))
    planned = join(*sides, "key", how, 6, slots=6)
    may_split = how == "inner" or (how == "right") == (split_side == "right")
    assert (planned.advice.action is Action.SPLIT) == may_split
    assertDataFrameEqual(planned.dataframe(), sides[0].join(sides[1], "key", how))


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_kind_meet(hot, thin, kind):
    left, right = keyed(hot, kind), keyed(thin, kind)
    planned = join(left, right, ["key"], "left", 6, slots=6)
    assert planned.advice.action is Action.SPLIT
    assertDataFrameEqual(planned.dataframe(), left.join(right, "key", "left"))


@pytest.mark.parametrize("how", JOIN_TYPES)
def test_null_keys_never_match_and_are_spread(hot, thin, how):
    left, right = keyed(hot, null_from=40), keyed(thin, null_from=20)
    if how == "right":
        left, right = right, left
    planned = join(left, right, "key", how, 6, slots=6)
    assert planned.advice.action is Action.SPLIT
    assertDataFrameEqual(planned.dataframe(), left.join(right, "key", how))


def test_null_keys_alone_are_a_reason_to_place_rows(spark, thin):
    left = spark.range(3000).select(F.when(F.col("id") % 2 == 0, F.col("id") % 60).cast("int").alias("key"), "id")
    planned = join(left, keyed(thin), "key", "left", 6, slots=6)
    assert planned.advice.numbers["hash_over_ideal"] > 2
    assert planned.advice.numbers["whole_over_ideal"] < 1.1
    sizes = [row["count"] for row in planned._placed(0).groupBy(F.spark_partition_id()).count().collect()]
    assert max(sizes) < 1.4 * 3000 / 6
    assertDataFrameEqual(planned.dataframe(), left.join(keyed(thin), "key", "left"))


def test_several_keys_hot_on_different_sides(spark):
    def rows(hot, n, name):
        keys = F.when(F.col("id") < n * 0.7, hot).otherwise(F.col("id") % 50 + 10)
        return spark.range(n).select(keys.alias("key"), F.col("id").alias(name), F.lit("x").alias("part"))

    left, right = rows(1, 400, "a"), rows(2, 400, "b")
    left = left.union(spark.range(3).selectExpr("2L", "id", "'x'"))
    right = right.union(spark.range(3).selectExpr("1L", "id", "'x'"))
    planned = join(left, right, ["key", "part"], "inner", 8, slots=8)
    assert sorted(planned.split_on.values()) == [0, 1]
    assertDataFrameEqual(planned.dataframe(), left.join(right, ["key", "part"]))


def test_one_exchange_a_side(spark):
    left = spark.range(3000).select(F.when(F.col("id") % 2 == 0, 0).otherwise(F.col("id")).alias("key"))
    planned = join(left, spark.range(3000).withColumnRenamed("id", "key"), "key", "inner", 6, slots=6)
    assert planned.advice.action is Action.SPLIT
    sizes = [row["count"] for row in planned._placed(0).groupBy(F.spark_partition_id()).count().collect()]
    assert max(sizes) < 1.3 * 3000 / 6, "hot and other rows alternate, and still all shards get their part"
    df = planned.dataframe()
    text = df._jdf.queryExecution().executedPlan().toString()
    assert len(re.findall(r"\bExchange ", text)) == 2


def test_without_skew_it_is_sparks_own_join(spark, capsys):
    left = spark.range(5000).select((F.col("id") % 2500).alias("key"))
    right = spark.range(2500).select(F.col("id").alias("key"), F.lit(1).alias("b"))
    planned = join(left, right, "key", numPartitions=4, slots=4)
    assert (planned.plan, planned.advice.action) == (None, Action.NOTHING)
    assert join(left, right, "key", numPartitions=4).dataframe().count() == 5000
    planned.explain()
    assert "Spark's own join" in capsys.readouterr().out


def unexpectedly_small(spark, rows):
    """A few rows, of which Spark expects millions before it has run."""
    every = 3_000_000 // rows
    return spark.range(3_000_000).where(F.col("id") % every == 0).select((F.col("id") / every).cast("int").alias("key"))


def test_a_side_that_turns_out_small_is_broadcast(spark, capsys):
    left = unexpectedly_small(spark, 4000).withColumn("a", F.lit(1))
    right = unexpectedly_small(spark, 60).withColumn("b", F.lit(2))
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "10MB")
    try:
        for how, at in (("inner", 1), ("left", 1), ("right", 0), ("anti", 1)):
            planned = join(left, right, "key", how, 6)
            assert (planned.broadcast, planned.advice.action) == (at, Action.BROADCAST)
            assertDataFrameEqual(planned.dataframe(), left.join(right, "key", how))
        planned.explain()
        assert "Spark's own join, with the right side broadcast" in capsys.readouterr().out
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")


def test_what_spark_broadcasts_is_left_to_spark_without_a_look(spark, jobs, capsys):
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "10MB")
    try:
        left, right = (spark.range(rows).withColumnRenamed("id", "key") for rows in (5_000_000, 50))
        for how, at in (("inner", "right"), ("left", "right"), ("right", "left"), ("semi", "right")):
            sides = (right, left) if at == "left" else (left, right)
            with jobs() as started:
                planned = join(*sides, "key", how, 6)
                made = planned.dataframe()
            assert started == []
            assert (planned.plan, planned.broadcast, planned.advice.action) == (None, SIDES.index(at), Action.BROADCAST)
            assert f"Spark broadcasts the {at} side by itself" in planned.advice.reason
            assert made.sameSemantics(sides[0].join(sides[1], ["key"], how))
        planned.explain()
        assert "no key was looked at" in capsys.readouterr().out
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")


def test_a_join_is_planned_from_one_job(hot, thin, jobs):
    left, right = keyed(hot), keyed(thin)
    left.count(), right.count()
    with jobs() as started:
        assert join(left, right, "key", "inner", 6, slots=6).plan is not None
    assert len(started) == 1


def test_when_measuring_fails_it_is_sparks_own_join_with_a_warning(hot, thin, monkeypatch):
    def broken(*_args, **_options):
        raise OSError("no space left")

    monkeypatch.setattr(sys.modules["equipoise.spark.batch.skew_join"], "take_samples", broken)
    planned = join(keyed(hot), keyed(thin), "key", "inner", 6)
    with pytest.warns(RuntimeWarning, match="so this is Spark's own join: no space left"):
        plan = planned.plan
    assert plan is None
    assert "no space left" in planned.advice.reason
    assertDataFrameEqual(planned.dataframe(), keyed(hot).join(keyed(thin), "key"))


def test_columns_of_one_name_beside_the_key_do_not_matter(spark):
    left, right = unexpectedly_small(spark, 4000), unexpectedly_small(spark, 60)
    twice = right.select("key", F.lit(1).alias("b"), F.lit(2).alias("b"))
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "10MB")
    try:
        planned = join(left, twice, "key", "inner", 6)
        assert planned.advice.action is Action.BROADCAST
        assert planned.dataframe().count() == left.join(twice, "key").count()
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")


def test_shards_that_are_asked_for_are_made_also_where_little_is_gained(spark):
    even = spark.range(3000).select((F.col("id") % 4).alias("key"), "id")
    other = spark.range(4).select(F.col("id").alias("key"), (F.col("id") * 2).alias("b"))
    planned = join(even, other, "key", "left", 4, split=2, slots=1)
    assert planned.advice.action is Action.SPLIT
    assert set(planned.plan.widths.values()) == {2}
    assertDataFrameEqual(planned.dataframe(), even.join(other, "key", "left"))


def test_explain_says_how_keys_are_split(hot, thin, capsys):
    join(keyed(hot), keyed(thin), "key", "inner", 6, slots=6).explain()
    text = capsys.readouterr().out
    assert "shards, split on the left" in text
    assert "split the hot keys: one key carries" in text


def test_bad_input_is_reported(hot, thin):
    left, right = keyed(hot), keyed(thin)
    for how in ("full", "outer", "full_outer"):
        with pytest.raises(InvalidArgumentError, match=r"a full outer join cannot be split: .* use Spark's own join"):
            join(left, right, "key", how)
    with pytest.raises(InvalidArgumentError, match="how must be one of inner, left, right, semi, anti, got 'cross'"):
        join(left, right, "key", "cross")
    with pytest.raises(InvalidArgumentError, match="no column 'other' to join on; there are a, key"):
        join(left, right, "other")
    with pytest.raises(MismatchError, match=r"\(int\) on the left and \(string\) on the right; cast one"):
        join(left, keyed(thin, "string"), "key")
    empty = join(left.where("false"), right, "key", "left", 4)
    assert empty.dataframe().collect() == []
    nothing = right.where("false")
    assertDataFrameEqual(join(left, nothing, "key", "left", 4, slots=4).dataframe(), left.join(nothing, "key", "left"))
    asked = join(left, right, "key", "inner", 4, split=99, slots=4)
    with pytest.warns(RuntimeWarning, match="brought into that range"):
        plan = asked.plan
    assert set(plan.widths.values()) == {4}
    assertDataFrameEqual(asked.dataframe(), left.join(right, "key"))


def test_the_numbers_are_those_of_advise(hot, thin):
    planned = join(keyed(hot), keyed(thin), "key", "left", 6, slots=6)
    asked = advise(keyed(hot), "key", operation="join", other=keyed(thin), how="left", numPartitions=6, slots=6)
    assert asked.numbers == planned.advice.numbers
    over_ideal = {"hash_over_ideal", "whole_over_ideal", "split_over_ideal"}
    assert set(asked.numbers) == {"hottest_share", "load_error", *over_ideal}
    assert str(asked) == str(planned.advice)


@pytest.mark.parametrize("mode", ["advise", "observe"])
def test_a_mode_may_leave_the_join_to_spark(hot, thin, mode, capsys):
    planned = join(keyed(hot), keyed(thin), "key", "inner", 6, policy=Policy(mode=mode), slots=6)
    text = planned.dataframe()._jdf.queryExecution().logical().toString()
    assert "__equipoise" not in text
    planned.explain()
    assert f"mode '{mode}'" in capsys.readouterr().out
    assert (planned.plan is None) == (mode == "observe")


def test_nothing_is_read_before_the_result_is_asked_for(spark, jobs):
    fails = spark.range(10).select(F.expr("raise_error('was read')").cast("int").alias("key"))
    with jobs() as started:
        planned = join(fails, fails, "key", "inner", 4)
        assert "not made yet" in planned._repr_html_()
        assert repr(planned) == "Join[inner on key, numPartitions: 4]"
    assert started == []
