"""What became of every batch, kept longer than its record in the log.

Files below the checkpoint's folder::

    history/<last version, 20 digits>    sealed "history", format 1: a list of rows, oldest first

A file is written with every summary of the log and holds the rows since the one before.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from equipoise.errors import DamagedError, FormatError, UnknownFormatError
from equipoise.framing import seal, unseal
from equipoise.state.log import Commit, CommitLog
from equipoise.storage import Storage

FOLDER = "history"
FILES_KEPT = 500
_FORMAT_VERSION = 1


def row(commit: Commit) -> dict[str, Any]:
    """What is kept of a commit."""
    return {
        "batch": commit.batch,
        "version": commit.version,
        "time_ms": commit.time_ms,
        "watermark_ms": commit.watermark_ms,
        "plan": int(commit.plan[:10]),
        "next_plan": int(commit.next_plan[:10]),
        "decision": commit.decision,
        "measures": commit.measures,
    }


def write(log: CommitLog, head: int) -> None:
    """Keep the rows up to version ``head``."""
    names = _files(log.storage)
    if names and int(names[-1]) >= head:
        return  # the batch is delivered again, and was written down the first time
    rows = [row(commit) for commit in log.latest(int(names[-1]) + 1 if names else 0, head)]
    log.storage.write(f"{FOLDER}/{head:020d}", seal(FOLDER, _FORMAT_VERSION, rows))
    for name in names[: max(0, len(names) + 1 - FILES_KEPT)]:
        log.storage.delete(f"{FOLDER}/{name}")


def _files(storage: Storage) -> list[str]:
    """Names of the files, oldest first; those of other names are somebody else's and stay."""
    return sorted(name for name in storage.names(FOLDER) if name.isdigit())


def rows(storage: Storage) -> Iterator[dict[str, Any]]:
    """Every batch that is remembered, oldest first."""
    last = -1
    for each in remembered(storage):
        yield each
        last = each["version"]
    for commit in CommitLog(storage).kept(last + 1):
        yield row(commit)


def remembered(storage: Storage, first: int = 0) -> Iterator[dict[str, Any]]:
    """Rows that were written down, oldest first, from version ``first`` on; files that end before it are not read."""
    last = first - 1
    for name in _files(storage):
        if int(name) <= last:
            continue
        path = f"{FOLDER}/{name}"
        try:
            kept = msgspec.convert(unseal(FOLDER, _FORMAT_VERSION, storage.read(path)), list[dict[str, Any]])
        except (msgspec.ValidationError, FormatError) as error:
            kind = UnknownFormatError if isinstance(error, UnknownFormatError) else DamagedError
            raise kind(f"{storage.at(path)}: {error}; the query does not need it: it may be deleted") from error
        if not kept or kept[-1].get("version") != int(name):
            found = kept[-1].get("version") if kept else "none"
            raise DamagedError(
                f"{storage.at(path)} ends with version {found}, and its name says {int(name)}: it is another file; "
                "restore it from a copy, or delete it: the query does not need it"
            )
        for each in kept:
            if each["version"] > last:
                yield each
                last = each["version"]
