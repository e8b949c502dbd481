"""Arrow streams of strangers: checked before memory is taken, valid before they are used."""

import io
import json
import struct
import subprocess
import sys
import tracemalloc
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.microbatch.arrow_messages import Bounds, Messages
from equipoise.microbatch.arrow_rows import ArrowRows
from equipoise.microbatch.dead_letters import SHOWN, RefusedError, shown, shown_row

SCHEMA = pa.schema({"word": pa.string(), "n": pa.int64()})
BOUNDS = Bounds(rows=100_000, bytes=4 << 20)


def stream(*tables, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, tables[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for table in tables:
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


def read(data, schema=SCHEMA, bounds=BOUNDS):
    """Rows, dead letters, and why the stream was refused."""
    rows, letters = [], []
    reader = ArrowRows(io.BytesIO(data).read, lambda: None, schema, bounds)
    try:
        for batch in reader.batches():
            for _, table, bad in reader.fitted(batch):
                rows += table.to_pylist()
                letters += bad
    except RefusedError as error:
        return rows, letters, str(error)
    return rows, letters, None


def rows_of(n, **columns):
    return pa.table({"word": ["a"] * n, "n": list(range(n))} | columns)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_a_stream_is_read_whatever_its_compression(compression):
    table = rows_of(1000, more=[[1, None]] * 1000)
    found, letters, refused = read(stream(table, table.slice(0, 0), table, compression=compression))
    assert (found, letters, refused) == (2 * table.select(["word", "n"]).to_pylist(), [], None)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_text_of_every_kind_is_read(kind):
    table = pa.table({"word": pa.array(["a", None, "b" * 50] * 5).cast(kind), "n": [1] * 15})
    found, letters, refused = read(stream(table, table.slice(3)))
    assert [row["word"] for row in found] == (["a", None, "b" * 50] * 9)
    assert (letters, refused) == ([], None)


def test_a_dictionary_that_grows_or_is_replaced_is_read():
    tables = [pa.table({"word": pa.array(words).dictionary_encode(), "n": [1] * 2}) for words in ("ab", "bc", "ac")]
    assert [row["word"] for row in read(stream(*tables))[0]] == [*"abbcac"]
    grown = [
        pa.table({"word": pa.DictionaryArray.from_arrays([0, len(words) - 1], list(words)), "n": [1] * 2})
        for words in ("ab", "abc", "abcd")
    ]
    assert [row["word"] for row in read(stream(*grown, emit_dictionary_deltas=True))[0]] == [*"abacad"]


def test_dictionaries_that_grow_without_end_are_refused():
    words = [f"{number}" * 1000 for number in range(200)]
    grown = [
        pa.table({"word": pa.DictionaryArray.from_arrays([0, upto - 1], words[:upto]), "n": [1] * 2})
        for upto in range(2, 200)
    ]
    assert read(stream(*grown, emit_dictionary_deltas=True), bounds=Bounds(1000, 1 << 20))[2] is None
    found, _, refused = read(stream(*grown, emit_dictionary_deltas=True), bounds=Bounds(1000, 100_000))
    assert found
    assert "bytes of dictionaries before it" in refused


PEAK = """
import sys
import pyarrow as pa
from equipoise.microbatch.arrow_messages import Bounds
from equipoise.microbatch.arrow_rows import ArrowRows
from equipoise.microbatch.dead_letters import RefusedError

schema = pa.schema({"word": pa.string(), "n": pa.int64()})
bounds = Bounds(*map(int, sys.argv[1:]))
try:
    for batch in ArrowRows(sys.stdin.buffer.read, lambda: None, schema, bounds).batches():
        print(len(batch), "rows")
except RefusedError as error:
    print(error)
print(pa.default_memory_pool().max_memory())
"""


def peak(data, bounds):
    """What a process of its own says of a stream, and the most memory that Arrow took for it."""
    command = [sys.executable, "-c", PEAK, str(bounds.rows), str(bounds.bytes)]
    lines = subprocess.run(command, input=data, capture_output=True, check=True).stdout.decode().splitlines()
    return lines[0], int(lines[1])


@pytest.mark.parametrize(
    ("reported", "bomb"),
    [
        ("2,000,000 rows", {"word": pa.nulls(2_000_000, pa.string()), "n": np.zeros(2_000_000, np.int64)}),
        ("100,000,000 bytes in one buffer", {"word": ["a" * 1_000_000] * 100, "n": [1] * 100}),
    ],
    ids=["rows", "bytes"],
)
def test_a_short_message_that_becomes_much_is_refused_before_memory_is_taken(reported, bomb):
    data = stream(pa.table(bomb), compression="zstd")
    assert len(data) < 100_000
    refused, most = peak(data, BOUNDS)
    assert reported in refused
    assert "at most" in refused
    assert "raise messageRows or messageBytes" in refused
    assert most < 1 << 20
    read_, most = peak(data, Bounds(10_000_000, 1 << 30))
    assert read_.endswith("rows")
    assert most > 15_000_000  # so that the memory would have been seen


def test_a_value_that_is_referred_to_again_and_again_is_refused_before_it_is_written_out():
    long = pa.array(["a" * 1_000_000])
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 100), long)
    one = pa.array(["a" * 1_000_000], pa.string_view()).buffers()
    views = pa.Array.from_buffers(pa.string_view(), 100, [None, pa.py_buffer(bytes(one[1])[:16] * 100), one[2]])
    assert views.nbytes < 4 << 20
    fixed = pa.DictionaryArray.from_arrays(pa.array([0] * 100), pa.array([b"a" * 1_000_000], pa.binary(1_000_000)))
    for column in (shared, views, fixed):
        found, _, refused = read(stream(pa.table({"word": column, "n": [1] * 100})))
        assert found == []
        assert "bytes when it is written out, most of them in column word (100,000,000), and at most" in refused


