"""Read the rows of a task, which Spark has sorted by place, with the rows of each key together.

The place of a key is its key group and the upper bits of its fingerprint, in one BIGINT. Spark sorts one BIGINT by
radix, which takes a third of the time of a sort by the key columns as well. Keys rarely share a place: two of a million
keys do with a probability of 3 % at 1 key group.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from equipoise.spark.rows.columns import FINGERPRINT, GROUP, marker
from equipoise.spark.rows.runs import Runs, Stretch, cut_at, plain_values, sections
from equipoise.state.codec import KeyCodec

PLACE_BITS = 44
"""Bits of the fingerprint in a place, below the number of the key group."""

_JOINED_BYTES = 1 << 24


class SortedRows:
    """Reads the rows that Spark sends to a task: the marker row, then rows by place and the user's order.

    Parameters
    ----------
    batches
        Record batches from ``mapInArrow``.
    key_fields
        Positions of the key columns among the user's columns.
    codec
        Encodes keys.
    joined_rows
        Number of rows up to which record batches are joined, for a step that takes many keys at once; 0: they are not.
    """

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        key_fields: Sequence[int],
        codec: KeyCodec,
        *,
        joined_rows: int = 0,
    ) -> None:
        self._joined_rows = joined_rows
        self._batches = batches
        self._key_fields = key_fields
        self._codec = codec
        self._first = next(batches)
        self.partition = marker(int(self._first.column(GROUP)[0].as_py()))

    def __iter__(self) -> Iterator[Runs]:
        places = SharedPlaces(self._key_fields, self._codec)
        batches = chain([self._first.slice(1)], self._batches)  # the marker sorts before all rows
        for stretch in places.together(_joined(batches, self._joined_rows)):
            for section in sections(stretch):
                yield cut_at(section, self._key_fields, self._codec)


def _joined(batches: Iterator[pa.RecordBatch], most_rows: int) -> Iterator[pa.RecordBatch]:
    """Join record batches up to so many rows; one that has more is passed on alone."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if waiting and (rows + batch.num_rows > most_rows or size >= _JOINED_BYTES):
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


class SharedPlaces:
    """Passes record batches on, with the rows of each key next to each other.

    The first key of a place is passed on as it comes. Rows of other keys wait in memory until the place ends.

    Parameters
    ----------
    key_fields
        Positions of the key columns.
    codec
        Encodes keys.
    """

    def __init__(self, key_fields: Sequence[int], codec: KeyCodec) -> None:
        self._key_fields = key_fields
        self._codec = codec
        self._place = 0
        self._first: bytes | None = None  # the first key of the place, None before the first row
        self._waiting: list[pa.RecordBatch] = []

    def together(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Stretch]:
        """Yield all rows; without shared places, the record batches as they are."""
        for batch in batches:
            if batch.num_rows:
                yield from self._passed(batch)
        yield from self._released()

    def _passed(self, batch: pa.RecordBatch) -> Iterator[Stretch]:
        stretch = Stretch.of(batch, self._key_fields)
        starts = stretch.starts
        places = _places(batch)[starts]
        is_shared = bool((places[1:] == places[:-1]).any())
        continues = self._first is not None and places[0] == self._place
        if not is_shared and not (continues and (self._waiting or self._keys(batch, starts[:1])[0] != self._first)):
            yield from self._released()
            yield stretch
            if len(starts) > 1 or not continues:
                self._place, self._first = int(places[-1]), self._keys(batch, starts[-1:])[0]
            return
        bounds = np.append(starts, batch.num_rows).tolist()
        keys, start = self._keys(batch, starts), 0
        for run, (place, key) in enumerate(zip(places.tolist(), keys, strict=True)):
            if self._first is None or place != self._place:
                if self._waiting:
                    if start < bounds[run]:
                        yield stretch.between(start, bounds[run])
                    yield from self._released()
                    start = bounds[run]
                self._place, self._first = place, key
            elif key != self._first:
                if start < bounds[run]:
                    yield stretch.between(start, bounds[run])
                self._waiting.append(batch.slice(bounds[run], bounds[run + 1] - bounds[run]))
                start = bounds[run + 1]
        if start < batch.num_rows:
            yield stretch.between(start, batch.num_rows)

    def _released(self) -> Iterator[Stretch]:
        """Yield the rows that have waited, key by key."""
        if not self._waiting:
            return
        rows = pa.concat_batches(self._waiting)
        self._waiting = []
        starts = Stretch.of(rows, self._key_fields).starts
        order = np.argsort(np.array(self._keys(rows, starts), dtype=object), kind="stable")
        bounds = np.append(starts, rows.num_rows)
        taken = np.concatenate([np.arange(bounds[run], bounds[run + 1]) for run in order])
        yield Stretch.of(rows.take(pa.array(taken)), self._key_fields)

    def _keys(self, rows: pa.RecordBatch, starts: NDArray[np.int64]) -> list[bytes]:
        first = rows.take(pa.array(starts))
        return self._codec.encode_columns([plain_values(first.column(field)) for field in self._key_fields])


def _places(batch: pa.RecordBatch) -> NDArray[np.int64]:
    fingerprints = batch.column(FINGERPRINT).to_numpy().view(np.uint64) >> np.uint64(64 - PLACE_BITS)
    groups: NDArray[np.int64] = batch.column(GROUP).to_numpy().astype(np.int64)
    places: NDArray[np.int64] = (groups << PLACE_BITS) + fingerprints.astype(np.int64)
    return places
