"""Combine the rows of a batch in its map tasks, before the one exchange."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, LongType, StructField, StructType, TimestampType

from equipoise.spark.rows.column_aggregator import ColumnAggregator
from equipoise.spark.rows.column_vectors import ColumnVectors
from equipoise.spark.rows.columns import BUFFER, BUFFER_EVENT, BUFFER_ROWS, FINGERPRINT, PARTIAL_BUFFER
from equipoise.spark.rows.keys import Key, as_column
from equipoise.spark.stream.aggregator import STATE
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.column_buffers import ColumnBuffers
from equipoise.spark.stream.partial_buffers import combiner
from equipoise.spark.stream.user_code import UserCode
from equipoise.spark.stream.vector_aggregates import buffers_spec, vector_combiner


def combined(
    rows: DataFrame, code: UserCode, batch_spec: BatchSpec
) -> tuple[DataFrame, BatchSpec, ColumnBuffers | None]:
    """Return the rows to place, the specification under which tasks read them, and what reduces them there.

    Parameters
    ----------
    rows
        Rows of a batch that are not late.
    code
        The user's code.
    batch_spec
        What the tasks need to know; its ``combine`` names the keys.
    """
    built_in = code.vector.aggregator if isinstance(code.vector, ColumnVectors) else code.aggregator
    if isinstance(built_in, ColumnAggregator):
        names = rows.columns
        event_time = None if batch_spec.event_time is None else names[batch_spec.event_time]
        reduce_rows = ColumnBuffers(built_in, tuple(names[place] for place in batch_spec.key_fields), event_time)
        spec = reduce_rows.spec(batch_spec)
        return (rows, spec, reduce_rows) if batch_spec.combine.scope == "none" else (reduce_rows(rows), spec, None)
    if batch_spec.combine.scope == "none" or (code.aggregator is None and code.vector is None):
        return rows, batch_spec, None
    fields = [StructField(field.name, field.dataType) for field in rows.schema.fields]
    sent, spec, added = fields, batch_spec, [StructField(PARTIAL_BUFFER, BinaryType())]
    if batch_spec.combine.scope == "all":
        sent = [fields[place] for place in batch_spec.key_fields]
        spec = replace(batch_spec, key_fields=list(range(len(sent))), event_time=None)
    if code.vector is not None:
        combine, spec = vector_combiner(batch_spec, code.vector), buffers_spec(batch_spec)
        buffer = StructType.fromJson(batch_spec.variables[STATE].schema)
        added = [StructField(BUFFER, buffer), StructField(BUFFER_ROWS, LongType())]
        if batch_spec.event_time is not None:
            added.append(StructField(BUFFER_EVENT, TimestampType()))
    elif code.aggregator is not None:
        combine = combiner(batch_spec, code.aggregator, batch_spec.variables[STATE].schema)
    key = Key.of(rows, [fields[place].name for place in batch_spec.key_fields])
    columns = [as_column(rows, field.name) for field in fields]
    reduced = rows.select(*columns, key.fingerprint.alias(FINGERPRINT)).mapInArrow(combine, StructType([*sent, *added]))
    return reduced, spec, None
