"""Start a stateful query: keyed state that moves with the load."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructField, StructType, TimestampType

from equipoise.adapt import Elastic, Policy
from equipoise.arguments import at_least, whole
from equipoise.durations import seconds_of
from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.cluster import is_connect, partition_count, task_slots
from equipoise.spark.rows.keys import as_column, resolve_key
from equipoise.spark.rows.schemas import SparkSchemas, as_spark_reads_it, require_storable
from equipoise.spark.stream.delivery import FileSink, Sink
from equipoise.spark.stream.engine import Engine, wall_clock
from equipoise.spark.stream.failures import translating
from equipoise.spark.stream.jobs import SparkJobs
from equipoise.spark.stream.query import StatefulQuery, is_active_here
from equipoise.spark.stream.settings import Settings, Watermark
from equipoise.spark.stream.user_code import Form, Processor, UserCode
from equipoise.state.checkpoint import Checkpoint, Identity, new_name
from equipoise.state.fencing import claim
from equipoise.state.halves import SPARK
from equipoise.state.handle import VariableSpec, merge_specs, removed_tags
from equipoise.state.log import CommitLog
from equipoise.state.timers import time_mode
from equipoise.storage import Storage

TAIL_GROUPS = 64
"""Least default number of tail groups; 16 for each partition that there may be."""

_GROUPS_A_PARTITION = 16
_AVAILABLE_NOW = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
_WATERMARK = "spark.watermarkDelayMs"  # where Spark keeps the delay of withWatermark, in a column's metadata


def stateful(
    stream: DataFrame,
    key: str | Sequence[str],
    processor: Processor,
    outputSchema: StructType | str,  # noqa: N803 - Spark's own name
    numPartitions: int | str | None = None,  # noqa: N803 - Spark's own name
    *,
    timeMode: str = "none",  # noqa: N803 - Spark's own name
    initialState: DataFrame | None = None,  # noqa: N803 - Spark's own name
    orderBy: str | Sequence[str] = (),  # noqa: N803 - Spark's own name
    bounds: tuple[int, int] | None = None,
    targetSeconds: float | None = None,  # noqa: N803 - Spark's own name
    tailGroups: int | None = None,  # noqa: N803 - Spark's own name
    hash: bool = False,  # noqa: A002 - Spark's own name
    split: bool = True,
    cache: str | None = None,
    retain: int = 10,
    form: Form = "pandas",
    **policy: Any,
) -> "StatefulStream":
    """Keyed state over a stream, placed by the load.

    Parameters
    ----------
    stream
        A streaming DataFrame. With ``withWatermark`` and ``timeMode="eventTime"`` rows that come too late are dropped
        and event-time timers fire. Under the other time modes late rows are kept, as in Spark.
    key
        Key column or columns, by name.
    processor
        A ``StatefulProcessor`` as for ``transformWithStateInPandas``, a ``VectorProcessor``, or an ``Aggregator``.
    outputSchema
        Schema of the rows that the processor yields.
    numPartitions
        N; default ``spark.sql.shuffle.partitions``; ``"auto"`` to choose it by the load, within ``bounds``.
    timeMode
        ``"none"``, ``"processingTime"`` or ``"eventTime"``, as for ``transformWithStateInPandas``.
    initialState
        DataFrame with the key columns, given to ``handleInitialState`` when the query is created. For an
        ``Aggregator`` it has the columns of the buffer beside them (buffers of one key are merged), for a
        ``VectorProcessor`` those of the state, and one row for each key.
    orderBy
        Columns by which the rows of a key are sorted before the processor sees them.
    bounds
        Least and largest N for ``"auto"``; default 1 and 4 times the session's shuffle partitions.
    targetSeconds
        Time that a batch may take, for ``"auto"``; default the trigger's interval, else 10.
    tailGroups
        H, fixed when the query is created; default 16 for each partition, at least 64.
    hash
        Plain hash whatever the load: the switch back.
    split
        Whether a key that carries more than a partition can may be reduced in pieces, for an ``Aggregator`` with a
        ``merge`` and without ``orderBy``. Its state stays whole.
    cache
        Local folder for the executors' caches; default the system's temporary folder.
    retain
        Versions of the state, before the last, that stay readable.
    form
        What a ``StatefulProcessor`` is given and yields: ``"pandas"`` frames or ``"rows"``.
    **policy
        When to replan, as for ``equipoise.adapt.Policy``: ``mode`` ("auto", "advise" or "observe"), ``planner``,
        ``load``, ``trigger``, ``minimum_gain``, ``hysteresis``, ``minimum_interval``, ``horizon``, ``budget_bytes``,
        ``budget_seconds``, ``move_rate``, ``decay``.

    Returns
    -------
    StatefulStream
        Start it with a sink and a checkpoint.
    """
    unknown = sorted(set(policy) - {field.name for field in fields(Policy)})
    if unknown:
        known = ", ".join(field.name for field in fields(Policy))
        raise InvalidArgumentError(f"stateful has no option {', '.join(unknown)}; for planning it has {known}")
    resolved = resolve_key(stream, key, streaming=True)
    names = list(resolved.names)
    missing = [name for name in names if name not in stream.columns]
    if missing:
        raise InvalidArgumentError(f"key {missing[0]!r} is not a column; add it with withColumn first")
    order = [orderBy] if isinstance(orderBy, str) else list(orderBy)
    for name in order:
        if name not in stream.columns:
            raise InvalidArgumentError(f"orderBy column {name!r} is not there; there are {', '.join(stream.columns)}")
        if "map<" in (kind := stream.schema[name].dataType.simpleString()) or "variant" in kind:
            raise InvalidArgumentError(
                f"orderBy column {name!r} is {kind}, which Spark cannot sort by; use a part of it"
            )
    if initialState is not None:
        _require_key(initialState, stream, names)
    if targetSeconds is not None and at_least("targetSeconds", targetSeconds, 0) == 0:
        raise InvalidArgumentError("targetSeconds is the time that a batch may take and must exceed 0")
    return StatefulStream(
        stream,
        names,
        processor,
        outputSchema,
        numPartitions,
        time_mode=time_mode(timeMode),
        initial=initialState,
        order_by=tuple(order),
        bounds=bounds,
        target_seconds=targetSeconds,
        tail_groups=tailGroups,
        plain_hash=hash,
        split=split,
        cache=cache,
        retain=whole("retain", retain, 1),
        policy=Policy(**policy),
        form=form,
    )


class StatefulStream:
    """A stateful query that is ready to start; what ``stateful`` gives."""

    def __init__(
        self,
        stream: DataFrame,
        key: list[str],
        processor: Processor,
        output_schema: StructType | str,
        partitions: int | str | None,
        *,
        time_mode: str,
        initial: DataFrame | None,
        order_by: tuple[str, ...],
        bounds: tuple[int, int] | None,
        target_seconds: float | None,
        tail_groups: int | None,
        plain_hash: bool,
        split: bool,
        cache: str | None,
        retain: int,
        policy: Policy,
        form: Form = "pandas",
    ) -> None:
        self._stream = stream
        self._spark: SparkSession = stream.sparkSession
        self._key = key
        self._output_schema = output_schema
        schemas = SparkSchemas(self._spark)
        parsed = schemas.parsed(output_schema)
        require_storable(parsed)
        self._output_arrow = as_spark_reads_it(schemas.arrow(output_schema), parsed)
        self._time_mode = time_mode
        self._code = UserCode(schemas, processor, self._output_arrow.names, time_mode, form)
        self._initial = None if initial is None else self._named(initial)
        self._order_by = order_by
        self._target_seconds = target_seconds
        self._plain_hash = plain_hash
        self._splits = split and not order_by and self._code.aggregator is not None
        self._cache = cache
        self._retain = retain
        self._policy = policy
        self._watermark = _watermark(stream, time_mode)
        self._elastic = _elastic(self._spark, partitions, bounds)
        self._partitions = partition_count(self._spark, None if isinstance(partitions, str) else partitions)
        if self._elastic is not None:
            self._partitions = min(max(self._partitions, self._elastic.minimum), self._elastic.maximum)
        most = self._elastic.maximum if self._elastic else self._partitions
        self._most = most
        self._given_tail_groups = tail_groups
        _tail_groups(tail_groups, most, None)

    def start(
        self,
        sink: Sink,
        checkpointLocation: str,  # noqa: N803 - Spark's own name
        *,
        trigger: str | Mapping[str, Any] | None = None,
        queryName: str | None = None,  # noqa: N803 - Spark's own name
    ) -> StatefulQuery:
        """Start the query, or go on where it ended.

        Parameters
        ----------
        sink
            A function of (DataFrame, batch number), or one of ``equipoise.spark.sinks``. After a crash or a stop it may
            be given the last batch again, with the same rows.
        checkpointLocation
            A folder of this query alone, local or any URI that ``pyarrow.fs`` and Spark know.
        trigger
            As for ``writeStream.trigger``, for example ``{"availableNow": True}``; a text is a processing time.
        queryName
            Name for Spark's own pages.
        """
        if not callable(sink) and not isinstance(sink, FileSink):
            raise InvalidArgumentError(
                "sink must be a function of (DataFrame, batch number); see equipoise.spark.sinks"
            )
        triggered = {"processingTime": trigger} if isinstance(trigger, str) else dict(trigger or {})
        if isinstance(sink, FileSink):
            sink.prepare(self._spark.createDataFrame([], self._output_schema))
        storage = Storage(checkpointLocation)
        checkpoint = Checkpoint(storage)
        settings = self._settings(checkpoint, sink, triggered)
        try:
            engine = Engine(settings, self._jobs(settings), wall_clock)
            with translating():
                engine.initialise(self._initial)
            writer = (
                self._ticking()
                .writeStream.foreachBatch(self._handler(engine))
                .option("checkpointLocation", storage.at(SPARK))
            )
            writer = writer.trigger(**triggered) if triggered else writer
            query = self._started(writer.queryName(queryName) if queryName else writer)
        except BaseException:
            settings.epoch.release()
            raise
        runs_here = not is_connect(self._spark)  # on Connect the server calls the sink, where its files are
        deliver_last = partial(engine.deliver_last, self._spark.range(0)) if runs_here else None
        return StatefulQuery(query, settings.epoch, self._spark, deliver_last)

    def _jobs(self, settings: Settings) -> SparkJobs:
        """How the tasks of a batch are run."""
        return SparkJobs(settings)

    def _handler(self, engine: Engine[DataFrame]) -> Callable[[DataFrame, int], None]:
        """What Spark calls for each batch."""
        return engine

    def _named(self, initial: DataFrame) -> DataFrame:
        columns = self._code.initial_columns(self._key, initial.columns)
        return initial.select(*(as_column(initial, name) for name in columns))

    def _settings(self, checkpoint: Checkpoint, sink: Sink, trigger: Mapping[str, Any]) -> Settings:
        fields = self._stream.select(*(as_column(self._stream, name) for name in self._key)).schema.fields
        key_schema = StructType([StructField(field.name, field.dataType) for field in fields]).jsonValue()
        identity = checkpoint.identify(
            Identity(
                name=new_name(),
                key=self._key,
                key_schema=msgspec.json.decode(msgspec.json.encode(key_schema)),
                tail_groups=_tail_groups(self._given_tail_groups, self._most, checkpoint.identity()),
                time_mode=self._time_mode,
                exclusive=checkpoint.storage.abilities.create_if_absent,
            )
        )
        log = CommitLog(checkpoint.storage)
        epoch = claim(checkpoint.storage, is_active_here, exclusive=identity.exclusive, above=log.last_epoch())
        try:
            variables = self._variables(log)
        except BaseException:
            epoch.release()
            raise
        return Settings(
            identity=identity,
            epoch=epoch,
            partitions=self._partitions,
            runner=self._code.runner,
            variables=variables,
            removed=removed_tags(variables),
            output_schema=self._output_schema,
            output_arrow=self._output_arrow,
            sink=sink,
            policy=self._policy,
            elastic=self._elastic,
            target_seconds=self._target_seconds or _interval(trigger),
            watermark=self._watermark,
            order_by=self._order_by,
            plain_hash=self._plain_hash,
            cache=self._cache,
            timezone=self._spark.conf.get("spark.sql.session.timeZone") or "UTC",
            retain=self._retain,
            state_arrow=self._code.state_arrow,
            slots=task_slots(self._spark) if self._splits else None,
            aggregator=self._code.aggregator if self._splits else None,
        )

    def _variables(self, log: CommitLog) -> dict[str, VariableSpec]:
        """The state variables of the checkpoint, with what the processor declares now."""
        last = log.last()
        stored = {} if last is None else last.variables
        known = {name: msgspec.convert(spec, VariableSpec) for name, spec in stored.items()}
        return merge_specs(known, self._code.variables, self._code.removed)

    def _started(self, writer: DataStreamWriter) -> StreamingQuery:
        """The query, once it knows its sources.

        The clock knows no ``availableNow``; without this setting Spark would then run all that is there as one batch.
        """
        if self._time_mode == "none":
            return writer.start()
        before = self._spark.conf.get(_AVAILABLE_NOW, None)
        self._spark.conf.set(_AVAILABLE_NOW, "true")
        try:
            query = writer.start()
            while query.isActive and query.status["message"].startswith("Initializing"):
                time.sleep(0.01)
        finally:
            if before is None:
                self._spark.conf.unset(_AVAILABLE_NOW)
            else:
                self._spark.conf.set(_AVAILABLE_NOW, before)
        return query

    def _ticking(self) -> DataFrame:
        """The stream; with timers also a clock without rows, since Spark runs no batch where nothing is new."""
        if self._time_mode == "none":
            return self._stream
        clock = self._spark.readStream.format("rate").option("rowsPerSecond", 1).load().where("false")
        nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in self._stream.schema.fields]
        return self._stream.union(clock.select(*nothing))


def _require_key(initial: DataFrame, stream: DataFrame, key: list[str]) -> None:
    """Refuse initial state whose keys are not those of the stream: its states would never be found."""
    if initial.isStreaming:
        raise InvalidArgumentError(
            "initialState must be a batch DataFrame, and this is a stream; read it with spark.read"
        )
    for name in key:
        if name not in initial.columns:
            raise InvalidArgumentError(
                f"initialState lacks the key column {name!r}; it has {', '.join(initial.columns)}"
            )
        given, wanted = (df.schema[name].dataType.simpleString() for df in (initial, stream))
        if given != wanted:
            raise InvalidArgumentError(
                f"initialState has the key {name!r} as {given}, but the stream has it as {wanted}; cast it"
            )


def _tail_groups(given: int | None, partitions: int, known: Identity | None) -> int:
    """H: as given, else that of the query that is there, else by the number of partitions."""
    if given is None and known is not None:
        if known.tail_groups < partitions:
            raise InvalidArgumentError(
                f"the query has {known.tail_groups} key groups for good, so it cannot use {partitions} partitions; "
                "use fewer, or begin a new checkpoint with a larger tailGroups"
            )
        return known.tail_groups
    if given is None:
        return max(TAIL_GROUPS, 1 << (_GROUPS_A_PARTITION * partitions - 1).bit_length())
    if whole("tailGroups", given, 1) < partitions:
        raise InvalidArgumentError(
            f"tailGroups {given} is below the number of partitions, {partitions}; give at least that"
        )
    return given


def _elastic(spark: SparkSession, partitions: int | str | None, bounds: tuple[int, int] | None) -> Elastic | None:
    if isinstance(partitions, str) and partitions != "auto":
        raise InvalidArgumentError(f"numPartitions must be a whole number or 'auto', got {partitions!r}")
    if partitions != "auto":
        if bounds is not None:
            raise InvalidArgumentError("bounds are for numPartitions='auto'; drop them or ask for 'auto'")
        return None
    return Elastic(*(bounds or (1, 4 * partition_count(spark, None))))


def _watermark(stream: DataFrame, mode: str) -> Watermark | None:
    """What ``withWatermark`` said, as Spark keeps it with the column."""
    marked = [field for field in stream.schema.fields if _WATERMARK in (field.metadata or {})]
    if len(marked) > 1:
        names = ", ".join(field.name for field in marked)
        raise InvalidArgumentError(
            f"the stream has a watermark on each of {names}, but the rows of a query have one event time; "
            "call withWatermark on one column only"
        )
    for field in marked:
        if not isinstance(field.dataType, TimestampType):
            kind = field.dataType.simpleString()
            raise InvalidArgumentError(
                f"the event-time column {field.name!r} is a {kind}, but event times are timestamps; cast it first"
            )
        return Watermark(field.name, int(field.metadata[_WATERMARK]))
    if mode == "eventTime":
        raise InvalidArgumentError("timeMode eventTime needs a watermark; call withWatermark on the stream first")
    return None


def _interval(trigger: Mapping[str, Any]) -> float | None:
    """Seconds of a trigger's interval; ``None`` where it has none."""
    given = trigger.get("processingTime")
    if given is None:
        return None
    try:
        return seconds_of("trigger", given)
    except InvalidArgumentError:
        return None  # Spark knows other ways to write an interval, and "0 seconds"
