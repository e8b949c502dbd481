"""Spark's half of a checkpoint: the offsets of each batch, and the batches that Spark has recorded as finished.

The commit log and Spark's half must belong to the same point in time. Spark identifies a batch by its number alone, so
a commit stores the SHA-256 of the whole file ``spark/offsets/<batch>``. The first lines of the file contain the time of
the batch, so the bytes of another batch differ even where the offset itself is only a counter, as that of the file
source. A replay of a batch reads this file and never rewrites it.

Spark does not sync its files. On a store that needs it, they are synced before a commit depends on them, so that a
power cut cannot remove the offsets of a committed batch. The files of a source in ``spark/sources/<number>`` have their
own counter, which does not advance where a batch has no new files of that source.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from equipoise.errors import LogBrokenError
from equipoise.storage import Storage

SPARK = "spark"
OFFSETS, COMMITS, SOURCES = f"{SPARK}/offsets", f"{SPARK}/commits", f"{SPARK}/sources"
_WAY_OUT = "restore the whole checkpoint, both halves, from one copy"
_SPARKS_VERSION = re.compile(rb"v\d+\n")
_SOURCE_FILE = re.compile(r"(\d+)(\.compact)?")
_SYNCED_AT_FIRST = 2  # files of a source: a process that died has planned at most one batch that it did not commit


@dataclass(frozen=True)
class PlannedBatch:
    """Record of a batch in the other half of its log, made before the batch runs.

    Parameters
    ----------
    digest
        SHA-256 of the offsets.
    time_ms, watermark_ms
        Processing time of the batch and its global watermark, which Spark keeps over all watermarks of the query;
        ``None`` if the offsets were not written by Spark.
    """

    digest: str
    time_ms: int | None = None
    watermark_ms: int | None = None


class _Planned(msgspec.Struct):
    """The second line of Spark's offsets of a batch, as far as it is read here."""

    batchTimestampMs: int  # noqa: N815 - Spark's own name
    batchWatermarkMs: int  # noqa: N815 - Spark's own name


class _Finished(msgspec.Struct):
    """The second line of Spark's record of a finished batch, as far as it is read here."""

    nextBatchWatermarkMs: int  # noqa: N815 - Spark's own name


_Line = TypeVar("_Line", _Planned, _Finished)


