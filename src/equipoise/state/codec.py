"""Codec for rows of state: MessagePack by position, read with the Spark schema they were declared with.

``kinds`` has the stored form and the Python type of each Spark type. Nothing is ever unpickled.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import numpy as np

from equipoise.errors import DamagedError, InvalidArgumentError
from equipoise.state.column_codec import ColumnCodec
from equipoise.state.kinds import Maker, Row, RowFactory, Schema, fields_of, for_array, for_struct, short

_NUMPY = (np.generic, np.ndarray)
_CONVERSIONS = {
    **dict.fromkeys(("byte", "short", "integer", "long"), "int(...)"),
    **dict.fromkeys(("float", "double"), "float(...)"),
    "string": "str(...)",
    "boolean": "bool(...)",
}
"""Calls that make a value of a type, for messages."""
_REFUSED = (TypeError, ValueError, ArithmeticError, OSError, msgspec.MsgspecError)


def _plain(value: object) -> object:
    """Convert a numpy value to plain Python; called by msgspec for types it does not know."""
    if isinstance(value, _NUMPY):
        return value.tolist()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    raise TypeError(f"a {type(value).__name__} is not a value of this type")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode


class RowCodec:
    """Encodes rows of one schema.

    Guarantees
    ----------
    - ``decode(encode(row))`` returns the row, each value as in the table of this module.
    - A value that its field cannot hold (a fraction in a long, 300 in a byte, text in a number) is refused by name.
    - Bytes that are not a row of this schema raise ``DamagedError``; they never decode to a row of other types.

    Parameters
    ----------
    schema
        ``StructType.jsonValue()``.
    owner
        Owner of the rows, for messages.
    canonical
        Whether equal rows have equal bytes, as keys need it: there is one NaN and one zero.
    rows
        Makes the rows of nested structs that are decoded; default tuples.

    Examples
    --------
    >>> codec = row_codec({"type": "struct", "fields": [{"name": "count", "type": "long"}]})
    >>> codec.decode(codec.encode((7,)))
    (7,)
    """

    def __init__(
        self, schema: Schema, owner: str = "state", *, canonical: bool = False, rows: RowFactory | None = None
    ) -> None:
        fields, maker = fields_of(schema, f"the schema of {owner}"), Maker(canonical, rows)
        self._owner = owner
        self.names: list[str] = [field["name"] for field in fields]
        self._types = [field["type"] for field in fields]
        self._kinds = [maker.field(field) for field in fields]
        form: Any = tuple[tuple(kind.stored for kind in self._kinds)]  # type: ignore[misc]  # built from the schema
        self._read: Callable[[bytes], Row] = msgspec.msgpack.Decoder(form).decode
        self._read_list: Callable[[bytes], list[Row]] = msgspec.msgpack.Decoder(list[form]).decode
        self._to_stored = for_struct([kind.to_stored for kind in self._kinds])
        self._from_stored = for_struct([kind.from_stored for kind in self._kinds])
        self._accept = for_struct([kind.accept for kind in self._kinds])

    def encode(self, values: Iterable[Any]) -> bytes:
        """The bytes of one row: a tuple, or any other iterable of values in the order of the schema."""
        row = values if type(values) is tuple else self._row(values)
        try:
            data = _encode(row if self._to_stored is None else self._to_stored(row))
            self._read(data)  # in C, a tenth of a microsecond: a row that cannot be read back is never stored
        except _REFUSED as error:
            return self._encode_accepted(row, error)
        return data

    def decode(self, data: bytes) -> Row:
        """The row that ``encode`` was given."""
        try:
            return self._read(data) if self._from_stored is None else self._from_stored(self._read(data))
        except _REFUSED as error:
            raise self._damage(data, error) from error

    def encode_many(self, rows: Iterable[Iterable[Any]]) -> list[bytes]:
        """``encode`` of each row."""
        known = [row if type(row) is tuple else self._row(row) for row in rows]
        try:
            data = list(map(_encode, known if self._to_stored is None else map(self._to_stored, known)))
            deque(map(self._read, data), maxlen=0)
        except _REFUSED:
            return [self.encode(row) for row in known]  # one of them is refused, by name
        return data

    def encode_columns(self, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """``encode`` of many rows, given column by column."""
        if len(columns) != len(self.names):
            raise InvalidArgumentError(
                f"{self._owner}: expected the columns {', '.join(self.names)}, got {len(columns)} columns"
            )
        if len({len(column) for column in columns}) > 1:
            raise InvalidArgumentError(
                f"{self._owner}: expected columns of one length, got {[len(c) for c in columns]}"
            )
        try:
            steps = zip([for_array(kind.to_stored) for kind in self._kinds], columns, strict=True)
            stored = [column if step is None else step(column) for step, column in steps]
            data = list(map(_encode, zip(*stored, strict=True)))
            deque(map(self._read, data), maxlen=0)
        except _REFUSED:
            return [self.encode(row) for row in zip(*columns, strict=True)]  # one of them is refused, by name
        return data

    def decode_many(self, data: Sequence[bytes]) -> list[Row]:
        """``decode`` of each."""
        decode = self.decode
        return [decode(each) for each in data]

    def decode_list(self, data: bytes) -> list[Row]:
        """The rows of one MessagePack array, as made by ``array_of``."""
        try:
            rows = self._read_list(data)
            return rows if self._from_stored is None else [self._from_stored(row) for row in rows]
        except _REFUSED as error:
            raise self._damage(data, error) from error

    def _encode_accepted(self, row: Row, refused: Exception) -> bytes:
        """Encode a row with values in other forms that Spark takes, such as a dict for a struct."""
        if self._accept is None:
            raise self._refusal(row) from refused
        try:
            accepted = self._accept(row)
            data = _encode(accepted if self._to_stored is None else self._to_stored(accepted))
            self._read(data)
        except _REFUSED as error:
            raise self._refusal(row) from error
        return data

    def _damage(self, data: bytes, error: Exception) -> DamagedError:
        return DamagedError(
            f"{self._owner}: {len(data)} stored bytes are not a row of ({', '.join(self.names)}): {error}; restore the "
            "checkpoint from a copy, or check that the variable is read with the schema it was written with"
        )

    def _wanted(self) -> str:
        return f"a tuple of {len(self.names)} value{'s' * (len(self.names) != 1)} ({', '.join(self.names)})"

    def _row(self, values: object) -> Row:
        if isinstance(values, Mapping):
            raise InvalidArgumentError(
                f"{self._owner}: expected {self._wanted()}, got {short(values)}, of which Spark would store the keys; "
                "give its values as a tuple"
            )
        if not isinstance(values, Iterable) or isinstance(values, AbstractSet | bytes | bytearray):
            raise InvalidArgumentError(f"{self._owner}: expected {self._wanted()}, got {short(values)}")
        return tuple(values)

    def _refusal(self, values: Row) -> InvalidArgumentError:
        if len(values) != len(self.names):
            return InvalidArgumentError(f"{self._owner}: expected {self._wanted()}, got {len(values)}: {short(values)}")
        for name, declared, kind, value in zip(self.names, self._types, self._kinds, values, strict=True):
            try:
                known = value if value is None or kind.accept is None else kind.accept(value)
                stored = known if known is None or kind.to_stored is None else kind.to_stored(known)
                msgspec.msgpack.decode(_encode(stored), type=kind.stored)
            except _REFUSED as error:
                spelled = declared if isinstance(declared, str) else declared["type"]
                convert = f"give {_CONVERSIONS[spelled]}" if spelled in _CONVERSIONS else "convert it"
                return InvalidArgumentError(
                    f"{self._owner}: field {name!r} is declared {spelled} and cannot hold {short(value)}: {error}; "
                    f"{convert}, or declare the field with a type that holds it"
                )
        return InvalidArgumentError(f"{self._owner}: expected {self._wanted()}, got {short(values)}")


def row_codec(schema: Schema, owner: str = "state") -> RowCodec:
    """The codec for the values of a state variable with this schema (``StructType.jsonValue()``)."""
    return RowCodec(schema, owner)


def array_of(count: int, encoded: bytes) -> bytes:
    """One MessagePack array of ``count`` rows that are already encoded, one after the other."""
    if count < 16:
        return bytes([0x90 | count]) + encoded
    return struct.pack(">BH", 0xDC, count) + encoded if count < 65_536 else struct.pack(">BI", 0xDD, count) + encoded


class KeyCodec:
    """Encodes keys of one schema: the same key always has the same bytes.

    Guarantees
    ----------
    - Keys that Spark groups together have equal bytes, other keys do not: -0.0 is 0.0, all NaN are equal, decimals have
      the scale of their type, timestamps are instants.
    - Types whose equality does not follow from bytes (collated strings, maps) are refused when the codec is created.

    Parameters
    ----------
    schema
        ``StructType.jsonValue()`` of the key columns, at least one.
    owner
        Owner of the keys, for messages.
    rows
        Makes the rows of nested structs that are decoded; default tuples.
    """

    def __init__(self, schema: Schema, owner: str = "grouping key", rows: RowFactory | None = None) -> None:
        self._rows = RowCodec(schema, owner, canonical=True, rows=rows)
        self.in_columns = ColumnCodec(schema, canonical=True)
        """Encodes keys of plain types with the same bytes, all at once."""
        if not self._rows.names:
            raise InvalidArgumentError(f"{owner}: a key needs at least one column, got a schema without fields")

    def encode_key(self, values: Iterable[Any]) -> bytes:
        """The bytes of one key, given as a tuple of its columns."""
        return self._rows.encode(values)

    def decode_key(self, data: bytes) -> Row:
        """The key that ``encode_key`` was given."""
        return self._rows.decode(data)

    def encode_columns(self, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """``encode_key`` of many keys, given column by column."""
        return self._rows.encode_columns(columns)
