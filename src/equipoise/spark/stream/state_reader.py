"""Read a checkpoint: keys and states as a DataFrame, and what became of every batch."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, LongType, MapType, StructField, StructType

from equipoise.errors import InvalidArgument, Mismatch
from equipoise.spark.stream.pandas_rows import state_array
from equipoise.spark.stream.user_code import SparkSchemas
from equipoise.state.checkpoint import Identity
from equipoise.state.codec import KeyCodec, RowCodec
from equipoise.state.contents import TIMERS, group_entries, kept_version, key_states
from equipoise.state.handle import VariableSpec
from equipoise.state.history import history_rows
from equipoise.state.log import Chain
from equipoise.state.section_reader import SectionReader
from equipoise.storage import Storage

_KEYS_AT_A_TIME = 10_000

_HISTORY = (
    "batch bigint, time timestamp, watermark timestamp, rows bigint, output_rows bigint, split_rows bigint, "
    "seconds double, work_seconds double, target_seconds double, imbalance_rows double, imbalance_seconds double, "
    "imbalance_rows_hash double, imbalance_seconds_hash double, bound_rows double, bound_seconds double, "
    "state_bytes bigint, plan bigint, next_plan bigint, action string, applied boolean, reason string, bound double, "
    "imbalance_before double, imbalance_after double, gain_seconds double, move_seconds double, "
    "move_bytes double, keys_moved bigint, groups_moved bigint, partition_rows array<bigint>, "
    "partition_seconds array<double>, partition_state array<bigint>"
)


def read_state(path: str, version: int | None = None, *, spark: SparkSession | None = None) -> DataFrame:
    """Keys and states of a query: one row for each key, its columns, one column for each state variable, and timers.

    A value state is a struct, a list state an array of them, a map state a map. The query may be running.

    Parameters
    ----------
    path
        The query's ``checkpointLocation``.
    version
        The state after batch ``version - 1``; 0 is the initial state; default the last. As many as ``retain`` said
        are kept before it.
    spark
        The session; default the active one.
    """
    session = _session(spark)
    storage = Storage(path)
    identity, commit, table, variables = kept_version(storage, version)
    schema = _state_schema(identity, variables)
    read = _reader(storage.location, identity, variables, commit.time_ms, SparkSchemas(session).arrow(schema))
    chains = [(msgspec.json.encode(chain).decode(),) for _, chain in sorted(table.chains.items())]
    if not chains:
        return session.createDataFrame([], schema)
    parts = session.createDataFrame(chains, "chain string").repartition(min(len(chains), 64))
    return parts.mapInArrow(read, schema)


def history(path: str, *, spark: SparkSession | None = None) -> DataFrame:
    """What became of every batch: measures, plan, decision and its reason, imbalance before and after, moves.

    Columns
    -------
    ``batch``, ``time``, ``watermark``
        Number of the batch, its processing time, and the watermark that it ran under.
    ``rows``, ``output_rows``, ``split_rows``
        Rows that came in and went out; rows of split keys, which other tasks reduced than those that own the keys.
    ``seconds``, ``work_seconds``, ``target_seconds``
        Time of the batch, of the user's code in all tasks together, and that a batch may take: the interval of the
        trigger or ``targetSeconds``, NULL where there is neither.
    ``imbalance_rows``, ``imbalance_seconds``
        Rows and work of the fullest partition over the mean.
    ``imbalance_rows_hash``, ``imbalance_seconds_hash``
        What they would have been by plain hash, for the very same rows.
    ``bound_rows``, ``bound_seconds``
        What no plan could have gone below while the hottest key stays whole.
    ``state_bytes``, ``partition_state``
        State before the batch, of all and of each partition.
    ``partition_rows``, ``partition_seconds``
        Rows and time of each task.
    ``plan``, ``next_plan``
        Versions of the plan of this batch and of the next.
    ``action``, ``applied``, ``reason``
        What was decided, whether it was done, and why.
    ``imbalance_before``, ``bound``
        What the decision rests on: imbalance and its bound by the load on record, which goes back further than a batch,
        and counts what the option ``load`` says.
    ``imbalance_after``, ``gain_seconds``
        Where a plan was made: the imbalance that it is to have, and the seconds that it saves over the horizon.
    ``move_bytes``, ``move_seconds``, ``keys_moved``, ``groups_moved``
        What the plan moves, and how long that takes the partition with most of it.

    Parameters
    ----------
    path
        The query's ``checkpointLocation``.
    spark
        The session; default the active one.
    """
    session = _session(spark)
    names = [part.split()[0] for part in _HISTORY.split(", ")]
    rows = [tuple(each.get(name) for name in names) for each in history_rows(path)]
    milliseconds = _HISTORY.replace("time timestamp", "time bigint").replace("watermark timestamp", "watermark bigint")
    df = session.createDataFrame(rows, milliseconds)
    return df.selectExpr(
        *(f"timestamp_millis({name}) AS {name}" if name in {"time", "watermark"} else name for name in names)
    )


def _session(spark: SparkSession | None) -> SparkSession:
    found = spark or SparkSession.getActiveSession()
    if found is None:
        raise InvalidArgument("there is no active Spark session; create one, or pass spark=")
    return found


def _state_schema(identity: Identity, variables: dict[str, VariableSpec]) -> StructType:
    key = StructType.fromJson(identity.key_schema)
    fields = list(key.fields)
    taken = {*key.names} if identity.time_mode == "none" else {*key.names, TIMERS}
    for name, spec in variables.items():
        value: Any = StructType.fromJson(spec.schema)
        if spec.kind == "list":
            value = ArrayType(value)
        elif spec.kind == "map":
            value = MapType(StructType.fromJson(spec.key_schema or {}), value)
        if name in taken:
            raise Mismatch(f"state variable {name!r} has the name of another column; rename it to read the state")
        fields.append(StructField(name, value))
    if identity.time_mode != "none":
        fields.append(StructField(TIMERS, ArrayType(LongType())))
    return StructType([StructField(field.name, field.dataType) for field in fields])


def _reader(
    location: str, identity: Identity, variables: dict[str, VariableSpec], time_ms: int, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sections = SectionReader(Storage(location))
        keys = KeyCodec(identity.key_schema)
        tables = {spec.tag: (name, spec, RowCodec(spec.schema)) for name, spec in variables.items()}
        for batch in batches:
            for text in batch.column("chain").to_pylist():
                entries = group_entries(msgspec.json.decode(text, type=Chain), sections)
                yield from _batches((row for _, row in key_states(entries, keys, tables, time_ms)), schema)

    return read


def _batches(rows: Iterator[dict[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    pending: list[dict[str, Any]] = []
    for row in rows:
        pending.append(row)
        if len(pending) == _KEYS_AT_A_TIME:
            yield _batch(pending, schema)
            pending = []
    if pending:
        yield _batch(pending, schema)


def _batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    key_columns = list(zip(*(row[""] for row in rows), strict=True))
    arrays = [state_array(column, field.type) for column, field in zip(key_columns, schema, strict=False)]
    arrays += [
        state_array([row.get(field.name) for row in rows], field.type) for field in list(schema)[len(key_columns) :]
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
