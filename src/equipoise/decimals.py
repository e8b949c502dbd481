"""Conversion of Arrow tables in which a decimal that does not fit is an error.

Arrow converts text and decimals to ``decimal128`` by a multiplication in 128 bits whose overflow it does not notice:
400000000000000000000 as ``decimal128(38, 18)`` becomes another number. In 256 bits nothing overflows, and Arrow checks
the step from there to 128 bits.
"""

import pyarrow as pa

_MOST = 76  # digits of a decimal256


def cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a table to a schema of the same column names; raise ``ArrowInvalid`` where a value does not fit."""
    found = table.schema.types
    fields = [
        field if _is_number(kind) or kind.equals(field.type) else field.with_type(widened(field.type))
        for field, kind in zip(schema, found, strict=True)
    ]
    return table.cast(pa.schema(fields)).cast(schema)


def widened(kind: pa.DataType) -> pa.DataType:
    """A type with every ``decimal128`` in it as ``decimal256`` of the same scale."""
    types = pa.types
    if types.is_decimal128(kind):
        return pa.decimal256(_MOST, kind.scale)
    if types.is_map(kind):
        return pa.map_(_of_field(kind.key_field), _of_field(kind.item_field), keys_sorted=kind.keys_sorted)
    if types.is_struct(kind):
        return pa.struct([_of_field(kind.field(place)) for place in range(kind.num_fields)])
    if types.is_large_list(kind):
        return pa.large_list(_of_field(kind.value_field))
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_of_field(kind.value_field), getattr(kind, "list_size", -1))
    return kind


def widened_schema(schema: pa.Schema) -> pa.Schema:
    """A schema with every ``decimal128`` in it as ``decimal256`` of the same scale."""
    return pa.schema([_of_field(field) for field in schema])


def _of_field(field: pa.Field) -> pa.Field:
    return field.with_type(widened(field.type))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
