"""Stages of a query: each keyed operator after the first has a checkpoint folder below that of the first.

The first stage is in the checkpoint itself, stage n in ``stages/<n>``, with the same layout except for ``spark``. Stage
n runs batch b after stage n - 1 has committed it, so its other half is the commit log of stage n - 1, as Spark's
offsets are that of the first stage. A commit of stage n stores a SHA-256 over the commit that its rows come from: the
version, what that commit was made from, its output files and its watermarks. The epoch is left out, because a query
that takes over writes the last record again under its own.
"""

import hashlib
from typing import Protocol

import msgspec

from equipoise.errors import LogBrokenError, MismatchError
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.commit import Commit
from equipoise.state.halves import PlannedBatch, SparkHalf
from equipoise.state.log import CommitLog
from equipoise.storage import Storage

FOLDER = "stages"
_WAY_OUT = "restore the whole checkpoint, all stages, from one copy"


class Half(Protocol):
    """Origin of the batches of a commit log: Spark's offsets, or the commits of the stage before."""

    caller: str
    """Who asks for a batch, for messages."""

    def digest(self, batch: int) -> str:
        """SHA-256 of what a batch is made from."""

    def sync(self, batch: int) -> None:
        """Make what a batch is made from survive a power cut, before a commit depends on it."""

    def require(self, head: int, digest: str) -> None:
        """Refuse a commit log of another point in time: its last version, and the digest in that commit."""

    def require_same(self, batch: int, committed: str, found: str) -> None:
        """Refuse a batch that is made from something else than the commit of its number."""

    def is_kept(self, batch: int) -> bool:
        """Whether what a batch was made from can still be read."""

    def planned(self, batch: int) -> PlannedBatch:
        """Digest, time and watermark of a batch that is about to run."""


def stage_folder(storage: Storage, stage: int) -> Storage:
    """Folder of a stage, below the checkpoint of its query."""
    return storage if stage == 1 else storage.below(f"{FOLDER}/{stage}")


def later_stages(storage: Storage) -> dict[int, Storage]:
    """Folders of the stages after the first, by number; none if the query has one stage."""
    numbers = sorted(int(name) for name in storage.names(FOLDER) if name.isdigit())
    return {number: stage_folder(storage, number) for number in numbers}


def checkpoint_of(storage: Storage, stage: int) -> Storage:
    """Checkpoint of the query that a stage belongs to, by the folder of the stage."""
    if stage == 1:
        return storage
    path = f"{FOLDER}/{stage}"
    found = storage.above(path)
    if found is None:
        raise MismatchError(
            f"{storage.location} holds stage {stage} of a query, and expected is a folder {path} below the checkpoint "
            "of that query; use it there, or copy the whole checkpoint"
        )
    return found


def half_of(storage: Storage, stage: int) -> Half:
    """Return the other half of the commit log of a stage.

    Parameters
    ----------
    storage
        Folder of the stage.
    stage
        Its number, from 1.
    """
    if stage == 1:
        return SparkHalf(storage)
    return StageHalf(stage_folder(checkpoint_of(storage, stage), stage - 1), storage, stage)


def undelivered_batch(storage: Storage, head: int) -> int | None:
    """The batch that is committed but not recorded as delivered; ``None`` where there is none.

    Only the last batch can be: a batch runs after the previous one was delivered. While a query runs, the last batch
    may be on its way to the sink. After a crash it may have arrived, and the next start delivers it again. Spark and
    the mark of a delivery after a stop record the delivery of all stages at once.

    Parameters
    ----------
    storage
        Folder of a stage.
    head
        Last version of its log.
    """
    if head <= 0:
        return None
    known = Checkpoint(storage).identity()
    checkpoint = checkpoint_of(storage, 1 if known is None else known.stage)
    if SparkHalf(checkpoint).last_finished() >= head - 1:
        return None
    log = CommitLog(checkpoint)
    is_delivered = log.head() == head and Checkpoint(checkpoint).is_delivered(log.read(head))
    return None if is_delivered else head - 1


class StageHalf:
    """The commits of the stage before, from which a stage is made.

    Parameters
    ----------
    before, storage
        Folders of the stage before, and of the stage.
    stage
        Number of the stage.
    """

    def __init__(self, before: Storage, storage: Storage, stage: int) -> None:
        self._before = CommitLog(before)
        self._storage = storage
        self._stage = stage
        self._time_mode: str | None = None
        self.caller = f"stage {stage - 1}"

    def digest(self, batch: int) -> str:
        """SHA-256 of the commit of the stage before; it must exist."""
        return commit_digest(self._before.read(batch + 1))

    def sync(self, batch: int) -> None:
        """Do nothing: a commit is durable before its rows are handed over."""

    def require(self, head: int, digest: str) -> None:
        """Refuse to start where the stage and the stage before belong to different points in time.

        The stage before is at most one batch ahead, which is then not recorded as delivered: it hands a batch over
        before it runs the next one.

        Parameters
        ----------
        head
            Last version of this stage; -1 where it is empty.
        digest
            What the commit of that version says about the stage before.
        """
        before = self._before.head()
        where = f"stage {self._stage} in {self._storage.location} {_ends(head)}"
        other = f"stage {self._stage - 1} in {self._before.storage.location} {_ends(before)}"
        if before < head:
            raise LogBrokenError(
                f"stage {self._stage} is newer than the stage before: {where}, but {other}; {_WAY_OUT}"
            )
        is_done = before > 0 and undelivered_batch(self._before.storage, before) is None
        if before > head + 1 or (is_done and before > head):
            raise LogBrokenError(
                f"stage {self._stage} is older than the stage before: {where}, but {other}, and the batches between "
                f"would be lost; {_WAY_OUT}"
            )
        if head > 0 and self.is_kept(head - 1):
            self.require_same(head - 1, digest, self.digest(head - 1))

    def require_same(self, batch: int, committed: str, found: str) -> None:
        """Refuse a batch whose rows differ from those that were committed under its number."""
        if committed != found:
            raise LogBrokenError(
                f"stage {self._stage - 1} is foreign: batch {batch} of {self._storage.location} was committed for a "
                f"commit of the stage before with the SHA-256 {committed}, but version {batch + 1} of "
                f"{self._before.storage.location} now has {found}, so it holds other rows; {_WAY_OUT}"
            )

    def is_kept(self, batch: int) -> bool:
        """Whether the stage before still has the record of a batch."""
        return 0 <= self._before.oldest() <= batch + 1

    def planned(self, batch: int) -> PlannedBatch:
        """Digest, time and watermark of a batch, from the commit of the stage before.

        The watermark is 0 if that stage runs by processing time: Spark hands no watermark on behind such an operator.
        """
        if self._time_mode is None:
            self._time_mode = Checkpoint(self._before.storage).require().time_mode
        commit = self._before.read(batch + 1)
        watermark_ms = 0 if self._time_mode == "processingTime" else commit.watermark_ms
        return PlannedBatch(commit_digest(commit), commit.time_ms, watermark_ms)


def commit_digest(commit: Commit) -> str:
    """SHA-256 of all that a later stage takes from a commit, and of what that commit was made from."""
    outputs = msgspec.to_builtins(commit.outputs)
    taken = [commit.version, commit.offsets, outputs, commit.watermark_ms, commit.next_watermark_ms]
    return hashlib.sha256(msgspec.msgpack.encode(taken)).hexdigest()


def _ends(head: int) -> str:
    return "is empty" if head < 0 else "ends before any batch" if head == 0 else f"ends with batch {head - 1}"