@pytest.mark.parametrize(
    "items",
    [
        pa.ListArray.from_arrays([0, 0, 2_000_000], pa.nulls(2_000_000)),
        pa.FixedSizeListArray.from_arrays(pa.nulls(2_000_000), 1_000_000),
        pa.LargeListArray.from_arrays([0, 1, 2_000_000], pa.array(np.zeros(2_000_000, bool))),
        pa.ListArray.from_arrays([0, 0, 2_000_000], pa.array(np.zeros(2_000_000, np.int8))),
    ],
    ids=["nulls", "fixed", "booleans", "bytes"],
)
def test_items_that_grow_when_they_are_converted_are_refused_before(items):
    schema = pa.schema({"k": pa.int64(), "items": pa.list_(pa.int64())})
    found, _, refused = read(stream(pa.table({"k": [1, 2], "items": items})), schema)
    assert found == []
    assert "bytes when it is written out, most of them in column items (16,000,0" in refused


def test_nested_values_of_the_size_that_is_allowed_are_read():
    kind = pa.struct({"a": pa.list_(pa.int64()), "m": pa.map_(pa.string(), pa.int64())})
    table = pa.table({"s": pa.array([{"a": [1, None], "m": [("x", 1)]}, None] * 1000, kind)})
    narrow = pa.struct({"m": pa.map_(pa.string(), pa.int8()), "a": pa.large_list(pa.int32())})
    sent = pa.table({"s": pa.array([{"a": [1, None], "m": [("x", 1)]}, None] * 1000, narrow)})
    for each in (table, sent):
        found, letters, refused = read(stream(each), table.schema)
        assert (found, letters, refused) == (table.to_pylist(), [], None)


