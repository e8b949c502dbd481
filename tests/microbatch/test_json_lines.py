"""Lines of JSON: the same tuples as from the parser below, in time proportional to the bytes."""

import io
import json

import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.microbatch import json_lines
from equipoise.microbatch.json_lines import parse_lines

SCHEMA = pa.schema(
    [
        ("word", pa.string()),
        ("n", pa.int64()),
        ("small", pa.uint8()),
        ("share", pa.float32()),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us")),
        ("there", pa.timestamp("ms", "Europe/Paris")),
        ("day", pa.date32()),
        ("price", pa.decimal128(5, 2)),
        ("items", pa.list_(pa.int16())),
        ("inner", pa.struct([("a", pa.int32()), pa.field("b", pa.string(), nullable=False)])),
        pa.field("id", pa.int8(), nullable=False),
    ]
)
TEXT = pa.schema({"word": pa.string(), "n": pa.int64()})


def alone(line, schema):
    """The tuple of a line as pyarrow.json reads it, or None."""
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    read = pyarrow.json.ReadOptions(block_size=1 << 20, use_threads=False)
    try:
        table = pyarrow.json.read_json(io.BytesIO(line + b"\n"), read_options=read, parse_options=options)
        table.validate(full=True)
    except pa.ArrowException:
        return None
    return table if len(table) == 1 else None


raw_values = st.sampled_from(
    r"""null true false 0 -0 1 -1 127 128 255 256 40000 1.0 1e3 1E-2 -0.5 1e39 1e308 1e400 0e400 9223372036854775807
    9223372036854775808 01 - +1 .5 1. NaN Infinity -Infinity Inf -NaN nan "" "a" "1" "1.25" "1.255" "123456" "1e2"
    "2020-01-01" "2020-01-01T10" "2020-01-01T10:11:12Z" "2020-01-01T10:11:12+01:00" "2020-01-01T10:11:12.1234567"
    "2020-13-01" "0000-01-01" "9999-12-31T23:59:59.999" "2020-01-01T25:00:00" "2020-02-30" "x" "\n" "\x" "\ud800"
    "\udc00" "\ud83d\ude00" "\u0000" "\ufffd" "\u00" [ ] [] [1] [1,null] [40000] ["a"] [[1]] {} {"a":1} {"b":"x"}
    {"a":1,"b":"x"} {"a":1,"a":2,"b":""} {"b":null} {"a":"x","b":""} {"b":"x","c":[1,{"d":2}]} { } " , :""".split()  # noqa: SIM905 - a table to be read
)  # fmt: skip
values = st.one_of(raw_values, st.integers().map(str), st.floats().map(json.dumps), st.text().map(json.dumps))
names = st.sampled_from([*SCHEMA.names, "id", "id", "other", "x\\u0079", "\\u006e"])
members = st.lists(st.tuples(names, values).map(lambda member: f'"{member[0]}": {member[1]}'), max_size=5)
whole = st.sampled_from(['"id": 1', '"id":0,"n":5', '"id": -3, "word": "ä"'])
objects = st.tuples(whole, members).map(lambda parts: "{" + ", ".join([parts[0], *parts[1]]) + "}")
sane = st.one_of(objects, members.map(lambda parts: "{" + ",".join(parts) + "}")).map(str.encode)


@st.composite
def damaged(draw):
    line = bytearray(draw(sane))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(line) - 1))
        line[at] = draw(st.sampled_from(b'\x00\xff\t"{}[],:0e\\ \xc3'))
    return bytes(line)


@given(st.lists(damaged(), min_size=1, max_size=12))
@settings(max_examples=200)
def test_what_is_read_of_many_lines_is_what_is_read_of_each_alone(lines):
    objects_ = [line for line in lines if line.lstrip()[:1] == b"{"]
    expected = [table for line in objects_ if (table := alone(line, SCHEMA)) is not None]
    table, letters = parse_lines([b"{", *lines], SCHEMA)  # the first one is bad: each line is looked at
    assert sorted(map(repr, table.to_pylist())) == sorted(repr(each.to_pylist()[0]) for each in expected)
    assert len(table) + len(letters) == 1 + sum(bool(line.strip()) for line in lines)


def test_a_line_is_one_tuple_or_one_letter_also_where_objects_share_lines():
    for lines in (
        [b'{"n": 1}{"n": 2}'],
        [b'{"x":', b'{"y": 1}}', b'{"n": 3}'],
        [b'{"x":', b'{"y": 1}}{"n": 4}'],
        [b'{"n": 1}\0', b'{"n": 2}'],
    ):
        table, letters = parse_lines(lines, TEXT)
        assert len(table) + len(letters) == len(lines)
        assert all(letter.reason for letter in letters)


