import numpy as np
import pytest
from pyspark.sql import functions as F

from equipoise import InvalidArgumentError, fingerprint
from equipoise.spark.batch.key_loads import LISTED
from equipoise.spark.batch.options import BatchOptions
from equipoise.spark.batch.sample import WeightedRows, resolve_weight, take_sample
from equipoise.spark.rows.keys import resolve_key


def sampled(df, key="k", weight=None, *, slots=2, partitions=4, **options):
    rows = WeightedRows(df, resolve_key(df, key), resolve_weight(df, weight))
    return take_sample(rows, BatchOptions(**options), partitions, slots)


def with_hot_key(df, share):
    """Rows numbered by id, a share of which have one key; spread evenly over the numbers."""
    hot = F.pmod(F.col("id") * 7919, F.lit(1000)) < F.lit(int(1000 * share))
    return df.select("id", F.when(hot, -1).otherwise(F.col("id") % 5000).alias("k"))


def test_small_data_are_taken_whole_and_counted_exactly(spark):
    df = spark.range(1000).select((F.col("id") % 10).alias("k"))
    sample = sampled(df)
    assert sample.is_complete
    assert (sample.rows, sample.load) == (1000, 1000.0)
    histogram = sample.histogram()
    assert histogram.shares == pytest.approx([0.1] * 10)
    assert (histogram.error, histogram.unlisted) == (0, 0)


ARRANGED = {
    "in random order": lambda df: df.repartition(3, "id"),
    "one partition": lambda df: df.coalesce(1),
    "sorted by key": lambda df: df.repartitionByRange(4, "k", "id").sortWithinPartitions("k"),
    "sorted by key, one partition": lambda df: df.coalesce(1).sortWithinPartitions("k"),
    "sorted the other way": lambda df: df.coalesce(2).sortWithinPartitions(F.desc("k")),
    "most partitions empty": lambda df: df.repartition(50, F.col("id") % 3),
    "very unequal partitions": lambda df: df.repartition(8, F.when(F.col("id") < 95_000, 0).otherwise(F.col("id"))),
    "many small partitions": lambda df: df.repartition(40, "id"),
}


@pytest.mark.parametrize("arranged", ARRANGED.values(), ids=ARRANGED)
def test_loads_are_as_exact_as_wanted_however_the_rows_are_arranged(spark, arranged):
    df = arranged(with_hot_key(spark.range(0, 100_000, 1, 4), 0.3))
    sample = sampled(df, sample=5000)
    assert sample.effective_rows >= 5000
    assert not sample.is_complete
    assert 0 < sample.chances.min() <= sample.chances.max() <= 1
    assert sample.loads == pytest.approx(1 / sample.chances)
    assert len(sample.fingerprints) < 60_000
    histogram = sample.histogram()
    assert histogram.fingerprints[0] == fingerprint(-1)
    assert abs(histogram.shares[0] - 0.3) <= histogram.error < 0.06
    assert sample.rows == pytest.approx(100_000, rel=0.1)
    assert sample.load_error(4) <= 0.05


@pytest.mark.parametrize("arranged", ARRANGED.values(), ids=ARRANGED)
@pytest.mark.parametrize("rows", [0, 1, 17, 3000])
def test_small_data_are_exact_however_the_rows_are_arranged(spark, arranged, rows):
    sample = sampled(arranged(with_hot_key(spark.range(0, rows, 1, 4), 0.3)), sample=4000)
    assert sample.is_complete
    assert (sample.rows, sample.load, len(sample.fingerprints)) == (rows, rows, rows)


def test_the_stated_error_of_a_share_holds_for_many_seeds(spark):
    df = with_hot_key(spark.range(0, 50_000, 1, 2), 0.1).sortWithinPartitions("k").cache()
    samples = [sampled(df, sample=1000, seed=seed) for seed in range(30)]
    df.unpersist()
    errors = [(each.histogram().share_of(fingerprint(-1)) - 0.1, each.histogram().error) for each in samples]
    assert sum(abs(error) > stated for error, stated in errors) <= 2  # 3 of 1000 are expected
    assert np.mean([error for error, _ in errors]) == pytest.approx(0, abs=0.01)
    assert np.mean([each.rows for each in samples]) == pytest.approx(50_000, rel=0.02)


def test_rows_are_looked_at_in_one_job_where_partitions_are_as_many_as_slots(spark, jobs):
    df = with_hot_key(spark.range(0, 100_000, 1, 2), 0.3)
    with jobs() as started:
        sampled(df, sample=5000)
    assert len(started) == 1


def test_a_full_sample_counts_every_key(spark):
    df = with_hot_key(spark.range(0, 100_000, 1, 4), 0.3).withColumn("w", F.lit(2.5))
    for weight, load in ((None, 100_000), ("w", 250_000)):
        sample = sampled(df, weight=weight, sample="full")
        assert sample.is_complete
        assert (sample.rows, sample.load) == (100_000, load)
        assert sample.histogram().share_of(fingerprint(-1)) == pytest.approx(0.3)
        assert len(sample.fingerprints) == df.select("k").distinct().count()
        assert sample.load_error(16) == 0


def test_a_histogram_of_some_keys_is_the_head_of_that_of_all(spark):
    sample = sampled(with_hot_key(spark.range(0, 100_000, 1, 2), 0.3), sample=5000)
    assert sample.histogram(100) == sample.histogram().top(100)
    assert sample.histogram(10**6) == sample.histogram()
    assert sample.key_loads().histogram == sample.histogram().top(LISTED)


def test_by_default_as_many_rows_are_wanted_as_the_partitions_need():
    assert BatchOptions().sample_rows(1) == BatchOptions().sample_rows(8) == 20_000
    wanted = BatchOptions().sample_rows(64)
    assert wanted == pytest.approx(2 * 64 * np.log(64) / 0.05**2, abs=1)
    assert BatchOptions(sample=77).sample_rows(64) == 77


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
