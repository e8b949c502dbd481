"""Place the rows of a micro-batch: by the plan, sorted by key group and key, one marker row for every partition.

Rows of split keys first go to the tasks that reduce their shards; the partial buffers are placed with the other rows.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import BinaryType, StructField, StructType

from equipoise.plan import Plan
from equipoise.spark.rows.columns import FINGERPRINT, GROUP, PARTIAL_BUFFER, SHARD, marker
from equipoise.spark.rows.keys import as_column, fingerprint_column
from equipoise.spark.rows.routing import group_column, int_array, looked_up, next_shard, width_column
from equipoise.spark.stream.settings import Settings
from equipoise.state.ownership import Layout

PartialReducer = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Reduces rows to partial buffers, for ``mapInArrow``."""

_FINGERPRINT_BITS = 44  # of the fingerprint that fit below the group number in one BIGINT to sort by


class Placement:
    """Places the rows of a stream by one plan.

    The expressions and the marker rows are made once for all batches of the plan: making them takes much of the time
    of a small batch.

    Parameters
    ----------
    df
        Rows of a micro-batch, for their columns.
    settings
        The open query.
    plan
        The plan.
    initial
        Whether the rows are initial state, which has no event time and no order.
    """

    def __init__(self, df: DataFrame, settings: Settings, plan: Plan, *, initial: bool) -> None:
        self._partitions = plan.partitions
        keys = [as_column(df, name) for name in settings.identity.key]
        self._widths = {} if initial or settings.aggregator is None else plan.widths
        order = [] if initial else [as_column(df, name) for name in settings.options.order_by]
        late_by = None if initial else drops_late_by(settings)
        self._event = None if late_by is None else _event_time(df, late_by)
        self._columns = [as_column(df, name) for name in df.columns]
        self._fingerprint = fingerprint_column(keys).alias(FINGERPRINT)
        self._group = group_column(plan, F.col(FINGERPRINT))
        group = F.col(GROUP)
        owner = F.get(int_array(Layout(plan).owners), group)
        self._partition = F.when(group < 0, -1 - group).otherwise(owner).cast("int")
        self._keys = keys
        self._order = [_place(), *keys, *order]
        self._markers = _markers(df, plan.partitions, with_buffers=bool(self._widths))

    @property
    def splits(self) -> bool:
        """Whether the plan splits any keys."""
        return bool(self._widths)

    def placed(self, df: DataFrame, late_ms: int, reduce_rows: PartialReducer | None = None) -> DataFrame:
        """Return rows with the columns of equipoise, in the partition and the order in which tasks read them.

        Parameters
        ----------
        df
            Rows of a micro-batch.
        late_ms
            Rows with an event time up to this are late; they are dropped if ``drops_late_by`` names a column.
        reduce_rows
            Reduces the rows of split keys; needed if the plan splits any.
        """
        if self._event is not None:
            df = df.where(self._event.isNull() | (self._event > F.timestamp_millis(F.lit(late_ms))))
        rows = df.select(*self._columns, self._fingerprint).withColumn(GROUP, self._group)
        if self.splits and reduce_rows is not None:
            rows = self._with_partial_buffers(rows, reduce_rows)
        rows = rows.union(self._markers)
        return rows.repartitionById(self._partitions, self._partition).sortWithinPartitions(*self._order)

    def _with_partial_buffers(self, rows: DataFrame, reduce_rows: PartialReducer) -> DataFrame:
        """Return the rows of whole keys, and partial buffers instead of the rows of split keys."""
        keys = np.array(list(self._widths), dtype=np.int64)
        counts = np.array(list(self._widths.values()), dtype=np.int64)
        fingerprint = F.col(FINGERPRINT)
        first = looked_up(keys, np.cumsum(counts) - counts, fingerprint, F.lit(-1))
        split = rows.withColumn(SHARD, first).where(F.col(SHARD) >= 0)
        turn = next_shard(width_column(self._widths, fingerprint))
        shards = split.withColumn(SHARD, F.col(SHARD) + turn).repartitionById(int(counts.sum()), SHARD)
        sorted_shards = shards.sortWithinPartitions(FINGERPRINT, *self._keys).drop(SHARD)
        fields = [StructField(field.name, field.dataType) for field in rows.schema.fields]
        schema = StructType([*fields, StructField(PARTIAL_BUFFER, BinaryType())])
        reduced = sorted_shards.mapInArrow(reduce_rows, schema)
        return rows.where(first < 0).withColumn(PARTIAL_BUFFER, F.lit(None).cast("binary")).union(reduced)


def _event_time(df: DataFrame, name: str) -> Column:
    """Return the event time in a column; that of a window is its end."""
    column = as_column(df, name)
    return column.getField("end") if isinstance(df.schema[name].dataType, StructType) else column


def drops_late_by(settings: Settings) -> str | None:
    """Return the event-time column by which late rows are dropped; ``None`` if they are kept.

    As in ``transformWithStateInPandas``, with the time modes "none" and "processingTime" every row reaches the
    processor, whatever the watermark. An aggregate that finishes its keys drops the rows of finished ones.
    """
    if settings.query.final_by is not None:
        return settings.query.final_by
    if settings.query.watermark is None or settings.identity.time_mode != "eventTime":
        return None
    return settings.query.watermark.column


def _markers(df: DataFrame, partitions: int, *, with_buffers: bool) -> DataFrame:
    """Return one row for every partition, so that tasks without rows run too."""
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in df.schema.fields]
    number = F.lit(marker(0)) - F.col("id").cast("int")
    buffer = [F.lit(None).cast("binary")] if with_buffers else []
    return df.sparkSession.range(0, partitions, 1, 1).select(*nothing, F.lit(0).cast("bigint"), number, *buffer)


def _place() -> Column:
    """Return the group and most of the fingerprint as one number, which decides nearly all comparisons of the sort.

    Fingerprints count as unsigned, which is the order of the entries of the state.
    """
    shifted = F.shiftrightunsigned(F.col(FINGERPRINT), 64 - _FINGERPRINT_BITS)
    return F.shiftleft(F.col(GROUP).cast("bigint"), _FINGERPRINT_BITS) + shifted
