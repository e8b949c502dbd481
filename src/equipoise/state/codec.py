"""Codec for rows of state: MessagePack by position, read with the Spark schema they were declared with.

Stored form and Python type of each Spark type:

========================================  =============================  ==========================================
type                                      stored as                      returned as
========================================  =============================  ==========================================
byte, short, integer, long                integer, shortest form         ``int``
float, double                             64-bit float (float: rounded   ``float``
                                          to 32 bits first)
boolean, string, char, varchar, binary    themselves                     ``bool``, ``str``, ``bytes``
decimal(p, s)                             text with s decimals           ``Decimal`` with s decimals
date                                      days since 1970                ``date``
timestamp                                 microseconds since 1970, UTC   ``datetime`` without a zone, in local time,
                                                                         as Spark gives it; one without a zone is
                                                                         taken for local time
timestamp_ntz                             microseconds since 1970        ``datetime`` without a zone
interval day to second (and its parts)    microseconds                   ``timedelta``
array, map, struct                        array, map, array              ``list``, ``dict``, ``tuple`` (not ``Row``:
                                                                         this layer knows no pyspark)
void                                      nil                            ``None``
========================================  =============================  ==========================================

Every value may be NULL. numpy scalars and pandas timestamps are accepted for their value; ``NaT`` is NULL.
Nothing is ever unpickled.
"""

import datetime as dt
import math
import re
import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Annotated, Any, NamedTuple, Optional

import msgspec
import numpy as np

from equipoise.errors import DamagedError, InvalidArgumentError

Row = tuple[Any, ...]
Schema = Mapping[str, Any]
"""Result of ``StructType.jsonValue()``."""

_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TEXT = re.compile(r"(string|char\(\d+\)|varchar\(\d+\))( collate \w+)?")
_NUMPY = (np.generic, np.ndarray)
_NUMBERS = (int, float, np.number)
_BOOLEANS = (bool, np.bool_)
_ROWS = (tuple, list)
_REFUSED = (TypeError, ValueError, ArithmeticError, OSError, msgspec.MsgspecError)