class SparkHalf:
    """Reads and syncs the files that Spark has written for one query.

    Parameters
    ----------
    storage
        The checkpoint.
    """

    caller = "Spark"

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._synced: dict[str, int] = {}  # by folder, the last file of a source that this process has synced

    def last_planned(self) -> int:
        """Last batch whose offsets Spark has written; -1 for none."""
        return self._last(OFFSETS)

    def last_finished(self) -> int:
        """Last batch that Spark has recorded as finished; -1 for none."""
        return self._last(COMMITS)

    @property
    def has_state(self) -> bool:
        """Whether operators of Spark keep state in this checkpoint, so that their batches are dear to read twice."""
        return bool(self._storage.names(f"{SPARK}/state"))

    def digest(self, batch: int) -> str:
        """SHA-256 of the offsets of a batch, which Spark is about to run."""
        return hashlib.sha256(self._offsets(batch)).hexdigest()

    def planned(self, batch: int) -> PlannedBatch:
        """Digest, time and watermark of a batch, which Spark is about to run."""
        data = self._offsets(batch)
        digest = hashlib.sha256(data).hexdigest()
        if _SPARKS_VERSION.match(data) is None:
            return PlannedBatch(digest)
        known = self._metadata(f"{OFFSETS}/{batch}", data, _Planned)
        return PlannedBatch(digest, known.batchTimestampMs, known.batchWatermarkMs)

    def moved_watermark(self, batch: int) -> bool:
        """Whether a finished batch has moved the watermark."""
        before, path = self.planned(batch).watermark_ms, f"{COMMITS}/{batch}"
        after = self._metadata(path, self._storage.read(path), _Finished).nextBatchWatermarkMs
        return before is not None and after > before

    def last_source(self, batch: int) -> dict[str, int]:
        """Offset of the last source of the query at the end of a batch."""
        try:
            return msgspec.json.decode(self._offsets(batch).splitlines()[-1], type=dict[str, int])
        except msgspec.MsgspecError as error:
            raise LogBrokenError(
                f"Spark's half is damaged: the last line of {self._storage.at(f'{OFFSETS}/{batch}')} should be the "
                f"offset of a source, and it cannot be read: {error}; {_WAY_OUT}"
            ) from error

    def _offsets(self, batch: int) -> bytes:
        path = f"{OFFSETS}/{batch}"
        data = self._storage.read_if_exists(path)
        if data is None:
            raise LogBrokenError(
                f"Spark's half is missing: Spark runs batch {batch}, but {self._storage.at(path)} does not exist; "
                f"{_WAY_OUT}"
            )
        return data

    def _metadata(self, path: str, data: bytes, kind: type[_Line]) -> _Line:
        """Return the second line of a file of Spark."""
        try:
            return msgspec.json.decode(data.split(b"\n")[1], type=kind)
        except (IndexError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise LogBrokenError(
                f"Spark's half is damaged: the second line of {self._storage.at(path)} should be JSON with "
                f"{' and '.join(kind.__struct_fields__)}, and it cannot be read: {error}; {_WAY_OUT}"
            ) from error

    def sync(self, batch: int) -> None:
        """Sync the files that Spark has written for a batch, on a store that needs it to survive a power cut."""
        if not self._storage.abilities.sync:
            return
        sources = [f"{SOURCES}/{name}" for name in self._storage.names(SOURCES)]
        if not self._synced:  # Spark has made the folders
            self._storage.sync(SPARK)
            self._storage.sync(OFFSETS)
        self._storage.sync(f"{OFFSETS}/{batch}")
        self._synced[OFFSETS] = batch
        for folder in sources:
            self._sync_source(folder)

    def _sync_source(self, folder: str) -> None:
        """Sync the files of a source that are new to this process."""
        found = (_SOURCE_FILE.fullmatch(name) for name in self._storage.names(folder))
        files = sorted((int(match[1]), match[0]) for match in found if match)
        known = self._synced.get(folder)
        if known is None:
            self._storage.sync(folder)
        new = files[-_SYNCED_AT_FIRST:] if known is None else [file for file in files if file[0] > known]
        for number, name in new:
            self._storage.sync(f"{folder}/{name}")
            self._synced[folder] = number

    def require(self, head: int, offsets: str) -> None:
        """Refuse to start where the commit log and Spark's half belong to different points in time.

        Parameters
        ----------
        head
            Last version of the log; -1 where it is empty.
        offsets
            Digest of the offsets of its batch, from the commit.
        """
        committed, planned, finished = head - 1, self.last_planned(), self.last_finished()
        ends = "is empty" if head < 0 else "ends before any batch" if head == 0 else f"ends with batch {committed}"
        where = f"the log in {self._storage.location} {ends}"
        if planned > head or finished >= max(head, 0):
            done = f"planned batch {planned}" if planned > head else f"finished batch {finished}"
            raise LogBrokenError(
                f"Spark's half is newer than the log: {where}, and Spark has {done}; the records of later batches "
                f"are lost; {_WAY_OUT}"
            )
        if head <= 0:  # version 0 is committed before Spark plans its first batch
            return
        if planned < 0:
            raise LogBrokenError(
                f"Spark's half is missing: {where}, but {self._storage.at(OFFSETS)} is empty or does not exist, and "
                f"new rows would be mistaken for committed batches; {_WAY_OUT}"
            )
        if planned < committed:
            raise LogBrokenError(
                f"Spark's half is older than the log: {where}, and Spark has planned no batch after {planned}; it "
                f"would plan batch {planned + 1} again, with other rows; {_WAY_OUT}"
            )
        self.require_same(committed, offsets, self.digest(committed))

    def require_same(self, batch: int, committed: str, found: str) -> None:
        """Refuse a batch whose offsets differ from those that were committed under its number."""
        if committed != found:
            raise LogBrokenError(
                f"Spark's half is foreign: batch {batch} of {self._storage.location} was committed for offsets with "
                f"the SHA-256 {committed}, but spark/offsets/{batch} now has {found}, so it holds other rows; or the "
                f"record of version {batch + 1} is the foreign one: a query that hung while a copy was restored may "
                f"have written it when it resumed; {_WAY_OUT}"
            )

    def is_kept(self, batch: int) -> bool:
        """Whether Spark still has the offsets of a batch."""
        return self._storage.exists(f"{OFFSETS}/{batch}")

    def _last(self, folder: str) -> int:
        return max((int(name) for name in self._storage.names(folder) if name.isdigit()), default=-1)
