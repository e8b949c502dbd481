"""Rows encoded column by column have the bytes of ``RowCodec``, and are read back; other rows are left to it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.state.byte_columns import ByteColumn
from equipoise.state.codec import KeyCodec, RowCodec
from equipoise.state.column_codec import ColumnCodec


def whole(bits):
    edges = [0, 31, 32, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63]
    near = sorted({sign * edge + step for edge in edges for sign in (1, -1) for step in (-1, 0, 1)})
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.integers(least, most) | st.sampled_from([n for n in near if least <= n <= most])


TYPES = {
    "byte": (pa.int8(), whole(8)),
    "short": (pa.int16(), whole(16)),
    "integer": (pa.int32(), whole(32)),
    "long": (pa.int64(), whole(64)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "boolean": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=40)),
    "binary": (pa.binary(), st.binary(max_size=40)),
}


def schema_of(types):
    return {"type": "struct", "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]}


@st.composite
def tables(draw, names=tuple(TYPES)):
    types = draw(st.lists(st.sampled_from(names), min_size=1, max_size=20))
    count = draw(st.integers(0, 8))
    columns = [draw(st.lists(st.none() | TYPES[each][1], min_size=count, max_size=count)) for each in types]
    return types, columns


def arrays(types, columns):
    return [pa.array(values, TYPES[each][0]) for each, values in zip(types, columns, strict=True)]


@given(tables())
def test_rows_have_the_bytes_of_the_row_codec_and_come_back(drawn):
    types, columns = drawn
    found = ColumnCodec(schema_of(types)).encode(arrays(types, columns), b"\x00")
    expected = [b"\x00" + each for each in RowCodec(schema_of(types)).encode_columns(columns)]
    assert found.strings() == expected
    payloads = ByteColumn(found.data, found.starts + 1, found.lengths - 1)
    for column, array in zip(ColumnCodec(schema_of(types)).decode(payloads), arrays(types, columns), strict=True):
        assert column.type == array.type
        assert repr(column.to_pylist()) == repr(array.to_pylist())  # NaN equals NaN, and 0.0 differs from -0.0


@given(tables(("byte", "short", "integer", "long", "boolean", "string", "binary")))
def test_keys_have_the_bytes_of_the_key_codec(drawn):
    types, columns = drawn
    found = ColumnCodec(schema_of(types), canonical=True).encode(arrays(types, columns))
    assert found.strings() == KeyCodec(schema_of(types)).encode_columns(columns)


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 65_535, 65_536])
@pytest.mark.parametrize("kind", ["string", "binary"])
def test_strings_of_every_head(kind, size):
    value = "x" * size if kind == "string" else b"x" * size
    rows = ColumnCodec(schema_of([kind])).encode([pa.array([value, None], TYPES[kind][0])])
    assert rows.strings() == RowCodec(schema_of([kind])).encode_columns([[value, None]])
    assert ColumnCodec(schema_of([kind])).decode(rows)[0].to_pylist() == [value, None]


def test_slices_and_chunks_are_encoded_like_whole_arrays():
    column = pa.chunked_array([pa.array(["a", None, "bc"]).slice(1), pa.array(["d"])])
    numbers = pa.array([9, 1, 2, 3]).slice(1)
    found = ColumnCodec(schema_of(["string", "long"])).encode([column, numbers])
    assert found.strings() == RowCodec(schema_of(["string", "long"])).encode_columns([[None, "bc", "d"], [1, 2, 3]])


@pytest.mark.parametrize(
    ("types", "columns"),
    [
        (["long"], [pa.array([1.0])]),
        (["byte"], [pa.array([1], pa.int64())]),
        (["decimal(3,1)"], [pa.array([1], pa.int64())]),
        (["long"], []),
        (
            ["string"],
            [
                pa.Array.from_buffers(
                    pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")]
                )
            ],
        ),
    ],
)
def test_other_columns_are_left_to_the_row_codec(types, columns):
    assert ColumnCodec(schema_of(types)).encode(columns) is None


def test_floats_in_keys_are_left_to_the_key_codec():
    assert ColumnCodec(schema_of(["double"]), canonical=True).encode([pa.array([0.5])]) is None


@pytest.mark.parametrize(
    ("types", "data"),
    [
        (["long"], b""),
        (["long"], b"\x91"),
        (["long"], b"\x92\x01\x01"),
        (["long"], b"\x91\x01\x01"),
        (["long"], b"\x91\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
        (["long"], b"\x91\xcd\x01"),
        (["long"], b"\x91\xa1x"),
        (["byte"], b"\x91\xcc\xff"),
        (["double"], b"\x91\x01"),
        (["double"], b"\x91\xcb\x00"),
        (["boolean"], b"\x91\x01"),
        (["string"], b"\x91\xa2x"),
        (["string"], b"\x91\xa1\xff"),
        (["string"], b"\x91\xdb\xff\xff\xff\xffx"),
        (["string"], b"\x91\xda\xff"),
        (["binary"], b"\x91\xa1x"),
    ],
)
def test_bytes_of_other_rows_are_left_to_the_row_codec(types, data):
    assert ColumnCodec(schema_of(types)).decode(ByteColumn.of([data])) is None


@given(st.lists(st.binary(max_size=12), max_size=5), st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3))
def test_what_is_decoded_the_row_codec_decodes_as_well(data, types):
    found = ColumnCodec(schema_of(types)).decode(ByteColumn.of([bytes([0x90 | len(types)]) + each for each in data]))
    if found is not None:
        rows = [RowCodec(schema_of(types)).decode(bytes([0x90 | len(types)]) + each) for each in data]
        assert repr(rows) == repr(list(zip(*(each.to_pylist() for each in found), strict=True)))