def test_deep_lines_and_other_spellings_of_infinity_are_left_to_the_parser():
    deep = b'{"n": 1, "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    table, letters = parse_lines([deep, b'{"n": 2, "x": Inf}', b"{", b'{"n": 3'], TEXT)
    assert sorted(table["n"].to_pylist()) == [1, 2]
    assert len(letters) == 2


@pytest.mark.parametrize("shape", ["lists", "objects", "escapes"])
@pytest.mark.parametrize("name", ["n", "x"])
def test_a_line_of_any_depth_is_a_tuple_or_a_letter(shape, name):
    for depth in [*range(100, 2100, 50), 5000, 20_000]:
        inner = b'{"a":' * depth + b"1" + b"}" * depth if shape == "objects" else b"[" * depth + b"]" * depth
        escape = b'"y": "\\ud83d\\ude00", ' if shape == "escapes" else b""
        table, letters = parse_lines([b"{%b%b: %b}" % (escape, json.dumps(name).encode(), inner), b"{"], TEXT)
        assert (len(table), len(letters)) == ((0, 2) if name == "n" else (1, 1)), depth


def test_no_lines_are_no_tuples():
    assert parse_lines([b"", b"  "], TEXT) == (TEXT.empty_table(), [])


@pytest.mark.parametrize(
    "bad",
    [b"{", b"nonsense", b'{"n": "many"}', b'{"n": 1, "n": 2}', b'{"word": "\xff"}', b'{"x": "\\ud800"}', b'{"n": 1}x',
     b'{"t": "x"}', b'{"t": "2020-99-99"}', b"{" * 40, b"{NaN", b'{"n": Inf', b'{"x":"\xff\\ud800"}x', b'{"n": NaN}',
     b'{"x": -NaN, "n": Inf}'],
)  # fmt: skip
def test_bad_lines_cost_time_in_proportion_to_their_size(bad, monkeypatch):
    every = 1 if len(bad) == 1 else 10
    schema = TEXT.append(pa.field("t", pa.timestamp("us")))
    lines = [bad if number % every == 0 else b'{"word": "a", "n": 1}' for number in range(50_000)]
    parsed, parse = [], json_lines._parsed
    monkeypatch.setattr(json_lines, "_parsed", lambda some, schema: parsed.append(len(some)) or parse(some, schema))
    table, letters = parse_lines(lines, schema)
    assert len(parsed) <= 6
    assert (len(table), len(letters)) == (50_000 - 50_000 // every, 50_000 // every)


@pytest.mark.parametrize(
    "bad",
    [
        b'{"t": "2020-99-99"}',
        b'{"t": "2020-02-30T01:02:03Z"}',
        b'{"t": "2020-01-01 25:00:00"}',
        b'{"t": "2020-01-01T00:00:00", "p": "1234.5"}',
        b'{"p": "1.255"}',
    ],
)
def test_times_and_decimals_of_the_usual_form_are_checked_without_arrow(bad, monkeypatch):
    """A conversion by Arrow takes as long as twenty lines."""
    asked, converts = [], json_lines._converts
    monkeypatch.setattr(json_lines, "_converts", lambda text, kind: asked.append(text) or converts(text, kind))
    schema = TEXT.append(pa.field("t", pa.timestamp("us"))).append(pa.field("p", pa.decimal128(5, 2)))
    good = b'{"t": "2020-01-01T00:00:00", "p": "-012.5"}'
    table, letters = parse_lines([bad, good] * 500, schema)
    assert (len(table), len(letters)) == (500, 500)
    assert asked == []


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@given(
    st.from_regex(
        r"(0000|1677|1678|2020|2262|9999)-[01][0-9]-[0-3][0-9]([ T][0-2][0-9]:[0-6][0-9]:[0-6][0-9])?Z?", fullmatch=True
    )
)
def test_a_time_is_taken_if_arrow_takes_it(unit, text):
    zone = "UTC" if text.endswith("Z") else None
    assert json_lines._is_time(text, pa.timestamp(unit, zone)) == json_lines._converts(text, pa.timestamp(unit, zone))


@given(
    st.from_regex(r"[+-]?0{0,3}[0-9]{0,40}(\.[0-9]{0,40})?0{0,3}([eE][+-]?[0-9])?", fullmatch=True), st.integers(0, 12)
)
def test_a_decimal_is_taken_if_arrow_takes_it(text, scale):
    kind = pa.decimal128(12, scale)
    assert json_lines._is_decimal(text, kind) == json_lines._converts(text, kind)
