"""How values of each Spark type are stored, and the forms in which user code may give them.

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
array, map, struct                        array, map, array              ``list``, ``dict``, a row: a ``tuple``, or
                                                                         what the caller's ``RowFactory`` makes
void                                      nil                            ``None``
========================================  =============================  ==========================================

Every value may be NULL. numpy scalars and pandas timestamps are accepted for their value; ``NaT`` is NULL.
As in Spark, a nested struct may be a tuple or list in the order of its fields, a dict by name, or an object with
attributes of these names; a name that is missing is NULL. A number or a boolean given for a string is stored as Java
writes it, text given for binary as UTF-8.
"""

import datetime as dt
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Annotated, Any, NamedTuple, Optional

import msgspec
import numpy as np

from equipoise.errors import InvalidArgumentError

Row = tuple[Any, ...]
Schema = Mapping[str, Any]
"""Result of ``StructType.jsonValue()``."""
Conversion = Callable[[Any], Any]
RowFactory = Callable[[Sequence[str]], Callable[[Iterable[Any]], Row]]
"""Takes the names of fields; returns the function that makes a row from their values."""

_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
TEXT = re.compile(r"(string|char\(\d+\)|varchar\(\d+\))( collate \w+)?")
_NUMBERS = (int, float, np.number)
_BOOLEANS = (bool, np.bool_)
_ROWS = (tuple, list)


class Kind(NamedTuple):
    """How one type is stored.

    Parameters
    ----------
    stored
        The type that msgspec checks.
    to_stored, from_stored
        Conversions before storing and after reading, if any.
    accept
        Conversion of other forms of a value to the usual one, if there are other forms. It is slower, so callers use
        it for values that ``to_stored`` and msgspec have refused.
    """

    stored: Any
    to_stored: Conversion | None = None
    from_stored: Conversion | None = None
    accept: Conversion | None = None


class Maker(NamedTuple):
    """How kinds are made.

    Parameters
    ----------
    canonical
        Whether equal values have equal bytes, as keys need it.
    rows
        Makes the rows of nested structs; default tuples.
    """

    canonical: bool = False
    rows: RowFactory | None = None

    def field(self, field: Mapping[str, Any]) -> Kind:
        """Return the kind of a field of a struct."""
        if self.canonical and field.get("metadata", {}).get("__COLLATIONS"):
            raise InvalidArgumentError(
                f"key field {field['name']!r} has a collation, so equal keys may have different bytes; "
                "use a key of it, such as lower(column) or collation_key(column)"
            )
        return _nullable(self._of(field["type"], field["name"]))

    def _of(self, declared: Any, where: str) -> Kind:
        """Return the kind of a type from the JSON of a schema, without NULL."""
        kind = _scalar(declared, canonical=self.canonical) if isinstance(declared, str) else None
        if kind is not None:
            return kind
        form = declared.get("type") if isinstance(declared, Mapping) else declared
        if form == "array":
            item = _nullable(self._of(declared["elementType"], f"{where}.element"))
            return Kind(
                list[item.stored],  # type: ignore[name-defined]
                for_array(item.to_stored),
                for_array(item.from_stored),
                _accepted_array(item.accept),
            )
        if form == "struct":
            return self._struct(declared, where)
        if form == "map" and not self.canonical:
            return self._map(declared, where)
        raise InvalidArgumentError(
            f"field {where!r} has the type {form}, which {'a key' if self.canonical else 'state'} cannot hold; "
            "store it as string or binary, or take it apart into simple fields"
        )

    def _struct(self, declared: Any, where: str) -> Kind:
        fields = fields_of(declared, where)
        names = [field["name"] for field in fields]
        kinds = [self.field(field) for field in fields]
        from_stored = [kind.from_stored for kind in kinds]
        return Kind(
            tuple[tuple(kind.stored for kind in kinds)],  # type: ignore[misc]
            for_struct([kind.to_stored for kind in kinds]),
            for_struct(from_stored) if self.rows is None else for_struct(from_stored, self.rows(names)),
            _accepted_struct(names, [kind.accept for kind in kinds]),
        )

    def _map(self, declared: Any, where: str) -> Kind:
        if not isinstance(declared["keyType"], str):
            raise InvalidArgumentError(f"field {where!r}: a map in state needs keys of a simple type, got {declared!r}")
        key = self._of(declared["keyType"], f"{where}.key")
        value = _nullable(self._of(declared["valueType"], f"{where}.value"))
        return Kind(
            dict[key.stored, value.stored],  # type: ignore[name-defined]
            _for_map(key.to_stored, value.to_stored),
            _for_map(key.from_stored, value.from_stored),
            _for_map(key.accept, value.accept),
        )


