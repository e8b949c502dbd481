"""The output of a keyed stream operator: row-wise transformations, and the writer that starts the query."""

from collections.abc import Callable
from typing import Any, NoReturn

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from equipoise.errors import InvalidArgumentError
from equipoise.plan import Plan
from equipoise.spark.rows.advice import Advice
from equipoise.spark.rows.analysis import refusing
from equipoise.spark.rows.explained import Explained, Facts
from equipoise.spark.stream.description import hash_plan, pipeline_facts, stream_advice
from equipoise.spark.stream.pipeline import Pipeline
from equipoise.spark.stream.writer import StreamWriter

_KEYED = frozenset(
    {
        "agg",
        "crossJoin",
        "cube",
        "distinct",
        "dropDuplicates",
        "dropDuplicatesWithinWatermark",
        "drop_duplicates",
        "exceptAll",
        "groupBy",
        "groupby",
        "groupingSets",
        "intersect",
        "intersectAll",
        "join",
        "lateralJoin",
        "limit",
        "orderBy",
        "rollup",
        "sort",
        "subtract",
        "union",
        "unionAll",
        "unionByName",
        "withWatermark",
    }
)
"""Methods of a DataFrame that combine rows of several batches or keys."""

_ACTIONS = frozenset({"collect", "count", "first", "head", "show", "tail", "take", "toArrow", "toPandas", "write"})
"""Methods of a DataFrame that need a result."""


class MissingMethodError(InvalidArgumentError, AttributeError):
    """A method of Spark that a keyed stream does not have; an ``AttributeError``, so that ``hasattr`` is false."""


class StatefulStream(Explained):
    """The output rows of a keyed operator on a stream, before the query has started.

    ``select``, ``where``, ``withColumn``, ``drop`` and ``transform`` are checked at once against the schema, and
    applied to the committed rows of each batch before the sink receives them. They see one batch at a time, so keyed
    operations are refused. ``balance(result, *key)`` groups the output by another key, for a second keyed operator.

    Examples
    --------
    ``balance(stream, "host").count().where("count > 10").writeStream.format("parquet").start("out")``
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @property
    def pipeline(self) -> Pipeline:
        """The definition of the query."""
        return self._pipeline

    @property
    def schema(self) -> StructType:
        """Schema of the rows that the sink receives."""
        return self._pipeline.empty().schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns that the sink receives."""
        return self._pipeline.empty().columns

    @property
    def isStreaming(self) -> bool:  # noqa: N802 - Spark's own name
        """Always true."""
        return True

    @property
    def sparkSession(self) -> SparkSession:  # noqa: N802 - Spark's own name
        """The session of the stream."""
        return self._pipeline.spark

    @property
    def writeStream(self) -> StreamWriter:  # noqa: N802 - Spark's own name
        """The writer that starts the query."""
        return StreamWriter(self._pipeline)

    def select(self, *cols: Any) -> "StatefulStream":
        """Select columns or expressions of the output."""
        return self._with("select", lambda df: df.select(*cols))

    def selectExpr(self, *expr: str) -> "StatefulStream":  # noqa: N802 - Spark's own name
        """Select SQL expressions of the output."""
        return self._with("selectExpr", lambda df: df.selectExpr(*expr))

    def where(self, condition: Column | str) -> "StatefulStream":
        """Keep the output rows that satisfy a condition."""
        return self._with("where", lambda df: df.where(condition))

    filter = where

    def withColumn(self, colName: str, col: Column) -> "StatefulStream":  # noqa: N802, N803 - Spark's own names
        """Add a column to the output, or replace one."""
        return self._with("withColumn", lambda df: df.withColumn(colName, col))

    def drop(self, *cols: Any) -> "StatefulStream":
        """Drop columns of the output."""
        return self._with("drop", lambda df: df.drop(*cols))

    def transform(self, func: Callable[..., DataFrame], *args: Any, **kwargs: Any) -> "StatefulStream":
        """Apply a function to the output rows of each batch.

        Parameters
        ----------
        func
            Function from a batch DataFrame to another one. ``transform(lambda df: df.orderBy("seq"))`` sorts the
            output of each batch. It is called once now, with an empty DataFrame.
        *args, **kwargs
            Further arguments of ``func``.
        """
        return self._with("transform", lambda df: func(df, *args, **kwargs))

    @property
    def plan(self) -> Plan:
        """Plan with which the last keyed operator of a new query starts; see ``KeyedStream.plan``."""
        return hash_plan(self._pipeline.options, self._pipeline.shuffle_partitions)

    @property
    def advice(self) -> Advice:
        """How the last keyed operator will handle skew. Loads are measured when the query runs."""
        return stream_advice(self._pipeline.options, self._pipeline.shuffle_partitions)

    @property
    def _title(self) -> str:
        return "Keyed stream"

    def _facts(self, *, measure: bool) -> Facts:  # noqa: ARG002 - nothing is measured before the query runs
        return pipeline_facts(self._pipeline)

    def __repr__(self) -> str:
        return f"StatefulStream[{', '.join(f'{field.name}: {field.dataType.simpleString()}' for field in self.schema)}]"

    def __getattr__(self, name: str) -> NoReturn:
        if name in _KEYED:
            raise MissingMethodError(
                f"{name} needs the rows of several batches, and the output of a keyed operator is delivered batch by "
                "batch; use balance(stream, *key) for a second keyed operator, or start the query into a table or a "
                f"topic and call {name} on a DataFrame that reads it, or work on the rows of one batch with "
                "transform(f) or writeStream.foreachBatch(f)"
            )
        if name in _ACTIONS:
            raise MissingMethodError(
                f"{name} needs a result, and this query has not started; start it with writeStream and read its sink"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _with(self, method: str, transformation: Callable[[DataFrame], DataFrame]) -> "StatefulStream":
        """Apply a transformation to an empty DataFrame, and return a stream that has it."""
        empty = self._pipeline.empty()
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in empty.schema)
        with refusing(f"{method} does not fit the output, which has the columns {columns}"):
            result = transformation(empty)
            found = result.schema if isinstance(result, DataFrame) else None
        if found is None:
            raise InvalidArgumentError(f"{method} must return a DataFrame, got a {type(result).__name__}")
        if result.isStreaming:
            raise InvalidArgumentError(f"{method} must return a batch DataFrame, and this one is a stream")
        if not found.fields:
            raise InvalidArgumentError(f"{method} leaves no columns; keep at least one")
        return StatefulStream(self._pipeline.with_transformation(transformation))
