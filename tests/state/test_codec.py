# ruff: noqa: DTZ001 - moments without a zone are half of the subject
"""Rows and keys come back as they were, and what is not one is refused."""

import datetime as dt
import math
import re
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark_types

from equipoise.errors import DamagedError, InvalidArgumentError
from equipoise.state.codec import KeyCodec, RowCodec, array_of, row_codec

MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC))
SCALARS = {
    "byte": st.integers(-(2**7), 2**7 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "boolean": st.booleans(),
    "string": st.text(),
    "varchar(20)": st.text(),
    "binary": st.binary(),
    "decimal(12,3)": st.decimals(-(10**8), 10**8, places=3),
    "decimal(38,0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    "date": st.dates(),
    "timestamp": MOMENTS.map(lambda moment: moment.astimezone().replace(tzinfo=None)),
    "timestamp_ntz": st.datetimes(),
    "interval day to second": st.timedeltas(dt.timedelta(days=-(10**8)), dt.timedelta(days=10**8)),
    "void": st.none(),
}


def struct(*fields):
    return {
        "type": "struct",
        "fields": [
            {"name": f"f{at}", "type": each, "nullable": True, "metadata": {}} for at, each in enumerate(fields)
        ],
    }


def array(item):
    return {"type": "array", "elementType": item, "containsNull": True}


def mapping(key, value):
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def values_of(declared):
    if isinstance(declared, str):
        return SCALARS[declared]
    if declared["type"] == "array":
        return st.lists(st.none() | values_of(declared["elementType"]), max_size=3)
    if declared["type"] == "map":
        keys = values_of(declared["keyType"]).filter(lambda key: key == key and key is not None)  # noqa: PLR0124 - NaN
        return st.dictionaries(keys, st.none() | values_of(declared["valueType"]), max_size=3)
    return st.tuples(*(st.none() | values_of(field["type"]) for field in declared["fields"]))


simple = st.sampled_from(sorted(SCALARS))
types = st.recursive(
    simple,
    lambda inner: (
        inner.map(array)
        | st.builds(mapping, simple.filter(lambda name: name != "void"), inner)
        | st.lists(inner, min_size=1, max_size=3).map(lambda fields: struct(*fields))
    ),
    max_leaves=4,
)
schemas = st.lists(types, max_size=4).map(lambda fields: struct(*fields))
rows_with_schema = schemas.flatmap(lambda schema: st.tuples(st.just(schema), values_of(schema)))


def same(left, right):
    """Equal, of equal types, and NaN is NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return left == right and not (isinstance(left, Decimal) and left.as_tuple().exponent != right.as_tuple().exponent)


@given(rows_with_schema)
def test_a_row_of_any_type_comes_back(given_row):
    schema, row = given_row
    codec = row_codec(schema)
    assert same(codec.decode(codec.encode(row)), row)
    assert codec.encode_many([row, row]) == [codec.encode(row)] * 2
    assert all(same(each, row) for each in codec.decode_many(codec.encode_many([row, row])))


@given(rows_with_schema, st.sampled_from([1, 15, 16, 40]))
def test_encoded_rows_make_one_array(given_row, count):
    check_array(*given_row, count)


@pytest.mark.parametrize("count", [65_535, 65_536])  # the length takes two bytes, and four
def test_many_encoded_rows_make_one_array(count):
    check_array(struct("long", "string"), (7, "seven"), count)


def check_array(schema, row, count):
    codec = row_codec(schema)
    rows = codec.decode_list(array_of(count, codec.encode(row) * count))
    assert len(rows) == count
    assert same(rows[0], row)
    assert same(rows[-1], row)


@given(schemas, st.binary(max_size=40))
def test_foreign_bytes_are_damage_or_a_row_of_the_schema(schema, data):
    codec = row_codec(schema)
    try:
        row = codec.decode(data)
    except DamagedError:
        return
    assert len(row) == len(schema["fields"])
    codec.encode(row)


@given(rows_with_schema, st.data())
def test_changed_bytes_are_damage_or_a_row_of_the_schema(schema_and_row, data):
    schema, row = schema_and_row
    codec = row_codec(schema)
    stored = bytearray(codec.encode(row))
    for at in data.draw(st.lists(st.integers(0, len(stored) - 1), min_size=1, max_size=5)):
        stored[at] = data.draw(st.sampled_from([0xC6, 0xDB, 0xDD, 0xDF, 0xFF]) | st.integers(0, 255))
    for read in (codec.decode, codec.decode_list):
        try:
            read(bytes(stored))
        except DamagedError:
            continue


@pytest.mark.parametrize(
    ("declared", "head"),
    [
        ("string", b"\xdb"),
        ("binary", b"\xc6"),
        (array("long"), b"\xdd"),
        (mapping("long", "long"), b"\xdf"),
        (struct("long"), b"\xdd"),
    ],
)
def test_absurd_lengths_are_damage(declared, head):
    codec = row_codec(struct(declared))
    absurd = head + b"\xff" * 4 + b"\x01" * 50
    for read, data in (
        (codec.decode, b"\x91" + absurd),
        (codec.decode, b"\xdd" + b"\xff" * 4 + b"\x01" * 50),
        (codec.decode_list, b"\x91\x91" + absurd),
        (codec.decode_list, b"\xdd" + b"\xff" * 4 + b"\x91\xc0"),
    ):
        with pytest.raises(DamagedError):
            read(data)


@pytest.mark.parametrize(
    "data", [b"", b"\x93\x01\x02\x03", b"\x92\x01\xa1", b"\x92\x01\xa1a!", b"\x92\xa1a\x01", b"\xc1"]
)
def test_bytes_that_are_no_row_of_the_schema_are_damage(data):
    codec = row_codec(struct("long", "string"), "value state 'seen'")
    for read in (codec.decode, codec.decode_list):
        with pytest.raises(
            DamagedError, match=r"value state 'seen': .* not a row of \(f0, f1\): .*restore the checkpoint"
        ):
            read(data)


@pytest.mark.parametrize("declared", ["date", "timestamp", "timestamp_ntz", "interval day to second", "decimal(4,2)"])
def test_stored_numbers_that_are_no_date_are_damage(declared):
    stored = row_codec(struct("string" if "decimal" in declared else "long")).encode(
        ("123.456" if "decimal" in declared else 2**63 - 1,)
    )
    with pytest.raises(DamagedError):
        row_codec(struct(declared)).decode(stored + b"!")
    if declared != "interval day to second":
        with pytest.raises(DamagedError):
            row_codec(struct(declared)).decode(stored)


ALIKE = [
    ("long", np.int32(7), 7),
    ("byte", np.uint8(7), 7),
    ("double", np.float32(0.5), 0.5),
    ("double", 3, 3.0),
    ("float", np.float64(0.1), float(np.float32(0.1))),
    ("float", 1e300, math.inf),
    ("boolean", np.bool_(True), True),
    ("string", np.str_("a"), "a"),
    ("binary", bytearray(b"a"), b"a"),
    ("decimal(5,2)", 3, Decimal("3.00")),
    ("decimal(5,2)", Decimal("1.005"), Decimal("1.01")),
    ("date", np.datetime64("2024-02-29"), dt.date(2024, 2, 29)),
    ("date", pd.Timestamp("2024-02-29 13:00"), dt.date(2024, 2, 29)),
    ("timestamp_ntz", pd.Timestamp("2024-02-29 13:00:00.000001999"), dt.datetime(2024, 2, 29, 13, 0, 0, 1)),
    ("timestamp_ntz", np.datetime64("2024-02-29T13:00", "ns"), dt.datetime(2024, 2, 29, 13)),
    (
        "timestamp_ntz",
        dt.datetime(2024, 2, 29, 13, tzinfo=dt.timezone(dt.timedelta(hours=5))),
        dt.datetime(2024, 2, 29, 13),
    ),
    ("timestamp", pd.NaT, None),
    ("timestamp_ntz", np.datetime64("NaT"), None),
    ("date", pd.NaT, None),
    ("interval day to second", pd.Timedelta("1 day 2us"), dt.timedelta(days=1, microseconds=2)),
    ("interval hour to minute", np.timedelta64(90, "m"), dt.timedelta(minutes=90)),
    ("interval day to second", pd.NaT, None),
    (array("long"), np.array([1, 2]), [1, 2]),
    (array("string"), ("a", None), ["a", None]),
    (struct("long", "date"), [1, dt.date(2024, 1, 1)], (1, dt.date(2024, 1, 1))),
]


@pytest.mark.parametrize(("declared", "value", "expected"), ALIKE)
def test_values_of_numpy_and_pandas_are_taken_for_what_they_mean(declared, value, expected):
    codec = row_codec(struct(declared))
    (found,) = codec.decode(codec.encode((value,)))
    assert same(found, expected)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("long", 2**63),
        ("long", 2**70),
        ("long", 1.0),
        ("long", np.float64(1.5)),
        ("long", True),
        ("long", "1"),
        ("long", math.nan),
        ("byte", 128),
        ("short", np.int64(-32_769)),
        ("integer", 2**31),
        ("double", "1.5"),
        ("double", True),
        ("float", True),
        ("float", "1"),
        ("boolean", 1),
        ("string", b"a"),
        ("string", ["a"]),
        ("string", "\ud800"),
        ("binary", 3),
        ("decimal(5,2)", Decimal(1000)),
        ("decimal(5,2)", Decimal("NaN")),
        ("decimal(5,2)", 1.5),
        ("date", "2024-01-01"),
        ("date", 3),
        ("timestamp", dt.date(2024, 1, 1)),
        ("timestamp", 1.5),
        ("timestamp_ntz", "now"),
        ("interval day to second", 5),
        ("interval day to second", dt.timedelta.max),
        ("void", 1),
        (array("long"), [1, "a"]),
        (array("date"), ["a"]),
        (array("date"), 5),
        (mapping("string", "long"), {"a": "b"}),
        (mapping("string", "long"), {None: 1}),
        (mapping("string", "date"), [1]),
        (struct("long", "long"), (1,)),
        (struct("date", "date"), (dt.date(2024, 1, 1),)),
        (struct("date"), {"f0": 5}),
        (struct("date"), {dt.date(2024, 1, 1)}),
        (struct("long"), pd.Series([1], index=["f0"])),
        (struct("long"), "a"),
        (array("string"), "ab"),
        ("long", object()),
    ],
)
def test_a_value_that_its_field_cannot_hold_is_refused_by_name(declared, value):
    codec = row_codec(struct("string", declared), "value state 'seen'")
    for encode in (codec.encode, lambda row: codec.encode_many([("fine", None), row])):
        with pytest.raises(
            InvalidArgumentError, match=r"value state 'seen': field 'f1' is declared .* and cannot hold"
        ):
            encode(("fine", value))


@pytest.mark.parametrize(
    ("declared", "value", "way_out"),
    [
        ("integer", 7.0, "Expected `int | null`, got `float`; give int(...), or declare the field with a type that"),
        ("string", [1], "got `array`; give str(...), or declare"),
        ("double", "7", "got `str`; give float(...), or declare"),
        ("timestamp", "today", "; convert it, or declare the field with a type that holds it"),
    ],
)
def test_the_refusal_of_a_value_says_how_to_give_it(declared, value, way_out):
    with pytest.raises(InvalidArgumentError, match=re.escape(way_out)):
        row_codec(struct(declared)).encode((value,))


class Address(NamedTuple):
    f0: int
    f1: str


@dataclass
class Place:
    f1: str
    other: int = 5


NESTED = struct("long", "string")


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        (NESTED, {"f1": "x", "f0": 1, "unknown": 2}, (1, "x")),
        (NESTED, {"f0": 1}, (1, None)),
        (NESTED, {}, (None, None)),
        (NESTED, [1, "x"], (1, "x")),
        (NESTED, Address(1, "x"), (1, "x")),
        (NESTED, spark_types.Row(b=1, a="x"), (1, "x")),
        (NESTED, Place("x"), (None, "x")),
        (NESTED, {"f0": np.int64(1), "f1": 2}, (1, "2")),
        (struct("date", NESTED), {"f1": {"f0": 1}}, (None, (1, None))),
        (array(NESTED), [{"f0": 1}, (2, "x"), None], [(1, None), (2, "x"), None]),
        (mapping("string", NESTED), {5: {"f1": "x"}, "a": None}, {"5": (None, "x"), "a": None}),
        ("string", 7, "7"),
        ("string", np.int64(-7), "-7"),
        ("string", True, "true"),
        ("string", np.bool_(False), "false"),
        ("string", math.nan, "NaN"),
        ("string", -math.inf, "-Infinity"),
        ("string", 7.0, "7.0"),
        ("string", np.float64(0.001), "0.001"),
        ("string", 9_999_999.5, "9999999.5"),
        ("string", 1e7, "1.0E7"),
        ("string", -1.25e-5, "-1.25E-5"),
        ("string", Decimal("1.50"), "1.50"),
        ("binary", "é", "é".encode()),
    ],
)
def test_other_forms_that_spark_takes_are_stored_as_spark_stores_them(declared, value, expected):
    codec = row_codec(struct(declared))
    for data in (codec.encode((value,)), *codec.encode_many([(value,)]), *codec.encode_columns([[value]])):
        assert codec.decode(data) == (expected,)


@pytest.mark.parametrize(
    "given_row",
    [
        pd.Series([1, "x"], index=["a", "b"]),
        np.array([1, "x"], dtype=object),
        (each for each in (1, "x")),
        spark_types.Row(f0=1, f1="x"),
        Address(1, "x"),
        [1, "x"],
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_iterable_of_values_is_a_row(given_row):
    codec = row_codec(struct("long", "string"))
    assert codec.decode(codec.encode(given_row)) == (1, "x")


def test_text_is_a_row_of_its_characters_as_in_spark():
    codec = row_codec(struct("string", "string"))
    assert codec.decode(codec.encode("ab")) == ("a", "b")
    with pytest.raises(InvalidArgumentError, match=r"expected a tuple of 2 values \(f0, f1\), got 3: "):
        codec.encode("abc")


def test_a_dict_is_not_a_row_because_spark_would_store_its_keys():
    with pytest.raises(InvalidArgumentError, match="of which Spark would store the keys; give its values as a tuple"):
        row_codec(struct("string")).encode({"f0": "x"})


def test_nested_structs_are_rows_of_the_factory():
    schema = struct(NESTED, array(NESTED), mapping("string", struct(NESTED)), "date")
    values = ((1, "x"), [(2, "y"), None], {"k": ((3, "z"),)}, dt.date(2024, 1, 1))
    codec = RowCodec(schema, rows=lambda names: lambda each: spark_types.Row(*names)(*each))
    found = codec.decode(codec.encode(values))
    assert found == values
    assert type(found) is tuple
    assert (found[0].f1, found[1][0].asDict(), found[2]["k"].f0.f1) == ("x", {"f0": 2, "f1": "y"}, "z")


@pytest.mark.parametrize("row", [None, 5, "abc", b"ab", {"f0": 1, "f1": 2}, {1, 2}, (), (1,), (1, 2, 3), [1], object()])
@pytest.mark.parametrize("declared", ["long", "date"])
def test_what_is_not_a_row_of_the_right_length_is_refused(row, declared):
    codec = row_codec(struct(declared, declared))
    for encode in (codec.encode, lambda row: codec.encode_many([row])):
        with pytest.raises(InvalidArgumentError, match=r"expected a tuple of 2 values \(f0, f1\), got "):
            encode(row)


def test_lists_and_spark_rows_are_rows_too():
    codec = row_codec(struct("long", "string"))
    assert codec.encode([1, "a"]) == codec.encode(spark_types.Row(f0=1, f1="a")) == codec.encode((1, "a"))


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(InvalidArgumentError) as caught:
        row_codec(struct("long")).encode(("x" * 10_000,))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "declared",
    ["variant", "interval", "interval year to month", "geometry(4326)", "time(6)", {"type": "udt"}, array("variant")],
)
def test_a_type_that_state_cannot_hold_is_refused_with_a_way_out(declared):
    with pytest.raises(InvalidArgumentError, match="which state cannot hold; store it as string or binary"):
        row_codec(struct(declared))


def test_a_schema_must_be_a_struct_and_maps_need_simple_keys():
    for schema in ("long", {"type": "array"}, None):
        with pytest.raises(InvalidArgumentError, match="must be a struct"):
            row_codec(schema)
    with pytest.raises(InvalidArgumentError, match="needs keys of a simple type"):
        row_codec(struct(mapping(array("long"), "long")))


SPARK_VALUES = [
    (spark_types.LongType(), 5),
    (spark_types.StringType(), "a"),
    (spark_types.StringType("UTF8_LCASE"), "aB"),
    (spark_types.BinaryType(), b"a"),
    (spark_types.BooleanType(), True),
    (spark_types.DoubleType(), 0.5),
    (spark_types.DecimalType(10, 2), Decimal("1.50")),
    (spark_types.DateType(), dt.date(1969, 12, 31)),
    (spark_types.TimestampType(), dt.datetime(2024, 7, 1, 12, 30, 0, 5)),
    (spark_types.TimestampType(), dt.datetime(2024, 7, 1, 12, 30, 0, 5, tzinfo=dt.UTC)),
    (spark_types.TimestampNTZType(), dt.datetime(1960, 7, 1, 12, 30, 0, 5)),
    (spark_types.DayTimeIntervalType(), dt.timedelta(days=-1, microseconds=3)),
    (spark_types.ArrayType(spark_types.DateType()), [dt.date(2024, 1, 1), None]),
    (spark_types.MapType(spark_types.StringType(), spark_types.DateType()), {"a": dt.date(2024, 1, 1)}),
    (spark_types.NullType(), None),
]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_values_come_back_as_spark_gives_them(zone, monkeypatch):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        schema = spark_types.StructType(
            [spark_types.StructField(f"f{at}", each) for at, (each, _) in enumerate(SPARK_VALUES)]
        )
        row = tuple(value for _, value in SPARK_VALUES)
        codec = row_codec(schema.jsonValue())
        assert codec.decode(codec.encode(row)) == tuple(schema.fromInternal(schema.toInternal(row)))
    finally:
        monkeypatch.undo()
        time.tzset()


KEY_SCALARS = sorted(set(SCALARS) - {"void"})
key_types = st.recursive(
    st.sampled_from(KEY_SCALARS),
    lambda inner: inner.map(array) | st.lists(inner, min_size=1, max_size=2).map(lambda fields: struct(*fields)),
    max_leaves=3,
)
key_schemas = st.lists(key_types, min_size=1, max_size=3).map(lambda fields: struct(*fields))


@given(key_schemas.flatmap(lambda schema: st.tuples(st.just(schema), values_of(schema), values_of(schema))))
def test_keys_have_equal_bytes_exactly_if_they_are_equal(given_keys):
    schema, one, other = given_keys
    codec = KeyCodec(schema)
    assert same(codec.decode_key(codec.encode_key(one)), one) or 0.0 in flat(one)  # -0.0 comes back as 0.0, equal
    assert (codec.encode_key(one) == codec.encode_key(other)) == same(one, other)
    assert codec.encode_key(codec.decode_key(codec.encode_key(one))) == codec.encode_key(one)


def flat(value):
    return [each for item in value for each in flat(item)] if isinstance(value, list | tuple) else [value]


@given(key_schemas.flatmap(lambda schema: st.tuples(st.just(schema), st.lists(values_of(schema), max_size=5))))
def test_columns_of_keys_give_the_bytes_of_each_key(given_keys):
    schema, keys = given_keys
    codec = KeyCodec(schema)
    columns = [[key[at] for key in keys] for at in range(len(schema["fields"]))]
    assert codec.encode_columns(columns) == [codec.encode_key(key) for key in keys]


@pytest.mark.parametrize(
    ("declared", "forms"),
    [
        ("double", [0.0, -0.0, 0, np.float32(0)]),
        ("float", [math.nan, -math.nan, np.float32("nan"), float(np.frombuffer(b"\x01\0\0\0\0\0\xf8\xff")[0])]),
        ("float", [0.1, np.float32(0.1)]),
        ("long", [5, np.int8(5), np.uint64(5)]),
        ("decimal(6,2)", [Decimal("1.5"), Decimal("1.500"), Decimal("15E-1")]),
        ("decimal(6,2)", [Decimal(0), Decimal("-0.00"), 0]),
        (
            "timestamp",
            [pd.Timestamp(0, tz="UTC"), dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))],
        ),
        ("binary", [b"a", bytearray(b"a")]),
        (array("double"), [[0.0], [-0.0], np.array([0.0]), (0,)]),
        (struct("double"), [(0.0,), (-0.0,)]),
    ],
)
def test_all_forms_of_one_key_have_the_same_bytes(declared, forms):
    codec = KeyCodec(struct(declared))
    assert len({codec.encode_key((form,)) for form in forms}) == 1
    assert len(set(codec.encode_columns([forms]))) == 1


def test_keys_that_bytes_cannot_tell_apart_are_refused():
    collated = spark_types.StructType(
        [spark_types.StructField("name", spark_types.StringType("UTF8_LCASE"))]
    ).jsonValue()
    with pytest.raises(InvalidArgumentError, match="key field 'name' has a collation"):
        KeyCodec(collated)
    for declared in ("string collate UTF8_LCASE", mapping("string", "long"), "variant"):
        with pytest.raises(InvalidArgumentError, match="a key cannot hold"):
            KeyCodec(struct(declared))
    with pytest.raises(InvalidArgumentError, match="at least one column"):
        KeyCodec(struct())


def test_columns_that_do_not_fit_are_refused():
    codec = KeyCodec(struct("long", "string"))
    with pytest.raises(InvalidArgumentError, match="expected the columns f0, f1, got 1 columns"):
        codec.encode_columns([[1]])
    with pytest.raises(InvalidArgumentError, match="columns of one length"):
        codec.encode_columns([[1], ["a", "b"]])
    with pytest.raises(InvalidArgumentError, match="grouping key: field 'f0'"):
        codec.encode_columns([["a"], ["a"]])
