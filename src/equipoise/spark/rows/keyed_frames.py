"""Group sorted rows by key into frames, tables or lists of ``Row``; decode the partial buffers of combined keys."""

from collections import namedtuple
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
from pyspark.sql import Row

from equipoise.spark.rows.columns import BUFFER, BUFFER_ROWS, PARTIAL_BUFFER
from equipoise.spark.rows.pandas_rows import KeyFrames, joined_frame, to_pandas
from equipoise.spark.rows.runs import Runs, plain_values
from equipoise.spark.rows.worker_options import UNLIMITED, WorkerOptions


class PartialBuffer(msgspec.Struct, array_like=True, frozen=True):
    """Partial buffer of some rows of a key.

    Parameters
    ----------
    buffer
        The encoded buffer.
    rows
        Number of rows that were reduced.
    latest_event_ms
        Latest event time among the rows of the task; ``None`` without one.
    """

    buffer: bytes
    rows: int
    latest_event_ms: int | None = None


def partial_buffers_of(runs: Runs) -> list[PartialBuffer] | None:
    """Return the partial buffers of some runs; ``None`` if they hold the user's rows."""
    if PARTIAL_BUFFER not in runs.rows.schema.names:
        return None
    return [msgspec.msgpack.decode(each, type=PartialBuffer) for each in runs.rows.column(PARTIAL_BUFFER).to_pylist()]


class KeyedFrames:
    """Sorted rows as keys with their pandas frames; a key that spans record batches is one key with several frames.

    The frames of a combined key hold encoded partial buffers instead of its rows, in the column ``PARTIAL_BUFFER``.

    Parameters
    ----------
    rows
        Sorted rows.
    timezone
        The session's time zone.
    rebuilt
        Whether frames have the dtypes that a ``StatefulProcessor`` sees; see ``KeyFrames``.
    options
        Limits of a frame; ``None``: a frame ends with its record batch.
    """

    _fills_across_keys = False
    """Whether the rows of earlier keys count towards the limit of a frame."""

    def __init__(
        self, rows: Iterator[Runs], timezone: str, *, rebuilt: bool = True, options: WorkerOptions | None = None
    ) -> None:
        self._rows = rows
        self._timezone = timezone
        self._rebuilt = rebuilt
        self._options = options
        self._most = UNLIMITED
        self._filled = self._bytes_seen = self._rows_seen = 0
        self._runs: Runs | None = None
        self._starts: list[int] = []
        self._at = 0
        self._buffers: list[PartialBuffer] | None = None
        self.rows = 0
        """Rows of the current key, so far."""
        self.combined = 0
        """Rows among these that map tasks have reduced."""
        self.buffers = 0
        """Partial buffers that these have become."""

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
        self.rows = self.combined = self.buffers = 0
        if not self._fills_across_keys:
            self._filled = 0
        parts: list[Any] = []
        while self._has_run() and self._runs is not None and self._runs.encoded[self._at] == encoded:
            first, last = self._starts[self._at], self._starts[self._at + 1]
            self._at += 1
            if self._buffers is not None:
                reduced = sum(each.rows for each in self._buffers[first:last])
                self.rows += reduced
                self.combined += reduced
                self.buffers += last - first
                yield pd.DataFrame({PARTIAL_BUFFER: [each.buffer for each in self._buffers[first:last]]})
                continue
            self.rows += last - first
            while first < last:
                end = min(last, first + max(1, self._most - self._filled))
                parts.append(self._part(first, end))
                self._filled, first = self._filled + end - first, end
                if self._filled >= self._most or self._options is None:
                    yield self._joined(parts)
                    parts, self._filled = [], 0
        if parts:
            yield self._joined(parts)

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
        """Prepare the rows of a record batch for ``_part``."""
        if self._buffers is not None:
            return
        self._read(runs)
        if self._options is not None:
            self._bytes_seen += runs.rows.nbytes  # of these rows, which may be a slice of larger buffers
            self._rows_seen += runs.rows.num_rows
            self._most = self._options.rows_of(self._bytes_seen / self._rows_seen)

    def _read(self, runs: Runs) -> None:
        self._frames_of = KeyFrames(runs.rows, self._timezone, rebuilt=self._rebuilt)

    def _part(self, first: int, last: int) -> Any:
        """Return rows of one record batch; ``_joined`` makes a frame of one part or more."""
        return self._frames_of, first, last

    def _joined(self, parts: list[Any]) -> Any:
        return joined_frame(parts)


