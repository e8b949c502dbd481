import numpy as np
import pytest
from pyspark.sql import functions as F

from equipoise import InvalidArgumentError
from equipoise.spark import Action, Operation, advise
from equipoise.spark.batch.advice import _bytes, advice_for


@pytest.fixture(scope="module")
def even(spark):
    return spark.range(40_000).withColumnRenamed("id", "k")


@pytest.fixture(scope="module")
def one_hot(spark):
    """One key with four fifths of the rows."""
    return spark.range(40_000).select(F.when(F.col("id") % 5 > 0, 0).otherwise(F.col("id")).alias("k"))


@pytest.fixture(scope="module")
def several_hot(spark):
    """Ten keys with 8 % each: every one fits a slot, but hash puts some together."""
    return spark.range(40_000).select(F.when(F.col("id") % 10 < 8, F.col("id") % 10).otherwise(F.col("id")).alias("k"))


def test_built_in_aggregates_are_left_to_spark(one_hot):
    advice = advise(one_hot, "k", "agg", 8)
    assert advice.action is Action.NOTHING
    assert "combines built-in aggregates before the shuffle" in advice.reason


def test_even_data_are_left_alone(even):
    advice = advise(even, "k", "applyInPandas", 8, slots=8)
    assert advice.action is Action.NOTHING
    assert "the load is even" in advice.reason
    assert advice.numbers["hash_over_mean"] < 1.1


def test_one_key_that_cannot_be_split_is_named_with_the_best_attainable(one_hot):
    advice = advise(one_hot, "k", "applyInPandas", 8, slots=8)
    assert advice.action is Action.NOTHING
    assert "80.0% of the load and cannot be split, so no plan beats 80.0%" in advice.reason


def test_the_same_key_is_split_where_parts_can_be_merged(one_hot):
    advice = advise(one_hot, "k", "aggregate", 8, slots=8)
    assert advice.action is Action.SPLIT
    assert "6.4 partitions' worth" in advice.reason


def test_hot_keys_that_collide_are_isolated(several_hot):
    advice = advise(several_hot, "k", "window", 8, slots=8)
    assert advice.action is Action.ISOLATE
    assert advice.numbers["hash_over_ideal"] > 1.1 * advice.numbers["balanced_over_ideal"]


def test_a_small_other_side_is_broadcast_and_a_large_one_is_not(spark, one_hot, even):
    advice = advise(one_hot, "k", "join", 8, other=spark.range(100), slots=8)
    assert advice.action is Action.BROADCAST
    assert advice.numbers["other_rows"] == 100
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "10k")
    try:
        assert advise(one_hot, "k", Operation.JOIN, 8, other=even, slots=8).action is Action.SPLIT
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        assert advise(one_hot, "k", "join", 8, other=spark.range(1), slots=8).action is Action.SPLIT
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_more_partitions_are_advised_where_they_do_as_well():
    plain = np.array([0.4, 0.2, 0.2, 0.2])
    advice = advice_for(
        Operation.APPLY_IN_PANDAS,
        hottest=0.01,
        plain=plain,
        balanced=np.full(4, 0.25),
        overpartitioned={2: np.full(8, 0.125)},
        slots=4,
    )
    assert advice.action is Action.MORE_PARTITIONS
    assert "8 partitions" in advice.reason


def test_a_small_gain_is_not_worth_a_change():
    plain, balanced = np.array([0.31, 0.23, 0.23, 0.23]), np.array([0.3, 0.23, 0.23, 0.24])
    advice = advice_for(Operation.WINDOW, hottest=0.01, plain=plain, balanced=balanced, overpartitioned={}, slots=4)
    assert advice.action is Action.NOTHING
    assert "only 1.03 times faster" in advice.reason


def test_advice_reads_as_a_sentence(even):
    assert str(advise(even, "k", numPartitions=4, slots=2)).startswith("do nothing: the load is even")


def test_an_empty_frame_is_even(even):
    assert advise(even.where("false"), "k", numPartitions=4, slots=2).action is Action.NOTHING


@pytest.mark.parametrize(("text", "size"), [("10485760", 10485760), ("10MB", 10 << 20), ("1g", 1 << 30), ("-1", -1)])
def test_sizes_are_read_as_spark_writes_them(text, size):
    assert _bytes(text) == size


@pytest.mark.parametrize(
    ("operation", "options", "message"),
    [("sort", {}, "choose one of applyInPandas"), ("join", {}, "pass other="), ("window", {"slots": 0}, "at least 1")],
)
def test_bad_questions_are_refused(even, operation, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        advise(even, "k", operation, 4, **options)
