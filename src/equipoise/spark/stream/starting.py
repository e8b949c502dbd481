"""Start a query on Spark, or continue it from its checkpoint."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from tempfile import gettempdir
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from equipoise.durations import seconds_of
from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.cluster import is_connect
from equipoise.spark.rows.schemas import SparkSchemas
from equipoise.spark.stream.delivery import FileSink, Sink
from equipoise.spark.stream.engine import Engine
from equipoise.spark.stream.jobs import SparkJobs
from equipoise.spark.stream.opening import Stage, open_query, release_all
from equipoise.spark.stream.options import StreamOptions
from equipoise.spark.stream.pipeline import Pipeline, SourceClient, output_schemas
from equipoise.spark.stream.query import StatefulQuery
from equipoise.spark.stream.ticks import ENDS_WITH_AVAILABLE_NOW, LastBatch, with_ticks
from equipoise.spark.stream.transformed_files import TransformedFiles, write_transformed
from equipoise.state.halves import SPARK
from equipoise.storage import Storage

_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_AVAILABLE_NOW = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


def start_query(
    pipeline: Pipeline, sink: Sink, checkpoint: str, trigger: Mapping[str, Any], name: str | None
) -> StatefulQuery:
    """Start a query, or continue it where it ended.

    Parameters
    ----------
    pipeline
        The query.
    sink
        Receives the committed rows, transformed. After a crash or a stop it may receive the last batch again.
    checkpoint
        Folder of this query alone: a local path or any URI that ``pyarrow.fs`` and Spark know.
    trigger
        Arguments of Spark's ``trigger``.
    name
        Name of the query on Spark's pages.
    """
    first, *later = pipeline.stages
    if first.source is not None:
        first.source.require_trigger(trigger)
    if isinstance(sink, FileSink):
        empty = pipeline.empty()
        sink.prepare(empty)
        if pipeline.query.transformations:
            _, schema = output_schemas(SparkSchemas(pipeline.spark), empty.schema)
            sink = TransformedFiles(sink, partial(write_transformed, schema))
    storage = Storage(checkpoint)
    opened = open_query(
        storage,
        first.query,
        _with_target(first.options, trigger),
        sink,
        partial(SparkJobs, reduction=first.reduction),
        shuffle_partitions=first.shuffle_partitions,
        initial=first.initial,
        later=[Stage(each.query, _with_target(each.options, trigger), SparkJobs, each.initial) for each in later],
    )
    engine, epochs = opened.engine, [opened.settings.epoch, *opened.later]
    try:
        stream = first.stream
        handler: Callable[[DataFrame, int], None] = engine
        if first.source is not None:
            handler = _Reporting(engine, first.source)
        last = None
        if pipeline.has_clock:
            last = LastBatch(f"equipoise-{epochs[0].owner}", "" if is_connect(pipeline.spark) else gettempdir())
            handler = _Counting(handler, last)
            stream = with_ticks(stream, storage.location, last, _timed(pipeline), paced="processingTime" in trigger)
        writer = stream.writeStream.foreachBatch(handler).option("checkpointLocation", storage.at(SPARK))
        writer = writer.trigger(**trigger) if trigger else writer
        query = _started(pipeline, writer.queryName(name) if name else writer)
    except BaseException:
        release_all(epochs)
        raise
    runs_here = not is_connect(pipeline.spark)  # on Connect the server calls the sink, and the files are there
    deliver_last = partial(engine.deliver_last, pipeline.spark.range(0)) if runs_here else None
    return StatefulQuery(
        query,
        epochs,
        pipeline.spark,
        deliver_last,
        never_idle="processingTime" in _timed(pipeline),
        clean_up=last.forget if last is not None and runs_here else None,
    )


class _Reporting:
    """Runs batches and reports to their source how long they took."""

    def __init__(self, engine: Engine[DataFrame], source: SourceClient) -> None:
        self._engine, self._source = engine, source

    def __call__(self, rows: DataFrame, batch: int) -> None:
        start = time.perf_counter()
        self._engine(rows, batch)
        self._source.report(batch, time.perf_counter() - start)


class _Counting:
    """Runs batches and notes the last one, after which the stream may need a batch without rows."""

    def __init__(self, handler: Callable[[DataFrame, int], None], last: LastBatch) -> None:
        self._handler, self._last = handler, last

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self._handler(rows, batch)
        self._last.set(batch)


def _timed(pipeline: Pipeline) -> list[str]:
    """Return the time modes by which batches without rows run; none if the session has turned them off."""
    enabled = str(pipeline.spark.conf.get(_NO_DATA_BATCHES, "true")).lower() == "true"
    return sorted({stage.query.time_mode for stage in pipeline.stages} - {"none"}) if enabled else []


def _started(pipeline: Pipeline, writer: DataStreamWriter) -> StreamingQuery:
    """Start the query; before Spark 4.2 wait until it knows its sources.

    There ``availableNow`` needs a setting, without which Spark would run all available rows as one batch: a source in
    Python does not support it.
    """
    spark = pipeline.spark
    if not pipeline.has_clock or ENDS_WITH_AVAILABLE_NOW:
        return writer.start()
    before = spark.conf.get(_AVAILABLE_NOW, None)
    spark.conf.set(_AVAILABLE_NOW, "true")
    try:
        query = writer.start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.01)
    finally:
        if before is None:
            spark.conf.unset(_AVAILABLE_NOW)
        else:
            spark.conf.set(_AVAILABLE_NOW, before)
    return query


def _with_target(options: StreamOptions, trigger: Mapping[str, Any]) -> StreamOptions:
    return replace(options, targetSeconds=options.targetSeconds or _interval(trigger))


def _interval(trigger: Mapping[str, Any]) -> float | None:
    """Return the seconds of a trigger's interval; ``None`` without one."""
    given = trigger.get("processingTime")
    if given is None:
        return None
    try:
        return seconds_of("trigger", given)
    except InvalidArgumentError:
        return None  # Spark knows other ways to write an interval, and "0 seconds"
