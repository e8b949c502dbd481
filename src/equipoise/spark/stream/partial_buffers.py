"""Reduce rows of an ``Aggregator`` to partial buffers, which the tasks that own the keys merge into the state.

This happens in the map tasks, before the one exchange of a batch. A map task reads as many record batches as its memory
bound allows, groups their rows by fingerprint and sends one row for each key: the key, and a partial buffer instead of
the user's columns. So a key of any number of rows crosses the exchange as one row for each map task and chunk.

A repeated map task sends the same bytes: it sends no times, and it takes rows in the order in which they arrive.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.columns import FINGERPRINT, GROUP, PARTIAL_BUFFER
from equipoise.spark.rows.keyed_frames import PartialBuffer
from equipoise.spark.rows.pandas_rows import KeyFrames
from equipoise.spark.rows.runs import Runs, cut, latest_event_ms
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.runners import failed
from equipoise.state.codec import KeyCodec, row_codec

Batches = Iterator[pa.RecordBatch]
MOST_BYTES = 1 << 25
"""Arrow bytes that a map task reduces at a time."""


def partial_reducer(
    batch_spec: BatchSpec, aggregator: Aggregator, schema: Mapping[str, Any], kept: Sequence[str] = ()
) -> Callable[[Batches], Batches]:
    """Return the function for ``mapInArrow``: from rows to rows with partial buffers, one for each key and chunk.

    Parameters
    ----------
    batch_spec
        What the tasks of the batch need to know.
    aggregator
        The user's aggregator.
    schema
        ``StructType.jsonValue()`` of its buffer.
    kept
        Columns of equipoise that stay beside the key and are hidden from the user's code.
    """

    def run(batches: Batches) -> Batches:
        keys, buffers = KeyCodec(batch_spec.key_schema), row_codec(dict(schema))
        for chunk in chunks(batches):
            batch = by_fingerprint(chunk)
            runs = cut(_with_group(batch), batch_spec.key_fields, keys)
            latest = latest_event_ms(runs, batch_spec.event_time)
            own = runs.rows.drop_columns(list(kept))
            table = pa.Table.from_batches([own])
            frames = None if aggregator.takes_arrow else KeyFrames(own, batch_spec.timezone)
            made = []
            for at in range(len(runs)):
                first, last = int(runs.starts[at]), int(runs.starts[at + 1])
                rows = table.slice(first, last - first) if frames is None else frames.cut(first, last)
                try:
                    encoded = buffers.encode(aggregator.reduce(aggregator.zero(), rows))
                except Exception as error:
                    raise failed(batch_spec, "reduce", int(runs.fingerprints[at]), error) from error
                made.append(PartialBuffer(encoded, last - first, latest))
            yield _partial_buffer_rows(batch, runs, batch_spec.key_fields, made, kept)

    return run


def combiner(batch_spec: BatchSpec, aggregator: Aggregator, schema: Mapping[str, Any]) -> Callable[[Batches], Batches]:
    """Return the function for ``mapInArrow`` that combines the keys that ``batch_spec.combine`` names.

    If all keys are combined, the rows that it yields have the columns of the key and the partial buffer. Else they have
    all columns; rows of other keys stay as they are, with NULL for the partial buffer.
    """
    reduce_rows = partial_reducer(batch_spec, aggregator, schema)
    combine = batch_spec.combine

    def run(batches: Batches) -> Batches:
        if combine.scope == "all":
            for reduced in reduce_rows(batches):
                yield reduced.select([*batch_spec.key_fields, reduced.schema.get_field_index(PARTIAL_BUFFER)])
            return
        hot = np.array(combine.keys, dtype=np.int64)
        for chunk in chunks(batches):
            is_hot = np.isin(chunk.column(FINGERPRINT).to_numpy(), hot)
            others = chunk.filter(pa.array(~is_hot)).drop_columns([FINGERPRINT])
            yield others.append_column(PARTIAL_BUFFER, pa.nulls(others.num_rows, pa.binary()))
            for reduced in reduce_rows(iter([chunk.filter(pa.array(is_hot))])):
                yield reduced.drop_columns([FINGERPRINT])

    return run


def chunks(batches: Batches, most_bytes: int = MOST_BYTES) -> Batches:
    """Join record batches up to a number of bytes; leave out empty ones."""
    found: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            found.append(batch)
            size += batch.nbytes
        if size >= most_bytes:
            yield from pa.Table.from_batches(found).combine_chunks().to_batches()
            found, size = [], 0
    if found:
        yield from pa.Table.from_batches(found).combine_chunks().to_batches()


def by_fingerprint(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows ordered by fingerprint; rows of a key keep their order."""
    found = batch.column(FINGERPRINT).to_numpy()
    if np.all(found[1:] >= found[:-1]):
        return batch
    return batch.take(pa.array(np.argsort(found, kind="stable")))


def _with_group(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows that have a key group, as ``cut`` needs one."""
    if GROUP in batch.schema.names:
        return batch
    return batch.append_column(GROUP, pa.array(np.zeros(batch.num_rows, dtype=np.int32)))


def _partial_buffer_rows(
    batch: pa.RecordBatch,
    runs: Runs,
    key_fields: Sequence[int],
    partial_buffers: Sequence[PartialBuffer],
    ours: Sequence[str],
) -> pa.RecordBatch:
    """Return one row for each run: its key and its partial buffer."""
    first = pa.array(runs.starts[:-1])
    kept = {batch.schema.names[field] for field in key_fields} | {FINGERPRINT, GROUP, *ours}
    columns = [
        batch.column(field.name).take(first) if field.name in kept else pa.nulls(len(runs), field.type)
        for field in batch.schema
    ]
    encoded = pa.array([msgspec.msgpack.encode(each) for each in partial_buffers], pa.binary())
    return pa.RecordBatch.from_arrays([*columns, encoded], names=[*batch.schema.names, PARTIAL_BUFFER])