@pytest.mark.parametrize(
    "column",
    [
        pa.RunEndEncodedArray.from_arrays(pa.array([5], pa.int32()), pa.array(["a"])),
        pa.ListViewArray.from_arrays([0] * 5, [1] * 5, pa.array([1])),
        pa.ListArray.from_arrays([0, 1, 1, 1, 1, 1], pa.array(["a"]).dictionary_encode()),
        pa.UnionArray.from_dense(pa.array([0] * 5, pa.int8()), pa.array(range(5), pa.int32()), [pa.array(range(5))]),
    ],
    ids=["runs", "list view", "nested dictionary", "union"],
)
def test_types_of_which_a_few_bytes_stand_for_many_are_refused_by_name(column):
    for name in ("word", "more"):
        table = pa.table({"n": [1] * 5} | {"word": ["a"] * 5} | {name: column})
        found, _, refused = read(stream(table))
        assert (len(found), refused is None) == ((0, False) if name == "word" else (5, True))
        assert refused is None or "column word is" in refused


@pytest.mark.parametrize("scale", [33554434, 39, 11, -1])
@pytest.mark.parametrize("wrapped", [lambda kind: kind, pa.list_, lambda kind: pa.struct({"a": kind})])
def test_a_decimal_of_a_scale_that_cannot_be_is_refused_before_it_is_converted(scale, wrapped):
    column = pa.nulls(1, wrapped(pa.decimal128(10, scale)))
    found, _, refused = read(stream(pa.table({"n": [1], "word": column})))
    assert found == []
    assert f"column word has the type decimal128(10, {scale}), and a scale from 0 to 10 was expected" in refused
    assert read(stream(pa.table({"n": [1], "word": ["a"], "more": column})))[1:] == ([], None)


@pytest.mark.parametrize(
    ("table", "reported"),
    [
        (pa.table({"n": [1]}), "it has the columns n"),
        (pa.table({"word": ["a"], "n": [[1]]}), "Unsupported cast from list"),
        (
            pa.Table.from_arrays([pa.array(["a"]), pa.array([1]), pa.array([2])], ["word", "n", "n"]),
            "it has the columns word, n, n",
        ),
    ],
)
def test_a_stream_of_another_schema_is_refused_by_name(table, reported):
    found, letters, refused = read(stream(table))
    assert (found, letters) == ([], [])
    assert "the schema of the stream does not match" in refused
    assert reported in refused
    assert "word string, n int64 were expected" in refused


def test_a_name_that_is_not_text_is_refused():
    data = stream(rows_of(2, mörë=[1, 2])).replace("mörë".encode(), b"m\xff\xfer\xff\xfe")
    assert "does not match" in read(data)[2]


def test_a_column_without_values_where_some_are_required_goes_to_the_dead_letters_row_by_row():
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    found, letters, _ = read(stream(pa.table({"n": [1, None, 3]})), schema)
    assert [row["n"] for row in found] == [1, 3]
    assert [json.loads(text) for text, _, _ in letters] == [{"n": None}]


def test_rows_that_do_not_fit_are_tried_one_by_one_only_so_often():
    count, tried = 50_000, []
    reader = ArrowRows(io.BytesIO(b"").read, lambda: None, SCHEMA, BOUNDS)
    cast = reader._cast
    reader._cast = lambda rows: tried.append(len(rows)) or cast(rows)
    bad = pa.record_batch({"word": ["a"] * count, "n": ["many" if row % 100 else "1" for row in range(count)]})
    found = list(reader.fitted(bad))
    letters = [letter for _, _, some in found for letter in some]
    assert sum(number for number, _, _ in found) == count
    assert sum(len(table) for _, table, _ in found) + sum(letter.rows for letter in letters) == count
    assert len(tried) < 4_000 + count // 50
    assert letters[0] == (json.dumps({"word": "a", "n": "many"}), letters[0].reason, 1)
    assert letters[-1].text.endswith("} and 15 more")
    assert "at least one of these 16 lines or rows cannot be read (ArrowInvalid: Failed to parse" in letters[-1].reason


