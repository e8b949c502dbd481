"""Cut the sorted rows of a partition into runs of equal keys."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from equipoise.spark.rows.columns import FINGERPRINT, GROUP, PARTIAL_BUFFER
from equipoise.state.byte_columns import ByteColumn
from equipoise.state.codec import KeyCodec


@dataclass(frozen=True, eq=False)
class Runs:
    """One record batch of sorted rows, cut into runs of equal keys.

    Parameters
    ----------
    rows
        The rows, with the user's columns only; for a combined key the column of partial buffers only.
    starts
        First row of each run, and the number of rows at the end.
    groups, fingerprints
        Number of the key group, and fingerprint, of each run.
    key_columns
        The key of each run, in columns.
    codec
        Encodes keys.
    shown_keys
        The keys in another form than the plain one; ``None``: there is none.
    """

    rows: pa.RecordBatch
    starts: NDArray[np.int64]
    groups: NDArray[np.int64]
    fingerprints: NDArray[np.int64]
    key_columns: list[pa.Array]
    codec: KeyCodec
    shown_keys: list[tuple[Any, ...]] | None = None

    def __len__(self) -> int:
        return len(self.fingerprints)

    @cached_property
    def keys(self) -> list[tuple[Any, ...]]:
        """The key of each run."""
        return self.shown_keys or list(zip(*self._values, strict=True))

    @cached_property
    def encoded(self) -> list[bytes]:
        """The key of each run as bytes."""
        return self.codec.encode_columns(self._values)

    @cached_property
    def encoded_column(self) -> ByteColumn:
        """The key of each run as bytes, without a Python object for each where the types allow it."""
        found = self.codec.in_columns.encode(self.key_columns)
        return ByteColumn.of(self.encoded) if found is None else found

    @cached_property
    def _values(self) -> list[list[Any]]:
        return [plain_values(column) for column in self.key_columns]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of rows of each run."""
        return np.diff(self.starts)


class Stretch(NamedTuple):
    """Sorted rows with the columns of equipoise, and the first row of each run of equal keys, of ``run_starts``."""

    rows: pa.RecordBatch
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, rows: pa.RecordBatch, key_fields: Sequence[int]) -> "Stretch":
        """Find the runs."""
        return cls(rows, run_starts(rows, key_fields))

    def between(self, first: int, last: int) -> "Stretch":
        """Return the rows from ``first`` up to ``last``, of which there is at least one."""
        within = self.starts[np.searchsorted(self.starts, first, "right") : np.searchsorted(self.starts, last)]
        return Stretch(self.rows.slice(first, last - first), np.concatenate([[0], within - first]))


def cut(batch: pa.RecordBatch, key_fields: Sequence[int], codec: KeyCodec) -> Runs:
    """Cut a record batch of sorted rows, with the columns of equipoise, into runs of equal keys."""
    return cut_at(Stretch.of(batch, key_fields), key_fields, codec)


def cut_at(stretch: Stretch, key_fields: Sequence[int], codec: KeyCodec) -> Runs:
    """Cut a stretch of rows, whose runs are known, into runs of equal keys."""
    batch, starts = stretch
    groups = batch.column(GROUP).to_numpy()
    fingerprints = batch.column(FINGERPRINT).to_numpy()
    rows = batch.drop_columns([FINGERPRINT, GROUP])
    columns = [rows.column(field) for field in key_fields]
    keys = [column.take(pa.array(starts)) for column in columns]
    if any(pa.types.is_floating(column.type) or pa.types.is_nested(column.type) for column in columns):
        encoded = codec.encode_columns([plain_values(column) for column in keys])
        kept = [i for i in range(len(encoded)) if i == 0 or encoded[i] != encoded[i - 1]]  # 0.0 and -0.0 are one key
        starts, keys = starts[kept], [column.take(pa.array(kept)) for column in keys]
    bounds = np.append(starts, rows.num_rows)
    rows = rows.select([PARTIAL_BUFFER]) if PARTIAL_BUFFER in rows.schema.names else rows
    return Runs(rows, bounds, groups[starts], fingerprints[starts], keys, codec)


def run_starts(batch: pa.RecordBatch, key_fields: Sequence[int]) -> NDArray[np.int64]:
    """Return the first row of each run of equal keys; floats that are equal keys may start another run."""
    fingerprints = batch.column(FINGERPRINT).to_numpy()
    begins = np.concatenate([[True], fingerprints[1:] != fingerprints[:-1]])
    for field in key_fields:
        begins[_starts(batch.column(field))] = True
    return np.flatnonzero(begins)


def latest_event_ms(runs: Runs, event_time: int | None) -> int | None:
    """Return the latest event time among the user's rows; ``None`` without one."""
    if event_time is None:
        return None
    latest = pc.max(runs.rows.column(event_time)).cast(pa.timestamp("us", "UTC"))
    return int(latest.value // 1000) if latest.is_valid else None


def sections(stretch: Stretch) -> Iterator[Stretch]:
    """Yield stretches of the user's rows, without the column of partial buffers, and stretches of partial buffers."""
    batch = stretch.rows
    if PARTIAL_BUFFER not in batch.schema.names:
        yield stretch
        return
    has_buffer = batch.column(PARTIAL_BUFFER).is_valid().to_numpy(zero_copy_only=False)
    bounds = [0, *(np.flatnonzero(np.diff(has_buffer)) + 1).tolist(), batch.num_rows]
    for first, last in pairwise(bounds):
        section = stretch.between(first, last)
        yield section if has_buffer[first] else section._replace(rows=section.rows.drop_columns([PARTIAL_BUFFER]))


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values as the state's codec takes them: structs as tuples, maps as dicts."""
    values: list[Any] = column.to_pylist()
    return [_plain(value, column.type) for value in values] if pa.types.is_nested(column.type) else values


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return tuple(_plain(value[field.name], field.type) for field in kind)
    if pa.types.is_map(kind):
        return {_plain(key, kind.key_type): _plain(each, kind.item_type) for key, each in value}
    return [_plain(each, kind.value_type) for each in value]


def _starts(column: pa.Array) -> NDArray[np.int64]:
    """Return the first row of every run of equal values after the first run."""
    if pa.types.is_struct(column.type):
        parts = [_starts(part) for part in column.flatten()]
        return np.unique(np.concatenate([_starts(column.is_null()), *parts]))
    if pa.types.is_nested(column.type):
        values = column.to_pylist()
        return np.array([i for i in range(1, len(values)) if values[i] != values[i - 1]], dtype=np.int64)
    ends: NDArray[np.int64] = pc.run_end_encode(column, run_end_type=pa.int64()).run_ends.to_numpy()
    return ends[:-1]
