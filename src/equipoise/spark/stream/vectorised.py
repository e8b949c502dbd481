"""Run user code on many keys at once, with rows and states as Arrow tables."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import StructType

from equipoise.decimals import cast
from equipoise.errors import InvalidArgumentError, UserFunctionError
from equipoise.readable import count_text, fingerprint_text
from equipoise.spark.rows.pandas_rows import state_array
from equipoise.spark.rows.runs import Runs, plain_values
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.load_meter import LoadMeter
from equipoise.spark.stream.outputs import Outputs
from equipoise.spark.stream.runners import Runner, ViewOf, failed_for, naming_function
from equipoise.state.byte_columns import ByteColumn, joined, same_strings
from equipoise.state.entries import split_value, value_head
from equipoise.state.entry_columns import EntryColumns
from equipoise.state.transaction import GroupTransaction

STATE = "state"
"""Name of the one state variable of a vectorised processor."""


class KeyBatch:
    """Many keys with their rows and their states.

    Parameters
    ----------
    keys
        One row for each key, sorted. A key with many rows may appear again in a later batch of the same micro-batch;
        its state is then the one stored before.
    rows
        The rows, in the order of their keys.
    offsets
        Rows of key i are ``offsets[i]`` to ``offsets[i + 1]``; ready for ``numpy.add.reduceat(values, offsets[:-1])``.
    state
        One row for each key; NULL in all columns where ``exists`` is false.
    exists
        Whether a key has a state.
    batch, time_ms, watermark_ms
        Number, processing time and watermark of the micro-batch.
    """

    def __init__(
        self,
        keys: pa.Table,
        rows: pa.Table,
        offsets: NDArray[np.int64],
        state: pa.Table,
        exists: NDArray[np.bool_],
        *,
        batch: int,
        time_ms: int,
        watermark_ms: int,
    ) -> None:
        self.keys = keys
        self.rows = rows
        self.offsets = offsets
        self.state = state
        self.exists = exists
        self.batch = batch
        self.time_ms = time_ms
        self.watermark_ms = watermark_ms
        self.updated: pa.Table | None = None
        self.removed = np.zeros(len(exists), dtype=bool)

    def __len__(self) -> int:
        return len(self.exists)

    def update(self, state: pa.Table) -> None:
        """Store new states: one row for each key, with the columns of the state's schema."""
        if state.num_rows != len(self):
            raise InvalidArgumentError(
                f"update got {count_text(state.num_rows, 'state')} for {count_text(len(self), 'key')}; give one row "
                "for each key"
            )
        missing = set(self.state.column_names) - set(state.column_names)
        if missing:
            raise InvalidArgumentError(
                f"update lacks the state columns {sorted(missing)}; it has {state.column_names}; give all columns "
                "of stateSchema"
            )
        self.updated = state.select(self.state.column_names)

    def remove(self, which: NDArray[np.bool_]) -> None:
        """Remove the states of the keys where ``which`` is true; removing goes before updating."""
        self.removed = np.asarray(which, dtype=bool)
        if self.removed.shape != self.exists.shape:
            raise InvalidArgumentError(
                f"remove got flags of shape {self.removed.shape} for {count_text(len(self), 'key')}; give one for each "
                "key"
            )


class VectorProcessor(ABC):
    """User code that processes many keys at once; the fastest form."""

    stateSchema: StructType | str  # noqa: N815 - as Spark names schemas
    """Schema of the state of one key."""

    @abstractmethod
    def process(self, batch: KeyBatch) -> pa.Table | None:
        """Process the rows and states of many keys, store new states, and return output rows or ``None``."""

    def close(self) -> None:  # noqa: B027 - a processor need not clean up
        """Clean up."""