class ProcessorFrames(KeyedFrames):
    """Keys with the frames of a ``StatefulProcessor``, whose columns are named as in Spark.

    Spark rebuilds the frame of a key from named tuples. A column whose name cannot be the name of a field becomes
    ``_`` and its position: a second column ``a b`` arrives as ``_1``.
    """

    def _read(self, runs: Runs) -> None:
        fields = _field_names(tuple(runs.rows.schema.names))
        super()._read(replace(runs, rows=runs.rows.rename_columns(fields)))


@cache
def _field_names(columns: tuple[str, ...]) -> list[str]:
    make: Any = namedtuple  # noqa: PYI024 - made for its rule of names, from names that the type checker cannot know
    return list(make("Fields", columns, rename=True)._fields)


class KeyedTables(KeyedFrames):
    """Sorted rows as keys with their Arrow tables."""

    def __init__(self, rows: Iterator[Runs]) -> None:
        super().__init__(rows, "UTC")

    def _read(self, runs: Runs) -> None:
        self._table = pa.Table.from_batches([runs.rows])

    def _part(self, first: int, last: int) -> Any:
        return self._table.slice(first, last - first)

    def _joined(self, parts: list[Any]) -> Any:
        return parts[0]


class KeyedBuffers(KeyedTables):
    """Keys with lists of buffers, which are tuples; the rows of a task are buffers, one or more for each key.

    Parameters
    ----------
    rows
        Sorted rows with the columns ``BUFFER`` and ``BUFFER_ROWS``.
    combined
        Whether the rows were reduced before they crossed the exchange.
    """

    def __init__(self, rows: Iterator[Runs], *, combined: bool) -> None:
        super().__init__(rows)
        self._combined = combined

    def _read(self, runs: Runs) -> None:
        columns = runs.rows.column(BUFFER).flatten()
        self._values = list(zip(*(plain_values(column) for column in columns), strict=True))
        self._counts = runs.rows.column(BUFFER_ROWS).to_pylist()

    def _part(self, first: int, last: int) -> Any:
        reduced = sum(self._counts[first:last])
        self.rows += reduced - (last - first)
        if self._combined:
            self.combined += reduced
            self.buffers += last - first
        return self._values[first:last]


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

    def _read(self, runs: Runs) -> None:
        self._names = Row(*runs.rows.schema.names)
        self._columns = columns = [column.to_pylist() for column in runs.rows.columns]
        keys = [tuple([columns[field][at] for field in self._key_fields]) for at in runs.starts[:-1].tolist()]
        self._runs = replace(runs, shown_keys=keys)

    def _part(self, first: int, last: int) -> Any:
        """Return the rows of one key, made only now: garbage collection would traverse those of a whole batch."""
        names, new, made = self._names, tuple.__new__, []
        for values in zip(*[column[first:last] for column in self._columns], strict=True):
            row = new(Row, values)  # as ``Row`` does, without its look at the arguments
            row.__fields__ = names
            made.append(row)
        return made

    def _joined(self, parts: list[Any]) -> Any:
        return parts[0]


class KeyedSlices(KeyedFrames):
    """Keys with the pandas frames of ``applyInPandasWithState``: each frame is converted alone.

    A NULL therefore changes the dtype of a column of whole numbers or booleans only in the frame that has it. Spark
    packs the rows of consecutive keys into record batches and cuts frames where these end, so that all keys together
    count towards the limit of a frame.
    """

    _fills_across_keys = True

    def _read(self, runs: Runs) -> None:
        changes = [pa.types.is_integer(each.type) or pa.types.is_boolean(each.type) for each in runs.rows.schema]
        columns = zip(runs.rows.columns, changes, strict=True)
        self._alone = any(column.null_count for column, changed in columns if changed)
        self._table = runs.rows
        if not self._alone:
            self._frames_of = KeyFrames(runs.rows, self._timezone, rebuilt=False)

    def _part(self, first: int, last: int) -> Any:
        return self._table.slice(first, last - first), None if self._alone else (self._frames_of, first, last)

    def _joined(self, parts: list[Any]) -> Any:
        if len(parts) == 1 and parts[0][1] is not None:
            return joined_frame([parts[0][1]])
        return to_pandas(pa.Table.from_batches([rows for rows, _ in parts]), self._timezone)
