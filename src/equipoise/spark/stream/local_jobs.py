"""Run the tasks of a micro-batch in this process, without Spark: rows are Arrow tables.

Rows are routed, placed and sorted as ``equipoise.spark.stream.placement`` does it. As on Spark, a task is pickled and
unpickled for every partition.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark import cloudpickle

from equipoise.adapt import Look
from equipoise.errors import InvalidArgumentError
from equipoise.hashing import FINGERPRINT_SEED, fingerprints
from equipoise.plan import Plan
from equipoise.spark.rows.columns import FINGERPRINT, GROUP, marker
from equipoise.spark.stream.aggregator import STATE as BUFFER
from equipoise.spark.stream.batch_spec import BatchSpec, Manifest
from equipoise.spark.stream.partial_buffers import combiner
from equipoise.spark.stream.placement import drops_late_by
from equipoise.spark.stream.settings import Settings
from equipoise.spark.stream.task import task
from equipoise.spark.stream.vector_aggregates import buffers_spec, vector_combiner
from equipoise.state.ownership import Layout


class LocalJobs:
    """Runs tasks one after the other.

    Parameters
    ----------
    settings
        The open query.
    batch_rows
        Rows of a record batch, the marker included; a key with more rows spans several.
    """

    def __init__(self, settings: Settings, batch_rows: int = 10_000) -> None:
        self._settings = settings
        self._batch_rows = batch_rows

    def columns(self, rows: pa.Table) -> Sequence[str]:
        """Return the names of the columns."""
        names: list[str] = rows.column_names
        return names

    def run(self, rows: pa.Table, plan: Plan, batch_spec: BatchSpec, *, late_ms: int) -> list[Manifest]:
        """Route, place, sort and work."""
        settings = self._settings
        late_by = None if batch_spec.initial else drops_late_by(settings)
        if late_by is not None:
            rows = _on_time(rows, late_by, late_ms)
        rows, batch_spec = self._combined(rows, batch_spec)
        placed = self._placed(rows, plan, batch_spec)
        owners = Layout(plan).owners[placed.column(GROUP).to_numpy()]
        sent = cloudpickle.dumps(task(batch_spec, settings.query.code.runner))  # type: ignore[no-untyped-call]  # it has no annotations
        manifests = []
        for partition in range(plan.partitions):
            own = placed.filter(pa.array(owners == partition))
            marked = pa.concat_tables([_marker(placed.schema, partition), own]).combine_chunks()
            answer = next(cloudpickle.loads(sent)(iter(marked.to_batches(self._batch_rows))))
            manifests.append(msgspec.msgpack.decode(answer.column("manifest")[0].as_py(), type=Manifest))
        return manifests

    def look(self, rows: pa.Table, wanted: int, *, is_dear: bool, late_ms: int) -> Look | str:  # noqa: ARG002 - the name belongs to the protocol
        """Look at evenly spaced rows; all of a batch with no more than ``wanted``."""
        start = time.perf_counter()
        late_by = drops_late_by(self._settings)
        keys = (rows if late_by is None else _on_time(rows, late_by, late_ms)).select(list(self._settings.identity.key))
        places = np.arange(0, keys.num_rows, max(1, keys.num_rows // wanted))
        found = key_fingerprints(keys.take(pa.array(places)))
        chance = len(places) / max(1, keys.num_rows)
        tasks = places // self._batch_rows
        return Look.of(found, seconds=time.perf_counter() - start, chances=chance or 1.0, tasks=tasks)

    def release(self) -> None:
        """Do nothing: a look keeps nothing."""

    def read(self, rows: pa.Table) -> None:
        """Do nothing: the watermark follows from the log."""

    def outputs(self, rows: pa.Table, files: Sequence[str]) -> pa.Table:  # noqa: ARG002 - the name belongs to the protocol
        """Return the output files as a table."""
        storage = self._settings.epoch.storage
        read = [storage.read(file.removeprefix(storage.at(""))) for file in files]
        empty = self._settings.query.output_arrow.empty_table()
        return pa.concat_tables([empty, *(pq.read_table(pa.BufferReader(data)) for data in read)])

    def _placed(self, rows: pa.Table, plan: Plan, batch_spec: BatchSpec) -> pa.Table:
        """Return rows with the columns of equipoise, sorted by group, unsigned fingerprint, key and user's order."""
        settings = self._settings
        keys = list(settings.identity.key)
        found = key_fingerprints(rows.select(keys))
        groups = group_numbers(plan, found)
        placed = rows.append_column(FINGERPRINT, pa.array(found)).append_column(GROUP, pa.array(groups))
        return _sorted(placed, (*keys, *(() if batch_spec.initial else settings.options.order_by)))

    def _combined(self, rows: pa.Table, batch_spec: BatchSpec) -> tuple[pa.Table, BatchSpec]:
        """Return the rows to place, as ``equipoise.spark.stream.map_side`` does; a record batch is a map task."""
        code = self._settings.query.code
        if batch_spec.combine.scope == "none" or (code.aggregator is None and code.vector is None):
            return rows, batch_spec
        keys = [rows.column_names[field] for field in batch_spec.key_fields]
        marked = rows.append_column(FINGERPRINT, pa.array(key_fingerprints(rows.select(keys)))).combine_chunks()
        if code.vector is not None:
            made, spec = vector_combiner(batch_spec, code.vector), buffers_spec(batch_spec)
        elif code.aggregator is not None:
            made, spec = combiner(batch_spec, code.aggregator, batch_spec.variables[BUFFER].schema), batch_spec
            if batch_spec.combine.scope == "all":
                spec = replace(batch_spec, key_fields=list(range(len(keys))), event_time=None)
        sent = cloudpickle.dumps(made)  # type: ignore[no-untyped-call]  # as above
        tasks = marked.to_batches(self._batch_rows)
        found = [each for task in tasks for each in cloudpickle.loads(sent)(iter([task]))]
        if not found:
            return rows, batch_spec
        loose = pa.schema([field.with_nullable(True) for field in found[0].schema])
        return pa.Table.from_batches([each.cast(loose) for each in found]), spec