def short(value: object) -> str:
    """Return a value's representation, cut for a message."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def fields_of(schema: Any, what: str) -> list[dict[str, Any]]:
    """Return the fields of a struct."""
    if not isinstance(schema, Mapping) or schema.get("type") != "struct":
        raise InvalidArgumentError(f"{what} must be a struct as from StructType.jsonValue(), got {short(schema)}")
    return list(schema["fields"])


def for_struct(
    steps: Sequence[Conversion | None], make: Callable[[Iterable[Any]], Row] = tuple
) -> Callable[[Any], Row] | None:
    """Return one conversion for a whole row, or None where nothing is to be converted."""
    if not any(steps) and make is tuple:
        return None

    def convert(values: Any) -> Row:
        if not isinstance(values, _ROWS):
            raise TypeError("expected a tuple")
        pairs = zip(steps, values, strict=True)
        return make([value if value is None or step is None else step(value) for step, value in pairs])

    return convert


def for_array(step: Conversion | None) -> Callable[[Any], list[Any]] | None:
    """Return one conversion for a whole array, or None where nothing is to be converted."""
    if step is None:
        return None
    return lambda values: [None if value is None else step(value) for value in values]


def _for_map(key: Conversion | None, value: Conversion | None) -> Callable[[Any], dict[Any, Any]] | None:
    if key is None and value is None:
        return None

    def convert(items: Any) -> dict[Any, Any]:
        if not isinstance(items, Mapping):
            raise TypeError("expected a dict")
        return {k if key is None else key(k): v if v is None or value is None else value(v) for k, v in items.items()}

    return convert


def _accepted_array(step: Conversion | None) -> Conversion | None:
    convert = for_array(step)
    if convert is None:
        return None

    def accept(values: Any) -> Any:
        return convert(values) if isinstance(values, list | tuple | np.ndarray) else values

    return accept


def _accepted_struct(names: list[str], steps: list[Conversion | None]) -> Conversion:
    convert = for_struct(steps) or tuple

    def accept(value: Any) -> Any:
        if isinstance(value, Mapping):
            return convert([value.get(name) for name in names])
        if isinstance(value, _ROWS):
            return convert(value)
        given = getattr(value, "__dict__", {})
        if not any(name in given for name in names):
            raise TypeError(f"expected a tuple, a Row or a dict with {', '.join(names)}")
        return convert([given.get(name) for name in names])

    return accept


def _nullable(kind: Kind) -> Kind:
    return kind._replace(stored=Optional[kind.stored])  # noqa: UP045 - made at run time, where | does not take text


def _scalar(declared: str, *, canonical: bool) -> Kind | None:
    text = TEXT.fullmatch(declared)
    if text and not (canonical and text[2]):
        return Kind(str, accept=_text)
    if parts := _DECIMAL.fullmatch(declared):
        return _decimal(int(parts[1]), int(parts[2]))
    if _DAY_TIME.fullmatch(declared):
        return Kind(_INT64, _from_timedelta, lambda stored: dt.timedelta(microseconds=stored))
    return (_CANONICAL if canonical else _SCALARS).get(declared)


def _text(value: Any) -> Any:
    """Write a number or a boolean as Java does, which Spark uses; leave other values as they are."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value if isinstance(value, Decimal) else int(value))
    return _java_text(float(value)) if isinstance(value, float) else value


def _java_text(number: float) -> str:
    """Write a float as Java's ``Double.toString`` does."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    text = "".join(map(str, digits))
    return f"{'-' * sign}{text[0]}.{text[1:].rstrip('0') or '0'}E{len(text) - 1 + int(exponent)}"


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, _BOOLEANS) or not isinstance(value, _NUMBERS):
        raise TypeError("expected a number")
    return float(value)


def _canonical(value: Any) -> float:
    number = _number(value)
    return number + 0.0 if number == number else math.nan  # noqa: PLR0124 - NaN and NaT differ from themselves


def single(value: Any) -> float:
    """Round to 32 bits, like a Spark float; values that are too large become infinite, as in Spark's cast."""
    number = _number(value)
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _decimal(precision: int, scale: int) -> Kind:
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

    return Kind(str, to_stored, lambda stored: Decimal(stored).quantize(unit, context=context))


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


def _integer(bits: int) -> Kind:
    return Kind(Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)])


_SCALARS = {
    "byte": _integer(8),
    "short": _integer(16),
    "integer": _integer(32),
    "long": _integer(64),
    "float": Kind(float, single),
    "double": Kind(float),
    "boolean": Kind(bool),
    "binary": Kind(bytes, accept=_bytes),
    "void": Kind(None),
    "date": Kind(_INT64, _from_date, lambda stored: dt.date.fromordinal(stored + _EPOCH_DAY)),
    "timestamp": Kind(_INT64, _from_timestamp, _to_timestamp),
    "timestamp_ntz": Kind(_INT64, _from_timestamp_ntz, _to_timestamp_ntz),
}
_CANONICAL = {
    **_SCALARS,
    "float": Kind(float, lambda value: _canonical(single(value))),
    "double": Kind(float, _canonical),
}
