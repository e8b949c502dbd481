"""``balance`` on a streaming DataFrame: the keyed operators of a stream."""

from collections.abc import Callable
from typing import Any, NoReturn

from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from equipoise.errors import InvalidArgumentError
from equipoise.plan import Plan
from equipoise.spark.rows.advice import Advice
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.cluster import default_partitions
from equipoise.spark.rows.column_aggregator import ColumnAggregator
from equipoise.spark.rows.explained import Explained, Facts
from equipoise.spark.rows.keys import Key
from equipoise.spark.rows.schemas import SparkSchemas
from equipoise.spark.rows.vector_aggregator import VectorAggregator
from equipoise.spark.stream.aggregates import Asked, aggregates, count_of, numbers_of
from equipoise.spark.stream.description import hash_plan, stream_advice, stream_facts
from equipoise.spark.stream.group_state import group_state_processor, group_state_time_mode
from equipoise.spark.stream.options import StreamOptions
from equipoise.spark.stream.pipeline import (
    InitialState,
    Pipeline,
    make_pipeline,
    require_columns,
    storable_schema,
    watermark_of,
)
from equipoise.spark.stream.stateful_stream import MissingMethodError, StatefulStream
from equipoise.spark.stream.user_code import Form, Processor, UserCode, described_object, require_processor
from equipoise.spark.stream.vectorised import VectorProcessor
from equipoise.spark.stream.writer import output_mode
from equipoise.state.timers import time_mode

_BATCH_ONLY = {
    "apply": "use transformWithStateInPandas, or applyInPandas inside writeStream.foreachBatch",
    "applyInPandas": "use transformWithStateInPandas, or applyInPandas inside writeStream.foreachBatch",
    "applyInArrow": "use process(vector_processor, outputStructType), which receives Arrow tables",
    "cogroup": "use transformWithStateInPandas on the union of both streams",
    "dataframe": "use an operator that keeps state, or balance inside writeStream.foreachBatch",
    "window": "use transformWithStateInPandas with timers, or balance inside writeStream.foreachBatch",
    "pivot": "use agg, and pivot the rows of the sink",
}


