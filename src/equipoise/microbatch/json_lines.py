"""Tuples from lines of JSON objects, in time proportional to the bytes, however many lines are bad.

All lines are parsed at once by ``pyarrow.json``. If that fails, each line is checked in Python against the rules of
``pyarrow.json``, and lines that pass are parsed at once. Bad lines that the check does not find, and lines that are
nested too deeply for it, are found by repeated parsing.
"""

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.json

from equipoise.decimals import widened, widened_schema
from equipoise.microbatch.dead_letters import DeadLetter, shown
from equipoise.microbatch.salvage import Tries, salvaged

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T][\d:.]*(Z|[+-][\d:]*)?)?", re.ASCII)
_USUAL_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\dZ?)?", re.ASCII)
_USUAL_DECIMAL = re.compile(r"[+-]?(\d+)(?:\.(\d+))?", re.ASCII)
_SHORT_DECIMAL = 38  # characters: digits that a decimal128 has at most
_SPELLED = re.compile(r"-NaN|Inf(?!inity)")  # numbers as pyarrow.json reads them, and Python does not
_SPELLED_OR_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|-NaN|Inf(?!inity)', re.DOTALL)
_PYTHON = {"-NaN": "NaN", "Inf": "Infinity"}
_Check = Callable[[Any], bool]


def parse_lines(lines: Sequence[bytes], schema: pa.Schema) -> tuple[pa.Table, list[DeadLetter]]:
    """Parse lines; return tuples, and dead letters for lines that are not tuples.

    Missing columns are NULL, and columns that are not in the schema are ignored. Blank lines are skipped.

    Parameters
    ----------
    lines
        Lines without line ends.
    schema
        Schema of the tuples.
    """
    objects, dead_letters = [], []
    for line in lines:
        if line.lstrip()[:1] == b"{":
            objects.append(line)
        elif line.strip():
            dead_letters.append(
                DeadLetter(shown(line), "not a JSON object, which was expected; send one object a line")
            )
    table = _parsed(objects, schema)
    if isinstance(table, pa.Table):
        return table, dead_letters
    good, doubtful, bad = _sifted(objects, schema)
    dead_letters += bad
    tables, tries = [], Tries()
    for each in (good, doubtful):
        found, bad = salvaged(each, lambda some: _parsed(some, schema), lambda some: shown(some[0]), tries)
        tables += found
        dead_letters += bad
    return pa.concat_tables([schema.empty_table(), *tables]), dead_letters


def unreadable(schema: pa.Schema) -> str | None:
    """Reason why JSON cannot represent the types of a schema; ``None`` if it can."""
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    found = _parsed([b"{}"], nullable)
    return None if isinstance(found, pa.Table) else found


def _sifted(lines: list[bytes], schema: pa.Schema) -> tuple[list[bytes], list[bytes], list[DeadLetter]]:
    """Lines that pass the check, lines that only a parser can decide, and dead letters of bad lines."""
    doubtful: list[bytes] = []
    dead_letters: list[DeadLetter] = []
    for converts in (False, True):  # conversions are slow to check, and seldom fail
        check, good = _object(schema, converts), []
        for line in lines:
            reason = _fault(line, check)
            if reason is None:
                good.append(line)
            elif reason:
                dead_letters.append(DeadLetter(shown(line), reason))
            else:
                doubtful.append(line)
        lines = good
        if isinstance(_parsed(lines, schema), pa.Table):
            break
    return lines, doubtful, dead_letters


