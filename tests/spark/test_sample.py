import numpy as np
import pytest
from pyspark.sql import functions as F

from equipoise import InvalidArgumentError, fingerprint
from equipoise.spark.batch.options import BatchOptions
from equipoise.spark.batch.sample import Rows, resolve_weight, take_sample
from equipoise.spark.rows.keys import resolve_key


def sampled(df, key="k", weight=None, **options):
    return take_sample(Rows(df, resolve_key(df, key), resolve_weight(df, weight)), BatchOptions(**options))


def test_small_data_are_taken_whole_and_counted_exactly(spark):
    df = spark.range(1000).select((F.col("id") % 10).alias("k"))
    sample = sampled(df)
    assert sample.is_complete
    assert (sample.rows, sample.load) == (1000, 1000.0)
    histogram = sample.histogram()
    assert histogram.shares == pytest.approx([0.1] * 10)
    assert (histogram.error, histogram.unlisted) == (0, 0)


def test_large_data_are_sampled_to_about_the_wanted_size_without_bias(spark):
    df = spark.range(100_000).select(F.when(F.col("id") % 4 == 0, -1).otherwise(F.col("id")).alias("k"))
    sample = sampled(df, sample=5000)
    assert len(sample.fingerprints) == pytest.approx(5000, rel=0.1)
    histogram = sample.histogram()
    assert histogram.fingerprints[0] == fingerprint(-1)
    assert abs(histogram.shares[0] - 0.25) <= histogram.error
    assert sample.loads.sum() == pytest.approx(100_000, rel=0.1)


def test_a_rare_row_of_great_weight_is_never_missed(spark):
    df = spark.range(50_000).select("id", F.when(F.col("id") == 777, 20_000).otherwise(1).alias("w"))
    for seed in range(3):
        sample = sampled(df, "id", "w", sample=500, seed=seed)
        assert sample.histogram().share_of(fingerprint(777)) == pytest.approx(20_000 / 70_000, rel=0.15)


def test_impossible_weights_count_as_nothing(spark):
    df = spark.sql(
        "SELECT * FROM VALUES ('a', 2.0D), ('b', NULL), ('c', double('NaN')), ('d', -5.0D), ('a', 1.0D), "
        "('e', double('Infinity')) AS t(k, w)"
    )
    sample = sampled(df, "k", "w")
    assert (sample.rows, sample.load) == (6, 3.0)
    assert sample.histogram().share_of(fingerprint("a")) == 1.0


def test_many_rows_that_weigh_nothing_are_not_fetched(spark):
    df = spark.range(5000).select("id", F.lit(None).cast("double").alias("w"))
    sample = sampled(df, "id", "w", sample=100)
    assert (len(sample.fingerprints), sample.rows, sample.load) == (0, 5000, 0.0)
    assert len(sample.histogram()) == 0


def test_predicted_loads_under_plain_hash_are_those_of_spark(spark):
    df = spark.range(5000).select((F.col("id") % 97).cast("string").alias("k"))
    found = df.repartition(7, "k").groupBy(F.spark_partition_id().alias("p")).count().toPandas()
    actual = np.zeros(7)
    actual[found["p"]] = found["count"]
    assert sampled(df).plain_loads(7) * 5000 == pytest.approx(actual)


def test_nothing_to_sample_is_an_empty_histogram(spark):
    empty = spark.range(0).withColumnRenamed("id", "k")
    assert len(sampled(empty).histogram()) == 0
    assert sampled(empty).plain_loads(3).tolist() == [0, 0, 0]


def test_the_same_seed_takes_the_same_rows(spark):
    df = spark.range(20_000).withColumnRenamed("id", "k")
    one, two, other = (sampled(df, sample=500, seed=seed).fingerprints.tolist() for seed in (1, 1, 2))
    assert one == two != other


def test_a_sample_of_nothing_is_refused(spark):
    with pytest.raises(InvalidArgumentError, match="sample must be a whole number of at least 1, got 0"):
        sampled(spark.range(5), "id", sample=0)


def test_the_weight_must_be_a_number(spark):
    with pytest.raises(InvalidArgumentError, match=r"holds string, not a number; use for example F\.length"):
        resolve_weight(spark.sql("SELECT 'x' AS t"), "t")
