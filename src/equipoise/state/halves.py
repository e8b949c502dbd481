"""Spark's half of a checkpoint: the offsets of each batch, and which batches Spark takes for finished.

The log and Spark's half must be of the same time. Spark asks for a batch by its number alone, so a commit keeps the
SHA-256 of the whole file ``spark/offsets/<batch>``. The file's first lines have the time of the batch, so the bytes
differ for another batch even where the offset itself is only a counter, as that of the file source. A replay of a batch
reads this file and never writes it anew.

Spark does not sync its files. Where the store asks for it, they are synced before a commit relies on them, so that a
power cut cannot take away the offsets of a committed batch. The files of a source in ``spark/sources/<number>`` have a
counter of their own, which stands still where a batch has no new files of that source.
"""

import hashlib
import re

from equipoise.errors import LogBrokenError
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.log import CommitLog
from equipoise.storage import Storage

SPARK = "spark"
OFFSETS, COMMITS, SOURCES = f"{SPARK}/offsets", f"{SPARK}/commits", f"{SPARK}/sources"
_WAY_OUT = "restore the whole checkpoint, both halves, from one copy"
_SOURCE_FILE = re.compile(r"(\d+)(\.compact)?")
_SYNCED_AT_FIRST = 2  # files of a source: a process that died has planned one batch that it did not commit


def undelivered(storage: Storage, head: int) -> int | None:
    """The batch that is committed and, as far as the checkpoint says, not delivered; ``None`` where there is none.

    Only the last batch can be: a batch runs after the one before was delivered. While a query runs, the last batch may
    be on its way to the sink. After a crash it may have arrived, and the next start delivers it again.

    Parameters
    ----------
    storage
        The checkpoint.
    head
        Last version of the log.
    """
    if head <= 0 or SparkHalf(storage).last_finished() >= head - 1:
        return None
    return None if Checkpoint(storage).is_delivered(CommitLog(storage).read(head)) else head - 1


class SparkHalf:
    """Reads what Spark has written of one query.

    Parameters
    ----------
    storage
        The checkpoint.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._synced: dict[str, int] = {}  # by folder, the last file of a source that this process has synced

    def last_planned(self) -> int:
        """Last batch that Spark has offsets of; -1 for none."""
        return self._last(OFFSETS)

    def last_finished(self) -> int:
        """Last batch that Spark takes for finished; -1 for none."""
        return self._last(COMMITS)

    def digest(self, batch: int) -> str:
        """SHA-256 of the offsets of a batch, which Spark is about to run."""
        path = f"{OFFSETS}/{batch}"
        if not self._storage.exists(path):
            raise LogBrokenError(
                f"Spark's half is missing: Spark runs batch {batch}, but {self._storage.at(path)} is not there; "
                f"{_WAY_OUT}"
            )
        return hashlib.sha256(self._storage.read(path)).hexdigest()

    def sync(self, batch: int) -> None:
        """Make what Spark has written of a batch survive a power cut, where the store asks for that."""
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
        """Refuse to start where the log and Spark's half are of different times.

        Parameters
        ----------
        head
            Last version of the log; -1 where it is empty.
        offsets
            Digest of the offsets of its batch, as the commit has it.
        """
        committed, planned, finished = head - 1, self.last_planned(), self.last_finished()
        ends = "is empty" if head < 0 else "ends before any batch" if head == 0 else f"ends with batch {committed}"
        where = f"the log in {self._storage.location} {ends}"
        if planned > head or finished >= max(head, 0):
            done = f"planned batch {planned}" if planned > head else f"finished batch {finished}"
            raise LogBrokenError(
                f"Spark's half is newer than the log: {where}, and Spark has {done}; what the log knew of later "
                f"batches is lost; {_WAY_OUT}"
            )
        if head <= 0:  # version 0 is committed before Spark plans its first batch
            return
        if planned < 0:
            raise LogBrokenError(
                f"Spark's half is missing: {where}, but {self._storage.at(OFFSETS)} is empty or not there, and new "
                f"rows would be taken for batches that are done already; {_WAY_OUT}"
            )
        if planned < committed:
            raise LogBrokenError(
                f"Spark's half is older than the log: {where}, and Spark has planned no batch after {planned}; it "
                f"would plan batch {planned + 1} anew, with other rows; {_WAY_OUT}"
            )
        require_same(committed, offsets, self.digest(committed), self._storage.location)

    def _last(self, folder: str) -> int:
        return max((int(name) for name in self._storage.names(folder) if name.isdigit()), default=-1)


def require_same(batch: int, committed: str, found: str, location: str) -> None:
    """Refuse a batch whose offsets are not those that were committed under its number."""
    if committed != found:
        raise LogBrokenError(
            f"Spark's half is foreign: batch {batch} of {location} was committed for offsets with the SHA-256 "
            f"{committed}, and spark/offsets/{batch} now has {found}, so these are other rows; or the record of "
            f"version {batch + 1} is the foreign one: a query that hung while a copy was restored may have written it "
            f"when it woke up; {_WAY_OUT}"
        )