class KeyedStream(Explained):
    """A streaming DataFrame grouped by key, whose state is placed by the load; returned by ``balance``.

    It has the streaming methods of pyspark's ``GroupedData`` with the same signatures, and ``aggregate`` and
    ``process``. Each returns a ``StatefulStream``; ``writeStream`` of that starts the query.

    Parameters
    ----------
    stream
        A streaming DataFrame. With ``withWatermark`` and the time mode ``eventTime``, late rows are dropped and
        event-time timers fire. With other time modes late rows are kept, as in Spark.
    key
        The key, whose columns must be columns of the stream.
    options
        Options of the query.
    before
        The pipeline whose output is grouped; ``stream`` is then an empty batch DataFrame with its columns.
    """

    def __init__(self, stream: DataFrame, key: Key, options: StreamOptions, before: Pipeline | None = None) -> None:
        require_columns(stream, key, options)
        self._stream, self._key, self._options, self._before = stream, key, options, before
        self._schemas = SparkSchemas(stream.sparkSession)
        options.tail_groups(self._shuffle_partitions, None)

    def transformWithStateInPandas(  # noqa: N802 - Spark's own name
        self,
        statefulProcessor: StatefulProcessor,  # noqa: N803 - Spark's own name
        outputStructType: StructType | str,  # noqa: N803 - Spark's own name
        outputMode: str,  # noqa: N803 - Spark's own name
        timeMode: str,  # noqa: N803 - Spark's own name
        initialState: InitialState | None = None,  # noqa: N803 - Spark's own name
        eventTimeColumnName: str = "",  # noqa: N803 - Spark's own name
    ) -> StatefulStream:
        """Run a ``StatefulProcessor`` that receives the rows of a key as pandas DataFrames.

        Parameters
        ----------
        statefulProcessor
            The processor, as for Spark's method of this name.
        outputStructType
            Schema of the rows that it yields.
        outputMode
            ``"append"`` or ``"update"``. The rows that the processor yields are delivered in either mode.
        timeMode
            ``"none"``, ``"processingTime"`` or ``"eventTime"``.
        initialState
            Rows for ``handleInitialState`` when the query is created: a batch DataFrame with the key columns, grouped
            or not.
        eventTimeColumnName
            Timestamp column of the output that is the event time for ``balance(result, ...)``. The input needs a
            watermark. A row with an event time up to the watermark of the previous batch is an error, as in Spark.
        """
        return self._transform_with_state(
            "pandas", statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName
        )

    def transformWithState(  # noqa: N802 - Spark's own name
        self,
        statefulProcessor: StatefulProcessor,  # noqa: N803 - Spark's own name
        outputStructType: StructType | str,  # noqa: N803 - Spark's own name
        outputMode: str,  # noqa: N803 - Spark's own name
        timeMode: str,  # noqa: N803 - Spark's own name
        initialState: InitialState | None = None,  # noqa: N803 - Spark's own name
        eventTimeColumnName: str = "",  # noqa: N803 - Spark's own name
    ) -> StatefulStream:
        """Run a ``StatefulProcessor`` that receives the rows of a key as ``Row`` objects.

        The parameters are those of ``transformWithStateInPandas``.
        """
        return self._transform_with_state(
            "rows", statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName
        )

    def applyInPandasWithState(  # noqa: N802 - Spark's own name
        self,
        func: Callable[..., Any],
        outputStructType: StructType | str,  # noqa: N803 - Spark's own name
        stateStructType: StructType | str,  # noqa: N803 - Spark's own name
        outputMode: str,  # noqa: N803 - Spark's own name
        timeoutConf: str,  # noqa: N803 - Spark's own name
    ) -> StatefulStream:
        """Run a function of key, pandas DataFrames and ``GroupState``, as Spark's method of this name does.

        Parameters
        ----------
        func
            The function.
        outputStructType, stateStructType
            Schemas of the rows that it yields and of the state of a key.
        outputMode
            ``"append"`` or ``"update"``; ``writeStream`` must have the same one, as in Spark.
        timeoutConf
            A constant of ``GroupStateTimeout``.
        """
        writer_mode = output_mode(outputMode)
        processor = group_state_processor(func, stateStructType, timeoutConf, self._stream.columns)
        mode = group_state_time_mode(timeoutConf)
        if mode == "eventTime" and watermark_of(self._stream) is None:
            raise InvalidArgumentError(
                f"timeoutConf {timeoutConf} needs a watermark; call withWatermark on the stream first"
            )
        return StatefulStream(self._pipeline(processor, outputStructType, mode=mode).with_output_mode(writer_mode))

    def aggregate(
        self,
        aggregator: Aggregator | VectorAggregator,
        outputStructType: StructType | str,  # noqa: N803 - as Spark names schemas
        initialState: InitialState | None = None,  # noqa: N803 - Spark's own name
    ) -> StatefulStream:
        """Fold the rows of each key into the buffer of an ``Aggregator``; its buffer is the state.

        Parameters
        ----------
        aggregator
            The aggregator; a ``VectorAggregator`` works on many keys at once. With ``merge``, map tasks may reduce
            their rows before the exchange.
        outputStructType
            Schema of the rows that ``finish`` returns.
        initialState
            Buffers when the query is created: the key columns and the columns of the buffer. Several buffers of one
            key are merged.
        """
        if not isinstance(aggregator, Aggregator | VectorAggregator):
            raise InvalidArgumentError(f"aggregate needs an Aggregator, got {described_object(aggregator)}")
        return self._stateful(aggregator, outputStructType, initialState)

    def process(
        self,
        vector_processor: VectorProcessor,
        outputStructType: StructType | str,  # noqa: N803 - as Spark names schemas
        initialState: InitialState | None = None,  # noqa: N803 - Spark's own name
    ) -> StatefulStream:
        """Run a ``VectorProcessor``, which works on many keys at once.

        Parameters
        ----------
        vector_processor
            The processor.
        outputStructType
            Schema of the tables that it returns.
        initialState
            States when the query is created: the key columns and the columns of the state, one row for each key.
        """
        if not isinstance(vector_processor, VectorProcessor):
            raise InvalidArgumentError(f"process needs a VectorProcessor, got {described_object(vector_processor)}")
        return self._stateful(vector_processor, outputStructType, initialState)

    def agg(self, *exprs: Asked) -> StatefulStream:
        """Keep running aggregates of each key: count, sum, min, max and avg of a column.

        Parameters
        ----------
        *exprs
            Columns such as ``F.sum("ms").alias("total")``, texts such as ``"sum(ms) AS total"``, or one dict from
            column to function. Any other expression is refused; use ``aggregate`` for it.
        """
        return self._aggregated(aggregates(self._stream, self._key.names, *exprs))

    def count(self) -> StatefulStream:
        """Count the rows of each key."""
        return self._aggregated(count_of(self._stream, self._key.names))

    def sum(self, *cols: str) -> StatefulStream:
        """Add up numeric columns of each key; default all of them."""
        return self._aggregated(numbers_of(self._stream, self._key.names, "sum", cols))

    def avg(self, *cols: str) -> StatefulStream:
        """Average numeric columns of each key; default all of them."""
        return self._aggregated(numbers_of(self._stream, self._key.names, "avg", cols))

    mean = avg

    def min(self, *cols: str) -> StatefulStream:
        """Keep the smallest value of numeric columns of each key; default all of them."""
        return self._aggregated(numbers_of(self._stream, self._key.names, "min", cols))

    def max(self, *cols: str) -> StatefulStream:
        """Keep the largest value of numeric columns of each key; default all of them."""
        return self._aggregated(numbers_of(self._stream, self._key.names, "max", cols))

    @property
    def plan(self) -> Plan:
        """Plan with which a new query starts: plain hash. ``plan`` of a running query is the plan in force.

        Unless ``look="never"``, the first batch with rows is placed by a plan made from a look at its keys.
        """
        return hash_plan(self._options, self._shuffle_partitions)

    @property
    def advice(self) -> Advice:
        """How the query will handle skew. Loads are measured when it runs; see ``query.batch_log()``."""
        return stream_advice(self._options, self._shuffle_partitions)

    def __repr__(self) -> str:
        return f"KeyedStream[key: {self._key}, numPartitions: {self.plan.partitions}]"

    @property
    def _title(self) -> str:
        return "Keyed stream"

    def _facts(self, *, measure: bool) -> Facts:  # noqa: ARG002 - nothing is measured before the query runs
        return [("key", str(self._key)), *stream_facts(self._options, self._shuffle_partitions)]

    def __getattr__(self, name: str) -> NoReturn:
        if name in _BATCH_ONLY:
            raise MissingMethodError(f"{name} works on batch DataFrames, and this is a stream; {_BATCH_ONLY[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def _shuffle_partitions(self) -> int:
        return default_partitions(self._stream.sparkSession)

    def _transform_with_state(
        self,
        form: Form,
        processor: StatefulProcessor,
        output: StructType | str,
        mode: str,
        times: str,
        initial: InitialState | None,
        event_time: str,
    ) -> StatefulStream:
        output_mode(mode)
        require_processor(processor)
        return self._stateful(processor, output, initial, mode=time_mode(times), form=form, event_time=event_time)

    def _aggregated(self, aggregator: ColumnAggregator) -> StatefulStream:
        return self._stateful(aggregator, aggregator.output_schema(list(self._key.names)))

    def _stateful(
        self,
        processor: Processor,
        output: StructType | str,
        initial: InitialState | None = None,
        *,
        mode: str = "none",
        form: Form = "pandas",
        event_time: str = "",
    ) -> StatefulStream:
        pipeline = self._pipeline(processor, output, initial, mode=mode, form=form, event_time=event_time)
        return StatefulStream(pipeline)

    def _pipeline(
        self,
        processor: Processor,
        output: StructType | str,
        initial: InitialState | None = None,
        *,
        mode: str,
        form: Form = "pandas",
        event_time: str = "",
    ) -> Pipeline:
        columns = [field["name"] for field in storable_schema(self._schemas, output)["fields"]]
        code = UserCode(self._schemas, processor, columns, mode, form)
        return make_pipeline(
            self._stream,
            self._key,
            self._options,
            code,
            output,
            time_mode=mode,
            initial=initial,
            before=self._before,
            event_time=event_time,
        )
