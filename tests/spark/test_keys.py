import pytest
from pyspark.sql import functions as F

from equipoise import InvalidArgumentError, SparkUnavailableError
from equipoise.spark.rows.keys import grouping_columns, resolve_key


@pytest.fixture(scope="module")
def df(spark):
    schema = "a string, `b.c` int, s struct<x:int,m:map<string,int>>, m map<string,int>, l string collate utf8_lcase"
    return spark.createDataFrame([("x", 1, None, None, "y")], schema)


def test_a_key_may_be_names_columns_or_both(df):
    assert resolve_key(df, "a").names == ("a",)
    assert resolve_key(df, ["a", "b.c"]).names == ("a", "b.c")
    assert resolve_key(df, F.col("s.x")).names == ("x",)
    assert resolve_key(df, "s.x").names == ("x",)
    assert str(resolve_key(df, ["a", F.upper("a").alias("A")])) == "a, A"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("nothing", r"no column `nothing` for the key; there are a, b\.c, s, m, l"),
        ([], "at least one"),
        ("m", "'m' holds a map"),
        ("s", "'s' holds a map"),
        ("l", "has collation UTF8_LCASE"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_with_the_reason(df, key, message):
    with pytest.raises(InvalidArgumentError, match=message):
        resolve_key(df, key)


def test_a_collated_key_can_be_made_usable_as_the_message_says(df):
    key = resolve_key(df, F.collate(F.lower("l"), "UTF8_BINARY").alias("l"))
    assert df.select(key.fingerprint).count() == 1


def test_an_ambiguous_column_is_named_as_such(df):
    with pytest.raises(InvalidArgumentError, match="ambiguous"):
        resolve_key(df.crossJoin(df), "a")


def test_a_streaming_frame_is_refused(spark):
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InvalidArgumentError, match="streaming DataFrame"):
        resolve_key(stream, "value")


def test_an_old_spark_is_refused(df, monkeypatch):
    monkeypatch.setattr(type(df.sparkSession), "version", property(lambda _: "3.5.1"))
    with pytest.raises(SparkUnavailableError, match=r"Spark 3\.5\.1 .* use Spark 4\.1"):
        resolve_key(df, "a")


def test_an_object_that_is_not_a_dataframe_is_refused(df):
    for other in (df.toPandas(), df.groupBy("id"), None):
        with pytest.raises(InvalidArgumentError, match="expected a Spark DataFrame, got"):
            resolve_key(other, "id")


def test_our_own_names_are_refused(df):
    with pytest.raises(InvalidArgumentError, match=r"__equipoise_weight.*rename it"):
        resolve_key(df.withColumn("__equipoise_weight", F.lit(1)), "id")


@pytest.mark.parametrize(
    "make",
    [
        F.rand,
        F.uuid,
        F.monotonically_increasing_id,
        F.spark_partition_id,
        lambda: F.concat("a", F.uuid()),
        lambda: F.expr("floor(rand() * 8)"),
        lambda: F.udf(lambda text: text, "string").asNondeterministic()("a"),
    ],
    ids=["rand", "uuid", "id", "partition", "nested", "sql", "udf"],
)
def test_a_key_that_is_not_deterministic_is_refused_with_the_way_out(df, make):
    with pytest.raises(InvalidArgumentError, match=r"is not deterministic.*withColumn, write or persist"):
        resolve_key(df, make().alias("salt"))


def test_a_deterministic_expression_is_a_key(df):
    for column in (F.upper("a"), df["a"], F.udf(lambda text: text, "string")("a"), F.current_date()):
        assert len(resolve_key(df, column).names) == 1


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (["a", 16], r"16 is a number, not a key column; for the number of partitions write numPartitions=16"),
        ([True], "a key column is a name or a Column, got bool True"),
        ([None], "got NoneType None"),
    ],
)
def test_what_is_not_a_column_is_refused_with_a_hint(df, key, message):
    with pytest.raises(InvalidArgumentError, match=message):
        resolve_key(df, key)


def test_an_error_of_spark_is_translated_without_its_plan_and_its_log(df, capfd):
    with pytest.raises(InvalidArgumentError) as caught:
        resolve_key(df, "nothing")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    with pytest.raises(InvalidArgumentError, match=r"the key cannot be computed: .*DATATYPE_MISMATCH") as caught:
        resolve_key(df, F.array("m") + 1)
    assert "\n" not in str(caught.value)
    assert "errorClass" not in capfd.readouterr().err


def test_key_columns_come_one_by_one_or_in_one_list():
    assert grouping_columns(("a", "b")) == grouping_columns((["a", "b"],)) == ["a", "b"]
    assert grouping_columns(()) == []
