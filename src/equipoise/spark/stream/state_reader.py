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
from equipoise.state import chronicle
from equipoise.state.catch_up import SectionReader
from equipoise.state.checkpoint import Checkpoint, Identity
from equipoise.state.codec import KeyCodec, RowCodec
from equipoise.state.entries import parse_entry, split_value, unpack_time
from equipoise.state.group_entries import group_entries
from equipoise.state.handle import VariableSpec
from equipoise.state.log import Chain, Commit, CommitLog, GroupTable
from equipoise.storage import Storage

TIMERS = "timers"
_TIMER_TAG = 0
_ENTRIES = 0
_KEYS_AT_A_TIME = 10_000


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
    session = active_session(spark)
    storage = Storage(path)
    identity, commit, table, variables = _kept(storage, version)
    schema = _state_schema(identity, variables)
    read = _reader(storage.location, identity, variables, commit.time_ms, SparkSchemas(session).arrow(schema))
    chains = [(msgspec.json.encode(chain).decode(),) for _, chain in sorted(table.chains.items())]
    if not chains:
        return session.createDataFrame([], schema)
    parts = session.createDataFrame(chains, "chain string").repartition(min(len(chains), 64))
    return parts.mapInArrow(read, schema)


def local_states(path: str, version: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Fingerprints and states, one key after the other, without Spark; the key itself is under an empty name."""
    storage = Storage(path)
    identity, commit, table, variables = _kept(storage, version)
    keys, sections = KeyCodec(identity.key_schema), SectionReader(storage)
    tables = {spec.tag: (name, spec, RowCodec(spec.schema)) for name, spec in variables.items()}
    for _, chain in sorted(table.chains.items()):
        yield from key_states(group_entries(chain, sections), keys, tables, commit.time_ms)


def _kept(storage: Storage, version: int | None) -> tuple[Identity, Commit, GroupTable, dict[str, VariableSpec]]:
    """A version of a query: its identity, commit, table of key groups, and state variables."""
    path = storage.location
    identity, log = Checkpoint(storage).require(), CommitLog(storage)
    head, oldest = log.head(), log.oldest()
    wanted = head if version is None else version
    if not oldest <= wanted <= head:
        raise InvalidArgument(f"version {wanted} of {path} is not kept; versions {oldest} to {head} are")
    commit, table = log.read(wanted), log.table(wanted)
    gone = [file for file in sorted(table.files()) if not storage.exists(file)] if wanted < head else []
    if gone:
        raise InvalidArgument(
            f"version {wanted} of {path} is not kept any more: {storage.at(gone[0])} is gone; a query keeps as many "
            f"versions before its last, {head}, as `retain` says"
        )
    stored = {name: msgspec.convert(spec, VariableSpec) for name, spec in commit.variables.items()}
    variables = {name: spec for name, spec in stored.items() if not spec.removed}
    return identity, commit, table, variables


def history_rows(path: str) -> list[dict[str, Any]]:
    """What became of every batch, without Spark; times are in milliseconds."""
    storage = Storage(path)
    Checkpoint(storage).require()
    return [_history_row(each) for each in chronicle.rows(storage) if each["batch"] >= 0]


def _history_row(kept: dict[str, Any]) -> dict[str, Any]:
    measures, decision = kept["measures"], kept["decision"]
    numbers = decision.get("numbers", {})
    whole = {name: None if numbers.get(name) is None else int(numbers[name]) for name in ("keys_moved", "groups_moved")}
    plain = {name: numbers.get(name) for name in ("bound", "imbalance_before", "imbalance_after", "move_bytes")}
    return {
        "batch": kept["batch"],
        "time": kept["time_ms"],
        "watermark": kept["watermark_ms"] or None,
        "plan": kept["plan"],
        "next_plan": kept["next_plan"],
        "action": decision["action"],
        "applied": decision["applied"],
        "reason": decision["reason"],
        **measures,
        **plain,
        **whole,
    }


def active_session(spark: SparkSession | None) -> SparkSession:
    """The session that was given, else the active one."""
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


def key_states(
    entries: dict[bytes, bytes], keys: KeyCodec, tables: dict[int, tuple[str, VariableSpec, RowCodec]], time_ms: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Fingerprint and states of one key after the other; the key itself is under an empty name."""
    current, fingerprint = b"", 0
    row: dict[str, Any] = {}
    user_keys = {tag: KeyCodec(spec.key_schema) for tag, (_, spec, _) in tables.items() if spec.key_schema}
    for key in sorted(entries):
        if key[0] != _ENTRIES:
            break
        entry = parse_entry(key)
        expiry, payload = split_value(entries[key])
        known = tables.get(entry.tag)
        if (expiry is not None and expiry <= time_ms) or (known is None and entry.tag != _TIMER_TAG):
            continue
        if entry.key != current or not row:
            if row:
                yield fingerprint, row
            current, fingerprint, row = entry.key, entry.fingerprint, {"": keys.decode_key(entry.key)}
        if known is None:
            row.setdefault(TIMERS, []).append(unpack_time(entry.suffix))
            continue
        name, spec, codec = known
        if spec.kind == "value":
            row[name] = codec.decode(payload)
        elif spec.kind == "list":
            row.setdefault(name, []).extend(codec.decode_list(payload))
        else:
            user_key = user_keys[entry.tag].decode_key(entry.suffix)
            row.setdefault(name, []).append((user_key, codec.decode(payload)))
    if row:
        yield fingerprint, row


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
