"""The ready aggregator keeps the laws of a merge, and agrees with pandas."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, FloatType, IntegerType, LongType, StringType, StructField, StructType

from equipoise import InvalidArgumentError
from equipoise.checks import check_merge
from equipoise.spark.rows.column_aggregator import ColumnAggregator

SCHEMA = StructType([StructField("k", StringType()), StructField("n", IntegerType()), StructField("x", DoubleType())])
ALL = ["count", "count(x)", "sum(n)", "sum(x)", "min(n)", "max(x)", "mean(x) AS typical", "mean(n)"]
frames = st.lists(st.tuples(st.integers(-5, 5), st.none() | st.floats(-9, 9)), max_size=12)


def frame(rows):
    return pd.DataFrame({"k": ["a"] * len(rows), "n": [n for n, _ in rows], "x": [x for _, x in rows]}).astype(
        {"n": np.int32, "x": np.float64}
    )


@settings(max_examples=50)
@given(frames, frames)
def test_results_are_those_of_pandas(first, second):
    totals = ColumnAggregator(ALL, SCHEMA)
    one, other = (totals.reduce(totals.zero(), frame(rows)) for rows in (first, second))
    found = dict(zip(totals.output_schema(["k"]).names, totals.finish(("a",), totals.merge(one, other)), strict=True))
    rows = frame(first + second)
    assert found["count"] == len(rows)
    assert found["count_x"] == rows["x"].count()
    assert found["sum_n"] == rows["n"].sum()
    assert found["sum_x"] == pytest.approx(rows["x"].sum(), abs=1e-9)
    assert found["min_n"] == (rows["n"].min() if len(rows) else None)
    assert found["max_x"] == (rows["x"].max() if rows["x"].count() else None)
    assert found["typical"] == (pytest.approx(rows["x"].mean(), abs=1e-9) if rows["x"].count() else None)
    check_merge(totals, rows)


def test_counts_sums_and_means_can_be_taken_off():
    totals = ColumnAggregator(["count", "sum(n)", "mean(x)"], SCHEMA)
    one, other = (totals.reduce(totals.zero(), frame(rows)) for rows in ([(1, 2.0)], [(3, None), (4, 8.0)]))
    assert totals.can_invert
    assert totals.inverse(totals.merge(one, other), one) == other
    assert not ColumnAggregator(["max(n)"], SCHEMA).can_invert


def test_numbers_have_types_of_their_own_and_are_kept_once():
    totals = ColumnAggregator(["mean(x)", "sum(x)", "count(x)", "SUM( n ) as total"], SCHEMA)
    assert [field.dataType for field in totals.bufferSchema] == [DoubleType(), LongType(), LongType()]
    assert totals.output_schema(["k"]).simpleString() == (
        "struct<k:string,mean_x:double,sum_x:double,count_x:bigint,total:bigint>"
    )


@pytest.mark.parametrize("asked", [[], ["median(n)"], ["sum"], ["sum(nothing)"], ["max(k)"], ["sum(n) total"]])
def test_what_cannot_be_asked_is_told(asked):
    with pytest.raises(InvalidArgumentError):
        ColumnAggregator(asked, SCHEMA)


LARGE = StructType([StructField("k", StringType()), StructField("id", LongType()), StructField("f", FloatType())])


def large(ids, floats=None):
    numbers = np.array(floats if floats is not None else [0.0] * len(ids), dtype=np.float32)
    return pd.DataFrame({"k": "a", "id": pd.Series(ids), "f": numbers})


def test_large_whole_numbers_stay_whole_or_are_refused():
    totals = ColumnAggregator(["max(id)", "sum(id)", "count(id)"], LARGE)
    assert totals.reduce(totals.zero(), large([2**53 + 1, 5])) == (2**53 + 1, 2**53 + 6, 2)
    assert totals.reduce(totals.zero(), large([7, None])) == (7, 7, 1)
    assert totals.reduce(totals.zero(), large([2**62, 2**62, 3]))[1] == 2**63 + 3
    with pytest.raises(InvalidArgumentError, match=r"'id' has NULL beside whole numbers.*'id IS NOT NULL'"):
        totals.reduce(totals.zero(), large([2**53 + 1, None]))


def test_floats_are_summed_as_doubles():
    totals = ColumnAggregator(["sum(f)"], LARGE)
    rows = large([1] * 3, [2.0**24, 1.0, 1.0])
    assert totals.reduce(totals.zero(), rows) == (2.0**24 + 2,)