def _sorted(placed: pa.Table, columns: Sequence[str]) -> pa.Table:
    by = [placed.column(GROUP), pa.array(placed.column(FINGERPRINT).to_numpy().view(np.uint64))]
    for name in columns:
        by += [placed.column(name).is_valid(), placed.column(name)]  # NULL first, as Spark sorts
    names = [str(place) for place in range(len(by))]
    return placed.take(pc.sort_indices(pa.table(by, names), sort_keys=[(name, "ascending") for name in names]))


def key_fingerprints(keys: pa.Table) -> NDArray[np.int64]:
    """Return fingerprints of key columns, equal to Spark's ``xxhash64``; NULL does not change the hash."""
    found = np.full(keys.num_rows, FINGERPRINT_SEED, dtype=np.int64)
    missing = np.stack([column.is_null().to_numpy() for column in keys.columns], axis=1)
    for pattern in np.unique(missing, axis=0):
        rows = np.flatnonzero((missing == pattern).all(axis=1))
        there = [keys.column(place).take(pa.array(rows)) for place in np.flatnonzero(~pattern).tolist()]
        if there:
            found[rows] = fingerprints(*(_hashable(column) for column in there))
    return found


def group_numbers(plan: Plan, found: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the key group number of each fingerprint, as ``equipoise.spark.rows.routing.group_column`` does."""
    numbers = plan.tail_group_of(found)
    if len(plan.isolated_keys):
        place = np.minimum(np.searchsorted(plan.isolated_keys, found), len(plan.isolated_keys) - 1)
        numbers = np.where(plan.isolated_keys[place] == found, plan.tail_groups + place, numbers)
    return numbers.astype(np.int32)


def _hashable(column: pa.ChunkedArray) -> NDArray[np.generic] | list[object]:
    """Return a column without NULLs in the form in which ``equipoise.fingerprints`` takes it."""
    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        values: list[object] = column.to_pylist()
        return values
    elif not (pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InvalidArgumentError(
            f"without Spark a key cannot be a {kind}; use numbers, text, bytes, dates or timestamps"
        )
    array: NDArray[np.generic] = column.to_numpy()
    return array


def _on_time(rows: pa.Table, column: str, late_ms: int) -> pa.Table:
    """Return the rows without an event time, or with one after ``late_ms``."""
    events = rows.column(column)
    bound = pa.scalar(late_ms * 1000, pa.int64()).cast(pa.timestamp("us", events.type.tz))
    return rows.filter(pc.fill_null(pc.greater(events, bound), fill_value=True))


def _marker(schema: pa.Schema, partition: int) -> pa.Table:
    ours = {FINGERPRINT: 0, GROUP: marker(partition)}
    return pa.Table.from_pylist([ours], schema=schema)
