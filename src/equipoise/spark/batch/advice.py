"""Advice on a keyed operation: what would help, by how much, or why to leave it alone."""

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from equipoise.errors import InvalidArgumentError
from equipoise.metrics import makespan
from equipoise.spark.batch.report import OVERPARTITIONING, batch_planner
from equipoise.spark.batch.sample import SAMPLE_ROWS, resolve_weight, take_sample
from equipoise.spark.rows.cluster import partition_count, slot_count
from equipoise.spark.rows.keys import KeyLike, resolve_key

WORTH_IT = 1.1
"""Least predicted gain that is worth a change: what the prediction is off by, and then some."""


class Action(Enum):
    """What to do about the skew of a key."""

    NOTHING = "do nothing"
    ISOLATE = "isolate the hot keys"
    SPLIT = "split the hot keys"
    BROADCAST = "broadcast the other side"
    MORE_PARTITIONS = "use more partitions"


class Operation(Enum):
    """What is done with the groups of a key."""

    APPLY_IN_PANDAS = "applyInPandas"
    APPLY_IN_ARROW = "applyInArrow"
    COGROUP = "cogroup"
    WINDOW = "window"
    AGG = "agg"
    AGGREGATE = "aggregate"
    JOIN = "join"

    @property
    def splits(self) -> bool:
        """Whether a key need not stay whole: its parts can be merged, or the other side repeated."""
        return self in {Operation.AGGREGATE, Operation.JOIN}


@dataclass(frozen=True)
class Advice:
    """One recommendation, with its reason and the numbers behind it.

    Parameters
    ----------
    action
        What to do.
    reason
        Why, in a sentence with the decisive numbers.
    numbers
        All figures that were weighed, by name.
    """

    action: Action
    reason: str
    numbers: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.action.value}: {self.reason}"


def advise(
    df: DataFrame,
    key: KeyLike,
    operation: str | Operation = Operation.APPLY_IN_PANDAS,
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    *,
    other: DataFrame | None = None,
    weight: str | Column | None = None,
    sample: int = SAMPLE_ROWS,
    slots: int | None = None,
    seed: int = 0,
) -> Advice:
    """Say what would speed up a keyed operation, or why nothing would.

    Parameters
    ----------
    df
        A batch DataFrame; for a join, the large side.
    key
        Key column or columns, by name or as Columns.
    operation
        ``applyInPandas``, ``applyInArrow``, ``cogroup``, ``window``: keys must stay whole. ``agg``: Spark's built-in
        aggregates. ``aggregate``: a Python aggregate whose parts can be merged. ``join``.
    numPartitions
        N; default ``spark.sql.shuffle.partitions``.
    other
        The other side of a join.
    weight
        Numeric column: the load of a row; default: every row counts 1.
    sample
        Number of rows to sample, about.
    slots
        Tasks that run at a time; default Spark's default parallelism.
    seed
        Seed of the sampling.
    """
    wanted = _operation(operation)
    resolved = resolve_key(df, key)
    partitions = partition_count(df.sparkSession, numPartitions)
    if wanted is Operation.AGG:
        return Advice(
            Action.NOTHING,
            "Spark combines built-in aggregates before the shuffle, so a hot key sends one row from each task; "
            "repartitioning first would take that away",
        )
    if wanted is Operation.JOIN:
        if other is None:
            raise InvalidArgumentError("advice on a join needs the other side; pass other=")
        small = broadcast_advice(other, other.count())
        if small is not None:
            return small
    taken = take_sample(df, resolved, resolve_weight(df, weight), rows=sample, seed=seed)
    count = slot_count(df.sparkSession, slots)
    overpartitioned = {factor: taken.plain_loads(factor * partitions) for factor in OVERPARTITIONING}
    loads = taken.key_loads()
    plan = loads.plan(partitions, batch_planner("kip", count))
    return advice_for(
        wanted,
        hottest=loads.hottest,
        plain=taken.plain_loads(partitions),
        balanced=taken.planned_loads(plan),
        overpartitioned=overpartitioned,
        slots=count,
    )


