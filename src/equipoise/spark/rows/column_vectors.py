"""A ``ColumnAggregator`` over many keys at once: buffers are merged and finished column by column, in Arrow."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DecimalType, StructType, TimestampNTZType, TimestampType

from equipoise.spark.rows.column_aggregator import BufferField, ColumnAggregator
from equipoise.spark.rows.vector_aggregator import VectorAggregator

_WIDER = 2  # digits that a sum of two decimals has more, at most


class ColumnVectors(VectorAggregator):
    """Merges and finishes the buffers of a ``ColumnAggregator``, with equal results.

    Parameters
    ----------
    aggregator
        The aggregates.
    """

    def __init__(self, aggregator: ColumnAggregator) -> None:
        self.aggregator = aggregator
        self.bufferSchema = aggregator.bufferSchema  # as Spark names schemas

    def reduce(self, rows: pa.Table, offsets: NDArray[np.int64]) -> pa.Table:
        """Reduce the rows key by key. On Spark this is never called, since Spark reduces them."""
        zero, bounds = self.aggregator.zero(), offsets.tolist()
        parts = [rows.slice(first, last - first) for first, last in pairwise(bounds)]
        values = zip(*(self.aggregator.reduce(zero, part) for part in parts), strict=True)
        assert isinstance(self.bufferSchema, StructType)  # noqa: S101 - this tells the type checker
        schema = to_arrow_schema(self.bufferSchema)
        return pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)], schema=schema
        )

    def merge(self, one: pa.Table, other: pa.Table) -> pa.Table:
        """Add counts and sums; take the smaller minimum and the larger maximum."""
        pairs = zip(self.aggregator.fields, one.columns, other.columns, strict=True)
        return pa.table([_merged(field, left, right) for field, left, right in pairs], names=one.column_names)

    def finish(self, keys: pa.Table, buffers: pa.Table) -> pa.Table:
        """Return the keys and the results."""
        made = [self._result(at, buffers) for at in range(len(self.aggregator.results))]
        names = [asked.name for asked, _, _ in self.aggregator.results]
        return pa.Table.from_arrays([*keys.columns, *made], names=[*keys.column_names, *names])

    def _result(self, at: int, buffers: pa.Table) -> Any:
        asked, kind, places = self.aggregator.results[at]
        values = [buffers.column(place) for place in places]
        if asked.function in {"sum", "avg"}:
            total, count = values
            some = pc.if_else(pc.equal(count, 0), pa.scalar(None, count.type), count)
            if asked.function == "sum":
                return pc.if_else(pc.is_valid(some), total, pa.scalar(None, total.type))
            if not isinstance(kind, DecimalType):
                return pc.divide(total, some.cast(pa.float64()))
            means = [
                self.aggregator.result(at, each) for each in zip(total.to_pylist(), count.to_pylist(), strict=True)
            ]
            return pa.array(means, pa.decimal128(kind.precision, kind.scale))
        if isinstance(kind, TimestampType | TimestampNTZType) and asked.function in {"min", "max"}:
            return values[0].cast(pa.timestamp("us", "UTC" if isinstance(kind, TimestampType) else None))
        return values[0]


def _merged(field: BufferField, one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = one.type
    if field.function in {"count", "sum"}:
        if pa.types.is_decimal(kind):
            wide = pa.decimal256(kind.precision + _WIDER, kind.scale)
            return pc.add(one.cast(wide), other.cast(wide)).cast(kind)
        return pc.add_checked(one, other)
    is_min = field.function == "min"
    extreme = pc.min_element_wise if is_min else pc.max_element_wise
    if pa.types.is_boolean(kind):
        return extreme(one.cast(pa.int8()), other.cast(pa.int8())).cast(kind)
    found = extreme(one, other)  # of NaN and a number the number
    if is_min or not pa.types.is_floating(kind):
        return found
    has_nan = pc.or_(*(pc.fill_null(pc.is_nan(each), fill_value=False) for each in (one, other)))
    return pc.if_else(has_nan, pa.scalar(float("nan"), kind), found)
