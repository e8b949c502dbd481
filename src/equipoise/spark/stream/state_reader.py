"""Read the state in a checkpoint as a DataFrame."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, LongType, MapType, StructField, StructType

from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.spark.rows.pandas_rows import state_array
from equipoise.spark.rows.schemas import SparkSchemas
from equipoise.state.checkpoint import Identity
from equipoise.state.codec import KeyCodec
from equipoise.state.commit import Commit
from equipoise.state.group_table import Chain
from equipoise.state.handle import VariableSpec
from equipoise.state.section_reader import SectionReader
from equipoise.state.state_dump import TIMERS, group_entries, kept_version, key_states, while_kept
from equipoise.storage import Storage

_KEYS_AT_A_TIME = 10_000


def read_state(path: str, version: int | None = None, *, spark: SparkSession | None = None) -> DataFrame:
    """Return keys and states of a query: a row for each key, with a column for each state variable, and the timers.

    A value state is a struct, a list state an array of them, a map state a map. The query may be running.

    Parameters
    ----------
    path
        The query's ``checkpointLocation``.
    version
        The state after batch ``version - 1``; 0 is the initial state; default the last one. ``retain`` versions
        before the last are kept.
    spark
        The session; default the active one.
    """
    session = active_session(spark)
    storage = Storage(path)
    identity, commit, table, variables = kept_version(storage, version)
    schema = _state_schema(identity, variables)
    read = _reader(storage.location, identity, variables, commit, SparkSchemas(session).arrow(schema))
    chains = [(msgspec.json.encode(chain).decode(),) for _, chain in sorted(table.chains.items())]
    if not chains:
        return session.createDataFrame([], schema)
    groups = session.createDataFrame(chains, "chain string").repartition(min(len(chains), 64))
    return groups.mapInArrow(read, schema)


def active_session(spark: SparkSession | None) -> SparkSession:
    """Return the given session, or the active one."""
    found = spark or SparkSession.getActiveSession()
    if found is None:
        raise InvalidArgumentError("there is no active Spark session; create one, or pass spark=")
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
            raise MismatchError(f"state variable {name!r} has the name of another column; rename it to read the state")
        fields.append(StructField(name, value))
    if identity.time_mode != "none":
        fields.append(StructField(TIMERS, ArrayType(LongType())))
    return StructType([StructField(field.name, field.dataType) for field in fields])


def _reader(
    location: str, identity: Identity, variables: dict[str, VariableSpec], commit: Commit, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    version, time_ms = commit.version, commit.time_ms

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = Storage(location)
        sections = SectionReader(storage)
        keys = KeyCodec(identity.key_schema)
        tables = {spec.tag: (name, spec, spec.values()) for name, spec in variables.items()}
        for batch in batches:
            for text in batch.column("chain").to_pylist():
                with while_kept(storage, version):
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