def test_a_message_whose_lists_end_outside_of_it_is_refused():
    schema = pa.schema({"items": pa.list_(pa.int64())})
    data = stream(pa.table({"items": [[5, 6, 7]] * 3}, schema=schema))
    _, body, _ = header(data, 2)
    at = data.index(struct.pack("<4i", 0, 3, 6, 9), body)
    found, letters, refused = read(data[:at] + struct.pack("<4i", 0, 3, 6, 900) + data[at + 16 :], schema)
    assert (found, letters) == ([], [])
    assert "message 2 is damaged (ArrowInvalid: In column 0" in refused
    assert "3 valid rows were expected; send it again" in refused


def shared_fields(count):
    """Header of a schema with so many fields, all of them one table, which has as many children."""
    data = bytearray(4)

    def put(kind, *values):
        data.extend(struct.pack(kind, *values))
        return len(data) - struct.calcsize(kind)

    def point(at, to):
        struct.pack_into("<I", data, at, to - at)

    def table(fields, places):
        vtable = put(f"<HH{len(fields)}H", 4 + 2 * len(fields), 4 + places, *fields)
        return put("<i", len(data) - vtable)

    message = table([4, 6, 8], 8)
    put("<hBB", 4, 1, 0)
    header_at = put("<I", 0)
    point(0, message)
    schema = table([0, 4], 4)
    fields_at = put("<I", 0)
    point(header_at, schema)
    point(fields_at, put("<I", count))
    entries = put(f"<{count}I", *[0] * count)
    field = table([0, 0, 0, 0, 0, 4], 4)
    point(put("<I", 0), put("<I", 0))
    for number in range(count):
        point(entries + 4 * number, field)
    return bytes(data)


def test_fields_are_counted_before_memory_is_taken_for_them():
    metadata = shared_fields(200_000)
    data = b"\xff\xff\xff\xff" + struct.pack("<i", len(metadata)) + metadata
    tracemalloc.start()
    refused = read(data)[2]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "the schema has more than 10,000 fields" in refused
    assert peak < 4 << 20
    fewer = shared_fields(100)
    assert "cannot be decoded" in read(b"\xff\xff\xff\xff" + struct.pack("<i", len(fewer)) + fewer)[2]


def test_a_long_header_is_refused_with_what_to_do():
    table = rows_of(3).replace_schema_metadata({"note": "x" * (1 << 20)})
    assert (
        "at most 1,048,576 were expected; send fewer columns, or shorter names and metadata" in read(stream(table))[2]
    )


def header(data, number):
    """Where a message begins, where its body begins, and where that ends."""
    at = 0
    for _ in range(number):
        begin, size = at, int.from_bytes(data[at + 4 : at + 8], "little")
        body = at + 8 + size
        at = body + pa.ipc.read_message(pa.BufferReader(data[begin:])).body.size if number > 1 or size else body
    return begin, body, at


def test_lengths_that_a_sender_claims_take_no_memory():
    data = stream(rows_of(10))
    begin, body, _ = header(data, 2)
    size = struct.pack("<q", 10)
    for claimed in (2**62, -1, 5 << 20, 2**31):
        for at in range(begin + 8, body - 8, 4):
            changed = data[:at] + struct.pack("<q", claimed) + data[at + 8 :]
            tracemalloc.start()
            found, letters, refused = read(changed)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 8 << 20
            assert refused is not None or len(found) + len(letters) in {0, 10}
    assert size in data
    for claimed in (2**31 - 1, -5, 20 << 20):
        changed = data[: begin + 4] + struct.pack("<i", claimed) + data[begin + 8 :]
        assert "bytes of header" in read(changed)[2]


@pytest.mark.parametrize("version", [0, 3])
def test_older_versions_are_refused_by_name(version):
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4, use_legacy_format=version == 0)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        writer.write_table(rows_of(3))
    assert "or newer" in read(sink.getvalue().to_pybytes())[2]


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=300)
def test_any_bytes_are_refused_or_read(data, has_prefix):
    prefix = b"\xff\xff\xff\xff" + struct.pack("<i", len(data)) if has_prefix else b""
    messages = Messages(io.BytesIO(prefix + data).read, lambda: None, BOUNDS)
    with suppress(RefusedError):
        assert len(messages.read(8)) <= 8


