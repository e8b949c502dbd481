"""Run one partition of a micro-batch: process its rows, write its files, return a manifest."""

import gc
import time
from collections.abc import Callable, Iterator
from functools import cache, partial

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from equipoise.failpoints import failpoint
from equipoise.spark.rows.keyed_frames import partial_buffers_of
from equipoise.spark.rows.runs import Runs, latest_event_ms
from equipoise.spark.rows.sorted_rows import SortedRows
from equipoise.spark.stream.batch_spec import BatchSpec, Manifest
from equipoise.spark.stream.load_meter import LoadMeter
from equipoise.spark.stream.outputs import FileOutputs
from equipoise.spark.stream.owned_groups import OwnedGroups
from equipoise.spark.stream.runners import Runner, wrong_result
from equipoise.state.cache import GroupCache
from equipoise.state.codec import KeyCodec
from equipoise.storage import Storage

MANIFEST_SCHEMA = StructType([StructField("manifest", BinaryType())])


def task(
    batch_spec: BatchSpec, runner: Callable[[BatchSpec], Runner]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow``, which yields the manifest of the task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if TaskContext.get() is not None:  # a worker of Spark, not the user's process
            exempt_loaded_modules()
        manifest = run_partition(batch_spec, runner(batch_spec), batches)
        yield pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(manifest)])], names=["manifest"])

    return run


@cache
def exempt_loaded_modules() -> None:
    """Exempt what this worker has loaded so far from garbage collection, once.

    Spark collects after every task of a worker. With pandas and pyarrow loaded that takes 20 to 40 ms of CPU, many
    times an empty task, and the next task of the worker waits for it.
    """
    gc.collect()
    gc.freeze()


def run_partition(batch_spec: BatchSpec, runner: Runner, batches: Iterator[pa.RecordBatch]) -> Manifest:
    """Process one partition; its only effect is new files with unique names."""
    start = time.perf_counter()
    failpoint("task.start")
    storage = Storage(batch_spec.location)
    cache = GroupCache.of_query(
        f"{batch_spec.query} in {batch_spec.location}",
        batch_spec.cache,
        batch_spec.epoch,
        batch_spec.run,
        tag=runner.tag_in_columns,
    )
    codec = KeyCodec(batch_spec.key_schema)
    joined_rows = 0 if runner.tag_in_columns is None else batch_spec.worker.joined_rows
    source = SortedRows(batches, batch_spec.key_fields, codec, joined_rows=joined_rows)
    manifest = Manifest(partition=source.partition)
    tail_groups = sum(name[0] == "t" for name in batch_spec.groups)
    meter = LoadMeter(len(batch_spec.groups), tail_groups)
    with (
        FileOutputs(
            storage,
            batch_spec.version,
            batch_spec.output_schema,
            batch_spec.timezone,
            batch_spec.worker,
            partial(wrong_result, batch_spec),
            not_late=batch_spec.not_late,
        ) as outputs,
        OwnedGroups(
            batch_spec, source.partition, storage, cache, meter, lambda view: runner.expire(view, outputs)
        ) as groups,
    ):
        rows = _watching_events(source, batch_spec.event_time, manifest)
        for number in runner.run(rows, groups.view, outputs, meter):
            groups.finish_before(number, manifest)
        groups.finish(manifest)
        runner.close()
        manifest.outputs = outputs.finish()
    if batch_spec.cache_bytes is not None:
        cache.trim(batch_spec.cache_bytes)
    meter.report(manifest)
    manifest.seconds = time.perf_counter() - start
    failpoint("task.end")
    return manifest


def _watching_events(source: SortedRows, event_time: int | None, manifest: Manifest) -> Iterator[Runs]:
    """Yield the runs, and note the latest event time in the manifest."""
    for runs in source:
        reduced = partial_buffers_of(runs)
        found = [latest_event_ms(runs, event_time)] if reduced is None else [each.latest_event_ms for each in reduced]
        for latest in found:
            if latest is not None:
                manifest.latest_event_ms = max(latest, manifest.latest_event_ms or latest)
        yield runs
