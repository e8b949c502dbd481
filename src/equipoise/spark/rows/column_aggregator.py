"""Aggregate columns by count, sum, minimum, maximum and mean, as Spark's ``agg`` does."""

import decimal
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.aggregator import Aggregator

FUNCTIONS = ("count", "sum", "min", "max", "avg")
"""Functions of a column; ``count`` also counts rows."""

_LARGE = 2.0**62  # above this a sum may not fit into 64 bits
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_FLOATS = (FloatType, DoubleType)
_NUMBERS = (*_WHOLE, *_FLOATS, DecimalType)
_INSTANTS = (TimestampType, TimestampNTZType)
_ORDERED = (*_NUMBERS, *_INSTANTS, BooleanType, DateType, StringType)
_MOST_DIGITS = 38
_DECIMALS = decimal.Context(prec=2 * _MOST_DIGITS, rounding=decimal.ROUND_HALF_UP)


class Aggregate(NamedTuple):
    """One result of an aggregation.

    Parameters
    ----------
    function
        One of ``FUNCTIONS``.
    column
        Name of the column; ``None`` for ``count`` of rows.
    name
        Name of the result.
    """

    function: str
    column: str | None
    name: str


class BufferField(NamedTuple):
    """One value of the buffer: a function of a column, or of all rows, and its type."""

    function: str
    column: str | None
    type: DataType


