"""Sizes of Arrow columns after conversion, computed before memory is allocated for them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TEXT = 32  # bytes of a number or a time as text, with its offset


def written_out(column: pa.Array, kind: pa.DataType) -> int:
    """Bytes of a valid column when it is converted to a type.

    Dictionaries and views refer to one value any number of times. Lists may have any number of items in one row, and
    items that are NULL, booleans or small numbers take less room than what they are converted to.
    """
    if pa.types.is_dictionary(column.type):
        values = column.dictionary
        if _is_text(values.type):
            return int(pc.sum(pc.binary_length(values).take(column.indices)).as_py() or 0)
        return len(column) * max(_width(values.type), _width(kind))
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        lengths = np.frombuffer(column.buffers()[1] or b"", "<i4")[::4][column.offset : column.offset + len(column)]
        return int(np.maximum(lengths, 0).sum(dtype=np.int64))
    if pa.types.is_nested(column.type):
        return _converted(column, kind)
    return int(column.nbytes)


def _converted(values: pa.Array, kind: pa.DataType) -> int:
    found, types = values.type, pa.types
    if found.equals(kind) or (_is_text(found) and _is_text(kind)):
        return int(values.nbytes)
    if _is_list(found) and _is_list(kind):
        return _offsets(values, kind) + _converted(values.values, kind.value_type)
    if types.is_map(found) and types.is_map(kind):
        items = _converted(values.keys, kind.key_type) + _converted(values.items, kind.item_type)
        return _offsets(values, kind) + items
    if types.is_struct(found) and types.is_struct(kind):
        return sum(_of_field(values, kind.field(number)) for number in range(kind.num_fields))
    return max(int(values.nbytes), _longest(values) * _width(kind))


def _of_field(values: pa.StructArray, field: pa.Field) -> int:
    place = values.type.get_field_index(field.name)
    return len(values) * _width(field.type) if place < 0 else _converted(values.field(place), field.type)


def _offsets(values: pa.Array, kind: pa.DataType) -> int:
    return len(values) * (8 if pa.types.is_large_list(kind) else 4)


def _longest(values: pa.Array) -> int:
    """Length of an array, or of the longest of those that it is made of."""
    types = pa.types
    children = []
    if _is_list(values.type):
        children = [values.values]
    elif types.is_map(values.type):
        children = [values.keys, values.items]
    elif types.is_struct(values.type):
        children = [values.field(number) for number in range(values.type.num_fields)]
    return max([len(values), *map(_longest, children)])


def _width(kind: pa.DataType) -> int:
    """Bytes of a value; those of text are counted where it is."""
    if pa.types.is_nested(kind):
        return sum(_width(kind.field(number).type) for number in range(kind.num_fields))
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:  # text, bytes or NULL
        return _TEXT


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        is_kind(kind)
        for is_kind in (
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
        )
    )
