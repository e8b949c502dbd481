"""A keyed query over a stream, ready to start: what it reads, what it computes, and its options."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType, TimestampType

from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.cluster import default_partitions, task_slots
from equipoise.spark.rows.keys import Key, as_column, named_key
from equipoise.spark.rows.schemas import SparkSchemas, as_spark_reads_it, require_storable
from equipoise.spark.rows.worker_options import WorkerOptions
from equipoise.spark.stream.jobs import Reduction
from equipoise.spark.stream.options import StreamOptions
from equipoise.spark.stream.settings import QueryDefinition, Transformation, Watermark
from equipoise.spark.stream.user_code import UserCode

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
        The input.
    query
        What is computed.
    options
        The user's options.
    initial
        Rows of the initial state.
    reduction, source
        Reduces the rows of a batch before they are placed, and speaks to a source that plans its batches; ``None`` for
        ordinary streams.
    """

    stream: DataFrame
    query: QueryDefinition
    options: StreamOptions
    initial: DataFrame | None = None
    reduction: Reduction | None = None
    source: SourceClient | None = None

    @property
    def spark(self) -> SparkSession:
        """The session of the stream."""
        return self.stream.sparkSession

    @property
    def shuffle_partitions(self) -> int:
        """Number of partitions if the options name none."""
        return default_partitions(self.spark)

    def empty(self) -> DataFrame:
        """Return an empty DataFrame of the rows that the sink will receive."""
        return self.query.transformed(self.spark.createDataFrame([], self.query.output_schema))  # type: ignore[no-any-return]

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
    initial: DataFrame | None = None,
    visit_every: int | None = None,
    reduction: Reduction | None = None,
    source: SourceClient | None = None,
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
    reduction, source
        See ``Pipeline``.
    """
    spark = stream.sparkSession
    parsed, arrow = output_schemas(SparkSchemas(spark), output)
    if initial is not None:
        _require_key(initial, stream, key.names)
        columns = code.initial_columns(key.names, initial.columns)
        initial = initial.select(*(as_column(initial, name) for name in columns))
    fields = stream.select(*(as_column(stream, name) for name in key.names)).schema.fields
    splits = code.aggregator is not None and options.split and not options.order_by
    query = QueryDefinition(
        key=key.names,
        key_schema=StructType([StructField(field.name, field.dataType) for field in fields]).jsonValue(),
        code=code,
        time_mode=time_mode,
        output_schema=StructType.fromJson(parsed),
        output_arrow=arrow,
        timezone=spark.conf.get("spark.sql.session.timeZone") or "UTC",
        worker=WorkerOptions.of_session(spark),
        watermark=_watermark(stream, time_mode),
        slots=task_slots(spark) if splits else None,
        visit_every=visit_every,
    )
    options.tail_groups(default_partitions(spark), None)
    return Pipeline(stream, query, options, initial, reduction, source)


def output_schemas(schemas: SparkSchemas, output: StructType | str) -> tuple[dict[str, Any], pa.Schema]:
    """Return an output schema as ``StructType.jsonValue()`` and as Arrow's; refuse types that files cannot hold."""
    parsed = storable_schema(schemas, output)
    return parsed, as_spark_reads_it(schemas.arrow(output), parsed)


def storable_schema(schemas: SparkSchemas, output: StructType | str) -> dict[str, Any]:
    """Return ``StructType.jsonValue()`` of an output schema; refuse types that files cannot hold."""
    parsed = schemas.parsed(output)
    require_storable(parsed)
    return parsed


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


def _watermark(stream: DataFrame, mode: str) -> Watermark | None:
    """Return the watermark of the stream, which Spark keeps in the metadata of the column."""
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