def test_a_sender_that_comes_and_goes_leaves_nothing():
    assert read(b"") == ([], [], None)


odd = {
    "far day": pa.array([2**31 - 1], pa.date32()),
    "far time": pa.array([2**62], pa.timestamp("s")),
    "odd zone": pa.array([0], pa.timestamp("us", "Mars/Olympus")),
    "far in odd zone": pa.array([-(2**60)], pa.timestamp("ms", "")),
    "long": pa.array([2**62], pa.duration("s")),
    "hour": pa.array([2**40], pa.int64()).view(pa.time64("us")),
    "nan": pa.array([float("nan")]),
    "inf": pa.array([float("-inf")], pa.float32()),
    "bytes": pa.array([b"\xff\x00"]),
    "not text": pa.array([b"\xff"]).view(pa.string()),
    "not large text": pa.array([b"\xff"], pa.large_binary()).view(pa.large_string()),
    "dictionary": pa.DictionaryArray.from_arrays([0], pa.array([b"\xff"]).view(pa.string())),
    "nested": pa.array([[{"a": [1, None], "b": "x"}]]),
    "nested not text": pa.ListArray.from_arrays([0, 1], pa.array([b"\xff"]).view(pa.string())),
    "nested far day": pa.ListArray.from_arrays([0, 1], pa.array([2**31 - 1], pa.date32())),
    "huge": pa.array(["x" * 10_000_000]),
    "huge bytes": pa.array([b"\xff" * 1_000_000]),
    "huge list": pa.array([list(range(1_000_000))]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "null": pa.nulls(1),
    "decimal": pa.array([1], pa.decimal256(70, 3)),
    "half": pa.array([np.float16(1.5)]),
    "months": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "union": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array(["a"])),
}


@pytest.mark.parametrize("name", odd)
def test_showing_a_dead_letter_cannot_fail(name):
    text = shown_row(pa.RecordBatch.from_arrays([odd[name]], [name]))
    assert name in text
    assert len(text) < 4 * SHOWN
    text.encode()
    if len(text) < SHOWN:
        assert list(json.loads(text, parse_constant=pytest.fail)) == [name]
    else:
        assert "[cut after 4,096 characters" in text


def test_a_row_that_does_not_fit_is_shown_whatever_is_beside_it():
    wide = {
        name: column
        for name, column in odd.items()
        if "not" not in name and "zone" not in name and name not in {"dictionary", "hour", "union", "runs"}
    }
    table = pa.table({"word": ["a"], "n": ["many"]} | wide)
    schema = table.schema.set(1, pa.field("n", pa.int64()))
    found, letters, refused = read(stream(table), schema, bounds=Bounds(10_000_000, 64 << 20))
    assert (found, len(letters), refused) == ([], 1, None)
    assert "many" in letters[0].text


def test_columns_that_the_schema_lacks_are_not_looked_at():
    table = pa.table({"word": ["a"], "n": [1]} | odd)
    assert read(stream(table), bounds=Bounds(10_000_000, 64 << 20)) == ([{"word": "a", "n": 1}], [], None)


@pytest.mark.parametrize("name", ["nested not text", "dictionary", "hour"])
def test_a_message_of_values_that_cannot_be_is_refused_by_the_reason(name):
    tables = [pa.table({"n": [1], "x": column}) for column in (pa.nulls(1, odd[name].type), odd[name])]
    kind = pa.string() if name == "dictionary" else odd[name].type
    found, letters, refused = read(stream(*tables), pa.schema({"n": pa.int64(), "x": kind}))
    assert (len(found), letters) == (1, [])
    assert "is damaged (ArrowInvalid:" in refused
    assert "1 valid rows were expected; send it again" in refused


def test_a_line_is_shown_whatever_its_bytes():
    assert shown(b"\xff{") == "\\xff{"
    long = shown("é".encode() * 100_000)
    assert "200,000 bytes in all" in long
    assert len(long) < 2 * SHOWN