def advice_for(
    operation: Operation,
    *,
    hottest: float,
    plain: NDArray[np.float64],
    balanced: NDArray[np.float64],
    overpartitioned: dict[int, NDArray[np.float64]],
    slots: int,
) -> Advice:
    """Weigh predicted loads against each other.

    Parameters
    ----------
    operation
        What is done with the groups.
    hottest
        Share of the hottest key.
    plain, balanced
        Share of the load in each partition under plain hash and under the balanced plan.
    overpartitioned
        The same under plain hash with a multiple of the partitions, by that multiple.
    slots
        Tasks that run at a time.
    """
    count = len(plain)
    times = {"hash": makespan(plain, slots), "balanced": makespan(balanced, slots)}
    times |= {f"hash x{factor}": makespan(loads, slots) for factor, loads in overpartitioned.items()}
    ideal = max(1 / slots, 0.0 if operation.splits else hottest)
    numbers = {
        "hottest_share": hottest,
        "bound": max(1.0, count * hottest),
        "hash_over_mean": float(plain.max() * count),
        "balanced_over_mean": float(balanced.max() * count),
        **{f"{name}_over_ideal": time / ideal for name, time in times.items()},
    }
    if times["hash"] <= WORTH_IT * ideal:
        share = f"{times['hash'] / ideal:.2f} of the ideal time"
        if hottest > 1 / slots and not operation.splits:
            why = f"one key carries {hottest:.1%} of the load and cannot be split, so no plan beats {hottest:.1%}"
            return Advice(Action.NOTHING, f"{why}; plain hash is at {share}", numbers)
        return Advice(Action.NOTHING, f"the load is even: plain hash is at {share}", numbers)
    if operation.splits and hottest * count > WORTH_IT:
        return Advice(
            Action.SPLIT,
            f"one key carries {hottest:.1%} of the load, {hottest * count:.1f} partitions' worth; whole it takes "
            f"{max(times['balanced'], hottest) / ideal:.2f} of the ideal time, split it can come near 1",
            numbers,
        )
    gain = times["hash"] / times["balanced"]
    limit = ""
    if hottest > 1 / slots:
        limit = (
            f"; one key carries {hottest:.1%} and cannot be split, so no plan beats {hottest * slots:.2f} of even work"
        )
    best = min((f for f in overpartitioned), key=lambda f: times[f"hash x{f}"], default=1)
    if best > 1 and times[f"hash x{best}"] <= times["balanced"] * 1.02:
        return Advice(
            Action.MORE_PARTITIONS,
            f"{best * count} partitions of plain hash are predicted {times['hash'] / times[f'hash x{best}']:.2f} times "
            f"faster than {count}, as fast as a plan{limit}",
            numbers,
        )
    if gain >= WORTH_IT:
        return Advice(Action.ISOLATE, f"predicted {gain:.2f} times faster than plain hash{limit}", numbers)
    return Advice(Action.NOTHING, f"a plan is predicted only {gain:.2f} times faster than plain hash{limit}", numbers)


def _operation(given: str | Operation) -> Operation:
    try:
        return Operation(given)
    except ValueError:
        names = ", ".join(each.value for each in Operation)
        raise InvalidArgumentError(f"no advice on operation {given!r}; choose one of {names}") from None


def broadcast_advice(other: DataFrame, rows: int) -> Advice | None:
    """Advice to broadcast, if the other side is under the session's threshold.

    Its bytes are measured, in a pass over all of it, only where its number of rows leaves that open.
    """
    text = other.sparkSession.conf.get("spark.sql.autoBroadcastJoinThreshold", "10485760") or "10485760"
    threshold = _bytes(text)
    row_bytes = _row_bytes(other.schema)
    if threshold <= 0 or rows > threshold // row_bytes:
        return None
    positions = [str(place) for place in range(len(other.columns))]  # names may be there twice
    measured = other.toDF(*positions).agg(F.sum(_measured_bytes(other.schema)).alias("bytes")).first()
    assert measured is not None  # noqa: S101 - an aggregate without groups has one row; this tells the type checker
    size = int(measured["bytes"] or 0)
    if size > threshold:
        return None
    return Advice(
        Action.BROADCAST,
        f"the other side has {rows:,} rows, about {size:,} bytes, under spark.sql.autoBroadcastJoinThreshold "
        f"({threshold:,}); broadcast it and nothing is shuffled",
        {"other_rows": float(rows), "other_bytes": float(size), "threshold_bytes": float(threshold)},
    )


def _measured_bytes(schema: StructType) -> Column:
    """Size of a row: of text and bytes as they are, of what is nested as JSON, 8 bytes for anything else.

    Columns are called by their place.
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


def _bytes(text: str) -> int:
    """A size as Spark writes it: plain bytes, or with a unit such as 10MB or 10m."""
    units = {"k": 10, "m": 20, "g": 30, "t": 40}
    lowered = text.strip().lower().removesuffix("b")
    if lowered and lowered[-1] in units:
        return int(lowered[:-1]) << units[lowered[-1]]
    return int(lowered)


def _row_bytes(data_type: DataType) -> int:
    """Least assumed size of a value, for how many rows to look at: 8 bytes, more for what has no fixed length."""
    if isinstance(data_type, StructType):
        return 8 + sum(_row_bytes(each.dataType) for each in data_type.fields)
    if isinstance(data_type, ArrayType):
        return 16 + 4 * _row_bytes(data_type.elementType)
    if isinstance(data_type, MapType):
        return 16 + 4 * (_row_bytes(data_type.keyType) + _row_bytes(data_type.valueType))
    return 32 if isinstance(data_type, StringType) else 8
