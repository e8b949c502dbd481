"""The shape zero, reduce, merge, finish: state that can be built in parts and put together."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, TimerValues
from pyspark.sql.types import StructType

STATE = "buffer"
"""Name of the one state variable of an aggregator."""


class Aggregator(ABC):
    """Folds the rows of a key into a buffer; buffers can be merged, so a key may be split.

    Laws that ``merge`` must keep: ``merge(zero(), b) == b``, it is associative, and reducing rows in two parts and
    merging gives what reducing them in one does.
    """

    bufferSchema: StructType | str  # noqa: N815 - as Spark names schemas
    """Schema of a buffer, which is a tuple."""

    @abstractmethod
    def zero(self) -> tuple[Any, ...]:
        """The buffer of no rows."""

    @abstractmethod
    def reduce(self, buffer: tuple[Any, ...], rows: pd.DataFrame) -> tuple[Any, ...]:
        """The buffer with more rows."""

    @abstractmethod
    def merge(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        """One buffer for the rows of two."""

    @abstractmethod
    def finish(self, key: tuple[Any, ...], buffer: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The output row of a key whose buffer has changed; ``None`` for none."""


class AggregatorProcessor(StatefulProcessor):
    """An aggregator as a processor: the buffer is the state of a key."""

    def __init__(self, aggregator: Aggregator, columns: list[str]) -> None:
        self._aggregator = aggregator
        self._columns = columns

    def init(self, handle: Any) -> None:
        """Declare the buffer."""
        self._buffer = handle.getValueState(STATE, self._aggregator.bufferSchema)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803 - the name belongs to the protocol
        """Fold the rows of a key into its buffer."""
        buffer = self._buffer.get()
        if buffer is None:
            buffer = self._aggregator.zero()
        for frame in rows:
            buffer = self._aggregator.reduce(buffer, frame)
        self._buffer.update(buffer)
        finished = self._aggregator.finish(key, buffer)
        if finished is not None:
            yield pd.DataFrame([finished], columns=self._columns)

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: TimerValues) -> None:  # noqa: ARG002, N802, N803 - the name belongs to the protocol
        """Merge buffers that are given as rows: columns of the buffer's schema after those of the key."""
        for row in initialState.itertuples(index=False):
            known = self._buffer.get()
            given = tuple(row)[len(key) :]
            self._buffer.update(given if known is None else self._aggregator.merge(known, given))

    def close(self) -> None:
        """Nothing to clean up."""
