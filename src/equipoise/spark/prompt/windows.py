"""Windows over micro-batches: the state of a key is its panes and their total.

A window covers the last ``length`` batches, and yields results every ``slide`` batches: one row for each key that
has rows in it.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, TimerValues
from pyspark.sql.types import StructType

from equipoise.microbatch.windows import moved_on
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.columns import PARTIAL_BUFFER
from equipoise.spark.rows.pandas_rows import key_shower
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.outputs import Call, Outputs
from equipoise.spark.stream.runners import KeyShower, ProcessorRunner, failed
from equipoise.state.codec import row_codec
from equipoise.state.entries import parse_entry
from equipoise.state.transaction import GroupTransaction

STATE = "window"
"""Name of the one state variable of a window."""

_ENTRIES = b"\x00"


class WindowProcessor(StatefulProcessor):
    """Keeps the panes of a key.

    Parameters
    ----------
    aggregator
        The user's aggregator.
    schema
        ``StructType.jsonValue()`` of its buffer.
    length, slide
        Batches that a window covers, and from one result to the next.
    """

    def __init__(self, aggregator: Aggregator, schema: dict[str, Any], length: int, slide: int) -> None:
        self._aggregator, self._schema = aggregator, schema
        self.length, self.slide = length, slide
        self.version = 0
        """Version that the current batch commits; set by the runner."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        buffer = StructType.fromJson(self._schema).simpleString()
        self._window = handle.getValueState(
            STATE, f"total {buffer}, panes array<struct<version: bigint, buffer: {buffer}>>"
        )
        self._codec = row_codec(self._schema, "buffer")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803 - the name belongs to the protocol
        """Merge the buffers of a key into a new pane."""
        merge = self._aggregator.merge
        pane, *others = [self._codec.decode(encoded) for frame in rows for encoded in frame[PARTIAL_BUFFER]]
        for other in others:
            pane = merge(pane, other)
        known = self._window.get()
        total, panes = known if known is not None else (None, [])
        self._window.update((pane if total is None else merge(total, pane), [*panes, (self.version, pane)]))
        return iter(())

    def result(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Advance the window of a key; return its output row, or ``None`` if it is empty."""
        total, panes = self._window.get()
        aggregator = self._aggregator
        inverse = aggregator.inverse if aggregator.can_invert else None
        oldest = self.version - self.length + 1
        kept, left = moved_on(total, panes, oldest, aggregator.merge, inverse)
        if not left:
            self._window.clear()
            return None
        if len(left) < len(panes):
            self._window.update((kept, left))
        return aggregator.finish(key, kept)

    def close(self) -> None:
        """Nothing to clean up."""


class WindowRunner(ProcessorRunner):
    """Runs a window; if results are due, all keys in the state are visited."""

    def __init__(self, processor: WindowProcessor, batch_spec: BatchSpec) -> None:
        super().__init__(processor, batch_spec)
        self._window = processor
        processor.version = batch_spec.version
        self._tag = batch_spec.variables[STATE].tag

    def _key_showers(self) -> tuple[KeyShower, KeyShower]:
        shown = key_shower(self._batch_spec.key_schema, self._batch_spec.timezone)
        return shown, shown

    def expire(self, view: GroupTransaction, outputs: Outputs) -> None:
        """Advance the windows of all keys of a group."""
        handle, window = self._handle, self._window
        handle.set_group(view)
        for name, _ in list(view.scan(_ENTRIES)):
            entry = parse_entry(name)
            if entry.tag != self._tag:
                continue
            handle.set_key(entry.fingerprint, entry.key)
            try:
                row = window.result(self._shown(self._keys.decode_key(entry.key)))
            except Exception as error:
                raise failed(self._batch_spec, "finish", entry.fingerprint, error) from error
            if row is not None:
                outputs.add_values(row, Call(self._function("finish"), entry.fingerprint))
