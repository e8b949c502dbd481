"""Spark's half of a checkpoint: the offsets of each batch, and which batches Spark takes for finished.

The log and Spark's half must be of the same time. Spark asks for a batch by its number alone, so a commit keeps the
SHA-256 of the whole file ``spark/offsets/<batch>``. The file's first lines have the time of the batch, so the bytes
differ for another batch even where the offset itself is only a counter, as that of the file source. A replay of a batch
reads this file and never writes it anew.

Spark does not sync its files. Where the store asks for it, they are synced before a commit relies on them, so that a
power cut cannot take away the offsets of a committed batch.
"""

import hashlib

from equipoise.errors import LogBroken
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.log import CommitLog
from equipoise.storage import Storage

SPARK = "spark"
OFFSETS, COMMITS, SOURCES = f"{SPARK}/offsets", f"{SPARK}/commits", f"{SPARK}/sources"
_WAY_OUT = "restore the whole checkpoint, both halves, from one copy"


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
            raise LogBroken(
                f"Spark's half is missing: Spark runs batch {batch}, but {self._storage.at(path)} is not there; "
                f"{_WAY_OUT}"
            )
        return hashlib.sha256(self._storage.read(path)).hexdigest()

    def sync(self, batch: int) -> None:
        """Make what Spark has written of a batch survive a power cut, where the store asks for that."""
        if not self._storage.abilities.sync:
            return
        folders = [OFFSETS, *(f"{SOURCES}/{name}" for name in self._storage.names(SOURCES))]
        for path in (f"{folder}/{name}" for folder in folders for name in (f"{batch}", f"{batch}.compact")):
            if self._storage.exists(path):
                self._storage.sync(path)

    def require(self, head: int, offsets: str) -> None:
        """Refuse to start where the log and Spark's half are of different times.

        Parameters
        ----------
        head
            Last version of the log.
        offsets
            Digest of the offsets of its batch, as the commit has it.
        """
        if head <= 0:
            return
        committed, planned = head - 1, self.last_planned()
        where = f"the log in {self._storage.location} ends with batch {committed}"
        if planned < 0:
            raise LogBroken(
                f"Spark's half is missing: {where}, but {self._storage.at(OFFSETS)} is empty or not there, and new "
                f"rows would be taken for batches that are done already; {_WAY_OUT}"
            )
        if planned < committed:
            raise LogBroken(
                f"Spark's half is older than the log: {where}, and Spark has planned no batch after {planned}; it "
                f"would plan batch {planned + 1} anew, with other rows; {_WAY_OUT}"
            )
        if planned > committed + 1:
            raise LogBroken(
                f"Spark's half is newer than the log: {where}, and Spark has planned batch {planned}; the batches "
                f"between are lost; {_WAY_OUT}"
            )
        require_same(committed, offsets, self.digest(committed), self._storage.location)

    def _last(self, folder: str) -> int:
        return max((int(name) for name in self._storage.names(folder) if name.isdigit()), default=-1)


def require_same(batch: int, committed: str, found: str, location: str) -> None:
    """Refuse a batch whose offsets are not those that were committed under its number."""
    if committed != found:
        raise LogBroken(
            f"Spark's half is foreign: batch {batch} of {location} was committed for offsets with the SHA-256 "
            f"{committed}, and spark/offsets/{batch} now has {found}, so these are other rows; {_WAY_OUT}"
        )
