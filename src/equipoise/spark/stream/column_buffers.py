"""Built-in aggregates of a stream, computed by Spark: its aggregation makes the buffers of a ``ColumnAggregator``.

Spark combines the rows of each map task and merges what the tasks send. The result has one row for each key, which is
placed by the plan and merged into the state. Where keys hardly repeat, rows are placed first and aggregated there.

A row has the columns of the key, ``BUFFER``, ``BUFFER_ROWS`` and, with event time, ``BUFFER_EVENT``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import DataType, DoubleType, TimestampNTZType, TimestampType

from equipoise.spark.rows.column_aggregator import BufferField, ColumnAggregator
from equipoise.spark.rows.columns import BUFFER, BUFFER_EVENT, BUFFER_ROWS
from equipoise.spark.rows.keys import as_column
from equipoise.spark.stream.batch_spec import BatchSpec

_SECONDS_OF_DAY = 86_400


@dataclass(frozen=True)
class ColumnBuffers:
    """Reduces rows to buffers by Spark's own aggregation.

    Parameters
    ----------
    aggregator
        The aggregates.
    key
        Names of the key columns.
    event_time
        Name of the event-time column; ``None`` without one.
    """

    aggregator: ColumnAggregator
    key: tuple[str, ...]
    event_time: str | None = None

    def __call__(self, rows: DataFrame, ours: Sequence[Column] = ()) -> DataFrame:
        """Return one row for each key; ``ours`` are further columns to group by."""
        fields = [
            _value(rows, field).cast(field.type).alias(f"_{place}")
            for place, field in enumerate(self.aggregator.fields)
        ]
        made = [F.struct(*fields).alias(BUFFER), F.count(F.lit(1)).alias(BUFFER_ROWS)]
        if self.event_time is not None:
            made.append(F.max(as_column(rows, self.event_time)).alias(BUFFER_EVENT))
        return rows.groupBy(*(as_column(rows, name) for name in self.key), *ours).agg(*made)

    def spec(self, batch_spec: BatchSpec) -> BatchSpec:
        """Return the specification under which tasks read the rows."""
        event = None if self.event_time is None else len(self.key) + 2
        return replace(batch_spec, key_fields=list(range(len(self.key))), event_time=event, has_buffers=True)


def _value(rows: DataFrame, field: BufferField) -> Column:
    """Return a value of the buffer as an aggregate of Spark."""
    if field.column is None:
        return F.count(F.lit(1))
    column = as_column(rows, field.column)
    if field.function == "count":
        return F.count(column)
    if field.function == "sum":
        return _sum(column, field.column, field.type)
    found = F.min(column) if field.function == "min" else F.max(column)
    kind = rows.schema[field.column].dataType
    if isinstance(kind, TimestampType):
        return F.unix_micros(found)
    return _wall_micros(found) if isinstance(kind, TimestampNTZType) else found


def _sum(column: Column, name: str, kind: DataType) -> Column:
    """Return the sum, 0 for no value; a sum that does not fit is an error, also if ANSI mode is off."""
    if isinstance(kind, DoubleType):
        return F.coalesce(F.sum(column.cast(kind)), F.lit(0.0))
    total = F.try_sum(column)
    message = f"the sum of {name} in a batch does not fit into {kind.simpleString()}; cast the column to a wider type"
    return F.when(total.isNull() & (F.count(column) > 0), F.raise_error(F.lit(message))).otherwise(
        F.coalesce(total, F.lit(0).cast(kind))
    )


def _wall_micros(moment: Column) -> Column:
    """Return a timestamp without time zone as microseconds since 1970, whatever the session's time zone."""
    seconds = F.unix_date(F.to_date(moment)).cast("bigint") * _SECONDS_OF_DAY + F.hour(moment) * 3600
    whole = (seconds + F.minute(moment) * 60) * 1_000_000
    return whole + (F.extract(F.lit("SECOND"), moment) * 1_000_000).cast("bigint")