def _parsed(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table | str:
    """Parse lines to a table with a row for each, or return the reason why they cannot be parsed."""
    if not lines:
        return schema.empty_table()
    data = b"\n".join(lines) + b"\n"
    wide = widened_schema(schema)
    options = pyarrow.json.ParseOptions(explicit_schema=wide, unexpected_field_behavior="ignore")
    read = pyarrow.json.ReadOptions(block_size=len(data) + 1, use_threads=False)
    try:
        table = pyarrow.json.read_json(pa.BufferReader(data), read_options=read, parse_options=options).cast(schema)
        table.validate(full=True)  # strings need not be UTF-8 yet, nor decimals fit their precision
    except (pa.ArrowException, ValueError) as error:
        return str(error).splitlines()[0]
    if table.num_rows != len(lines):
        return f"{table.num_rows} JSON objects in {len(lines)} lines; send one object a line"
    return table


class _Number(str):
    """Text of a JSON number."""

    __slots__ = ()


_decode = json.JSONDecoder(
    object_pairs_hook=tuple, parse_int=_Number, parse_float=_Number, parse_constant=_Number
).decode


def _fault(line: bytes, check: "Callable[[Any], str | None]") -> str | None:
    """Reason why a line is not a tuple; ``None`` if none was found, empty if only a parser can decide."""
    try:
        return _checked(line, check)
    except RecursionError:  # pyarrow's parser accepts deeper nesting
        return ""


def _checked(line: bytes, check: "Callable[[Any], str | None]") -> str | None:
    try:
        text, is_text = line.decode(), True
    except UnicodeDecodeError:
        text, is_text = line.decode("utf-8", "surrogateescape"), False
    try:
        found = _decoded(text)
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at character {error.pos}; send one whole object a line"
    # in Latin-1 no byte decodes to half of a surrogate pair, so a half that is found was escaped
    if _SURROGATE.search(line) and _has_surrogate(found if is_text else _decoded(line.decode("latin-1"))):
        return r"a \u escape is half of a surrogate pair; send text as UTF-8"
    return check(found)


def _decoded(text: str) -> Any:
    text = text.strip(" \t\r")
    try:
        return _decode(text)
    except json.JSONDecodeError:
        if _SPELLED.search(text) is None:
            raise
        respelled = _SPELLED_OR_TEXT.sub(lambda found: _PYTHON.get(found[0], found[0]), text)
        return _decode(respelled)


def _has_surrogate(value: Any) -> bool:
    if isinstance(value, str):
        return not _is_text(value)
    return isinstance(value, list | tuple) and any(map(_has_surrogate, value))


def _is_text(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _object(fields: Any, converts: bool) -> "Callable[[Any], str | None]":
    """Return a check of the members of a JSON object against fields, which returns the reason of a mismatch.

    With ``converts`` it also checks that text can be converted to timestamps and decimals.
    """
    known = {field.name: (_kind(field.type, converts), field) for field in fields}
    required = [field.name for field in fields if not field.nullable]

    def check(members: Any) -> str | None:
        seen = set()
        for name, value in members:
            if name not in known:
                continue
            if name in seen:
                return f"column {name} is there twice, and was expected once; send it once"
            seen.add(name)
            fits, field = known[name]
            if value is None:
                if not field.nullable:
                    return f"column {name} is null, and was expected to have a value; send one"
            elif not fits(value):
                found = shown(str(value)[:100].encode("utf-8", "surrogateescape"))
                return f"column {name} holds {found}, and {field.type} was expected; send such a value or null"
        for name in required:
            if name not in seen:
                return f"column {name} is not there, and was expected to have a value; send one"
        return None

    return check


def _kind(kind: pa.DataType, converts: bool) -> _Check:  # noqa: PLR0911 - a case for each kind of type
    """Check of a JSON value, other than null, against a type."""
    types = pa.types
    if types.is_integer(kind) or types.is_date(kind) or types.is_time(kind):
        return _whole(kind.bit_width, types.is_unsigned_integer(kind))
    if types.is_floating(kind):
        return lambda value: isinstance(value, _Number)
    if types.is_boolean(kind):
        return lambda value: isinstance(value, bool)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return lambda value: type(value) is str and _is_text(value)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return lambda value: type(value) is str
    if types.is_timestamp(kind):
        local, zoned = pa.timestamp(kind.unit), pa.timestamp(kind.unit, "UTC")  # either is read, whatever the type
        return lambda value: (
            type(value) is str
            and (found := _TIME.fullmatch(value)) is not None
            and (not converts or _is_time(value, zoned if found[1] else local))
        )
    if types.is_decimal(kind):
        return lambda value: isinstance(value, str) and (not converts or _is_decimal(str(value), kind))
    if types.is_list(kind):
        item, field = _kind(kind.value_type, converts), kind.value_field
        return lambda value: (
            isinstance(value, list) and all(field.nullable if each is None else item(each) for each in value)
        )
    if types.is_struct(kind):
        check = _object(kind, converts)
        return lambda value: isinstance(value, tuple) and check(value) is None
    return lambda _: not types.is_null(kind)


def _whole(bits: int, is_unsigned: bool) -> _Check:
    least, most = (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def check(value: Any) -> bool:
        if not isinstance(value, _Number) or len(value) > 20:
            return False
        try:
            return bool(least <= int(value) <= most)
        except ValueError:  # a fraction or an exponent
            return False

    return check


def _is_time(text: str, kind: pa.DataType) -> bool:
    """Whether text converts to a timestamp."""
    is_usual = _USUAL_TIME.fullmatch(text) is not None and text[:4] != "0000"  # Python begins with year 1
    if not is_usual or (kind.unit == "ns" and not "1678" <= text[:4] <= "2261"):  # 64 bits of them end there
        return _converts(text, kind)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_decimal(text: str, kind: pa.DataType) -> bool:
    """Whether text converts to a decimal."""
    found = _USUAL_DECIMAL.fullmatch(text)
    if found is None or len(text) > _SHORT_DECIMAL:
        return _converts(text, kind)
    whole, fraction = found[1].lstrip("0"), (found[2] or "").rstrip("0")
    return bool(len(whole) <= kind.precision - kind.scale and len(fraction) <= kind.scale)


def _converts(text: str, kind: pa.DataType) -> bool:
    """Whether Arrow converts text, which takes some microseconds to find out."""
    try:
        pa.scalar(text).cast(widened(kind)).cast(kind)
    except (pa.ArrowException, ValueError):
        return False
    return True
