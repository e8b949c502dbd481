"""Group sorted rows by key into frames, tables or lists of ``Row``; decode the partial buffers of split keys."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
from pyspark.sql import Row

from equipoise.spark.rows.columns import PARTIAL_BUFFER
from equipoise.spark.rows.pandas_rows import KeyFrames, to_pandas
from equipoise.spark.rows.runs import Runs


class PartialBuffer(msgspec.Struct, array_like=True, frozen=True):
    """Partial buffer of some rows of a key, with the rows and seconds that it took to reduce them.

    Parameters
    ----------
    buffer
        The encoded buffer.
    rows, seconds
        Number of rows that were reduced, and the seconds that it took.
    latest_event_ms
        Latest event time among the rows of the task; ``None`` without one.
    """

    buffer: bytes
    rows: int
    seconds: float
    latest_event_ms: int | None = None


def partial_buffers_of(runs: Runs) -> list[PartialBuffer] | None:
    """Return the partial buffers of some runs; ``None`` if they hold the user's rows."""
    if PARTIAL_BUFFER not in runs.rows.schema.names:
        return None
    return [msgspec.msgpack.decode(each, type=PartialBuffer) for each in runs.rows.column(PARTIAL_BUFFER).to_pylist()]


@dataclass
class Elsewhere:
    """Rows of a split key that other tasks have reduced, and the seconds they took."""

    rows: int = 0
    seconds: float = 0.0


class KeyedFrames:
    """Sorted rows as keys with their pandas frames; a key that spans record batches is one key with several frames.

    The frames of a split key hold encoded partial buffers instead of its rows, in the column ``PARTIAL_BUFFER``.

    Parameters
    ----------
    rows
        Sorted rows.
    timezone
        The session's time zone.
    rebuilt
        Whether frames have the dtypes that a ``StatefulProcessor`` sees; see ``KeyFrames``.
    """

    def __init__(self, rows: Iterator[Runs], timezone: str, *, rebuilt: bool = True) -> None:
        self._rows = rows
        self._timezone = timezone
        self._rebuilt = rebuilt
        self._runs: Runs | None = None
        self._starts: list[int] = []
        self._at = 0
        self._buffers: list[PartialBuffer] | None = None
        self.rows = 0
        """Rows of the current key, so far."""
        self.elsewhere = Elsewhere()
        """Work of other tasks on the current key, so far."""

    def __iter__(self) -> Iterator[tuple[int, int, bytes, tuple[Any, ...], Iterator[pd.DataFrame]]]:
        """Yield the group, fingerprint, encoded key, key and frames of each key."""
        while self._has_run():
            runs, at = self._runs, self._at
            assert runs is not None  # noqa: S101 - this tells the type checker
            frames = self._frames(runs.encoded[at])
            yield int(runs.groups[at]), int(runs.fingerprints[at]), runs.encoded[at], runs.keys[at], frames
            for _ in frames:  # skip frames that the user's code did not read
                pass

    def _frames(self, encoded: bytes) -> Iterator[pd.DataFrame]:
        self.rows, self.elsewhere = 0, Elsewhere()
        while self._has_run() and self._runs is not None and self._runs.encoded[self._at] == encoded:
            first, last = self._starts[self._at], self._starts[self._at + 1]
            self._at += 1
            if self._buffers is None:
                self.rows += last - first
            for each in (self._buffers or [])[first:last]:
                self.rows += each.rows
                self.elsewhere.rows += each.rows
                self.elsewhere.seconds += each.seconds
            yield self._cut(first, last)

    def _has_run(self) -> bool:
        while self._runs is None or self._at == len(self._runs):
            following = next(self._rows, None)
            if following is None:
                return False
            self._runs, self._at = following, 0
            self._buffers = partial_buffers_of(following)
            self._take(following)
            self._starts = following.starts.tolist()
        return True

    def _take(self, runs: Runs) -> None:
        """Prepare the rows of a record batch for ``_cut``."""
        if self._buffers is None:
            self._frames_of = KeyFrames(runs.rows, self._timezone, rebuilt=self._rebuilt)

    def _cut(self, first: int, last: int) -> Any:
        if self._buffers is None:
            return self._frames_of.cut(first, last)
        return pd.DataFrame({PARTIAL_BUFFER: [each.buffer for each in self._buffers[first:last]]})


class KeyedTables(KeyedFrames):
    """Sorted rows as keys with their Arrow tables."""

    def __init__(self, rows: Iterator[Runs]) -> None:
        super().__init__(rows, "UTC")

    def _take(self, runs: Runs) -> None:
        self._table = pa.Table.from_batches([runs.rows])

    def _cut(self, first: int, last: int) -> Any:
        return self._table.slice(first, last - first) if self._buffers is None else super()._cut(first, last)


class KeyedRows(KeyedFrames):
    """Sorted rows as keys with their lists of ``Row``; values are those of Arrow's ``as_py``, as in Spark.

    Parameters
    ----------
    rows
        Sorted rows.
    key_fields
        Positions of the key columns. The values of a key are those of its first row.
    """

    def __init__(self, rows: Iterator[Runs], key_fields: Sequence[int]) -> None:
        super().__init__(rows, "UTC")
        self._key_fields = key_fields

    def _take(self, runs: Runs) -> None:
        made = Row(*runs.rows.schema.names)
        columns = [column.to_pylist() for column in runs.rows.columns]
        self._cells = [made(*values) for values in zip(*columns, strict=True)]
        keys = [tuple([columns[field][at] for field in self._key_fields]) for at in runs.starts[:-1].tolist()]
        self._runs = replace(runs, keys=keys)

    def _cut(self, first: int, last: int) -> Any:
        return self._cells[first:last]


class KeyedSlices(KeyedFrames):
    """Keys with the pandas frames of ``applyInPandasWithState``: each key is converted alone.

    A NULL therefore changes the dtype of a column of whole numbers or booleans only in the frame that has it.
    """

    def _take(self, runs: Runs) -> None:
        changes = [pa.types.is_integer(each.type) or pa.types.is_boolean(each.type) for each in runs.rows.schema]
        columns = zip(runs.rows.columns, changes, strict=True)
        self._alone = any(column.null_count for column, changed in columns if changed)
        if self._alone:
            self._table = runs.rows
        else:
            self._frames_of = KeyFrames(runs.rows, self._timezone, rebuilt=False)

    def _cut(self, first: int, last: int) -> Any:
        if self._alone:
            return to_pandas(self._table.slice(first, last - first), self._timezone)
        return self._frames_of.cut(first, last)
