"""The batch log: one row for each batch, kept longer than its record in the commit log.

Files below the checkpoint's folder::

    batch-log/<last version, 20 digits>    sealed "batch-log", format 2: a list of rows, oldest first

A file is written with every summary of the commit log and holds the rows since the previous file. The batch log can be
read without Spark, also while the query runs.
"""

from collections.abc import Iterator
from typing import Any, TypedDict

import msgspec

from equipoise.adapt.controller import DecisionRecord
from equipoise.errors import AlreadyExistsError, DamagedError, FormatError, UnknownFormatError
from equipoise.framing import seal, unseal
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.commit import Commit, Measures
from equipoise.state.log import CommitLog
from equipoise.state.stages import undelivered_batch
from equipoise.storage import Storage

FOLDER = "batch-log"
FILES_KEPT = 500
_FORMAT_VERSION = 2
_NUMBERS = (
    *("trust", "bound", "imbalance_before", "imbalance_after", "gain_seconds"),
    *("move_seconds", "catch_up_seconds", "move_bytes"),
)
_COUNTS = ("keys_moved", "groups_moved")


class Row(TypedDict):
    """One batch, as it is stored; ``plan`` is the name of the plan that placed it."""

    batch: int
    version: int
    time_ms: int
    watermark_ms: int
    plan: str
    decision: DecisionRecord
    measures: Measures


def row(commit: Commit) -> Row:
    """The row of a commit, as it is stored."""
    return {
        "batch": commit.batch,
        "version": commit.version,
        "time_ms": commit.time_ms,
        "watermark_ms": commit.watermark_ms,
        "plan": commit.plan,
        "decision": commit.decision,
        "measures": commit.measures,
    }


def write(log: CommitLog, head: int) -> None:
    """Write the rows since the last file, up to version ``head``."""
    names = _files(log.storage)
    if names and int(names[-1]) >= head:
        return  # the batch is delivered again; its row was written the first time
    rows = [row(commit) for commit in log.latest(int(names[-1]) + 1 if names else 0, head)]
    path = f"{FOLDER}/{head:020d}"
    try:
        log.storage.create(path, seal(FOLDER, _FORMAT_VERSION, rows))
    except AlreadyExistsError:  # a query that was taken over, or has taken over, has written the same rows
        log.storage.sync(path)
    for name in names[: max(0, len(names) + 1 - FILES_KEPT)]:
        log.storage.delete(f"{FOLDER}/{name}")


def rows(storage: Storage) -> Iterator[Row]:
    """Rows of all known batches, oldest first: those of the files, then those of the commit log."""
    last = -1
    for each in stored_rows(storage):
        yield each
        last = each["version"]
    for commit in CommitLog(storage).kept(last + 1):
        yield row(commit)


def stored_rows(storage: Storage, first: int = 0) -> Iterator[Row]:
    """Rows of the files from version ``first`` on, oldest first; files that end before it are not read."""
    last = first - 1
    for name in _files(storage):
        if int(name) <= last:
            continue
        path = f"{FOLDER}/{name}"
        try:
            kept = msgspec.convert(unseal(FOLDER, _FORMAT_VERSION, storage.read(path)), list[Row])
        except (msgspec.ValidationError, FormatError) as error:
            kind = UnknownFormatError if isinstance(error, UnknownFormatError) else DamagedError
            raise kind(f"{storage.at(path)}: {error}; the query does not need it: it may be deleted") from error
        if not kept or kept[-1]["version"] != int(name):
            found = kept[-1]["version"] if kept else "none"
            raise DamagedError(
                f"{storage.at(path)} ends with version {found}, and its name says {int(name)}: it is another file; "
                "restore it from a copy, or delete it: the query does not need it"
            )
        for each in kept:
            if each["version"] > last:
                yield each
                last = each["version"]


def batch_log_rows(path: str) -> list[dict[str, Any]]:
    """Flat rows of all known batches, and whether each was delivered; times are in milliseconds.

    Parameters
    ----------
    path
        The query's ``checkpointLocation``.
    """
    storage = Storage(path)
    Checkpoint(storage).require()
    flat = [flat_row(each) for each in rows(storage) if each["batch"] >= 0]
    due = undelivered_batch(storage, flat[-1]["batch"] + 1) if flat else None
    return [each | {"delivered": each["batch"] != due} for each in flat]


def flat_row(stored: Row) -> dict[str, Any]:
    """A stored row as one dictionary without nested ones."""
    decision = stored["decision"]
    numbers = decision["numbers"]
    return {
        "batch": stored["batch"],
        "time": stored["time_ms"],
        "watermark": stored["watermark_ms"] or None,
        "plan": int(stored["plan"][:10]),
        "action": decision["action"],
        "applied": decision["applied"],
        "reason": decision["reason"],
        **{name: value for name, value in stored["measures"].items() if name != "planning"},
        **{name: numbers.get(name) for name in _NUMBERS},
        **{name: None if numbers.get(name) is None else int(numbers[name]) for name in _COUNTS},
    }


def _files(storage: Storage) -> list[str]:
    """Names of the files, oldest first; files with other names are ignored."""
    return sorted(name for name in storage.names(FOLDER) if name.isdigit())
