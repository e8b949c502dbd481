"""The ready aggregator keeps the laws of a merge, and computes what Spark computes."""

import datetime as dt
import math
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from equipoise import InvalidArgumentError
from equipoise.checks import check_merge
from equipoise.spark.rows.column_aggregator import Aggregate, ColumnAggregator
from equipoise.state.codec import row_codec

SCHEMA = StructType([StructField("k", StringType()), StructField("n", IntegerType()), StructField("x", DoubleType())])
ALL = [
    Aggregate("count", None, "rows"),
    *(Aggregate(function, column, f"{function}_{column}") for function in ("count", "sum", "min", "max", "avg")
      for column in ("n", "x")),
]  # fmt: skip
values = st.tuples(st.none() | st.integers(-5, 5), st.none() | st.just(math.nan) | st.floats(-9, 9))
tables = st.lists(values, max_size=12)


def table(rows):
    return pa.table(
        {
            "k": pa.array(["a"] * len(rows)),
            "n": pa.array([n for n, _ in rows], pa.int32()),
            "x": pa.array([x for _, x in rows], pa.float64()),
        }
    )


def results(totals, buffer):
    return dict(zip(totals.output_schema(["k"]).names, totals.finish(("a",), buffer), strict=True))


def same(found, expected):
    if found is None or expected is None:
        return found is expected
    return math.isnan(found) if math.isnan(expected) else found == pytest.approx(expected, abs=1e-9)


@settings(max_examples=100)
@given(tables, tables)
def test_null_is_left_out_and_nan_is_the_largest_number(first, second):
    totals = ColumnAggregator(ALL, SCHEMA)
    one, other = (totals.reduce(totals.zero(), table(rows)) for rows in (first, second))
    codec = row_codec(totals.bufferSchema.jsonValue())
    found = results(totals, totals.merge(*(codec.decode(codec.encode(each)) for each in (one, other))))
    assert found["rows"] == len(first) + len(second)
    for column in ("n", "x"):
        known = [row["nx".index(column)] for row in first + second]
        known = [value for value in known if value is not None]
        in_order = sorted(known, key=lambda value: (math.isnan(value), value))
        assert found[f"count_{column}"] == len(known)
        assert same(found[f"sum_{column}"], sum(known) if known else None)
        assert same(found[f"min_{column}"], in_order[0] if known else None)
        assert same(found[f"max_{column}"], in_order[-1] if known else None)
        assert same(found[f"avg_{column}"], sum(known) / len(known) if known else None)
    if not any(x is not None and math.isnan(x) for _, x in first + second):  # check_merge compares by ==
        check_merge(totals, table(first + second).to_pandas())


def test_counts_and_sums_of_whole_numbers_can_be_taken_off():
    totals = ColumnAggregator([Aggregate("count", None, "c"), Aggregate("sum", "n", "s")], SCHEMA)
    one, other = (totals.reduce(totals.zero(), table(rows)) for rows in ([(1, 2.0)], [(None, None), (None, 8.0)]))
    assert totals.can_invert
    assert totals.inverse(totals.merge(one, other), one) == other
    assert results(totals, other) == {"k": "a", "c": 2, "s": None}
    for asked in (Aggregate("max", "n", "m"), Aggregate("avg", "x", "a"), Aggregate("sum", "x", "s")):
        assert not ColumnAggregator([asked], SCHEMA).can_invert


def test_numbers_have_types_of_their_own_and_are_kept_once():
    asked = [("avg", "x"), ("sum", "x"), ("count", "x"), ("sum", "n"), ("avg", "n"), ("min", "n")]
    totals = ColumnAggregator([Aggregate(*each, "_".join(each)) for each in asked], SCHEMA)
    kinds = [DoubleType(), LongType(), LongType(), LongType(), DoubleType(), IntegerType()]
    assert [field.dataType for field in totals.bufferSchema] == kinds
    assert totals.output_schema(["k"]).simpleString() == (
        "struct<k:string,avg_x:double,sum_x:double,count_x:bigint,sum_n:bigint,avg_n:double,min_n:int>"
    )


