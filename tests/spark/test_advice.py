import numpy as np
import pytest
from pyspark.sql import functions as F

from equipoise import InvalidArgumentError
from equipoise.spark import Action, Operation, advise, profile
from equipoise.spark.batch.advice import advice_for
from equipoise.spark.batch.broadcast import bytes_of


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
    advice = advise(one_hot, "k", operation="agg", numPartitions=8)
    assert advice.action is Action.NOTHING
    assert "combines built-in aggregates before the shuffle" in advice.reason


def test_even_data_are_left_alone(even):
    advice = advise(even, "k", operation="applyInPandas", numPartitions=8, slots=8)
    assert advice.action is Action.NOTHING
    assert "the load is even" in advice.reason
    assert advice.numbers["hash_over_ideal"] < 1.1


def test_one_key_that_cannot_be_split_is_named_with_the_best_attainable(one_hot):
    advice = advise(one_hot, "k", operation="applyInPandas", numPartitions=8, slots=8, sample="full")
    assert advice.action is Action.NOTHING
    assert "80.0% of the load and cannot be split, so no plan beats 80.0%" in advice.reason


def test_the_same_key_is_split_where_parts_can_be_merged(one_hot):
    advice = advise(one_hot, "k", operation="aggregate", numPartitions=8, slots=8)
    assert advice.action is Action.SPLIT
    assert "6.4 partitions' worth" in advice.reason


def test_hot_keys_that_collide_are_isolated(several_hot):
    advice = advise(several_hot, "k", operation="window", numPartitions=8, slots=8)
    assert advice.action is Action.ISOLATE
    assert advice.numbers["hash_over_ideal"] > 1.1 * advice.numbers["whole_over_ideal"]


def test_a_small_other_side_is_broadcast_and_a_large_one_is_not(spark, one_hot, even):
    advice = advise(
        one_hot, "k", operation="join", numPartitions=8, other=spark.range(100).withColumnRenamed("id", "k"), slots=8
    )
    assert advice.action is Action.BROADCAST
    assert "Spark broadcasts the right side by itself" in advice.reason
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "10k")
    try:
        assert (
            advise(one_hot, "k", operation=Operation.JOIN, numPartitions=8, other=even, slots=8).action is Action.SPLIT
        )
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        assert (
            advise(
                one_hot,
                "k",
                operation="join",
                numPartitions=8,
                other=spark.range(1).withColumnRenamed("id", "k"),
                slots=8,
            ).action
            is Action.SPLIT
        )
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_more_partitions_are_advised_where_they_do_as_well():
    plain = np.array([0.4, 0.2, 0.2, 0.2])
    advice = advice_for(
        Operation.APPLY_IN_PANDAS,
        hottest=0.01,
        loads={"hash": plain, "whole": np.full(4, 0.25), "hash_x2": np.full(8, 0.125)},
        slots=4,
    )
    assert advice.action is Action.MORE_PARTITIONS
    assert "8 partitions" in advice.reason


def test_a_small_gain_is_not_worth_a_change():
    plain, balanced = np.array([0.31, 0.23, 0.23, 0.23]), np.array([0.3, 0.23, 0.23, 0.24])
    advice = advice_for(Operation.WINDOW, hottest=0.01, loads={"hash": plain, "whole": balanced}, slots=4)
    assert advice.action is Action.NOTHING
    assert "only 1.03 times faster" in advice.reason


def test_advice_reads_as_a_sentence(even):
    assert str(advise(even, "k", numPartitions=4, slots=2)).startswith("do nothing: the load is even")


def test_an_empty_frame_is_even(even):
    assert advise(even.where("false"), "k", numPartitions=4, slots=2).action is Action.NOTHING


def test_every_verb_shows_its_advice_alike(several_hot, capsys):
    advice = advise(several_hot, "k", numPartitions=8, slots=8)
    assert advice.advice is advice
    assert advice.plan.partitions == 8
    advice.explain()
    text = capsys.readouterr().out
    assert "time over ideal  Spark's hash" in text
    assert str(advice) in text
    assert "<table>" in advice._repr_html_()
    report = profile(several_hot, "k", numPartitions=8, slots=8)
    assert report.advice.numbers == advice.numbers
    hash_time = report.strategies["hash"].makespan / report.ideal_makespan
    assert hash_time == pytest.approx(advice.numbers["hash_over_ideal"])
    assert report.strategies["kip"].makespan / report.ideal_makespan == advice.numbers["whole_over_ideal"]


@pytest.mark.parametrize(
    ("text", "size"), [("10485760", 10485760), ("10MB", 10 << 20), ("1g", 1 << 30), ("7b", 7), ("-1", -1)]
)
def test_sizes_are_read_as_spark_writes_them(text, size):
    assert bytes_of("spark.size", text) == size


@pytest.mark.parametrize("text", ["64x", "64xb", "m", "", "1.5g"])
def test_a_text_that_is_not_a_size_is_refused_with_the_name_of_the_setting(text):
    with pytest.raises(InvalidArgumentError, match=r"spark\.size must be a size such as 64m, got "):
        bytes_of("spark.size", text)


@pytest.mark.parametrize(
    ("operation", "options", "message"),
    [("sort", {}, "choose one of applyInPandas"), ("join", {}, "pass other="), ("window", {"slots": 0}, "at least 1")],
)
def test_bad_questions_are_refused(even, operation, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        advise(even, "k", operation=operation, numPartitions=4, **options)


def test_an_operation_in_place_of_a_key_column_is_refused_with_a_hint(even):
    with pytest.raises(
        InvalidArgumentError, match="'window' is not a column but an operation; write operation='window'"
    ):
        advise(even, "k", "window")
    with pytest.raises(InvalidArgumentError, match="numPartitions=8"):
        advise(even, "k", 8)
    with pytest.raises(InvalidArgumentError, match="no column 'k' to join on; there are id"):
        advise(even, "k", operation="join", other=even.sparkSession.range(3))
    with pytest.raises(InvalidArgumentError, match="drop weight="):
        advise(even, "k", operation="join", other=even, weight="k")
