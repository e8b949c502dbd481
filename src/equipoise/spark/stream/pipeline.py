"""A keyed query over a stream, ready to start: what it reads, what it computes, and its options."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql.types import StructField, StructType, TimestampType

from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.cluster import default_partitions, is_connect, task_slots
from equipoise.spark.rows.keys import Key, as_column, named_key
from equipoise.spark.rows.schemas import SparkSchemas, as_spark_reads_it, require_storable
from equipoise.spark.rows.vector_aggregator import VectorAggregator
from equipoise.spark.rows.worker_options import WorkerOptions
from equipoise.spark.stream.jobs import BlockReduction
from equipoise.spark.stream.options import StreamOptions
from equipoise.spark.stream.settings import QueryDefinition, Transformation, Watermark
from equipoise.spark.stream.user_code import UserCode, described_object

InitialState: TypeAlias = DataFrame | GroupedData
"""Initial state as Spark takes it, grouped, or as an ungrouped DataFrame."""

_WATERMARK = "spark.watermarkDelayMs"  # where Spark keeps the delay of withWatermark, in a column's metadata


class SourceClient(Protocol):
    """A source that plans its batches, as the query sees it."""

    def require_trigger(self, trigger: Mapping[str, Any]) -> None:
        """Refuse a trigger that does not fit the batches of the source."""

    def report(self, batch: int, seconds: float) -> None:
        """Report how long a batch took; never raises."""


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A query that is defined and not started.

    Parameters
    ----------
    stream
        The input; of a later stage an empty batch DataFrame with the columns of its input.
    query
        What is computed.
    options
        The user's options.
    initial
        Rows of the initial state.
    reduction, source
        Reduces the rows of a batch before they are placed, and speaks to a source that plans its batches; ``None`` for
        ordinary streams.
    before
        The pipeline whose output is the input; ``None`` if that is a stream.
    output_mode
        Output mode that the writer must have; ``None`` for any.
    """

    stream: DataFrame
    query: QueryDefinition
    options: StreamOptions
    initial: DataFrame | None = None
    reduction: BlockReduction | None = None
    source: SourceClient | None = None
    before: "Pipeline | None" = None
    output_mode: str | None = None

    @property
    def spark(self) -> SparkSession:
        """The session of the stream."""
        return self.stream.sparkSession

    @property
    def shuffle_partitions(self) -> int:
        """Number of partitions if the options name none."""
        return default_partitions(self.spark)

    @property
    def stages(self) -> "list[Pipeline]":
        """The keyed operators of the query, first to last."""
        return [self] if self.before is None else [*self.before.stages, self]

    @property
    def has_clock(self) -> bool:
        """Whether batches must run without new input, for the timers of any stage."""
        return any(stage.query.time_mode != "none" for stage in self.stages)

    def empty(self) -> DataFrame:
        """Return an empty DataFrame of the rows that the sink will receive."""
        return self.query.transformed(self.spark.createDataFrame([], self.query.output_schema))  # type: ignore[no-any-return]

    def in_output_mode(self, mode: str) -> "Pipeline":
        """Return the same pipeline for an output mode, which is that of all its stages, as in Spark.

        In the mode ``append``, aggregates deliver each key once, when the watermark has passed it, and forget it.
        """
        before = None if self.before is None else self.before.in_output_mode(mode)
        if before is not None and before.query.code.aggregate is not None and before.query.final_by is None:
            raise InvalidArgumentError(
                f"a second keyed operator follows the aggregate by {', '.join(before.query.key)}, which delivers a key "
                "again whenever it changes, so the second one would count it again; call outputMode('append'), with an "
                "event time in that key, which delivers each key once"
            )
        made = replace(self, before=before)
        is_aggregate = self.query.code.aggregate is not None and self.reduction is None
        return made._finishing() if is_aggregate and mode == "append" else made  # noqa: SLF001 - of the same class

    def _finishing(self) -> "Pipeline":
        """Return the pipeline of an aggregate that delivers each key once, when the watermark has passed it."""
        query = self.query
        if isinstance(query.code.aggregate, VectorAggregator):
            raise InvalidArgumentError(
                f"{query.code.name} is a VectorAggregator, which has no timers to finish a key by; use "
                "outputMode('update'), or an Aggregator"
            )
        marked = [field.name for field in event_time_columns(self.stream)]
        final_by = next((name for name in query.key if name in marked), None)
        if final_by is None:
            kinds = [self.stream.schema[name].dataType for name in query.key]
            on_connect = (
                " (withColumn of Spark Connect makes a window without event time; select('*', window(...).alias(name)) "
                "keeps it)"
            )
            is_lost = is_connect(self.spark) and any(isinstance(kind, StructType) for kind in kinds)
            raise InvalidArgumentError(
                "outputMode 'append' delivers a key once, when the watermark has passed it, and the key "
                f"{', '.join(query.key)} has no event time{on_connect if is_lost else ''}; group also by the column of "
                "withWatermark or by a window of it, or use outputMode 'update'"
            )
        if self.stream.isStreaming and query.watermark is None:
            raise InvalidArgumentError(
                f"the stream has the window {final_by!r}, but not the event time that it is a window of, which moves "
                "the watermark; keep the column of withWatermark in the stream"
            )
        assert query.code.aggregate is not None  # noqa: S101 - this tells the type checker
        schemas, columns = SparkSchemas(self.spark), query.output_arrow.names
        code = UserCode(schemas, query.code.aggregate, columns, "eventTime", final_by=query.key.index(final_by))
        return replace(self, query=replace(query, code=code, time_mode="eventTime", final_by=final_by))

    def with_output_mode(self, mode: str) -> "Pipeline":
        """Return the same pipeline for writers of one output mode."""
        return replace(self, output_mode=mode)

    def with_transformation(self, transformation: Transformation) -> "Pipeline":
        """Return the same pipeline with one more transformation of the output."""
        return replace(self, query=replace(self.query, transformations=(*self.query.transformations, transformation)))


