"""Encode and decode rows of plain fields column by column, with the bytes of ``RowCodec``.

A row is a MessagePack array with the shortest form of each value. Whatever these functions do not read or write exactly
as ``RowCodec`` does, they leave to it: they return ``None``, and the caller goes row by row.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from equipoise.kernels import kernel
from equipoise.state.byte_columns import ByteColumn, Bytes, Integers, frozen, starts_of

_INTEGERS = {"byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64()}
_FLOATS = {"float": pa.float32(), "double": pa.float64()}
_OTHERS = {"boolean": pa.bool_(), "string": pa.string(), "binary": pa.binary()}
_MOST_FIELDS = 65_535
_LARGEST = 2**31 - 1  # bytes of an Arrow array of strings
_NIL, _FALSE, _TRUE, _DOUBLE = 0xC0, 0xC2, 0xC3, 0xCB


class _Field(NamedTuple):
    form: str  # "integer", "float", "boolean", "text" or "binary"
    type: pa.DataType


def _plain_field(field: Mapping[str, Any]) -> _Field | None:
    declared = field["type"]
    if not isinstance(declared, str) or field.get("metadata"):
        return None
    for form, types in (("integer", _INTEGERS), ("float", _FLOATS)):
        if declared in types:
            return _Field(form, types[declared])
    return _Field("text" if declared == "string" else declared, _OTHERS[declared]) if declared in _OTHERS else None


class ColumnCodec:
    """Encodes and decodes rows of one schema, all rows at once.

    Parameters
    ----------
    schema
        ``StructType.jsonValue()``.
    canonical
        Whether equal rows must have equal bytes, as for keys; floats are left to ``RowCodec`` then.
    """

    def __init__(self, schema: Mapping[str, Any], *, canonical: bool = False) -> None:
        fields = [_plain_field(field) for field in schema["fields"]]
        known = [field for field in fields if field is not None and not (canonical and field.form == "float")]
        self._fields = known if len(known) == len(fields) <= _MOST_FIELDS else None

    def encode(self, columns: Sequence[pa.Array | pa.ChunkedArray], head: bytes = b"") -> ByteColumn | None:
        """Return the bytes of each row, after ``head``; ``None`` if ``RowCodec`` has to encode them.

        Parameters
        ----------
        columns
            One for each field; a column of another type than its field is left to ``RowCodec``.
        head
            Bytes before each row.
        """
        if self._fields is None or len(columns) != len(self._fields):
            return None
        if any(column.type != field.type for column, field in zip(columns, self._fields, strict=True)):
            return None
        arrays = [_one_array(column) for column in columns]
        if any(pa.types.is_string(array.type) and not _is_utf8(array) for array in arrays):
            return None
        head += _array_head(len(self._fields))
        lengths = np.full(len(arrays[0]) if arrays else 0, len(head), np.int64)
        sources = [_source(array, field) for array, field in zip(arrays, self._fields, strict=True)]
        for field, (valid, values, offsets) in zip(self._fields, sources, strict=True):
            _MEASURE[field.form](valid, values, offsets, lengths)
        starts = starts_of(lengths)
        data = np.empty(int(lengths.sum()), np.uint8)
        _write_head(np.frombuffer(head, np.uint8), data, starts)
        at = starts + len(head)
        for field, (valid, values, offsets) in zip(self._fields, sources, strict=True):
            _WRITE[field.form](valid, values, offsets, data, at)
        return ByteColumn(frozen(data), starts, lengths)

    def decode(self, rows: ByteColumn) -> list[pa.Array] | None:
        """Return the columns of encoded rows; ``None`` if ``RowCodec`` has to decode them, which may find damage."""
        if self._fields is None:
            return None
        head = _array_head(len(self._fields))
        at, ends = rows.starts.copy(), rows.starts + rows.lengths
        if not _read_head(np.frombuffer(head, np.uint8), rows.data, at, ends):
            return None
        columns = [_READ[field.form](field, rows.data, at, ends) for field in self._fields]
        found = [column for column in columns if column is not None]
        return found if len(found) == len(columns) and bool((at == ends).all()) else None


def _array_head(count: int) -> bytes:
    return bytes([0x90 | count]) if count < 16 else b"\xdc" + count.to_bytes(2, "big")


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _is_utf8(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _source(array: pa.Array, field: _Field) -> tuple[NDArray[np.bool_], NDArray[Any], Integers]:
    """Return which values are valid, the values, and for strings the first byte of each and the end."""
    valid = np.asarray(array.is_valid())
    nowhere = np.empty(0, np.int64)
    if field.form in {"text", "binary"}:
        buffers = array.buffers()
        offsets = np.frombuffer(buffers[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        data = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.empty(0, np.uint8)
        return valid, data, offsets
    if array.null_count:
        array = array.fill_null(False if field.form == "boolean" else 0)
    values = np.asarray(array)
    if field.form == "float":
        return valid, values.astype(np.float64).view(np.uint64), nowhere
    return valid, values.astype(np.int64), nowhere


@kernel(nogil=True)
def _integer_length(value: int) -> int:
    if value >= 0:
        return 1 if value < 128 else 2 if value < 256 else 3 if value < 65_536 else 5 if value < 2**32 else 9
    return 1 if value >= -32 else 2 if value >= -128 else 3 if value >= -32_768 else 5 if value >= -(2**31) else 9


@kernel(nogil=True)
def _measure_integers(valid: NDArray[np.bool_], values: Integers, _offsets: Integers, lengths: Integers) -> None:
    for i in range(len(lengths)):
        lengths[i] += _integer_length(values[i]) if valid[i] else 1


@kernel(nogil=True)
def _measure_floats(valid: NDArray[np.bool_], _values: Any, _offsets: Integers, lengths: Integers) -> None:
    for i in range(len(lengths)):
        lengths[i] += 9 if valid[i] else 1


@kernel(nogil=True)
def _measure_booleans(_valid: NDArray[np.bool_], _values: Integers, _offsets: Integers, lengths: Integers) -> None:
    for i in range(len(lengths)):
        lengths[i] += 1


@kernel(nogil=True)
def _head_length(size: int, short: int) -> int:
    return 1 if size < short else 2 if size < 256 else 3 if size < 65_536 else 5


@kernel(nogil=True)
def _measure_text(valid: NDArray[np.bool_], _values: Bytes, offsets: Integers, lengths: Integers) -> None:
    for i in range(len(lengths)):
        size = offsets[i + 1] - offsets[i]
        lengths[i] += size + _head_length(size, 32) if valid[i] else 1


@kernel(nogil=True)
def _measure_binary(valid: NDArray[np.bool_], _values: Bytes, offsets: Integers, lengths: Integers) -> None:
    for i in range(len(lengths)):
        size = offsets[i + 1] - offsets[i]
        lengths[i] += size + _head_length(size, 0) if valid[i] else 1


@kernel(nogil=True)
def _write_big_endian(value: Any, size: int, data: Bytes, at: int) -> None:
    for k in range(size):
        data[at + k] = (value >> (8 * (size - 1 - k))) & 0xFF


@kernel(nogil=True)
def _write_head(head: Bytes, data: Bytes, starts: Integers) -> None:
    for i in range(len(starts)):
        for k in range(len(head)):
            data[starts[i] + k] = head[k]


@kernel(nogil=True)
def _write_integers(valid: NDArray[np.bool_], values: Integers, _offsets: Integers, data: Bytes, at: Integers) -> None:
    for i in range(len(at)):
        value = values[i]
        size = _integer_length(value)
        if not valid[i]:
            data[at[i]] = _NIL
            size = 1
        elif size == 1:
            data[at[i]] = value & 0xFF
        else:
            kind = 0 if size == 2 else 1 if size == 3 else 2 if size == 5 else 3
            data[at[i]] = (0xCC if value >= 0 else 0xD0) + kind
            _write_big_endian(value, size - 1, data, at[i] + 1)
        at[i] += size


@kernel(nogil=True)
def _write_floats(
    valid: NDArray[np.bool_], values: NDArray[np.uint64], _offsets: Integers, data: Bytes, at: Integers
) -> None:
    for i in range(len(at)):
        if not valid[i]:
            data[at[i]] = _NIL
            at[i] += 1
            continue
        data[at[i]] = _DOUBLE
        for k in range(8):
            data[at[i] + 1 + k] = (values[i] >> np.uint64(8 * (7 - k))) & np.uint64(0xFF)
        at[i] += 9


@kernel(nogil=True)
def _write_booleans(valid: NDArray[np.bool_], values: Integers, _offsets: Integers, data: Bytes, at: Integers) -> None:
    for i in range(len(at)):
        data[at[i]] = _NIL if not valid[i] else _TRUE if values[i] else _FALSE
        at[i] += 1


@kernel(nogil=True)
def _write_string(value: Bytes, first: int, size: int, short: int, kind: int, data: Bytes, at: int) -> int:
    head = _head_length(size, short)
    if head == 1:
        data[at] = 0xA0 | size
    else:
        data[at] = kind + (0 if head == 2 else 1 if head == 3 else 2)
        _write_big_endian(size, head - 1, data, at + 1)
    for k in range(size):
        data[at + head + k] = value[first + k]
    return head + size


@kernel(nogil=True)
def _write_text(valid: NDArray[np.bool_], values: Bytes, offsets: Integers, data: Bytes, at: Integers) -> None:
    for i in range(len(at)):
        if valid[i]:
            at[i] += _write_string(values, offsets[i], offsets[i + 1] - offsets[i], 32, 0xD9, data, at[i])
        else:
            data[at[i]] = _NIL
            at[i] += 1


@kernel(nogil=True)
def _write_binary(valid: NDArray[np.bool_], values: Bytes, offsets: Integers, data: Bytes, at: Integers) -> None:
    for i in range(len(at)):
        if valid[i]:
            at[i] += _write_string(values, offsets[i], offsets[i + 1] - offsets[i], 0, 0xC4, data, at[i])
        else:
            data[at[i]] = _NIL
            at[i] += 1


@kernel(nogil=True)
def _read_head(head: Bytes, data: Bytes, at: Integers, ends: Integers) -> bool:
    for i in range(len(at)):
        if at[i] + len(head) > ends[i]:
            return False
        for k in range(len(head)):
            if data[at[i] + k] != head[k]:
                return False
        at[i] += len(head)
    return True


@kernel(nogil=True)
def _read_big_endian(data: Bytes, at: int, size: int) -> Any:
    value = np.uint64(0)
    for k in range(size):
        value = (value << np.uint64(8)) | np.uint64(data[at + k])
    return np.int64(value)


@kernel(nogil=True)
def _integer_size(kind: Any) -> Any:
    """Bytes of an integer that begins with this byte; 0 if it is none."""
    if kind < 0x80 or kind >= 0xE0:
        return 1
    if 0xCC <= kind <= 0xCF:
        return 1 + (1 << (kind - 0xCC))
    return 1 + (1 << (kind - 0xD0)) if 0xD0 <= kind <= 0xD3 else 0


@kernel(nogil=True)
def _integer_at(data: Bytes, at: int) -> Any:
    kind = np.int64(data[at])
    if kind < 0x80:
        return kind
    if kind >= 0xE0:
        return kind - 256
    size = _integer_size(kind) - 1
    value = _read_big_endian(data, at + 1, size)
    if kind >= 0xD0 and size < 8 and value >= 1 << (8 * size - 1):
        value -= 1 << (8 * size)
    return value


@kernel(nogil=True)
def _read_integers(data: Bytes, at: Integers, ends: Integers, out: Integers, valid: NDArray[np.bool_]) -> bool:
    for i in range(len(at)):
        if at[i] >= ends[i]:
            return False
        kind = np.int64(data[at[i]])
        valid[i] = kind != _NIL
        size = _integer_size(kind) if valid[i] else 1
        if size == 0 or at[i] + size > ends[i]:
            return False
        out[i] = _integer_at(data, at[i]) if valid[i] else 0
        if kind == 0xCF and out[i] < 0:  # above 2**63 - 1
            return False
        at[i] += size
    return True


@kernel(nogil=True)
def _read_floats(data: Bytes, at: Integers, ends: Integers, out: NDArray[np.uint64], valid: NDArray[np.bool_]) -> bool:
    for i in range(len(at)):
        if at[i] >= ends[i]:
            return False
        kind = data[at[i]]
        valid[i] = kind != _NIL
        size = 9 if valid[i] else 1
        if (valid[i] and kind != _DOUBLE) or at[i] + size > ends[i]:
            return False
        out[i] = np.uint64(_read_big_endian(data, at[i] + 1, 8)) if valid[i] else np.uint64(0)
        at[i] += size
    return True


@kernel(nogil=True)
def _read_booleans(data: Bytes, at: Integers, ends: Integers, out: NDArray[np.bool_], valid: NDArray[np.bool_]) -> bool:
    for i in range(len(at)):
        if at[i] >= ends[i]:
            return False
        kind = data[at[i]]
        if kind not in (_NIL, _FALSE, _TRUE):
            return False
        valid[i] = kind != _NIL
        out[i] = kind == _TRUE
        at[i] += 1
    return True


@kernel(nogil=True)
def _find_strings(
    data: Bytes, at: Integers, ends: Integers, short: int, kind: int, lengths: Integers, valid: NDArray[np.bool_]
) -> bool:
    """Move ``at`` to the first byte of each string, and write its length."""
    for i in range(len(at)):
        if at[i] >= ends[i]:
            return False
        found = np.int64(data[at[i]])
        valid[i] = found != _NIL
        lengths[i] = 0
        head: Any = 1
        if short and 0xA0 <= found < 0xC0:
            lengths[i] = found - 0xA0
        elif kind <= found <= kind + 2:
            head = 1 + (1 << (found - kind))
            if at[i] + head > ends[i]:
                return False
            lengths[i] = _read_big_endian(data, at[i] + 1, head - 1)
        elif valid[i]:
            return False
        if at[i] + head + lengths[i] > ends[i]:
            return False
        at[i] += head
    return True


def _integers_of(field: _Field, data: Bytes, at: Integers, ends: Integers) -> pa.Array | None:
    out, valid = np.empty(len(at), np.int64), np.empty(len(at), np.bool_)
    if not _read_integers(data, at, ends, out, valid):
        return None
    narrow = out.astype(field.type.to_pandas_dtype())
    return pa.array(narrow, mask=~valid) if bool((narrow == out).all()) else None


def _floats_of(field: _Field, data: Bytes, at: Integers, ends: Integers) -> pa.Array | None:
    out, valid = np.empty(len(at), np.uint64), np.empty(len(at), np.bool_)
    if not _read_floats(data, at, ends, out, valid):
        return None
    return pa.array(out.view(np.float64).astype(field.type.to_pandas_dtype()), mask=~valid)


def _booleans_of(_field: _Field, data: Bytes, at: Integers, ends: Integers) -> pa.Array | None:
    out, valid = np.empty(len(at), np.bool_), np.empty(len(at), np.bool_)
    return pa.array(out, mask=~valid) if _read_booleans(data, at, ends, out, valid) else None


def _strings_of(field: _Field, data: Bytes, at: Integers, ends: Integers) -> pa.Array | None:
    short, kind = (32, 0xD9) if field.form == "text" else (0, 0xC4)
    lengths, valid = np.empty(len(at), np.int64), np.empty(len(at), np.bool_)
    if not _find_strings(data, at, ends, short, kind, lengths, valid) or int(lengths.sum()) > _LARGEST:
        return None
    packed = ByteColumn(data, at, lengths).packed()
    offsets = np.append(packed.starts, len(packed.data)).astype(np.int32)
    buffers = [np.packbits(valid, bitorder="little"), offsets, packed.data]
    array = pa.Array.from_buffers(field.type, len(at), [pa.py_buffer(each) for each in buffers])
    at += lengths
    return array if field.form == "binary" or _is_utf8(array) else None


_MEASURE: dict[str, Callable[..., Any]] = {
    "integer": _measure_integers,
    "float": _measure_floats,
    "boolean": _measure_booleans,
    "text": _measure_text,
    "binary": _measure_binary,
}
_WRITE: dict[str, Callable[..., Any]] = {
    "integer": _write_integers,
    "float": _write_floats,
    "boolean": _write_booleans,
    "text": _write_text,
    "binary": _write_binary,
}
_READ: dict[str, Callable[..., Any]] = {
    "integer": _integers_of,
    "float": _floats_of,
    "boolean": _booleans_of,
    "text": _strings_of,
    "binary": _strings_of,
}
