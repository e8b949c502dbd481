"""A ready aggregator: counts, sums, extremes and means of columns, by their names."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql.types import (
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
)

from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.aggregator import Aggregator

FUNCTIONS = ("count", "sum", "min", "max", "mean")
"""What can be asked of a column; ``count`` also without one, of rows."""

_EXACT = 2**53  # from here on not every whole number is a float
_LARGE = 2.0**62  # from here on a sum might not fit into 64 bits
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_ASKED = re.compile(r"\s*(\w+)\s*(?:\(\s*(\w+|\*)\s*\))?\s*(?:as\s+(\w+))?\s*", re.IGNORECASE)


class _Field(NamedTuple):
    """One number of the buffer."""

    function: str
    column: str | None
    type: DataType


class ColumnAggregator(Aggregator):
    """Counts, sums, extremes and means of numeric columns; the output has the key and one column for each.

    NULL is left out of all of them, and so is NaN, which pandas does not tell apart from it; the sum of nothing is 0,
    its mean and extremes are NULL. Whole numbers stay whole: where NULL beside them would make pandas round them, that
    is an error. Rows can be taken off counts, sums and means, so windows over those alone need not be merged anew.

    Parameters
    ----------
    asked
        Texts such as ``count``, ``sum(ms)`` or ``max(ms) AS slowest``; without a name a column is called after its
        function and its column, ``sum_ms``.
    schema
        Schema of the rows.

    Examples
    --------
    >>> schema = StructType([StructField("host", LongType()), StructField("ms", LongType())])
    >>> totals = ColumnAggregator(["count", "mean(ms) AS typical"], schema)
    >>> rows = pd.DataFrame({"host": [7, 7], "ms": [10, 40]})
    >>> totals.finish((7,), totals.reduce(totals.zero(), rows))
    (7, 2, 25.0)
    >>> totals.output_schema(["host"]).simpleString()
    'struct<host:bigint,count:bigint,typical:double>'
    """

    def __init__(self, asked: Sequence[str], schema: StructType) -> None:
        if not asked:
            raise InvalidArgumentError("there is nothing to aggregate; ask for example for ['count', 'sum(ms)']")
        self._schema = schema
        self._fields: list[_Field] = []
        self._results: list[tuple[str, str, list[int]]] = []
        for text in asked:
            self._ask(text)
        names = [name for name, _, _ in self._results]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidArgumentError(f"two results are called {twice!r}; name one with AS")
        self.bufferSchema = StructType([StructField(f"_{n}", each.type) for n, each in enumerate(self._fields)])

    def output_schema(self, key: Sequence[str]) -> StructType:
        """Schema of the results."""
        fields = [StructField(name, self._schema[name].dataType) for name in key]
        for name, function, places in self._results:
            fields.append(StructField(name, DoubleType() if function == "mean" else self._fields[places[0]].type))
        return StructType(fields)

    def zero(self) -> tuple[Any, ...]:
        """Nothing counted."""
        return tuple(None if each.function in {"min", "max"} else _plain(each.type)(0) for each in self._fields)

    def reduce(self, buffer: tuple[Any, ...], rows: pd.DataFrame) -> tuple[Any, ...]:
        """Add rows."""
        return self.merge(buffer, tuple(_of_rows(each, rows) for each in self._fields))

    def merge(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add up, or take the more extreme one."""
        return tuple(_together(each, a, b) for each, a, b in zip(self._fields, one, other, strict=True))

    def inverse(self, whole: tuple[Any, ...], part: tuple[Any, ...]) -> tuple[Any, ...]:
        """Take counts and sums off."""
        return tuple(a - b for a, b in zip(whole, part, strict=True))

    @property
    def can_invert(self) -> bool:
        """Whether there are neither minima nor maxima, which cannot be taken off."""
        return not any(each.function in {"min", "max"} for each in self._fields)

    def finish(self, key: tuple[Any, ...], buffer: tuple[Any, ...]) -> tuple[Any, ...]:
        """The key and the results."""
        results = []
        for _, function, places in self._results:
            value = buffer[places[0]]
            if function == "mean":
                count = buffer[places[1]]
                value = value / count if count else None
            results.append(value)
        return (*key, *results)

    def _ask(self, text: str) -> None:
        found = _ASKED.fullmatch(text)
        function = found[1].lower() if found else ""
        if found is None or function not in FUNCTIONS:
            raise InvalidArgumentError(
                f"{text!r} is none of {', '.join(FUNCTIONS)}; write for example 'sum(ms) AS total'"
            )
        column = None if found[2] in {None, "*"} else found[2]
        if column is None and function != "count":
            raise InvalidArgumentError(f"{text!r} needs a column, as in {function}(ms)")
        kind = LongType() if column is None else self._type(column)
        name = found[3] or (function if column is None else f"{function}_{column}")
        parts = [("sum", kind), ("count", LongType())] if function == "mean" else [(function, kind)]
        fields = [_Field(part, column, LongType() if part == "count" else of) for part, of in parts]
        self._results.append((name, function, [self._place(field) for field in fields]))

    def _place(self, field: _Field) -> int:
        """Where a number is in the buffer; one that several results need is kept once."""
        if field not in self._fields:
            self._fields.append(field)
        return self._fields.index(field)

    def _type(self, column: str) -> DataType:
        if column not in self._schema.names:
            raise InvalidArgumentError(f"there is no column {column!r}; there are {', '.join(self._schema.names)}")
        kind = self._schema[column].dataType
        if isinstance(kind, _WHOLE):
            return LongType()
        if isinstance(kind, FloatType | DoubleType):
            return DoubleType()
        raise InvalidArgumentError(
            f"column {column!r} is {kind.simpleString()}, not a number; cast it, or write an Aggregator"
        )


def _plain(kind: DataType) -> type[int] | type[float]:
    return int if isinstance(kind, LongType) else float


def _of_rows(field: _Field, rows: pd.DataFrame) -> Any:
    if field.column is None:
        return len(rows)
    values = rows[field.column].dropna()
    if field.function == "count":
        return len(values)
    if field.function in {"min", "max"} and not len(values):
        return None
    if isinstance(field.type, DoubleType):
        return float(getattr(values.astype(np.float64), field.function)())
    if values.dtype.kind == "f" and len(values) and values.abs().max() >= _EXACT:
        raise InvalidArgumentError(
            f"column {field.column!r} has NULL beside whole numbers of {_EXACT:,} and more, which pandas would round; "
            f"leave NULL out before, as with where = '{field.column} IS NOT NULL'"
        )
    if field.function == "sum" and abs(float(values.astype(np.float64).sum())) >= _LARGE:
        return sum(values.tolist())  # of Python, which does not overflow
    return int(getattr(values, field.function)())


def _together(field: _Field, one: Any, other: Any) -> Any:
    if field.function not in {"min", "max"}:
        return one + other
    known = [each for each in (one, other) if each is not None]
    return (min if field.function == "min" else max)(known, default=None)
