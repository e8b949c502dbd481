"""Place the rows of a micro-batch: by the plan, sorted by key group and place, one marker row for every partition."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import StructType

from equipoise.plan import Plan
from equipoise.spark.rows.columns import FINGERPRINT, GROUP, PARTITION, marker
from equipoise.spark.rows.keys import Key, as_column
from equipoise.spark.rows.routing import group_column, int_array
from equipoise.spark.rows.sorted_rows import PLACE_BITS
from equipoise.spark.stream.settings import Settings
from equipoise.state.ownership import Layout

Aggregate = Callable[[DataFrame, list[Column]], DataFrame]
"""Aggregates rows by their key and further columns, which the result has as well."""

OnTime = Callable[[DataFrame, int], DataFrame]
"""Drops the late rows of a batch, given the time up to which rows are late."""

_OURS = (FINGERPRINT, GROUP)


class RowPlacement:
    """Places the rows of a stream by one plan.

    The expressions and the marker rows are made once for all batches of the plan: making them takes much of the time
    of a small batch.

    Parameters
    ----------
    df
        Rows of a micro-batch as they cross the exchange, for their columns.
    settings
        The open query.
    plan
        The plan.
    initial
        Whether the rows are initial state, which has no event time and no order.
    """

    def __init__(self, df: DataFrame, settings: Settings, plan: Plan, *, initial: bool) -> None:
        self.plan = plan
        key = Key.of(df, settings.identity.key)
        order = [] if initial else [as_column(df, name) for name in settings.options.order_by]
        self._columns = [as_column(df, name) for name in df.columns]
        self._fingerprint = key.fingerprint.alias(FINGERPRINT)
        self._group = group_column(plan, F.col(FINGERPRINT))
        group = F.col(GROUP)
        owner = F.get(int_array(Layout(plan).owners), group)
        self._partition = F.when(group < 0, -1 - group).otherwise(owner).cast("int")
        # a sort by one BIGINT takes a third of the time; the task brings the few keys together that share a place
        self._order = [_place(), *key.columns, *order] if order else [_place()]
        self._markers = _markers(df, plan.partitions)

    def placed(self, df: DataFrame, aggregate: Aggregate | None = None) -> DataFrame:
        """Return rows with the columns of equipoise, in the partition and the order in which tasks read them.

        Parameters
        ----------
        df
            The rows.
        aggregate
            Reduces the rows of each key where they have been placed, without another exchange.
        """
        rows = df.select(*self._columns, self._fingerprint).withColumn(GROUP, self._group).union(self._markers)
        if aggregate is None:
            placed = rows.repartitionById(self.plan.partitions, self._partition)
            return placed.sortWithinPartitions(*self._order)
        marked = rows.withColumn(PARTITION, self._partition).repartitionById(self.plan.partitions, PARTITION)
        ours = [F.col(FINGERPRINT), F.col(GROUP)]
        reduced = aggregate(marked, [F.col(PARTITION), *ours]).drop(PARTITION)
        names = [name for name in reduced.columns if name not in _OURS]
        return reduced.select(*(as_column(reduced, name) for name in names), *ours).sortWithinPartitions(*self._order)


def nothing_late(df: DataFrame, late_ms: int) -> DataFrame:  # noqa: ARG001 - as that of ``late_filter``
    """Return all rows."""
    return df


def late_filter(df: DataFrame, settings: Settings) -> OnTime:
    """Return the function that drops the late rows of a batch, given the time up to which rows are late."""
    late_by = drops_late_by(settings)
    if late_by is None:
        return nothing_late
    event = _event_time(df, late_by)
    return lambda rows, late_ms: rows.where(event.isNull() | (event > F.timestamp_millis(F.lit(late_ms))))


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


def _markers(df: DataFrame, partitions: int) -> DataFrame:
    """Return one row for every partition, so that tasks without rows run too."""
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in df.schema.fields]
    number = F.lit(marker(0)) - F.col("id").cast("int")
    return df.sparkSession.range(0, partitions, 1, 1).select(*nothing, F.lit(0).cast("bigint"), number)


def _place() -> Column:
    """Return the place of a row: its group and most of its fingerprint as one number.

    Fingerprints count as unsigned, which is the order of the entries of the state.
    """
    shifted = F.shiftrightunsigned(F.col(FINGERPRINT), 64 - PLACE_BITS)
    return F.shiftleft(F.col(GROUP).cast("bigint"), PLACE_BITS) + shifted