def test_other_ordered_types_have_extremes():
    kinds = {
        "s": StringType(),
        "b": BooleanType(),
        "d": DateType(),
        "t": TimestampType(),
        "z": TimestampNTZType(),
        "c": DecimalType(6, 2),
    }
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    moment = dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC)  # in Berlin it is half past two, twice that night
    later = moment + dt.timedelta(hours=1)
    rows = pa.table(
        {
            "s": ["b", "é", "\U0001f600", None],
            "b": [True, None, False, True],
            "d": [dt.date(2024, 1, 1), None, dt.date(1960, 2, 29), None],
            "t": pa.array([later, moment, None, later], pa.timestamp("us", "Europe/Berlin")),
            "z": pa.array([moment.replace(tzinfo=None)] * 3 + [None], pa.timestamp("us")),
            "c": pa.array([Decimal("1.50"), Decimal("-2.25"), None, Decimal("9.99")], pa.decimal128(6, 2)),
        }
    )
    asked = [Aggregate(function, name, f"{function}_{name}") for name in kinds for function in ("min", "max")]
    asked += [Aggregate("sum", "c", "sum"), Aggregate("avg", "c", "avg")]
    totals = ColumnAggregator(asked, schema)
    codec = row_codec(totals.bufferSchema.jsonValue())
    buffer = codec.decode(codec.encode(totals.reduce(totals.zero(), rows)))
    *extremes, total, mean = totals.finish((), totals.merge(totals.zero(), buffer))
    naive = pd.Timestamp(moment.replace(tzinfo=None))
    assert extremes == [
        *("b", "\U0001f600", False, True, dt.date(1960, 2, 29), dt.date(2024, 1, 1), moment, later, naive, naive),
        *(Decimal("-2.25"), Decimal("9.99")),
    ]
    assert (total, mean) == (Decimal("9.24"), Decimal("3.080000"))
    assert totals.output_schema([])["sum"].dataType == DecimalType(16, 2)
    assert totals.output_schema([])["avg"].dataType == DecimalType(10, 6)


@pytest.mark.parametrize(("function", "column"), [("sum", "k"), ("avg", "k"), ("max", "m"), ("min", "lower")])
def test_a_type_that_a_function_does_not_take_is_refused(function, column):
    schema = StructType(
        [
            StructField("k", StringType()),
            StructField("m", MapType(StringType(), LongType())),
            StructField("lower", StringType("UTF8_LCASE")),
        ]
    )
    with pytest.raises(InvalidArgumentError, match=rf"{function}\({column}\): the column is .*write an Aggregator"):
        ColumnAggregator([Aggregate(function, column, "r")], schema)
    assert ColumnAggregator([Aggregate("count", column, "r")], schema).output_schema([]).names == ["r"]


LARGE = StructType([StructField("k", StringType()), StructField("id", LongType()), StructField("f", FloatType())])


def test_large_whole_numbers_stay_whole_beside_null_and_do_not_overflow_unnoticed():
    asked = [Aggregate("max", "id", "m"), Aggregate("sum", "id", "s"), Aggregate("count", "id", "c")]
    totals = ColumnAggregator(asked, LARGE)
    assert totals.reduce(totals.zero(), pa.table({"id": [2**53 + 1, None, 5]})) == (2**53 + 1, 2**53 + 6, 2)
    too_large = totals.reduce(totals.zero(), pa.table({"id": [2**62, 2**62, 3]}))
    assert too_large[1] == 2**63 + 3
    with pytest.raises(InvalidArgumentError, match="declared long and cannot hold 9223372036854775811"):
        row_codec(totals.bufferSchema.jsonValue()).encode(too_large)
    mean = ColumnAggregator([Aggregate("avg", "id", "a")], LARGE)
    assert mean.finish((), mean.reduce(mean.zero(), pa.table({"id": [2**62] * 3}))) == (2.0**62,)


def test_sums_of_decimals_keep_all_38_digits():
    """Python's own decimals round to 28 digits."""
    schema = StructType([StructField("k", StringType()), StructField("c", DecimalType(38, 4))])
    totals = ColumnAggregator([Aggregate("sum", "c", "total"), Aggregate("avg", "c", "mean")], schema)
    value = Decimal("123456789012345678901234567890.1234")
    rows = pa.table({"k": ["a", "a"], "c": pa.array([value, value], pa.decimal128(38, 4))})
    one = totals.reduce(totals.zero(), rows)
    assert totals.finish(("a",), one) == ("a", Decimal("246913578024691357802469135780.2468"), value)
    assert totals.finish(("a",), totals.merge(one, one))[1] == Decimal("493827156049382715604938271560.4936")


def test_floats_are_summed_as_doubles_and_compared_as_floats():
    totals = ColumnAggregator([Aggregate("sum", "f", "s"), Aggregate("max", "f", "m")], LARGE)
    rows = pa.table({"f": pa.array([2.0**24, 1.0, 1.0], pa.float32())})
    assert totals.finish((), totals.reduce(totals.zero(), rows)) == (2.0**24 + 2, 2.0**24)
    assert totals.output_schema([]).simpleString() == "struct<s:double,m:float>"
