"""Run a ``VectorAggregator`` on a stream: reduce in the map tasks, merge into the state, finish, over Arrow tables."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from equipoise.decimals import cast
from equipoise.errors import InvalidArgumentError, UserFunctionError
from equipoise.readable import count_text, fingerprint_text
from equipoise.spark.rows.columns import BUFFER, BUFFER_EVENT, BUFFER_ROWS, GROUP
from equipoise.spark.rows.runs import Runs, cut
from equipoise.spark.rows.vector_aggregator import VectorAggregator, merged
from equipoise.spark.stream.aggregator import STATE
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.load_meter import LoadMeter
from equipoise.spark.stream.outputs import Outputs
from equipoise.spark.stream.partial_buffers import Batches, by_fingerprint, chunks
from equipoise.spark.stream.runners import ViewOf, failed_for
from equipoise.spark.stream.vectorised import KeyBatch, VectorProcessor, VectorRunner
from equipoise.state.codec import KeyCodec


class VectorAggregatorProcessor(VectorProcessor):
    """A vectorised aggregator as a processor: the buffer is the state of a key."""

    def __init__(self, aggregator: VectorAggregator) -> None:
        self.aggregator = aggregator
        self.stateSchema = aggregator.bufferSchema  # as Spark names schemas

    def process(self, batch: KeyBatch) -> pa.Table | None:
        """Reduce or merge the rows of each key, merge the result into its buffer, and finish."""
        if BUFFER in batch.rows.column_names:
            given = batch.rows.column(BUFFER).combine_chunks().flatten()
            made = merged(self.aggregator, pa.table(given, schema=batch.state.schema), batch.offsets)
        else:
            made = reduced(self.aggregator, batch.rows, batch.offsets, batch.state.schema)
        known, new = (pa.array(np.flatnonzero(each)) for each in (batch.exists, ~batch.exists))
        together = self.aggregator.merge(batch.state.take(known), made.take(known)) if len(known) else made.slice(0, 0)
        order = np.argsort(np.concatenate([known.to_numpy(), new.to_numpy()]), kind="stable")
        buffers = pa.concat_tables([cast(together, batch.state.schema), made.take(new)]).take(pa.array(order))
        batch.update(buffers)
        return self.aggregator.finish(batch.keys, buffers)

    def initial(self, batch: KeyBatch) -> None:
        """Store the rows of an initial state, which have the columns of a buffer; several of one key are merged."""
        given = cast(batch.rows.select(batch.state.column_names), batch.state.schema)
        batch.update(merged(self.aggregator, given, batch.offsets))


class VectorAggregateRunner(VectorRunner):
    """Runs a vectorised aggregator, one call for each record batch; a key is in one of them only."""

    variable = STATE

    def __init__(self, processor: VectorAggregatorProcessor, batch_spec: BatchSpec) -> None:
        super().__init__(processor, batch_spec)
        self._aggregate = processor

    def run(self, rows: Iterator[Runs], view_of: ViewOf, outputs: Outputs, meter: LoadMeter) -> Iterator[int]:
        """Process sorted rows."""
        yield from super().run(whole_keys(rows), view_of, outputs, meter)

    def _stored_rows(self, batch: KeyBatch) -> pa.Table | None:
        self._aggregate.initial(batch)
        return None

    def _measure(self, runs: Runs, seconds: float, meter: LoadMeter) -> None:
        if not self._batch_spec.has_buffers:
            super()._measure(runs, seconds, meter)
            return
        counts = runs.rows.column(BUFFER_ROWS).to_numpy()
        rows, received = np.add.reduceat(counts, runs.starts[:-1]), runs.lengths
        if self._batch_spec.combine.scope == "none":
            received = rows
        else:
            meter.add_combined(int(rows.sum()), int(received.sum()))
        each = runs.lengths * (seconds / runs.rows.num_rows)
        meter.add(runs.groups, runs.fingerprints, rows, each, received)

    def _failed(self, runs: Runs, error: Exception) -> UserFunctionError:
        first, last = (fingerprint_text(int(runs.fingerprints[at])) for at in (0, -1))
        whom = f" for {count_text(len(runs), 'key')} (fingerprints {first} to {last})"
        return failed_for(self._batch_spec, type(self._aggregate.aggregator).__name__, whom, error)


def reduced(aggregator: VectorAggregator, rows: pa.Table, offsets: NDArray[np.int64], schema: pa.Schema) -> pa.Table:
    """Return a buffer for each key, in this schema."""
    made = aggregator.reduce(rows, offsets)
    missing = [name for name in schema.names if name not in made.column_names]
    if missing or made.num_rows != len(offsets) - 1:
        raise InvalidArgumentError(
            f"reduce gave {count_text(made.num_rows, 'row')} with the columns {made.column_names} for "
            f"{count_text(len(offsets) - 1, 'key')}; give one row for each key, with the columns {schema.names} of "
            "bufferSchema"
        )
    return cast(made.select(schema.names), schema)


def vector_combiner(batch_spec: BatchSpec, aggregator: VectorAggregator) -> Callable[[Batches], Batches]:
    """Return the function for ``mapInArrow``: from rows to buffers, one for each key and chunk, with their key.

    A row has the columns of the key, ``BUFFER``, ``BUFFER_ROWS`` and, with event time, ``BUFFER_EVENT``.
    """

    def run(batches: Batches) -> Batches:
        keys, schema = KeyCodec(batch_spec.key_schema), batch_spec.state_schema
        assert schema is not None  # noqa: S101 - this tells the type checker
        for chunk in chunks(batches):
            batch = by_fingerprint(chunk)
            marked = batch.append_column(GROUP, pa.array(np.zeros(batch.num_rows, dtype=np.int32)))
            runs = cut(marked, batch_spec.key_fields, keys)
            made = reduced(aggregator, pa.Table.from_batches([runs.rows]), runs.starts, schema).combine_chunks()
            arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in made.columns]
            first = batch.take(pa.array(runs.starts[:-1]))
            columns = {name: first.column(name) for name in _names(batch, batch_spec.key_fields)}
            columns[BUFFER] = pa.StructArray.from_arrays(arrays, fields=list(schema))
            columns[BUFFER_ROWS] = pa.array(runs.lengths)
            if batch_spec.event_time is not None:
                events = batch.column(batch_spec.event_time)
                columns[BUFFER_EVENT] = pa.repeat(pc.max(events), len(runs))
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    return run


def buffers_spec(batch_spec: BatchSpec) -> BatchSpec:
    """Return the specification under which tasks read rows of buffers."""
    count = len(batch_spec.key_fields)
    event = None if batch_spec.event_time is None else count + 2
    return replace(batch_spec, key_fields=list(range(count)), event_time=event, has_buffers=True)


def _names(batch: pa.RecordBatch, fields: Sequence[int]) -> list[str]:
    return [batch.schema.names[field] for field in fields]


def whole_keys(rows: Iterator[Runs]) -> Iterator[Runs]:
    """Join runs so that each key is in one of them only: the last run of a record batch waits for the next."""
    waiting: list[Runs] = []
    for runs in rows:
        is_more = bool(waiting) and len(runs) == 1 and _continues(runs, waiting[-1])
        waiting.append(runs)
        if is_more:
            continue
        joined = _joined(waiting)
        if len(joined) > 1:
            yield _some(joined, 0, len(joined) - 1)
        waiting = [_some(joined, len(joined) - 1, len(joined))]
    if waiting:
        yield _joined(waiting)


def _continues(runs: Runs, before: Runs) -> bool:
    """Return whether the first key of a record batch is the last one of the record batch before."""
    if runs.fingerprints[0] != before.fingerprints[-1]:
        return False
    return _some(runs, 0, 1).encoded == _some(before, len(before) - 1, len(before)).encoded


def _some(runs: Runs, first: int, last: int) -> Runs:
    """Return the runs from ``first`` to ``last - 1``."""
    at = int(runs.starts[first])
    return Runs(
        runs.rows.slice(at, int(runs.starts[last]) - at),
        runs.starts[first : last + 1] - at,
        runs.groups[first:last],
        runs.fingerprints[first:last],
        [column.slice(first, last - first) for column in runs.key_columns],
        runs.codec,
    )


def _joined(parts: list[Runs]) -> Runs:
    """Return the runs of consecutive record batches; a key that goes on from one to the next is one run."""
    if len(parts) == 1:
        return parts[0]
    begins = np.ones(sum(len(part) for part in parts), dtype=bool)
    firsts = np.cumsum([len(part) for part in parts])[:-1]
    begins[firsts] = [not _continues(part, before) for before, part in pairwise(parts)]
    sizes = np.cumsum([0, *(part.rows.num_rows for part in parts)])
    starts = np.concatenate([part.starts[:-1] + at for part, at in zip(parts, sizes[:-1], strict=True)])
    [rows] = pa.Table.from_batches([part.rows for part in parts]).combine_chunks().to_batches()
    keys = [pa.concat_arrays(columns) for columns in zip(*(part.key_columns for part in parts), strict=True)]
    return Runs(
        rows,
        np.append(starts[begins], sizes[-1]),
        np.concatenate([part.groups for part in parts])[begins],
        np.concatenate([part.fingerprints for part in parts])[begins],
        [column.filter(pa.array(begins)) for column in keys],
        parts[0].codec,
    )
