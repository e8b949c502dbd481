"""Queries over planned micro-batches: map, allocate, reduce, window."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from equipoise.adapt import Policy
from equipoise.arguments import whole
from equipoise.durations import seconds_of
from equipoise.errors import InvalidArgumentError
from equipoise.microbatch.spool import BUCKET, Spool
from equipoise.spark.prompt.map_reduce import MapReduce
from equipoise.spark.prompt.spool_client import SpoolClient
from equipoise.spark.prompt.windows import WindowProcessor, WindowRunner
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.cluster import partition_count
from equipoise.spark.rows.columns import PARTIAL_BUFFER
from equipoise.spark.rows.keys import KeyLike, grouping_columns, resolve_key
from equipoise.spark.rows.schemas import SparkSchemas
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.options import StreamOptions
from equipoise.spark.stream.pipeline import make_pipeline, require_columns
from equipoise.spark.stream.stateful_stream import StatefulStream
from equipoise.spark.stream.user_code import TaskCode, UserCode


def microbatch(
    stream: DataFrame,
    *key: KeyLike,
    reduce: Aggregator,
    outputStructType: StructType | str,  # noqa: N803 - Spark's own name
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    spool: str | None = None,
    map: Callable[[DataFrame], DataFrame] | None = None,  # noqa: A002 - the name of the stage
    interval: str | float = 1.0,
    window: str | float | None = None,
    slide: str | float | None = None,
    buckets: int | None = None,
    combine: bool = True,
    allocation: str = "level",
    policy: Policy | None = None,
    cache: str | None = None,
    cacheBytes: int | None = None,  # noqa: N803 - as Spark names options
    retain: int = 10,
) -> StatefulStream:
    """Aggregate a stream whose micro-batches are planned before they run.

    Blocks are mapped, their clusters are allocated to reduce buckets and reduced, and the partial buffers are merged
    into the state or the window of their keys, exactly once.

    Parameters
    ----------
    stream
        A stream of ``spark.readStream.format("equipoise")``. Other streams work too, without plans made in advance.
    *key
        Key column or columns, as in the source's option.
    reduce
        An ``Aggregator`` with ``merge``; with ``inverse``, windows subtract the rows that leave them.
    outputStructType
        Schema of the rows that ``finish`` returns.
    numPartitions
        Partitions of the state; default ``spark.sql.shuffle.partitions``.
    spool
        The source's spool. The query reads the number of buckets from it and reports the time of each batch to it,
        which the source needs to follow the load.
    map
        Function from the rows of a batch to the rows to reduce, as DataFrames. It must keep the key. Without the
        columns ``__equipoise_bucket`` and ``__equipoise_split`` all keys go by hash.
    interval
        Length of a batch, as in the source's option. Batches are processed as soon as they are sealed.
    window, slide
        Length of a window and the time from one result to the next, multiples of the interval; ``slide`` is the
        interval by default. Results are due with every batch of the source whose number is a multiple of the slide;
        without ``spool`` Spark's batches count, of which the first may come before the source has one. Without a
        window, results are running totals of the keys that changed.
    buckets
        Number of reduce tasks without a spool; default ``numPartitions``.
    combine
        Whether map tasks reduce their own rows, so that only partial buffers are shuffled.
    allocation
        ``level`` (as the source planned), ``prompt`` (algorithm 3 in the map tasks) or ``hash``.
    policy, cache, cacheBytes, retain
        As for ``equipoise.spark.balance``.

    Returns
    -------
    StatefulStream
        The output rows; start the query with ``writeStream``.
    """
    if not isinstance(reduce, Aggregator) or not reduce.can_merge:
        raise InvalidArgumentError("reduce must be an Aggregator with a merge: a key's rows may be in several blocks")
    seconds = seconds_of("interval", interval)
    length = None if window is None else _batches("window", window, seconds)
    if slide is not None and length is None:
        raise InvalidArgumentError("slide needs a window; give both, or neither for running totals")
    step = 1 if slide is None else _batches("slide", slide, seconds)
    if length is not None and step > length:
        raise InvalidArgumentError(f"a slide of {slide} skips rows: the window is {window}; slide by less")
    resolved = resolve_key(stream, grouping_columns(key), streaming=True)
    schemas = SparkSchemas(stream.sparkSession)
    schema = schemas.parsed(reduce.bufferSchema)
    map_reduce = MapReduce(reduce, schema, map, combine, allocation)
    tasks = partition_count(stream.sparkSession, numPartitions) if buckets is None else whole("buckets", buckets, 1)
    source = SpoolClient(seconds, None if spool is None else str(Spool(spool).folder))
    options = StreamOptions(
        numPartitions=numPartitions,
        policy=policy or Policy(),
        targetSeconds=seconds,
        combine="never",
        cache=cache,
        cacheBytes=cacheBytes,
        retain=retain,
    )
    columns = schemas.arrow(outputStructType).names
    processor: Any = reduce if length is None else WindowProcessor(reduce, schema, length, step)
    code = UserCode(schemas, processor, columns, "none")
    if length is not None:
        code.runner = TaskCode(WindowRunner, processor, code.name)
    require_columns(stream, resolved, options)
    every = None if length is None else step
    pipeline = make_pipeline(
        stream,
        resolved,
        options,
        code,
        outputStructType,
        visit_every=every,
        reduction=PlannedReduction(map_reduce, source, tasks, every),
        source=source if spool is not None or BUCKET in stream.columns else None,
    )
    if pipeline.query.watermark is not None:
        raise InvalidArgumentError(
            "microbatch has no event time, its windows advance with the batches; drop the watermark"
        )
    return StatefulStream(pipeline)


def read_batches(spool: str, *, spark: SparkSession | None = None) -> DataFrame:
    """Return the batches of a source: sizes, blocks, buckets, balance, and changes of the number of tasks with reasons.

    Parameters
    ----------
    spool
        Folder of the source.
    spark
        The session; default the active one.
    """
    session = spark or SparkSession.active()
    lines = Spool(spool).batch_lines()
    schema = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    return session.createDataFrame([tuple(line.get(name) for name in _COLUMNS) for line in lines], schema)


_COLUMNS = {
    "batch": "bigint",
    "time": "double",
    "rows": "bigint",
    "keys": "bigint",
    "blocks": "int",
    "buckets": "int",
    "bsi": "double",
    "bci": "double",
    "ksr": "double",
    "split_keys": "bigint",
    "plan_seconds": "double",
    "seal_seconds": "double",
    "ready_before_wanted": "double",
    "waiting": "bigint",
    "dead_letters": "bigint",
    "load": "double",
    "action": "string",
    "reason": "string",
}


@dataclass(frozen=True)
class PlannedReduction:
    """Reduces the blocks of a batch to partial buffers; see ``equipoise.spark.stream.jobs.BlockReduction``.

    Parameters
    ----------
    map_reduce
        Map and reduce tasks.
    source
        The spool that the source and the query share.
    buckets
        Number of reduce tasks without a spool.
    slide
        Batches from one result of a window to the next; ``None`` without a window.
    """

    map_reduce: MapReduce
    source: SpoolClient
    buckets: int
    slide: int | None = None

    def columns(self, key: Sequence[str]) -> list[str]:
        """Return the names of the columns after the reduction."""
        return [*key, PARTIAL_BUFFER]

    def reduced(self, rows: DataFrame, key: Sequence[str], batch_spec: BatchSpec) -> tuple[DataFrame, BatchSpec]:
        """Map, allocate and reduce; windows advance with the batches of the source."""
        due = self.source.is_due(self.slide) if self.slide else None
        spec = batch_spec if due is None else replace(batch_spec, visits_all=due)
        return self.map_reduce.reduced(rows, list(key), self.source.buckets() or self.buckets, spec), spec


def _batches(name: str, duration: str | float, interval: float) -> int:
    count = seconds_of(name, duration) / interval
    if abs(count - round(count)) > 1e-6 or round(count) < 1:
        raise InvalidArgumentError(
            f"{name} must be a multiple of the interval of {interval:g} seconds, got {duration!r}"
        )
    return round(count)