class _Kind(NamedTuple):
    """How one type is stored: the type that msgspec checks, and conversions before and after, if any."""

    stored: Any
    to_stored: Callable[[Any], Any] | None = None
    from_stored: Callable[[Any], Any] | None = None


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

    Examples
    --------
    >>> codec = row_codec({"type": "struct", "fields": [{"name": "count", "type": "long"}]})
    >>> codec.decode(codec.encode((7,)))
    (7,)
    """

    def __init__(self, schema: Schema, owner: str = "state", *, canonical: bool = False) -> None:
        fields = _fields(schema, f"the schema of {owner}")
        self._owner = owner
        self.names: list[str] = [field["name"] for field in fields]
        self._types = [field["type"] for field in fields]
        self._kinds = [_kind(field, canonical=canonical) for field in fields]
        form: Any = tuple[tuple(kind.stored for kind in self._kinds)]  # type: ignore[misc]  # built from the schema
        self._read: Callable[[bytes], Row] = msgspec.msgpack.Decoder(form).decode
        self._read_list: Callable[[bytes], list[Row]] = msgspec.msgpack.Decoder(list[form]).decode
        self._to_stored = _for_struct([kind.to_stored for kind in self._kinds])
        self._from_stored = _for_struct([kind.from_stored for kind in self._kinds])

    def encode(self, values: Row) -> bytes:
        """The bytes of one row; any sequence of values in the order of the schema."""
        if type(values) is not tuple:
            values = self._row(values)
        try:
            data = _encode(values if self._to_stored is None else self._to_stored(values))
            self._read(data)  # in C, a tenth of a microsecond: a row that cannot be read back is never stored
        except _REFUSED as error:
            raise self._refusal(values) from error
        return data

    def decode(self, data: bytes) -> Row:
        """The row that ``encode`` was given."""
        try:
            return self._read(data) if self._from_stored is None else self._from_stored(self._read(data))
        except _REFUSED as error:
            raise self._damage(data, error) from error

    def encode_many(self, rows: Iterable[Row]) -> list[bytes]:
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
            steps = zip([_for_array(kind.to_stored) for kind in self._kinds], columns, strict=True)
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

    def _damage(self, data: bytes, error: Exception) -> DamagedError:
        return DamagedError(
            f"{self._owner}: {len(data)} stored bytes are not a row of ({', '.join(self.names)}): {error}; restore the "
            "checkpoint from a copy, or check that the variable is read with the schema it was written with"
        )

    def _wanted(self) -> str:
        return f"a tuple of {len(self.names)} value{'s' * (len(self.names) != 1)} ({', '.join(self.names)})"

    def _row(self, values: object) -> Row:
        if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str | bytes | bytearray):
            raise InvalidArgumentError(f"{self._owner}: expected {self._wanted()}, got {_short(values)}")
        return tuple(values)

    def _refusal(self, values: Row) -> InvalidArgumentError:
        if len(values) != len(self.names):
            return InvalidArgumentError(
                f"{self._owner}: expected {self._wanted()}, got {len(values)}: {_short(values)}"
            )
        for name, declared, kind, value in zip(self.names, self._types, self._kinds, values, strict=True):
            try:
                stored = value if kind.to_stored is None else kind.to_stored(value)
                msgspec.msgpack.decode(_encode(stored), type=kind.stored)
            except _REFUSED as error:
                spelled = declared if isinstance(declared, str) else declared["type"]
                return InvalidArgumentError(
                    f"{self._owner}: field {name!r} is declared {spelled} and cannot hold {_short(value)}: {error}"
                )
        return InvalidArgumentError(f"{self._owner}: expected {self._wanted()}, got {_short(values)}")


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
    """

    def __init__(self, schema: Schema, owner: str = "grouping key") -> None:
        self._rows = RowCodec(schema, owner, canonical=True)
        if not self._rows.names:
            raise InvalidArgumentError(f"{owner}: a key needs at least one column, got a schema without fields")

    def encode_key(self, values: Row) -> bytes:
        """The bytes of one key, given as a tuple of its columns."""
        return self._rows.encode(values)

    def decode_key(self, data: bytes) -> Row:
        """The key that ``encode_key`` was given."""
        return self._rows.decode(data)

    def encode_columns(self, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """``encode_key`` of many keys, given column by column."""
        return self._rows.encode_columns(columns)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _fields(schema: Any, what: str) -> list[dict[str, Any]]:
    if not isinstance(schema, Mapping) or schema.get("type") != "struct":
        raise InvalidArgumentError(f"{what} must be a struct as from StructType.jsonValue(), got {_short(schema)}")
    return list(schema["fields"])


def _for_struct(steps: list[Callable[[Any], Any] | None]) -> Callable[[Any], Row] | None:
    """One conversion for a whole row, or None where no field needs one."""
    if not any(steps):
        return None

    def convert(values: Any) -> Row:
        if not isinstance(values, _ROWS):
            raise TypeError("expected a tuple")
        pairs = zip(steps, values, strict=True)
        return tuple([value if value is None or step is None else step(value) for step, value in pairs])

    return convert


def _for_array(step: Callable[[Any], Any] | None) -> Callable[[Any], list[Any]] | None:
    if step is None:
        return None
    return lambda values: [None if value is None else step(value) for value in values]


def _for_map(
    key: Callable[[Any], Any] | None, value: Callable[[Any], Any] | None
) -> Callable[[Any], dict[Any, Any]] | None:
    if key is None and value is None:
        return None

    def convert(items: Any) -> dict[Any, Any]:
        if not isinstance(items, Mapping):
            raise TypeError("expected a dict")
        return {k if key is None else key(k): v if v is None or value is None else value(v) for k, v in items.items()}

    return convert


def _kind(field: Mapping[str, Any], *, canonical: bool) -> _Kind:
    if canonical and field.get("metadata", {}).get("__COLLATIONS"):
        raise InvalidArgumentError(
            f"key field {field['name']!r} has a collation, so equal keys may have different bytes; "
            "use a key of it, such as lower(column) or collation_key(column)"
        )
    return _nullable(_kind_of(field["type"], field["name"], canonical=canonical))


def _nullable(kind: _Kind) -> _Kind:
    return kind._replace(stored=Optional[kind.stored])  # noqa: UP045 - made at run time, where | does not take text


def _kind_of(declared: Any, where: str, *, canonical: bool) -> _Kind:
    """Kind of a type from the JSON of a schema, without NULL."""
    kind = _scalar(declared, canonical=canonical) if isinstance(declared, str) else None
    if kind is not None:
        return kind
    form = declared.get("type") if isinstance(declared, Mapping) else declared
    if form == "array":
        item = _nullable(_kind_of(declared["elementType"], f"{where}.element", canonical=canonical))
        return _Kind(list[item.stored], _for_array(item.to_stored), _for_array(item.from_stored))  # type: ignore[name-defined]
    if form == "struct":
        kinds = [_kind(field, canonical=canonical) for field in _fields(declared, where)]
        return _Kind(
            tuple[tuple(kind.stored for kind in kinds)],  # type: ignore[misc]
            _for_struct([kind.to_stored for kind in kinds]),
            _for_struct([kind.from_stored for kind in kinds]),
        )
    if form == "map" and not canonical:
        if not isinstance(declared["keyType"], str):
            raise InvalidArgumentError(f"field {where!r}: a map in state needs keys of a simple type, got {declared!r}")
        key = _kind_of(declared["keyType"], f"{where}.key", canonical=False)
        value = _nullable(_kind_of(declared["valueType"], f"{where}.value", canonical=False))
        return _Kind(
            dict[key.stored, value.stored],  # type: ignore[name-defined]
            _for_map(key.to_stored, value.to_stored),
            _for_map(key.from_stored, value.from_stored),
        )
    raise InvalidArgumentError(
        f"field {where!r} has the type {form}, which {'a key' if canonical else 'state'} cannot hold; "
        "store it as string or binary, or take it apart into simple fields"
    )


def _scalar(declared: str, *, canonical: bool) -> _Kind | None:
    text = _TEXT.fullmatch(declared)
    if text and not (canonical and text[2]):
        return _Kind(str)
    if parts := _DECIMAL.fullmatch(declared):
        return _decimal(int(parts[1]), int(parts[2]))
    if _DAY_TIME.fullmatch(declared):
        return _Kind(_INT64, _from_timedelta, lambda stored: dt.timedelta(microseconds=stored))
    return (_CANONICAL if canonical else _SCALARS).get(declared)


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, _BOOLEANS) or not isinstance(value, _NUMBERS):
        raise TypeError("expected a number")
    return float(value)


