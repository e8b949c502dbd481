"""Watch a checkpoint: read it again and again, and notice changes."""

import threading
import time
from typing import NamedTuple

import msgspec

from equipoise.dashboard.document import Snapshot, SourceBatch, Status, Totals
from equipoise.dashboard.record import BATCHES, QueryRecord
from equipoise.errors import (
    DamagedError,
    EquipoiseError,
    InvalidArgumentError,
    LogBrokenError,
    StorageError,
    UnknownFormatError,
)
from equipoise.microbatch.spool import Spool
from equipoise.state.checkpoint import Checkpoint, Identity, Overrides
from equipoise.state.fencing import Tenancy, tenancy
from equipoise.state.log import CommitLog
from equipoise.state.stages import undelivered_batch
from equipoise.storage import Storage

_TRIES = 3  # a running query may delete an old record after its name was listed and before it is read

_STATUS: dict[Tenancy, tuple[Status, str]] = {
    "running": ("running", "The query is running."),
    "ended": ("finished", "The query has ended; a new start continues from the last commit."),
    "gone": (
        "stopped",
        "The process of the query is gone and did not end it (killed?); a new start continues from the last commit.",
    ),
    "free": ("stopped", "No query has claimed this checkpoint; a start continues from the last commit."),
    "elsewhere": (
        "elsewhere",
        "The query was started on another machine, so its process cannot be checked from here; see its last batch.",
    ),
}


class Seen(NamedTuple):
    """A snapshot, its JSON form, and its number among all snapshots of this watcher."""

    number: int
    snapshot: Snapshot
    json: bytes


class _Look(NamedTuple):
    """The facts that every look reads; if any has changed, the rest is read too."""

    query: str | None
    head: int
    held: Tenancy
    overrides: Overrides
    undelivered: int | None
    source: tuple[int, int]


class Watcher:
    """Take snapshots of one checkpoint; safe to use from several threads.

    Only what is new is read: after the first look a batch costs reading its record, and a checkpoint without news
    costs a few listings.

    Parameters
    ----------
    checkpoint
        The query's ``checkpointLocation``, a folder that exists.
    literal_keys
        Whether to show keys, read from the state, instead of their fingerprints.
    spool
        The spool of the source, for queries over planned micro-batches.
    pause
        Least number of seconds between two looks.
    """

    def __init__(
        self, checkpoint: str, *, literal_keys: bool = False, spool: str | None = None, pause: float = 0.5
    ) -> None:
        self._storage = Storage(checkpoint)
        if not self._storage.exists(""):
            raise InvalidArgumentError(
                f"there is no folder {self._storage.location}; give the checkpointLocation of a query, which is made "
                "when the query starts"
            )
        self._spool = None if spool is None else Spool(spool)
        if self._spool is not None and not self._spool.folder.is_dir():
            raise InvalidArgumentError(f"there is no folder {spool}; give the option spool of the query's source")
        self._literal_keys, self._pause = literal_keys, pause
        self._lock = threading.Lock()
        self._record: QueryRecord | None = None
        self._last: _Look | None = None
        self._seen: Seen | None = None
        self._time = 0.0

    def look(self) -> Seen:
        """Return the latest snapshot."""
        with self._lock:
            if self._seen is None or time.monotonic() - self._time >= self._pause:
                found = self._found()
                if found is not None and (self._seen is None or found != self._seen.snapshot):
                    number = 0 if self._seen is None else self._seen.number + 1
                    self._seen = Seen(number, found, found.to_json())
                self._time = time.monotonic()
            assert self._seen is not None  # noqa: S101 - the first look always finds something
            return self._seen

    def _found(self) -> Snapshot | None:
        """Return a new snapshot; ``None`` if nothing has changed."""
        for attempt in range(_TRIES):
            try:
                return self._read()
            except (StorageError, LogBrokenError) as error:
                if attempt == _TRIES - 1:
                    return self._unreadable("damaged", error)
            except UnknownFormatError as error:
                return self._unreadable("incompatible", error)
            except DamagedError as error:
                return self._unreadable("damaged", error)
        return None

    def _read(self) -> Snapshot | None:
        checkpoint, log = Checkpoint(self._storage), CommitLog(self._storage)
        identity, source = checkpoint.identity(), self._source()
        head = log.head()
        if identity is None:
            if head >= 0:
                checkpoint.require()
            self._record, self._last = None, None
            return self._snapshot("empty", "No query has been started here yet; this page waits for it.")
        overrides = checkpoint.overrides()
        latest = (source[-1].batch, len(source)) if source else (-1, 0)
        look = _Look(
            identity.name, head, tenancy(self._storage), overrides, undelivered_batch(self._storage, head), latest
        )
        if look == self._last:
            return None
        record = self._continued(identity, head)
        if head >= 0:
            record.catch_up(head)
        self._record = record
        status, message = _STATUS[look.held]
        if not record.batches():
            message = f"No batch has been committed yet. {message}"
            status = "running" if status == "running" else "empty"
        if look.undelivered is not None and status != "running":
            message = f"Batch {look.undelivered} is committed and not delivered; the next start delivers it. {message}"
        found = self._snapshot(status, message, overrides, source)
        self._last = look
        return msgspec.structs.replace(found, undelivered=look.undelivered)

    def _continued(self, identity: Identity, head: int) -> QueryRecord:
        """Return the record so far, or a new one if another query or an older copy has taken its place."""
        known = self._record
        if known is None or known.identity != identity or head < known.version:
            return QueryRecord(self._storage, identity, literal_keys=self._literal_keys)
        return known

    def _snapshot(
        self, status: Status, message: str, overrides: Overrides | None = None, source: list[SourceBatch] | None = None
    ) -> Snapshot:
        record = self._record
        return Snapshot(
            location=self._storage.location,
            query=None if record is None else record.identity.name,
            key=[] if record is None else record.identity.key,
            status=status,
            message=message,
            batches=[] if record is None else record.batches(),
            tasks=[] if record is None else record.tasks(),
            hot_keys=[] if record is None else record.hot_keys(),
            plan=None if record is None else record.plan(overrides or Overrides()),
            decisions=[] if record is None else record.decisions(),
            source=source or [],
            totals=Totals() if record is None else record.totals,
        )

    def _unreadable(self, status: Status, error: EquipoiseError) -> Snapshot:
        """Return the last snapshot with the error as message; the next look tries again."""
        self._last = None
        if self._seen is None:
            return self._snapshot(status, str(error))
        return msgspec.structs.replace(self._seen.snapshot, status=status, message=str(error))

    def _source(self) -> list[SourceBatch]:
        if self._spool is None:
            return []
        try:
            return [msgspec.convert(line, SourceBatch) for line in self._spool.batch_lines(BATCHES)]
        except (OSError, msgspec.ValidationError) as error:
            raise DamagedError(
                f"the record of the source in {self._spool.folder} cannot be read: {error}; delete its file "
                "batches.jsonl, which is only shown"
            ) from error