class ColumnAggregator(Aggregator):
    """Counts, sums, extremes and means of columns; the output has the key and one column for each.

    Results and types are those of Spark's ``agg``: NULL is left out, the sum of nothing is NULL, NaN is a value and
    larger than any other. Two things differ. A sum that does not fit into its type is an error, also if ANSI mode is
    off, where Spark's sum overflows silently. Sums and means of floats depend on the order of the rows, which differs
    from Spark's.

    Counts and sums of whole numbers have an inverse, so windows of only those subtract old rows instead of merging.

    Parameters
    ----------
    asked
        The results.
    schema
        Schema of the rows.

    Examples
    --------
    >>> schema = StructType([StructField("host", LongType()), StructField("ms", LongType())])
    >>> totals = ColumnAggregator([Aggregate("count", None, "n"), Aggregate("avg", "ms", "typical")], schema)
    >>> rows = pa.table({"host": [7, 7, 7], "ms": [10, 40, None]})
    >>> totals.finish((7,), totals.reduce(totals.zero(), rows))
    (7, 3, 25.0)
    >>> totals.output_schema(["host"]).simpleString()
    'struct<host:bigint,n:bigint,typical:double>'
    """

    takes_arrow: ClassVar[bool] = True

    def __init__(self, asked: Sequence[Aggregate], schema: StructType) -> None:
        self._schema = schema
        self._fields: list[BufferField] = []
        self._results: list[tuple[Aggregate, DataType, list[int]]] = []
        for each in asked:
            fields, kind = self._fields_of(each)
            self._results.append((each, kind, [self._place(field) for field in fields]))
        self.bufferSchema = StructType([StructField(f"_{n}", each.type) for n, each in enumerate(self._fields)])
        self._mergers = [_merger(each) for each in self._fields]

    @property
    def fields(self) -> "list[BufferField]":
        """The values of the buffer."""
        return list(self._fields)

    @property
    def results(self) -> "list[tuple[Aggregate, DataType, list[int]]]":
        """The results, each with its type and the places of the values in the buffer that it follows from."""
        return list(self._results)

    def result(self, at: int, values: Sequence[Any]) -> Any:
        """Return one result, given by its place, from those values."""
        asked, kind, _ = self._results[at]
        return _result(asked, kind, list(values))

    def output_schema(self, key: Sequence[str]) -> StructType:
        """Return the schema of the results."""
        fields = [StructField(name, self._schema[name].dataType, metadata=self._schema[name].metadata) for name in key]
        return StructType([*fields, *(StructField(asked.name, kind) for asked, kind, _ in self._results)])

    def zero(self) -> tuple[Any, ...]:
        """Return the buffer of no rows."""
        return tuple(_zero(each) for each in self._fields)

    def reduce(self, buffer: tuple[Any, ...], rows: pa.Table | pd.DataFrame) -> tuple[Any, ...]:
        """Add rows; in a pandas frame NaN is NULL."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pandas(rows, preserve_index=False)
        values = {name: table.column(name).drop_null() for name in {each.column for each in self._fields} - {None}}
        reduced = [
            table.num_rows if each.column is None else _of_values(each, values[each.column]) for each in self._fields
        ]
        return self.merge(buffer, tuple(reduced))

    def merge(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add counts and sums; take the smaller minimum and the larger maximum."""
        return tuple(merged(a, b) for merged, a, b in zip(self._mergers, one, other, strict=True))

    def inverse(self, whole: tuple[Any, ...], part: tuple[Any, ...]) -> tuple[Any, ...]:
        """Subtract counts and sums."""
        return tuple(a - b for a, b in zip(whole, part, strict=True))

    @property
    def can_invert(self) -> bool:
        """Whether all results are counts and sums of whole numbers; NaN and extremes cannot be subtracted."""
        return all(isinstance(each.type, LongType) and each.function in {"count", "sum"} for each in self._fields)

    def finish(self, key: tuple[Any, ...], buffer: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the key and the results."""
        return (*key, *(_result(asked, kind, [buffer[at] for at in at_]) for asked, kind, at_ in self._results))

    def _fields_of(self, asked: Aggregate) -> tuple[list[BufferField], DataType]:
        """Return the values of the buffer that a result needs, and the type of the result."""
        function, column, _ = asked
        if column is None:
            return [BufferField(function, None, LongType())], LongType()
        kind = self._schema[column].dataType
        count = BufferField("count", column, LongType())
        if function == "count":
            return [count], LongType()
        is_usual_text = not isinstance(kind, StringType) or kind.collation == "UTF8_BINARY"
        if not isinstance(kind, _ORDERED if function in {"min", "max"} else _NUMBERS) or not is_usual_text:
            raise InvalidArgumentError(
                f"{function}({column}): the column is {kind.simpleString()}, which {function} of a stream does not "
                "take; cast it, or write an Aggregator"
            )
        if function in {"min", "max"}:
            return [BufferField(function, column, LongType() if isinstance(kind, _INSTANTS) else kind)], kind
        if isinstance(kind, DecimalType):
            total = DecimalType(min(kind.precision + 10, _MOST_DIGITS), kind.scale)
            mean = DecimalType(min(kind.precision + 4, _MOST_DIGITS), min(kind.scale + 4, _MOST_DIGITS))
            return [BufferField("sum", column, total), count], total if function == "sum" else mean
        is_whole = isinstance(kind, _WHOLE) and function == "sum"
        number = (
            LongType() if is_whole else DoubleType()
        )  # as in Spark, the mean of whole numbers is computed in doubles
        return [BufferField("sum", column, number), count], number

    def _place(self, field: BufferField) -> int:
        """Return the position of a value in the buffer; results share equal values."""
        if field not in self._fields:
            self._fields.append(field)
        return self._fields.index(field)


def _zero(field: BufferField) -> Any:
    if field.function in {"min", "max"}:
        return None
    if isinstance(field.type, DecimalType):
        return decimal.Decimal(0)
    return 0.0 if isinstance(field.type, DoubleType) else 0


def _of_values(field: BufferField, values: pa.ChunkedArray) -> Any:
    """Compute a field from values without NULL."""
    if field.function == "count":
        return len(values)
    if field.function == "sum":
        return _sum(field, values)
    if not len(values):
        return None
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy()
        return float(np.fmin.reduce(numbers) if field.function == "min" else np.max(numbers))
    return (min if field.function == "min" else max)(values.to_pylist())


def _sum(field: BufferField, values: pa.ChunkedArray) -> Any:
    if isinstance(field.type, DecimalType):
        return _decimal_sum(values.to_pylist())
    numbers = values.to_numpy()
    approximate = float(numbers.sum(dtype=np.float64))
    if isinstance(field.type, DoubleType):
        return approximate
    if abs(approximate) >= _LARGE:
        return sum(numbers.tolist())  # in Python, which does not overflow
    return int(numbers.sum(dtype=np.int64))


def _decimal_sum(values: Sequence[decimal.Decimal]) -> decimal.Decimal:
    with decimal.localcontext(_DECIMALS):
        return sum(values, decimal.Decimal(0))


def _merger(field: BufferField) -> Callable[[Any, Any], Any]:
    if field.function in {"min", "max"}:
        return _smaller if field.function == "min" else _larger
    return _DECIMALS.add if isinstance(field.type, DecimalType) else operator.add


def _smaller(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return other if one != one or other < one else one  # noqa: PLR0124 - NaN, the largest, differs from itself


def _larger(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return other if other != other or other > one else one  # noqa: PLR0124 - NaN, the largest, differs from itself


def _result(asked: Aggregate, kind: DataType, values: list[Any]) -> Any:
    if asked.function in {"sum", "avg"}:
        total, count = values
        if not count:
            return None
        if asked.function == "sum":
            return total
        if isinstance(kind, DecimalType):
            unit = decimal.Decimal(1).scaleb(-kind.scale)
            return _DECIMALS.divide(total, decimal.Decimal(count)).quantize(unit, context=_DECIMALS)
        return total / count
    if isinstance(kind, _INSTANTS) and values[0] is not None:
        moment = np.datetime64(values[0], "us")
        return pd.Timestamp(moment, tz="UTC" if isinstance(kind, TimestampType) else None)
    return values[0]