def _canonical(value: Any) -> float:
    number = _number(value)
    return number + 0.0 if number == number else math.nan  # noqa: PLR0124 - NaN and NaT differ from themselves


def _single(value: Any) -> float:
    """Round to 32 bits, like a Spark float; values that are too large become infinite, as in Spark's cast."""
    number = _number(value)
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _decimal(precision: int, scale: int) -> _Kind:
    context = Context(prec=precision, rounding=ROUND_HALF_UP)
    unit = Decimal(1).scaleb(-scale)

    def to_stored(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, Decimal | int | np.integer):
            raise TypeError("expected a decimal.Decimal or a whole number")
        number = Decimal(int(value)) if not isinstance(value, Decimal) else value
        if not number.is_finite():
            raise ValueError("expected a finite number")
        rounded = number.quantize(unit, context=context)  # refuses numbers with more digits than the precision
        return format(rounded or rounded.copy_abs(), "f")

    return _Kind(str, to_stored, lambda stored: Decimal(stored).quantize(unit, context=context))


def _moment(value: Any) -> dt.datetime | None:
    """A plain datetime from one of pandas, numpy or Python; None for ``NaT``."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if value is None or value != value:  # noqa: PLR0124 - NaN and NaT differ from themselves
        return None
    if not isinstance(value, dt.datetime):
        raise TypeError("expected a datetime")
    return value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value


def _since_epoch(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def _from_timestamp(value: Any) -> int | None:
    moment = _moment(value)
    return None if moment is None else _since_epoch(moment.astimezone(dt.UTC))


def _to_timestamp(stored: int) -> dt.datetime:
    local = dt.datetime.fromtimestamp(stored // 1_000_000)  # noqa: DTZ006 - local time without a zone, as Spark gives it
    return local.replace(microsecond=stored % 1_000_000)


def _from_timestamp_ntz(value: Any) -> int | None:
    moment = _moment(value)
    return None if moment is None else _since_epoch(moment.replace(tzinfo=dt.UTC))  # the wall clock, as Spark takes it


def _to_timestamp_ntz(stored: int) -> dt.datetime:
    return (_EPOCH + dt.timedelta(microseconds=stored)).replace(tzinfo=None)


def _from_date(value: Any) -> int | None:
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[D]").item()
    if value is None or value != value:  # noqa: PLR0124 - NaN and NaT differ from themselves
        return None
    if not isinstance(value, dt.date):
        raise TypeError("expected a date")
    return value.toordinal() - _EPOCH_DAY


def _from_timedelta(value: Any) -> int | None:
    if isinstance(value, np.timedelta64):
        value = value.astype("timedelta64[us]").item()
    if value is None or value != value:  # noqa: PLR0124 - NaN and NaT differ from themselves
        return None
    if not isinstance(value, dt.timedelta):
        raise TypeError("expected a timedelta")
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds


def _integer(bits: int) -> _Kind:
    return _Kind(Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)])


_SCALARS = {
    "byte": _integer(8),
    "short": _integer(16),
    "integer": _integer(32),
    "long": _integer(64),
    "float": _Kind(float, _single),
    "double": _Kind(float),
    "boolean": _Kind(bool),
    "binary": _Kind(bytes),
    "void": _Kind(None),
    "date": _Kind(_INT64, _from_date, lambda stored: dt.date.fromordinal(stored + _EPOCH_DAY)),
    "timestamp": _Kind(_INT64, _from_timestamp, _to_timestamp),
    "timestamp_ntz": _Kind(_INT64, _from_timestamp_ntz, _to_timestamp_ntz),
}
_CANONICAL = {
    **_SCALARS,
    "float": _Kind(float, lambda value: _canonical(_single(value))),
    "double": _Kind(float, _canonical),
}
