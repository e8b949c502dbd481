"""Whether one side of a join is small enough to be broadcast, by the session's own threshold."""

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from equipoise.readable import size_text
from equipoise.spark.rows.advice import Action, Advice
from equipoise.spark.rows.analysis import physical_plan
from equipoise.spark.rows.worker_options import bytes_of

_THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"

_JOIN = re.compile(
    r"\b(?:Broadcast(?:HashJoin|NestedLoopJoin)\b.*?\bBuild(Left|Right)\b|SortMergeJoin|ShuffledHashJoin)"
)
"""The topmost join of a physical plan; the group is the side that is broadcast."""


def broadcast_advice(df: DataFrame, rows: int, name: str) -> Advice | None:
    """Return the advice to broadcast a side of a join, if it is under the session's threshold; else ``None``.

    Its bytes are measured, in a pass over all of it, only if its number of rows leaves that open.

    Parameters
    ----------
    df
        The side.
    rows
        Its number of rows.
    name
        ``"left"`` or ``"right"``.
    """
    threshold = bytes_of(_THRESHOLD, df.sparkSession.conf.get(_THRESHOLD, "10485760") or "10485760")
    if threshold <= 0 or rows > threshold // _least_bytes(df.schema):
        return None
    positions = [str(place) for place in range(len(df.columns))]  # two columns may have the same name
    measured = df.toDF(*positions).agg(F.sum(_measured_bytes(df.schema)).alias("bytes")).first()
    assert measured is not None  # noqa: S101 - an aggregate without groups has one row; this tells the type checker
    size = int(measured["bytes"] or 0)
    if size > threshold:
        return None
    return Advice(
        Action.BROADCAST,
        f"the {name} side has {rows:,} rows, about {size_text(size)}, under {_THRESHOLD} "
        f"({size_text(threshold)}); with a broadcast nothing is shuffled",
        {"broadcast_rows": float(rows), "broadcast_bytes": float(size), "threshold_bytes": float(threshold)},
    )


def broadcast_by_spark(joined: DataFrame) -> str | None:
    """Return the side of the topmost join of a query that Spark plans to broadcast; ``None`` for none. Runs no job."""
    found = _JOIN.search(physical_plan(joined))
    return found[1].lower() if found is not None and found[1] else None


def _measured_bytes(schema: StructType) -> Column:
    """Return the size of a row: text and binary by length, nested values as JSON, 8 bytes for all others.

    Columns are named by their place.
    """
    size = F.lit(8)
    for place, each in enumerate(schema.fields):
        column, kind = F.col(str(place)), each.dataType
        if isinstance(kind, StringType | BinaryType):
            size = size + F.coalesce(F.octet_length(column), F.lit(0))
        elif isinstance(kind, ArrayType | MapType | StructType):
            size = size + F.coalesce(F.octet_length(F.to_json(F.struct(column))), F.lit(0))
        else:
            size = size + F.lit(8)
    return size.cast("bigint")


def _least_bytes(data_type: DataType) -> int:
    """Return the smallest assumed size of a value: 8 bytes, more for types without a fixed length."""
    if isinstance(data_type, StructType):
        return 8 + sum(_least_bytes(each.dataType) for each in data_type.fields)
    if isinstance(data_type, ArrayType):
        return 16 + 4 * _least_bytes(data_type.elementType)
    if isinstance(data_type, MapType):
        return 16 + 4 * (_least_bytes(data_type.keyType) + _least_bytes(data_type.valueType))
    return 32 if isinstance(data_type, StringType) else 8
