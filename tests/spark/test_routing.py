"""Spark and the core agree on every fingerprint and every partition."""

import datetime as dt
import decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import functions as F

from equipoise import InvalidArgumentError, Plan, fingerprints, uniform_plan
from equipoise.plan.lookup import perfect_hash, routing_bytes
from equipoise.spark.rows.keys import resolve_key
from equipoise.spark.rows.routing import partition_column

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
COLUMNS = {
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=True),
    "boolean": st.booleans(),
    "string": TEXT,
    "binary": st.binary(max_size=40),
}
NARROW = {
    "tinyint": (np.int8, st.integers(-(2**7), 2**7 - 1)),
    "smallint": (np.int16, st.integers(-(2**15), 2**15 - 1)),
    "int": (np.int32, st.integers(-(2**31), 2**31 - 1)),
    "float": (np.float32, st.floats(width=32)),
}


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
@settings(max_examples=5)
def test_a_column_with_nulls_has_the_same_fingerprints_in_spark_and_in_the_core(spark, name, data):
    values = data.draw(st.lists(st.none() | COLUMNS[name], min_size=1, max_size=50))
    df = spark.createDataFrame([(i, value) for i, value in enumerate(values)], f"i int, k {name}")
    found = [row.f for row in df.select("i", F.xxhash64("k").alias("f")).orderBy("i").collect()]
    assert found == fingerprints(values).tolist()


@pytest.mark.parametrize("name", NARROW)
@given(data=st.data())
@settings(max_examples=5)
def test_narrow_types_have_the_same_fingerprints_in_spark_and_in_the_core(spark, name, data):
    dtype, strategy = NARROW[name]
    values = data.draw(st.lists(strategy, min_size=1, max_size=50))
    df = spark.createDataFrame([(i, value) for i, value in enumerate(values)], f"i int, k {name}")
    found = [row.f for row in df.select("i", F.xxhash64("k").alias("f")).orderBy("i").collect()]
    assert found == fingerprints(np.array(values, dtype=dtype)).tolist()


@given(data=st.data())
@settings(max_examples=5)
def test_several_columns_have_the_same_fingerprints_in_spark_and_in_the_core(spark, data):
    rows = data.draw(st.lists(st.tuples(st.none() | TEXT, st.none() | COLUMNS["bigint"]), min_size=1, max_size=50))
    df = spark.createDataFrame([(i, *row) for i, row in enumerate(rows)], "i int, a string, b bigint")
    found = [row.f for row in df.select("i", F.xxhash64("a", "b").alias("f")).orderBy("i").collect()]
    assert found == fingerprints([a for a, _ in rows], [b for _, b in rows]).tolist()


@pytest.mark.parametrize("isolated", [0, 1, 7, 300])
@pytest.mark.parametrize("groups", [64, 100])
def test_spark_sends_every_row_where_the_plan_says(spark, isolated, groups):
    rng = np.random.default_rng(isolated)
    keys = fingerprints(np.arange(1000))
    hot = {int(key): int(rng.integers(12)) for key in keys[:isolated]}
    plan = Plan(12, rng.integers(0, 12, groups), hot)
    fingerprint = F.xxhash64("id")
    placed = spark.range(1000).select(fingerprint.alias("f"), partition_column(plan, fingerprint).alias("p")).toPandas()
    assert placed["p"].tolist() == plan.assign(placed["f"].to_numpy()).tolist()


def test_rows_arrive_in_the_partition_that_the_plan_says(spark):
    plan = Plan(5, uniform_plan(5, 40).tail, {int(fingerprints([3])[0]): 4})
    fingerprint = F.xxhash64("id")
    df = spark.range(500).repartitionById(5, partition_column(plan, fingerprint))
    placed = df.select("id", F.spark_partition_id().alias("p")).toPandas()
    assert placed["p"].tolist() == plan.assign(fingerprints(placed["id"].to_numpy())).tolist()


@given(st.sets(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=200))
@settings(max_examples=50)
def test_perfect_hashing_gives_every_key_a_slot_of_its_own(chosen):
    keys = np.array(sorted(chosen), dtype=np.int64)
    displacements, slots = perfect_hash(keys)
    assert sorted(slots[slots >= 0].tolist()) == list(range(len(keys)))
    seeds = displacements[np.mod(keys, len(displacements))]
    found = slots[np.mod(fingerprints(seeds, keys), len(slots))]
    assert found.tolist() == list(range(len(keys)))


@pytest.mark.parametrize("isolated", [0, 4, 40])
def test_the_bytes_of_a_routing_expression_are_those_of_its_text_literals(spark, isolated, monkeypatch):  # noqa: ARG001 - columns need a session
    plan = Plan(12, np.arange(64) % 12, {key: key % 12 for key in range(isolated)})
    texts, lit = [], F.lit
    monkeypatch.setattr(F, "lit", lambda value: texts.append(value) or lit(value))
    partition_column(plan, F.col("f"))
    assert routing_bytes(plan) == sum(len(text) for text in texts if isinstance(text, str))


def test_a_plan_of_another_hash_seed_is_refused():
    with pytest.raises(InvalidArgumentError, match="seed"):
        partition_column(uniform_plan(2, hash_seed=7), F.lit(1))


KEYS = {
    "decimal(10,2)": [decimal.Decimal("1.10"), None, decimal.Decimal("-3.00")],
    "decimal(38,5)": [decimal.Decimal("12345678901234567890.12345"), None],
    "date": [dt.date(2024, 2, 29), None],
    "timestamp": [dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC), None],
    "struct<a:int,b:string>": [Row(a=1, b="x"), Row(a=None, b="x"), None],
    "array<string>": [["a", None], [], None],
    "double": [0.0, -0.0, float("nan"), None],
}


@pytest.mark.parametrize("name", KEYS)
def test_equal_keys_of_any_type_have_one_fingerprint(spark, name):
    values = KEYS[name] * 3
    df = spark.createDataFrame([(i, value) for i, value in enumerate(values)], f"i int, k {name}")
    key = resolve_key(df, "k")
    groups = df.groupBy("k").agg(F.countDistinct(key.fingerprint).alias("fingerprints")).collect()
    assert [row.fingerprints for row in groups] == [1] * len(groups)
