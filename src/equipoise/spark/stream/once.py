"""Run a ``StatefulProcessor`` over a batch DataFrame, as Spark does: once, with state in the memory of the tasks.

Rows and initial state cross one exchange together, in one DataFrame. A task reads its keys bucket by bucket: first the
initial state of a bucket, then its rows, then its due timers. The state of a bucket is dropped when the bucket is done.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructField, StructType

from equipoise.plan import Plan
from equipoise.spark.rows.columns import FINGERPRINT, GROUP, INITIAL_STATE
from equipoise.spark.rows.keys import Key, as_column, named_key
from equipoise.spark.rows.runs import Runs, cut
from equipoise.spark.rows.schemas import SparkSchemas
from equipoise.spark.rows.worker_options import WorkerOptions
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.load_meter import LoadMeter
from equipoise.spark.stream.outputs import Outputs
from equipoise.spark.stream.pipeline import InitialState, initial_state, key_schema, storable_schema
from equipoise.spark.stream.runners import ProcessorRunner, RunnerFactory, wrong_result
from equipoise.spark.stream.user_code import Form, UserCode, require_processor
from equipoise.spark.stream.writer import output_mode
from equipoise.state.codec import KeyCodec
from equipoise.state.ownership import Handover
from equipoise.state.timers import time_mode
from equipoise.state.transaction import EmptyReader, GroupTransaction

_BUCKETS = 64  # of each task; it holds the state of one bucket at a time
_NO_WATERMARK = -1  # as Spark shows it to the processor of a batch

Place = Callable[[DataFrame, Column], DataFrame]
"""Sends rows to their partitions; takes the rows and the column of their fingerprints."""


def run_once(
    df: DataFrame,
    key: Key,
    place: Place,
    form: Form,
    processor: StatefulProcessor,
    output: StructType | str,
    mode: str,
    times: str,
    initial: InitialState | None,
) -> DataFrame:
    """Return the output of a processor over all rows of a batch DataFrame.

    Parameters
    ----------
    df
        The rows.
    key
        Their key, whose columns must be columns of the rows.
    place
        Sends the rows to their partitions.
    form
        How the processor receives rows.
    processor, output, mode, times, initial
        The arguments of ``transformWithStateInPandas``.

    Guarantees
    ----------
    - Rows of event time are never late, and event-time timers do not fire: a batch has no watermark, as in Spark.
    - Processing-time timers fire if they are due at the time of this call.
    """
    key = named_key(df, key, "transformWithState")
    output_mode(mode)
    times = time_mode(times)
    require_processor(processor)
    spark, schemas = df.sparkSession, SparkSchemas(df.sparkSession)
    columns = [field["name"] for field in storable_schema(schemas, output)["fields"]]
    code = UserCode(schemas, processor, columns, times, form)
    initial = initial_state(initial, df, key, code)
    spec = _batch_spec(
        time_ms=time.time_ns() // 1_000_000,
        time_mode=times,
        variables=code.variables,
        key_fields=[df.columns.index(name) for name in key.names],
        key_schema=key_schema(df, key),
        output_schema=schemas.arrow(output),
        timezone=spark.conf.get("spark.sql.session.timeZone") or "UTC",
        worker=WorkerOptions.of_session(spark),
        state_schema=code.state_arrow,
    )
    rows = _numbered(df, df, key, initial)
    if initial is not None:
        rows = rows.union(_numbered(initial, df, key, initial))
    keys = [as_column(rows, name) for name in key.names]
    placed = place(rows, F.col(FINGERPRINT)).sortWithinPartitions(GROUP, FINGERPRINT, *keys)
    before = None
    if initial is not None:
        before = replace(spec, initial=True, key_fields=[initial.columns.index(name) for name in key.names])
    return placed.mapInArrow(_task(spec, before, code.runner), output)


def _numbered(df: DataFrame, rows: DataFrame, key: Key, initial: DataFrame | None) -> DataFrame:
    """Return rows, or the rows of the initial state, with the columns that both have in the exchange.

    Rows of the initial state have the columns of the key, and their own columns as a struct. The number of a row is
    twice that of its bucket, and one more for rows that are not initial state, so initial state sorts first.
    """
    fingerprint = Key.of(df, key.names).fingerprint
    is_data = df is rows
    found = [
        as_column(df, field.name)
        if is_data or field.name in key.names
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in rows.schema.fields
    ]
    if initial is not None:
        state = StructType([StructField(field.name, field.dataType) for field in initial.schema.fields])
        own = F.lit(None) if is_data else F.struct(*(as_column(df, name) for name in df.columns))
        found.append(own.cast(state).alias(INITIAL_STATE))
    bucket = F.pmod(F.shiftright(fingerprint, 32), F.lit(_BUCKETS).cast("bigint")).cast("int")
    return df.select(*found, fingerprint.alias(FINGERPRINT), (bucket * 2 + int(is_data)).alias(GROUP))


def _batch_spec(**known: Any) -> BatchSpec:
    """Return the specification of a batch that has no checkpoint."""
    none = Plan(1, np.zeros(1, dtype=np.int32))
    return BatchSpec(
        location="",
        query="",
        run="",
        version=1,
        watermark_ms=_NO_WATERMARK,
        groups=[],
        owners=[],
        recent={},
        handover=Handover.between(none, none),
        snapshots=frozenset(),
        dropped=[],
        removed_tags=frozenset(),
        event_time=None,
        cache=None,
        **known,
    )


def _task(
    spec: BatchSpec, before: BatchSpec | None, runner: RunnerFactory
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow``, which yields the output of one partition.

    Parameters
    ----------
    spec, before
        What the code needs to know about the rows, and about the initial state; ``None`` without one.
    runner
        Makes the runner of the code.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        processing = runner(spec)
        assert isinstance(processing, ProcessorRunner)  # noqa: S101 - this tells the type checker
        outputs = Outputs(spec.output_schema, spec.timezone, spec.worker, partial(wrong_result, spec))
        for _, bucket in groupby(_sections(batches, spec, before), key=lambda runs: _number(runs) // 2):
            view = GroupTransaction(EmptyReader())
            state = partial(_state, view)
            for number, section in groupby(bucket, key=_number):
                processing.turn_to(spec if number % 2 or before is None else before)
                for _ in processing.run(section, state, outputs, LoadMeter(2 * _BUCKETS, 0)):
                    pass
            processing.turn_to(spec)
            if spec.time_mode != "none":
                processing.expire(view, outputs)
            yield from outputs.taken()
        processing.close()

    return run


def _state(view: GroupTransaction, _: int) -> GroupTransaction:
    """Return the state of a bucket, whatever the number of its rows."""
    return view


def _number(runs: Runs) -> int:
    return int(runs.groups[0])


def _sections(batches: Iterator[pa.RecordBatch], spec: BatchSpec, before: BatchSpec | None) -> Iterator[Runs]:
    """Yield the rows of each number, in the order of the numbers, with the columns that the processor sees."""
    codec = KeyCodec(spec.key_schema)
    for batch in batches:
        numbers = batch.column(GROUP).to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), batch.num_rows]
        for first, last in pairwise(bounds):
            section = batch.slice(first, last - first)
            if not section.num_rows:
                continue
            if before is None:
                yield cut(section, spec.key_fields, codec)
            elif numbers[first] % 2:
                yield cut(section.drop_columns([INITIAL_STATE]), spec.key_fields, codec)
            else:
                yield cut(_initial_rows(section), before.key_fields, codec)


def _initial_rows(section: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of the initial state with their own columns."""
    own = pa.RecordBatch.from_struct_array(section.column(INITIAL_STATE))
    for name in (FINGERPRINT, GROUP):
        own = own.append_column(name, section.column(name))
    return own
