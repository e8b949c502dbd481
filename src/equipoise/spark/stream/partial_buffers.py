"""Reduce rows of split keys to partial buffers, which the tasks that own the keys merge into the state.

A split key stays a key group with one owner, and its state stays whole. The work is split: its rows are dealt to as
many shards as the plan says, and each shard is reduced to a partial buffer by a task. The owner receives rows that hold
the key and a partial buffer instead of the user's rows.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
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


def partial_reducer(
    batch_spec: BatchSpec, aggregator: Aggregator, schema: Mapping[str, Any], kept: Sequence[str] = ()
) -> Callable[[Batches], Batches]:
    """Return the function for ``mapInArrow``: from sorted rows to rows with partial buffers, one for each key.

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
        for batch in batches:
            if batch.num_rows:
                runs, made = cut(batch, batch_spec.key_fields, keys), []
                latest = latest_event_ms(runs, batch_spec.event_time)
                own = runs.rows.drop_columns(list(kept))
                table = pa.Table.from_batches([own])
                frames = None if aggregator.takes_arrow else KeyFrames(own, batch_spec.timezone)
                for at in range(len(runs)):
                    start = time.perf_counter()
                    first, last = int(runs.starts[at]), int(runs.starts[at + 1])
                    rows = table.slice(first, last - first) if frames is None else frames.cut(first, last)
                    try:
                        encoded = buffers.encode(aggregator.reduce(aggregator.zero(), rows))
                    except Exception as error:
                        raise failed(batch_spec, "reduce", int(runs.fingerprints[at]), error) from error
                    taken = time.perf_counter() - start if batch_spec.counts_partial_buffers else 0.0
                    made.append(PartialBuffer(encoded, len(rows), taken, latest))
                yield _partial_buffer_rows(batch, runs, batch_spec.key_fields, made, kept)

    return run


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
