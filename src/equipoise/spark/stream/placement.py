"""Places the rows of a micro-batch: by the plan, sorted by key group and key, one marker row for every partition."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.plan import Plan
from equipoise.spark.keys import as_column
from equipoise.spark.routing import group_column, int_array
from equipoise.spark.stream.columns import FINGERPRINT, GROUP, marker
from equipoise.spark.stream.settings import Settings
from equipoise.state.ownership import Layout

_FINGERPRINT_BITS = 44  # of the fingerprint that fit below the group number in one BIGINT to sort by


class Placement:
    """How the rows of a stream are placed under one plan.

    The expressions and the marker rows are made once and serve every batch of the plan: making them takes a good part
    of the time of a small batch.

    Parameters
    ----------
    df
        Rows of a micro-batch, for their columns.
    settings
        How the query was started.
    plan
        The plan.
    initial
        Whether the rows are initial state, which has no event time and no order.
    """

    def __init__(self, df: DataFrame, settings: Settings, plan: Plan, *, initial: bool) -> None:
        self._partitions = plan.partitions
        keys = [as_column(df, name) for name in settings.identity.key]
        order = [] if initial else [as_column(df, name) for name in settings.order_by]
        watermark = None if initial else settings.watermark
        self._event = None if watermark is None else as_column(df, watermark.column)
        self._columns = [as_column(df, name) for name in df.columns]
        self._fingerprint = F.xxhash64(*keys).alias(FINGERPRINT)
        self._group = group_column(plan, F.col(FINGERPRINT))
        group = F.col(GROUP)
        owner = F.get(int_array(Layout(plan).owners), group)
        self._partition = F.when(group < 0, -1 - group).otherwise(owner).cast("int")
        self._order = [_place(), *keys, *order]
        self._markers = _markers(df, plan.partitions)

    def placed(self, df: DataFrame, late_ms: int) -> DataFrame:
        """Rows with our columns, in the partition and the order in which tasks read them.

        Parameters
        ----------
        df
            Rows of a micro-batch.
        late_ms
            Rows with an event time up to this are too late and are dropped, as Spark's own stateful operators do.
        """
        if self._event is not None:
            df = df.where(self._event.isNull() | (self._event > F.timestamp_millis(F.lit(late_ms))))
        rows = df.select(*self._columns, self._fingerprint).withColumn(GROUP, self._group).union(self._markers)
        return rows.repartitionById(self._partitions, self._partition).sortWithinPartitions(*self._order)


def _markers(df: DataFrame, partitions: int) -> DataFrame:
    """One row for every partition, so that tasks without rows run too."""
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in df.schema.fields]
    number = F.lit(marker(0)) - F.col("id").cast("int")
    return df.sparkSession.range(0, partitions, 1, 1).select(*nothing, F.lit(0).cast("bigint"), number)


def _place() -> Column:
    """Group and most of the fingerprint as one number: Spark sorts by it alone in nearly all comparisons.

    Fingerprints count as unsigned, which is the order of the state's entries.
    """
    shifted = F.shiftrightunsigned(F.col(FINGERPRINT), 64 - _FINGERPRINT_BITS)
    return F.shiftleft(F.col(GROUP).cast("bigint"), _FINGERPRINT_BITS) + shifted
