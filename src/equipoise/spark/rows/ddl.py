"""Parse a schema given as DDL text, such as ``host string, n long``, without a Spark session."""

import re

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from equipoise.errors import InvalidArgumentError

_TOKENS = re.compile(r"\s*(?:(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:])|(\S))")
_SIMPLE: dict[str, type[DataType]] = {
    "boolean": BooleanType,
    "tinyint": ByteType,
    "byte": ByteType,
    "smallint": ShortType,
    "short": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "bigint": LongType,
    "long": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
    "void": NullType,
}
_DECIMALS = {"decimal", "dec", "numeric"}
_LENGTHS: dict[str, type[CharType] | type[VarcharType]] = {
    "char": CharType,
    "character": CharType,
    "varchar": VarcharType,
}
_UNITS = {"day": 0, "hour": 1, "minute": 2, "second": 3}
_MOST_DIGITS = 38
_END = ""


def parse_ddl(text: str) -> StructType:
    """Return the schema that Spark reads from ``text``; text of one type becomes the column ``value``, as in Spark.

    Collations, defaults, ``time``, ``variant`` and intervals of years and months are refused: they need a session.

    Examples
    --------
    >>> parse_ddl("host string, n array<long>").simpleString()
    'struct<host:string,n:array<bigint>>'
    """
    try:
        return _Parser(text).columns()
    except _UnexpectedError as columns:
        try:
            parsed = _Parser(text).only_type()
        except _UnexpectedError:
            raise InvalidArgumentError(
                f"the schema {text!r} cannot be read without a Spark session: {columns}; give a StructType or a DDL "
                "string such as 'host string, n long', or start a session first"
            ) from None
        return parsed if isinstance(parsed, StructType) else StructType().add("value", parsed)


class _UnexpectedError(Exception):
    """The text has something else than expected."""


class _Parser:
    """A parser by recursive descent: one method for each rule."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        for token, unknown in _TOKENS.findall(text):
            self._tokens.append(token or unknown)
        self._at = 0

    def columns(self) -> StructType:
        """``name type, name type, ...`` up to the end."""
        fields = self._fields(_END) if self._next != _END else []
        self._expect(_END)
        return StructType(fields)

    def only_type(self) -> DataType:
        """One type up to the end."""
        found = self._type()
        self._expect(_END)
        return found

    @property
    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> str:
        found = self._next
        self._at += 1
        return found

    def _takes(self, *words: str) -> bool:
        """Skip these words if they come next."""
        found = [each.lower() for each in self._tokens[self._at : self._at + len(words)]]
        if found == list(words):
            self._at += len(words)
        return found == list(words)

    def _expect(self, word: str) -> None:
        found = self._take()
        if found != word:
            raise _UnexpectedError(f"expected {repr(word) if word else 'the end'}, got {_shown(found)}")

    def _fields(self, end: str) -> list[StructField]:
        fields: list[StructField] = []
        while self._next != end:
            if fields:
                self._expect(",")
            fields.append(self._field())
        return fields

    def _field(self) -> StructField:
        name = self._take()
        if name[:1] == "`":
            name = name[1:-1].replace("``", "`")
        elif re.fullmatch(r"\w+", name) is None:
            raise _UnexpectedError(f"expected the name of a column, got {_shown(name)}")
        self._takes(":")
        kind, nullable = self._type(), not self._takes("not", "null")
        metadata = {"comment": self._text()} if self._takes("comment") else None
        return StructField(name, kind, nullable, metadata)

    def _type(self) -> DataType:
        name = self._take()
        kind = name.lower()
        if kind in _SIMPLE:
            return _SIMPLE[kind]()
        if kind in _DECIMALS:
            return self._decimal(*(self._numbers(1, 2) if self._next == "(" else []))
        if kind in _LENGTHS:
            return _LENGTHS[kind](*self._numbers(1, 1))
        if kind == "interval":
            return self._interval()
        if kind not in {"array", "map", "struct"}:
            raise _UnexpectedError(f"expected a type, got {_shown(name)}")
        self._expect("<")
        found: DataType
        if kind == "struct":
            found = StructType(self._fields(">"))
        elif kind == "array":
            found = ArrayType(self._type())
        else:
            key = self._type()
            self._expect(",")
            found = MapType(key, self._type())
        self._expect(">")
        return found

    def _decimal(self, precision: int = 10, scale: int = 0) -> DecimalType:
        if not scale <= precision <= _MOST_DIGITS:
            raise _UnexpectedError(
                f"expected a decimal of at most {_MOST_DIGITS} digits with at most as many decimals, got "
                f"decimal({precision},{scale})"
            )
        return DecimalType(precision, scale)

    def _interval(self) -> DayTimeIntervalType:
        """``unit`` or ``unit to unit``, the larger one first."""
        start = end = self._unit()
        if self._takes("to"):
            shown, end = _shown(self._next), self._unit()
            if end <= start:
                raise _UnexpectedError(f"expected a smaller unit than that before it, got {shown}")
        return DayTimeIntervalType(start, end)

    def _numbers(self, least: int, most: int) -> list[int]:
        """``(n)`` or ``(n, m)``."""
        self._expect("(")
        numbers = [self._number()]
        while self._takes(","):
            numbers.append(self._number())
        self._expect(")")
        if not least <= len(numbers) <= most:
            raise _UnexpectedError(f"expected at most {most} numbers in brackets, got {len(numbers)}")
        return numbers

    def _number(self) -> int:
        found = self._take()
        if not found.isdecimal():
            raise _UnexpectedError(f"expected a whole number, got {_shown(found)}")
        return int(found)

    def _unit(self) -> int:
        found = self._take()
        if found.lower() not in _UNITS:
            raise _UnexpectedError(f"expected one of {', '.join(_UNITS)}, got {_shown(found)}")
        return _UNITS[found.lower()]

    def _text(self) -> str:
        found = self._take()
        if found[:1] != "'":
            raise _UnexpectedError(f"expected a text in quotes, got {_shown(found)}")
        return re.sub(r"\\(.)", r"\1", found[1:-1])


def _shown(token: str) -> str:
    return repr(token) if token else "the end"
