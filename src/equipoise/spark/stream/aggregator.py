"""Run an ``Aggregator`` on a stream, with the buffer as the state of a key."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues

from equipoise.errors import InvalidArgumentError
from equipoise.readable import count_text
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.column_aggregator import ColumnAggregator
from equipoise.spark.rows.columns import PARTIAL_BUFFER
from equipoise.spark.rows.runs import plain_values
from equipoise.state.codec import row_codec

STATE = "buffer"
"""Name of the one state variable of an aggregator."""


class AggregatorProcessor(StatefulProcessor):
    """An aggregator as a processor: the buffer is the state of a key.

    Parameters
    ----------
    aggregator
        The user's aggregator.
    schema
        ``StructType.jsonValue()`` of its buffer.
    columns
        Names of the output columns.
    """

    def __init__(self, aggregator: Aggregator, schema: dict[str, Any], columns: list[str]) -> None:
        self.aggregator = aggregator
        self._schema = schema
        self._columns = columns

    @property
    def takes_arrow(self) -> bool:
        """Whether the aggregator takes Arrow tables."""
        return self.aggregator.takes_arrow

    @property
    def has_exact_keys(self) -> bool:
        """Whether the times in a key are instants, not the session's local time; local time may be ambiguous."""
        return isinstance(self.aggregator, ColumnAggregator)

    def init(self, handle: Any) -> None:
        """Declare the buffer."""
        self._buffer = handle.getValueState(STATE, self.aggregator.bufferSchema)
        self._codec = row_codec(self._schema, "buffer")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Any]:  # noqa: ARG002, N802, N803 - the name belongs to the protocol
        """Fold the rows of a key into its buffer; yield the output row as a tuple."""
        buffer = self._folded(rows)
        yield from self._finished(key, buffer)

    def _folded(self, rows: Iterator[Any]) -> Any:
        """Fold the rows of the current key into its buffer, and return the buffer."""
        buffer = self._buffer.get()
        if buffer is None:
            buffer = self.aggregator.zero()
        for frame in rows:
            if isinstance(frame, list):
                for values in frame:
                    buffer = self.aggregator.merge(buffer, values)
            elif isinstance(frame, pd.DataFrame) and PARTIAL_BUFFER in frame.columns:
                for encoded in frame[PARTIAL_BUFFER]:
                    buffer = self.aggregator.merge(buffer, self._codec.decode(encoded))
            else:
                buffer = self.aggregator.reduce(buffer, frame)
        self._buffer.update(buffer)
        return buffer

    def _finished(self, key: Any, buffer: Any) -> Iterator[Any]:
        """Yield the output row of a key, if it has one."""
        finished = self.aggregator.finish(key, buffer)
        if finished is not None:
            if len(finished) != len(self._columns):
                raise InvalidArgumentError(
                    f"finish gave {count_text(len(finished), 'value')}, but the output schema has {self._columns}; "
                    "give one for each"
                )
            yield finished

    def merge_initial(self, key: Any, rows: pa.Table) -> None:
        """Merge buffers that are given as rows: the columns of the key, then those of the buffer."""
        for values in zip(*(plain_values(column) for column in rows.columns[len(key) :]), strict=True):
            given = self._codec.decode(self._codec.encode(values))  # so that values have the types of stored buffers
            known = self._buffer.get()
            self._buffer.update(given if known is None else self.aggregator.merge(known, given))

    def close(self) -> None:
        """Nothing to clean up."""


class FinalAggregatorProcessor(AggregatorProcessor):
    """An aggregator that yields the row of a key once, when the watermark has passed the event time in the key.

    That event time is a timer of the key. Rows of a key that has been finished are late and do not arrive here, so a
    key is finished once. A key without an event time (NULL) is never finished, as in Spark.
    """

    event_ms: int | None = None
    """Event time of the current key, in milliseconds since 1970; set by the runner."""

    def init(self, handle: Any) -> None:
        """Declare the buffer."""
        super().init(handle)
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Any]:  # noqa: ARG002, N802, N803 - the name belongs to the protocol
        """Fold the rows of a key into its buffer; yield nothing."""
        self._folded(rows)
        self._set_timer()
        return iter(())

    def handleExpiredTimer(  # noqa: N802 - the name belongs to the protocol
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: ARG002, N803 - as above
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803 - as above
    ) -> Iterator[Any]:
        """Yield the output row of a key, and forget the key."""
        buffer = self._buffer.get()
        self._buffer.clear()
        yield from self._finished(key, buffer)

    def merge_initial(self, key: Any, rows: pa.Table) -> None:
        """Merge buffers that are given as rows, and finish the key when the watermark passes it."""
        super().merge_initial(key, rows)
        self._set_timer()

    def _set_timer(self) -> None:
        if self.event_ms is not None:
            self._handle.registerTimer(self.event_ms)
