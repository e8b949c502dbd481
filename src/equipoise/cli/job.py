"""From a job file to a query that is ready to start."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from equipoise.adapt import Policy
from equipoise.cli.job_file import (
    ConsoleSink,
    Job,
    KafkaSink,
    Microbatch,
    ParquetSink,
    PythonSink,
    Source,
    Stateful,
    TableSink,
    load_job,
)
from equipoise.cli.session import is_of_spark, spark_message
from equipoise.cli.user_module import imported, look_in, made, ship
from equipoise.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from equipoise.spark import StatefulStream
    from equipoise.spark.stream.delivery import Sink

_PLANNED = "equipoise"
_OURS = {"key", "checkpoint", "output_schema", "aggregator", "aggregate", "processor", "trigger", "name", "map", "kind"}
"""Entries of [query] that are not handed on as they are."""


@dataclass(frozen=True)
class Prepared:
    """A query that is ready to start."""

    stream: "StatefulStream"
    sink: "Sink"
    trigger: Any


class JobFile:
    """A job file and the code that it names.

    Parameters
    ----------
    path
        The file; modules that it names may lie beside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job: Job = load_job(path)
        self.key = [self.job.query.key] if isinstance(self.job.query.key, str) else self.job.query.key
        self._code: dict[str, Any] = {}
        look_in(path.parent)
        with self._told():
            self._check()
            self._import()

    @property
    def conf(self) -> list[str]:
        """Settings of Spark, as ``--conf`` takes them."""
        return [f"{name}={_text(value)}" for name, value in self.job.conf.items()]

    def prepare(self, spark: "SparkSession", *, available_now: bool) -> Prepared:
        """Build the query; nothing is started, and nothing is written."""
        with self._told():
            try:
                ship(spark, self._names(), self.path.parent)
                stream = self._stream(spark)
                query = self._stateful(stream) if isinstance(self.job.query, Stateful) else self._microbatch(stream)
            except Exception as error:
                if not is_of_spark(error):
                    raise
                raise InvalidArgument(spark_message(error)) from error
            trigger = {"availableNow": True} if available_now else self.job.query.trigger
            return Prepared(query, self._sink(), {"availableNow": True} if trigger == "availableNow" else trigger)

    def _check(self) -> None:
        """What the shape of the file cannot say."""
        query, source = self.job.query, self.job.source
        ways = [name for name in ("processor", "aggregator", "aggregate") if getattr(query, name, None) is not None]
        known = "processor, aggregator or aggregate" if isinstance(query, Stateful) else "aggregator or aggregate"
        if len(ways) != 1:
            raise InvalidArgument(f"[query] needs one of {known}, got {' and '.join(ways) or 'none'}")
        if ways != ["aggregate"] and query.output_schema is None:
            raise InvalidArgument(f"[query] needs outputSchema, the columns that its {ways[0]} gives")
        if ways == ["aggregate"] and query.output_schema is not None:
            raise InvalidArgument("[query] has aggregate, which says its columns itself; drop outputSchema")
        if source.format == _PLANNED and (source.select or source.where or source.path):
            raise InvalidArgument(
                "rows of the format equipoise are planned as they come: [source] takes no select, where or path; use "
                "map in [query], and path in [source.options]"
            )
        if source.feeds and source.format != _PLANNED:
            raise InvalidArgument("feeds in [source] are for the format equipoise")
        policies = [field.name for field in dataclasses.fields(Policy)]
        unknown = sorted(set(self.job.policy) - set(policies))
        if unknown:
            raise InvalidArgument(f"[policy] has no {unknown[0]}; it takes {', '.join(policies)}")
        twice = sorted(set(self.job.sink.__struct_fields__) & set(getattr(self.job.sink, "options", {})))
        if twice:
            raise InvalidArgument(f"{twice[0]} belongs into [sink], not into [sink.options]")

    def _names(self) -> list[str]:
        """Everything that the file names as module:object."""
        query, sink = self.job.query, self.job.sink
        named = [getattr(query, entry, None) for entry in ("processor", "aggregator", "map")]
        named += [*self.job.source.feeds.values(), sink.function if isinstance(sink, PythonSink) else None]
        return [name for name in named if name is not None]

    def _import(self) -> None:
        query, sink = self.job.query, self.job.sink
        for entry in ("processor", "aggregator"):
            if getattr(query, entry, None) is not None:
                self._code["processor"] = made(getattr(query, entry), f"{entry} in [query]")
        if isinstance(query, Microbatch) and query.map is not None:
            self._code["map"] = _function(query.map, "map in [query]")
        if isinstance(sink, PythonSink):
            self._code["sink"] = _function(sink.function, "function in [sink]")
        feeds = self.job.source.feeds
        self._code["feeds"] = {name: _function(each, f"feed {name} in [source]") for name, each in feeds.items()}

    def _stream(self, spark: "SparkSession") -> "DataFrame":
        from equipoise.spark import register

        source = self.job.source
        options = {name: _text(value) for name, value in source.options.items()}
        reader = spark.readStream.format(source.format)
        if source.format == _PLANNED:
            register(spark, **self._code["feeds"])
            options = self._planned(source) | options
        elif source.schema is not None:
            reader = reader.schema(source.schema)
        df = reader.options(**options).load(source.path) if source.path else reader.options(**options).load()
        df = df.where(source.where) if source.where else df
        df = df.selectExpr(*source.select) if source.select else df
        return df.withWatermark(source.watermark.column, source.watermark.delay) if source.watermark else df

    def _planned(self, source: Source) -> dict[str, str]:
        """Options of the planned source that the rest of the file says."""
        interval = self.job.query.interval if isinstance(self.job.query, Microbatch) else None
        known = {"schema": source.schema, "key": ",".join(self.key), "interval": interval}
        return {name: str(value) for name, value in known.items() if value is not None}

    def _stateful(self, stream: "DataFrame") -> "StatefulStream":
        from equipoise.spark import stateful

        processor, schema = self._processor(stream)
        return stateful(stream, self.key, processor, schema, **self._options())

    def _microbatch(self, stream: "DataFrame") -> "StatefulStream":
        from equipoise.spark import microbatch

        aggregator, schema = self._processor(stream)
        source = self.job.source
        spool = str(source.options["spool"]) if source.format == _PLANNED and "spool" in source.options else None
        return microbatch(
            stream, self.key, aggregator, schema, map=self._code.get("map"), spool=spool, **self._options()
        )

    def _processor(self, stream: "DataFrame") -> tuple[Any, Any]:
        """What folds rows, and the schema of what it gives."""
        from equipoise.spark.column_aggregator import ColumnAggregator

        query = self.job.query
        if query.aggregate is None:
            return self._code["processor"], query.output_schema
        mapped = self._code["map"](stream) if "map" in self._code else stream
        missing = [name for name in self.key if name not in mapped.columns]
        if missing:
            raise InvalidArgument(
                f"there is no column {missing[0]!r} for the key; there are {', '.join(mapped.columns)}"
            )
        ready = ColumnAggregator(query.aggregate, mapped.schema)
        return ready, ready.output_schema(self.key)

    def _options(self) -> dict[str, Any]:
        """What is handed on as it is, by the names that the functions have."""
        query = self.job.query
        names = zip(query.__struct_fields__, query.__struct_encode_fields__, strict=True)
        given = {encoded: getattr(query, name) for name, encoded in names if name not in _OURS}
        return {name: value for name, value in given.items() if value is not None} | self.job.policy

    def _sink(self) -> "Sink":
        from equipoise.spark import sinks

        sink = self.job.sink
        if isinstance(sink, PythonSink):
            function: Callable[[Any, int], None] = self._code["sink"]
            return function
        fields = {name: value for name, value in msgspec.structs.asdict(sink).items() if name != "options"}
        options = {} if isinstance(sink, ConsoleSink) else sink.options
        makers: dict[type, Callable[..., Sink]] = {
            ParquetSink: sinks.parquet,
            TableSink: sinks.table,
            ConsoleSink: sinks.console,
            KafkaSink: sinks.kafka,
        }
        return makers[type(sink)](**fields, **options)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Name the file in what is wrong with it."""
        try:
            yield
        except InvalidArgument as error:
            raise InvalidArgument(f"{self.path}: {error}") from error


def _function(name: str, entry: str) -> Any:
    found = imported(name, entry)
    if not callable(found):
        raise InvalidArgument(f"{entry} must be a function, and {name} is {type(found).__name__}")
    return found


def _text(value: Any) -> str:
    """A value as Spark's options have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
