"""Queries over planned micro-batches: map, allocate, reduce, window."""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from equipoise.adapt import Policy
from equipoise.arguments import whole
from equipoise.durations import seconds_of
from equipoise.errors import FormatError, InvalidArgumentError, MismatchError
from equipoise.microbatch.spool import BUCKET, Spool
from equipoise.plan import Plan
from equipoise.spark.prompt.stages import Stages
from equipoise.spark.prompt.windows import WindowProcessor, WindowRunner
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.cluster import partition_count
from equipoise.spark.rows.columns import PART
from equipoise.spark.rows.keys import resolve_key
from equipoise.spark.rows.schemas import SparkSchemas
from equipoise.spark.stream.batch_spec import BatchSpec, Manifest
from equipoise.spark.stream.delivery import Sink
from equipoise.spark.stream.engine import Engine
from equipoise.spark.stream.jobs import SparkJobs
from equipoise.spark.stream.settings import Settings
from equipoise.spark.stream.stateful import StatefulStream
from equipoise.state.checkpoint import Checkpoint

_log = logging.getLogger(__name__)


def microbatch(
    stream: DataFrame,
    key: str | list[str],
    reduce: Aggregator,
    outputSchema: StructType | str,  # noqa: N803 - Spark's own name
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    *,
    spool: str | None = None,
    map: Callable[[DataFrame], DataFrame] | None = None,  # noqa: A002 - the name of the stage
    interval: str | float = 1.0,
    window: str | float | None = None,
    slide: str | float | None = None,
    buckets: int | None = None,
    combine: bool = True,
    allocation: str = "level",
    **options: Any,
) -> "MicrobatchStream":
    """A query over a stream whose micro-batches are planned before they run.

    Blocks are mapped, their clusters allocated to reduce buckets by algorithm 3 of Prompt, reduced, and the buffers
    merged into the state or the window of their keys, exactly once.

    Parameters
    ----------
    stream
        A stream of ``spark.readStream.format("equipoise")``. Any other stream will do, and is then not planned ahead.
    key
        Key columns, as in the source's option.
    reduce
        An ``Aggregator`` with ``merge``; with ``inverse``, windows take off what falls out of them.
    outputSchema
        Schema of the rows that ``finish`` gives.
    numPartitions
        Partitions of the state; default ``spark.sql.shuffle.partitions``.
    spool
        The source's spool: from there come the number of buckets, and there goes how long batches take, which the
        source needs to follow the load.
    map
        From the rows of a batch to those that are reduced, as DataFrames. Keep the key, and the column
        ``__equipoise_bucket``, without which all keys go by hash.
    interval
        Length of a batch, as in the source's option. Batches are processed as soon as they are sealed.
    window, slide
        Length of a window and from one result to the next, multiples of the interval; ``slide`` is the interval by
        default. Results are due with every batch of the source whose number is a multiple of the slide; without
        ``spool`` the batches of Spark are counted, of which the first may come before the source has one. Without a
        window, results are running totals of the keys that changed.
    buckets
        Number of reduce tasks where there is no spool; default ``numPartitions``.
    combine
        Whether map tasks reduce their own rows, so that only buffers travel.
    allocation
        ``level`` (as the source has planned), ``prompt`` (algorithm 3 in the map tasks) or ``hash``.
    **options
        Further ones of ``stateful``: ``retain``, ``cache``, and those of the policy.
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
    known = {field.name for field in dataclasses.fields(Policy)}
    unknown = sorted(set(options) - known - {"retain", "cache"})
    if unknown:
        raise InvalidArgumentError(f"microbatch has no option {', '.join(unknown)}")
    schema = SparkSchemas(stream.sparkSession).parsed(reduce.bufferSchema)
    return MicrobatchStream(
        stream,
        list(resolve_key(stream, key, streaming=True).names),
        outputSchema,
        numPartitions,
        stages=Stages(reduce, schema, map, combine, allocation),
        spool=None if spool is None else str(Spool(spool).folder),
        interval=seconds,
        window=None if length is None else (length, step),
        buckets=whole("buckets", buckets, 1) if buckets is not None else None,
        retain=whole("retain", options.pop("retain", 10), 1),
        cache=options.pop("cache", None),
        policy=Policy(**options),
    )


def read_batches(spool: str, *, spark: SparkSession | None = None) -> DataFrame:
    """What the source did with every batch: sizes, blocks, buckets, measures of balance, and why tasks were changed.

    Parameters
    ----------
    spool
        The source's folder.
    spark
        The session; default the active one.
    """
    session = spark or SparkSession.active()
    lines = Spool(spool).batch_lines()
    schema = ", ".join(f"{name} {kind}" for name, kind in _HISTORY.items())
    return session.createDataFrame([tuple(line.get(name) for name in _HISTORY) for line in lines], schema)


_HISTORY = {
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


class MicrobatchStream(StatefulStream):
    """A query over planned micro-batches that is ready to start; what ``microbatch`` gives."""

    def __init__(
        self,
        stream: DataFrame,
        key: list[str],
        output_schema: StructType | str,
        partitions: int | None,
        *,
        stages: Stages,
        spool: str | None,
        interval: float,
        window: tuple[int, int] | None,
        buckets: int | None,
        retain: int,
        cache: str | None,
        policy: Policy,
    ) -> None:
        self._stages, self._spool, self._seconds, self._window = stages, spool, interval, window
        self._buckets = buckets or partition_count(stream.sparkSession, partitions)
        columns = SparkSchemas(stream.sparkSession).arrow(output_schema).names
        processor: Any = stages.aggregator
        if window is not None:
            processor = WindowProcessor(stages.aggregator, stages.schema, columns, *window)
        super().__init__(
            stream,
            key,
            processor,
            output_schema,
            partitions,
            time_mode="none",
            initial=None,
            order_by=(),
            bounds=None,
            target_seconds=interval,
            tail_groups=None,
            plain_hash=False,
            split=False,
            cache=cache,
            retain=retain,
            policy=policy,
        )
        if self._watermark is not None:
            raise InvalidArgumentError(
                "microbatch keeps no event time: its windows move with the batches; drop the watermark"
            )
        if window is not None:
            self._code.runner = partial(WindowRunner, processor)

    def _settings(self, checkpoint: Checkpoint, sink: Sink, trigger: Mapping[str, Any]) -> Settings:
        if self._spool is not None or BUCKET in self._stream.columns:
            _require_trigger(trigger, self._seconds)
        settings = super()._settings(checkpoint, sink, trigger)
        return dataclasses.replace(settings, visit_every=None if self._window is None else self._window[1])

    def _jobs(self, settings: Settings) -> SparkJobs:
        return _MicrobatchJobs(settings, self._stages, self._spool, self._seconds, self._buckets)

    def _handler(self, engine: Engine[DataFrame]) -> Callable[[DataFrame, int], None]:
        return engine if self._spool is None else _Reporting(engine, self._spool)


class _MicrobatchJobs(SparkJobs):
    """Reduces the blocks of a batch before its buffers go to the owners of their keys."""

    def __init__(self, settings: Settings, stages: Stages, spool: str | None, interval: float, buckets: int) -> None:
        super().__init__(settings)
        self._stages, self._spool, self._interval, self._buckets = stages, spool, interval, buckets

    def columns(self, rows: DataFrame) -> list[str]:  # noqa: ARG002 - the name belongs to the protocol
        """Names of the columns after the reduction."""
        return [*self._settings.identity.key, PART]

    def run(self, rows: DataFrame, plan: Plan, batch_spec: BatchSpec, *, late_ms: int) -> list[Manifest]:
        """Map, allocate, reduce; then as any batch, whose windows move on with the batches of the source."""
        slide = self._settings.visit_every
        if slide and self._spool is not None:
            batch_spec = dataclasses.replace(batch_spec, visits_all=Spool(self._spool).released() % slide == 0)
        reduced = self._stages.reduced(rows, self._settings.identity.key, self._bucket_count(), batch_spec)
        return super().run(reduced, plan, batch_spec, late_ms=late_ms)

    def _bucket_count(self) -> int:
        tasks = None if self._spool is None else Spool(self._spool).tasks()
        if tasks is None and self._spool is not None:
            raise MismatchError(
                f"no source uses the spool {self._spool}; give the query the one that its source has, or none"
            )
        if tasks is None:
            return self._buckets
        if abs(tasks.interval - self._interval) > 1e-9:
            raise MismatchError(
                f"the source makes a batch every {tasks.interval:g} seconds, the query expects one every "
                f"{self._interval:g}; give both the same interval"
            )
        batch = Spool(str(self._spool)).handed_out()
        return tasks.buckets if batch is None else int(batch.measures["buckets"])  # what its keys were dealt to


class _Reporting:
    """Runs batches and tells the source how long they took."""

    def __init__(self, engine: Engine[DataFrame], spool: str) -> None:
        self._engine, self._spool = engine, spool

    def __call__(self, rows: DataFrame, batch: int) -> None:
        start = time.perf_counter()
        self._engine(rows, batch)
        seconds = time.perf_counter() - start
        try:
            spool = Spool(self._spool)
            if spool.released():  # the first batch of a query may come before the source has any
                spool.add_time(spool.released() - 1, seconds)
        except (OSError, FormatError) as error:  # the batch counts, whether the source knows what it took or not
            _log.warning("the source is not told how long batch %d took: %s", batch, error)


def _require_trigger(trigger: Mapping[str, Any], interval: float) -> None:
    """Refuse a trigger that asks for fewer batches than the source makes, or that ends."""
    ending = [name for name in ("availableNow", "once") if trigger.get(name)]
    if ending:
        raise InvalidArgumentError(
            f"the trigger {ending[0]} runs what is there, and the source makes a batch every {interval:g} seconds; use "
            "no trigger, and stop the query when you have seen enough"
        )
    given = trigger.get("processingTime")
    if given is None:
        return
    try:
        seconds = seconds_of("trigger", given)
    except InvalidArgumentError:
        return  # Spark knows other ways to write an interval, and "0 seconds"
    if seconds > interval * (1 + 1e-9):
        raise InvalidArgumentError(
            f"a trigger of {given!r} takes a batch every {seconds:g} seconds, and the source makes one every "
            f"{interval:g}, so the query would fall behind for ever; use no trigger, or the interval of the source"
        )


def _batches(name: str, duration: str | float, interval: float) -> int:
    count = seconds_of(name, duration) / interval
    if abs(count - round(count)) > 1e-6 or round(count) < 1:
        raise InvalidArgumentError(
            f"{name} must be a multiple of the interval of {interval:g} seconds, got {duration!r}"
        )
    return round(count)