def require_columns(stream: DataFrame, key: Key, options: StreamOptions) -> None:
    """Refuse key and order columns that the stream does not have, or that Spark cannot sort by."""
    named_key(stream, key, "a stream")
    for name in options.order_by:
        if name not in stream.columns:
            raise InvalidArgumentError(f"orderBy column {name!r} does not exist; there are {', '.join(stream.columns)}")
        if "map<" in (kind := stream.schema[name].dataType.simpleString()) or "variant" in kind:
            raise InvalidArgumentError(
                f"orderBy column {name!r} is {kind}, which Spark cannot sort by; use a field of it"
            )


def make_pipeline(
    stream: DataFrame,
    key: Key,
    options: StreamOptions,
    code: UserCode,
    output: StructType | str,
    *,
    time_mode: str = "none",
    initial: InitialState | None = None,
    visit_every: int | None = None,
    reduction: BlockReduction | None = None,
    source: SourceClient | None = None,
    before: Pipeline | None = None,
    event_time: str = "",
) -> Pipeline:
    """Check a query as far as possible without a checkpoint.

    Parameters
    ----------
    stream, key, options
        The keyed stream.
    code
        The user's code.
    output
        Schema of the rows that it yields.
    time_mode
        Spelled as Spark does.
    initial
        Rows of the initial state.
    visit_every
        See ``QueryDefinition``.
    reduction, source, before
        See ``Pipeline``.
    event_time
        Column of the output that has the event time for a later stage; empty for none.
    """
    spark = stream.sparkSession
    parsed, arrow = output_schemas(SparkSchemas(spark), output)
    combines = not code.uncombined and options.combine == "auto" and not options.order_by
    watermark = watermark_of(stream)
    query = QueryDefinition(
        key=key.names,
        key_schema=key_schema(stream, key),
        code=code,
        time_mode=time_mode,
        output_schema=_with_event_time(StructType.fromJson(parsed), event_time, watermark),
        output_arrow=arrow,
        timezone=spark.conf.get("spark.sql.session.timeZone") or "UTC",
        worker=WorkerOptions.of_session(spark),
        watermark=watermark,
        slots=task_slots(spark) if combines or options.look == "auto" else None,
        visit_every=visit_every,
        output_event_time=event_time or None,
    )
    options.tail_groups(default_partitions(spark), None)
    return Pipeline(stream, query, options, initial_state(initial, stream, key, code), reduction, source, before)