class VectorRunner(Runner):
    """Runs a ``VectorProcessor``, one call for each record batch.

    Record batches are joined up to 65,536 rows, unless ``spark.sql.execution.arrow.maxRecordsPerBatch`` is below its
    default.
    """

    variable: ClassVar[str] = STATE
    """Name of the state variable."""

    def __init__(self, processor: VectorProcessor, batch_spec: BatchSpec) -> None:
        self._processor = processor
        self._batch_spec = batch_spec
        self._spec = batch_spec.variables[self.variable]
        self._codec = self._spec.values()
        self._head = value_head(self._codec.schema)
        self.tag_in_columns = self._spec.tag

    def run(self, rows: Iterator[Runs], view_of: ViewOf, outputs: Outputs, meter: LoadMeter) -> Iterator[int]:
        """Call ``process`` for each record batch."""
        for runs in rows:
            yield int(runs.groups[0])
            spans = self._spans(runs, view_of)  # opening groups does not count as work on rows
            start = time.perf_counter()
            known = self._known(runs, spans)
            batch = self._key_batch(runs, known)
            output = self._stored_rows(batch) if self._batch_spec.initial else self._process(batch, runs)
            self._store(batch, known, spans)
            if output is not None:
                outputs.add_table(output)
            self._measure(runs, time.perf_counter() - start, meter)

    def _measure(self, runs: Runs, seconds: float, meter: LoadMeter) -> None:
        """Count rows, and the seconds that they took."""
        meter.add(runs.groups, runs.fingerprints, runs.lengths, runs.lengths * (seconds / runs.rows.num_rows))

    def expire(self, view: GroupTransaction, outputs: Outputs) -> None:
        """A vectorised processor has no timers."""

    def close(self) -> None:
        """Call ``close``."""
        with naming_function(self._batch_spec, f"{type(self._processor).__name__}.close"):
            self._processor.close()

    def _process(self, batch: KeyBatch, runs: Runs) -> pa.Table | None:
        try:
            output = self._processor.process(batch)
            return None if output is None else _shaped(output, self._batch_spec.output_schema)
        except Exception as error:
            raise self._failed(runs, error) from error

    def _stored_rows(self, batch: KeyBatch) -> pa.Table | None:
        """Store the rows of the initial state as states; they have its columns."""
        if batch.exists.any() or batch.rows.num_rows > len(batch):
            raise InvalidArgumentError(
                "initialState has several rows for one key; give one row, its state, for each key"
            )
        batch.update(cast(batch.rows.select(batch.state.column_names), batch.state.schema))
        return None

    def _spans(self, runs: Runs, view_of: ViewOf) -> list[tuple[GroupTransaction, slice]]:
        """Return the groups of a record batch, each with its runs."""
        bounds = np.flatnonzero(np.diff(runs.groups)) + 1
        starts = [0, *bounds.tolist(), len(runs)]
        return [(view_of(int(runs.groups[first])), slice(first, last)) for first, last in pairwise(starts)]

    def _known(self, runs: Runs, spans: list[tuple[GroupTransaction, slice]]) -> EntryColumns:
        """Return the stored values of the keys, ``deleted`` where there is none."""
        keys, fingerprints = runs.encoded_column, runs.fingerprints.view(np.uint64)
        found = [view.find(self._spec.tag, fingerprints[here], keys.taken(here)) for view, here in spans]
        values, exists = joined([each for each, _ in found]), np.concatenate([each for _, each in found])
        return EntryColumns(self._spec.tag, fingerprints, keys, values, ~exists)

    def _key_batch(self, runs: Runs, known: EntryColumns) -> KeyBatch:
        batch_spec = self._batch_spec
        state, exists = self._state(known)
        names = [runs.rows.schema.field(field).name for field in batch_spec.key_fields]
        return KeyBatch(
            pa.Table.from_arrays(runs.key_columns, schema=runs.rows.select(names).schema),
            pa.Table.from_batches([runs.rows]),
            runs.starts,
            state,
            exists,
            batch=batch_spec.batch,
            time_ms=batch_spec.time_ms,
            watermark_ms=batch_spec.watermark_ms,
        )

    def _state(self, known: EntryColumns) -> tuple[pa.Table, NDArray[np.bool_]]:
        """Return the states of the keys, NULL where there is none, and which exist."""
        schema = self._batch_spec.state_schema
        assert schema is not None  # noqa: S101 - this tells the type checker
        exists = ~known.deleted
        values = known.values.taken(exists)
        columns = self._decoded(values)
        if columns is None:  # other types, earlier schemas, or an expiry: value by value
            stored = iter(values.strings())
            payloads = [self._alive(next(stored)) if there else None for there in exists.tolist()]
            exists = np.fromiter((payload is not None for payload in payloads), bool, len(payloads))
            rows = [self._codec.decode(*payload) for payload in payloads if payload is not None]
            split = list(zip(*rows, strict=True)) or [()] * len(schema)
            columns = [state_array(column, field.type) for column, field in zip(split, schema, strict=True)]
        if not exists.all():
            place = pa.array(np.where(exists, np.cumsum(exists) - 1, 0), mask=~exists)
            columns = [column.take(place) for column in columns]
        return pa.Table.from_arrays(columns, schema=schema), exists

    def _decoded(self, values: ByteColumn) -> list[pa.Array] | None:
        """Return the columns of stored values that have the current schema and plain types; ``None`` for others."""
        payloads = values.after(self._head)
        return None if payloads is None else self._codec.in_columns.decode(payloads)

    def _alive(self, value: bytes) -> tuple[bytes, int] | None:
        """Return the payload and the number of its schema, unless the value has expired."""
        expiry, payload, schema = split_value(value)
        return (payload, schema) if expiry is None or expiry > self._batch_spec.time_ms else None

    def _store(self, batch: KeyBatch, known: EntryColumns, spans: list[tuple[GroupTransaction, slice]]) -> None:
        """Store what differs from the known values."""
        removed = batch.removed & ~known.deleted
        if batch.updated is None:
            values, changed = known.values, removed
        else:
            values = self._encoded(batch.updated)
            changed = removed | (~batch.removed & (known.deleted | ~same_strings(known.values, values)))
        entries = EntryColumns(known.tag, known.fingerprints, known.keys, values, batch.removed)
        for view, here in spans:
            of_group = entries.taken(here)
            view.store(of_group if changed[here].all() else of_group.taken(changed[here]))

    def _encoded(self, states: pa.Table) -> ByteColumn:
        encoded = self._codec.in_columns.encode(states.columns, self._head)
        if encoded is None:
            columns = [plain_values(column) for column in states.columns]
            rows = self._codec.encode_many(list(zip(*columns, strict=True)))
            encoded = ByteColumn.of([self._head + payload for payload in rows])
        return encoded

    def _failed(self, runs: Runs, error: Exception) -> UserFunctionError:
        first, last = (fingerprint_text(int(runs.fingerprints[at])) for at in (0, -1))
        keys = count_text(len(runs), "key")
        return failed_for(
            self._batch_spec,
            f"{type(self._processor).__name__}.process",
            f" for {keys} (fingerprints {first} to {last})",
            error,
        )


def _shaped(output: pa.Table, schema: pa.Schema) -> pa.Table:
    if not isinstance(output, pa.Table):
        raise InvalidArgumentError(f"process must return a pyarrow.Table or None, got a {type(output).__name__}")
    missing = set(schema.names) - set(output.column_names)
    if missing:
        raise InvalidArgumentError(
            f"process gave columns {output.column_names}, but the output schema has {schema.names}; "
            f"{', '.join(sorted(missing))} missing, give a column for each"
        )
    try:
        return cast(output.select(schema.names), schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidArgumentError(
            f"process gave {_types(output.select(schema.names).schema)}, which does not fit the output schema, "
            f"{_types(schema)}: {error}; cast it in process, or change the schema"
        ) from error


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
