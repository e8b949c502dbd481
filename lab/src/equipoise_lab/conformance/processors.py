# ruff: noqa: N802, N803 - the names belong to Spark's protocol
"""Base of the processors of the cases: one class for frames and for ``Row`` objects."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


class BothForms(StatefulProcessor):
    """A processor whose methods take rows with attributes and yield tuples, in both forms.

    Parameters
    ----------
    frames
        Whether Spark gives frames and expects frames (``transformWithStateInPandas``).
    """

    columns: tuple[str, ...] = ("id", "seen")
    """Names of the output columns."""

    def __init__(self, frames: bool) -> None:
        self.frames = frames

    def init(self, handle: Any) -> None:
        """Keep the handle, and declare the state."""
        self.handle = handle
        self.declare(handle)

    def declare(self, handle: Any) -> None:
        """Declare the state; default none."""

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        """Handle the input rows of a key."""
        raise NotImplementedError

    def expired(self, key: Any, times: Any, timer: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - for subclasses
        """Handle a timer; default no output."""
        return iter(())

    def initial(self, key: Any, rows: Iterator[Any], times: Any) -> None:
        """Handle the initial state of a key; default nothing."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Call ``rows``."""
        return self._output(self.rows(key, self._input(rows), timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        """Call ``expired``."""
        return self._output(self.expired(key, timerValues, expiredTimerInfo))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Call ``initial``: a frame has all rows of a key, a ``Row`` comes alone."""
        self.initial(key, self._input(iter([initialState])), timerValues)

    def close(self) -> None:
        """Nothing to close."""

    def _input(self, rows: Iterator[Any]) -> Iterator[Any]:
        if not self.frames:
            yield from rows
            return
        for frame in rows:
            yield from frame.itertuples(index=False)

    def _output(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        for values in rows:
            row = dict(zip(self.columns, values, strict=True))
            yield pd.DataFrame([row]) if self.frames else Row(**row)


class Keeps(BothForms):
    """Keeps the numbers of a key in a list."""

    columns = ("id",)

    def declare(self, handle: Any) -> None:
        """Declare the list."""
        self.kept = handle.getListState("kept", "n int")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - not timed
        """Append."""
        self.kept.appendList([(row.n,) for row in rows])
        yield (key[0],)


def text(value: Any) -> str:
    """Describe a value that a processor received, with the types that users see."""
    if isinstance(value, Row):
        fields = getattr(value, "__fields__", None)
        names = fields if fields is not None else [""] * len(value)
        return f"Row({', '.join(f'{name}={text(each)}' for name, each in zip(names, value, strict=True))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(text, value))})"
    if isinstance(value, list):
        return f"[{', '.join(map(text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{text(each)}: {text(value[each])}' for each in value))}}}"
    return repr(value)