def key_schema(df: DataFrame, key: Key) -> dict[str, Any]:
    """Return ``StructType.jsonValue()`` of the key columns."""
    fields = df.select(*(as_column(df, name) for name in key.names)).schema.fields
    schema: dict[str, Any] = StructType([StructField(field.name, field.dataType) for field in fields]).jsonValue()
    return schema


def initial_state(given: InitialState | None, df: DataFrame, key: Key, code: UserCode) -> DataFrame | None:
    """Return the columns of an initial state that the code uses; refuse one that does not fit the rows ``df``."""
    if given is None:
        return None
    initial = _ungrouped(given)
    _require_key(initial, df, key.names)
    columns = code.initial_columns(key.names, initial.columns)
    return initial.select(*(as_column(initial, name) for name in columns))


def output_schemas(schemas: SparkSchemas, output: StructType | str) -> tuple[dict[str, Any], pa.Schema]:
    """Return an output schema as ``StructType.jsonValue()`` and as Arrow's; refuse types that files cannot hold."""
    parsed = storable_schema(schemas, output)
    return parsed, as_spark_reads_it(schemas.arrow(output), parsed)


def storable_schema(schemas: SparkSchemas, output: StructType | str) -> dict[str, Any]:
    """Return ``StructType.jsonValue()`` of an output schema; refuse types that files cannot hold."""
    parsed = schemas.parsed(output)
    require_storable(parsed)
    return parsed


def _with_event_time(output: StructType, name: str, watermark: Watermark | None) -> StructType:
    """Return an output schema whose event-time column is marked, as Spark marks it in the metadata of the column."""
    if not name:
        return output
    if watermark is None:
        raise InvalidArgumentError(
            f"eventTimeColumnName={name!r} needs a watermark on the input, whose delay it takes over; call "
            "withWatermark on the stream first"
        )
    if name not in output.names:
        raise InvalidArgumentError(
            f"eventTimeColumnName={name!r} is not a column of outputStructType, which has {', '.join(output.names)}"
        )
    if not isinstance(output[name].dataType, TimestampType):
        raise InvalidArgumentError(
            f"eventTimeColumnName={name!r} is a {output[name].dataType.simpleString()}, but event times are "
            "timestamps; yield a timestamp"
        )
    mark = {_WATERMARK: watermark.delay_ms}
    fields = [
        StructField(
            each.name, each.dataType, each.nullable, each.metadata | mark if each.name == name else each.metadata
        )
        for each in output.fields
    ]
    return StructType(fields)


def _ungrouped(initial: InitialState) -> DataFrame:
    """Return the DataFrame of an initial state, which Spark's method takes grouped."""
    if isinstance(initial, DataFrame):
        return initial
    grouped = getattr(initial, "_df", None)  # pyspark has no public way from GroupedData to its DataFrame
    if not isinstance(grouped, DataFrame):
        raise InvalidArgumentError(
            f"initialState must be a DataFrame, or a grouped one, got {described_object(initial)}"
        )
    return grouped


def _require_key(initial: DataFrame, stream: DataFrame, key: tuple[str, ...]) -> None:
    """Refuse initial state whose keys differ from those of the stream: its states would never be found."""
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


def event_time_columns(stream: DataFrame) -> list[StructField]:
    """Return the columns with an event time that has a watermark, and the windows of such columns."""
    return [field for field in stream.schema.fields if _WATERMARK in (field.metadata or {})]


def watermark_of(stream: DataFrame) -> Watermark | None:
    """Return the event time of the stream, which Spark keeps in the metadata of the column; ``None`` without one.

    Spark's own operators refuse several event-time columns, too. One column can have several watermarks, as in a union
    of streams: the watermark of a batch is that which Spark has recorded with its offsets.
    """
    columns = event_time_columns(stream)
    marked = [field for field in columns if not isinstance(field.dataType, StructType)]  # a struct is a window of one
    if len(marked) > 1:
        names = ", ".join(field.name for field in marked)
        raise InvalidArgumentError(
            f"the stream has a watermark on each of {names}, but the rows of a query have one event time; "
            "drop one of the columns, or call withWatermark on one column only"
        )
    for field in marked:
        if not isinstance(field.dataType, TimestampType):
            kind = field.dataType.simpleString()
            raise InvalidArgumentError(
                f"the event-time column {field.name!r} is a {kind}, but event times are timestamps; cast it first"
            )
        return Watermark(field.name, int(field.metadata[_WATERMARK]))
    return None
