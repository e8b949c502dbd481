"""The commit log: one record for each version of the state. Writing the record is the commit.

Version 0 is the initial state, version b + 1 is the state after micro-batch b. Files below the checkpoint's folder::

    log/<version, 20 digits>.commit                        sealed "commit", format 4: the fields of Commit
    log/<version, 20 digits>-<epoch, 10 digits>.commit     the same, where the store cannot create a file if absent
    log/<version, 20 digits>-<epoch, 10 digits>-<oldest, 20 digits>.summary    sealed "summary", format 4: version; for
                                                           each group its snapshot and the changes since; the files
                                                           that hold them. Versions below the oldest are not kept

A summary contains the location of the state of every key group at its version. Nothing older than the last summary
before the oldest kept version has to be read. A commit names everything it depends on by SHA-256: its plan, Spark's
offsets of the batch, its output files and its state files.

Which record of a version is valid depends on the store (``Abilities.create_if_absent``):

- With create-if-absent a version has one record, which never changes. A query that was taken over may still write the
  next version. That record is valid: it is made from the same state and the same offsets. The query that has taken over
  finds it when it commits the same version, and continues from it.
- Without create-if-absent, the name of a record includes the epoch, and the record of the highest epoch is valid. A
  query that takes over writes the last record again under its own epoch, so that a late record of the earlier query
  never replaces it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from equipoise.errors import (
    AlreadyExistsError,
    DamagedError,
    FormatError,
    LogBrokenError,
    StorageError,
    UnknownFormatError,
)
from equipoise.failpoints import failpoint
from equipoise.framing import seal, unseal
from equipoise.state.commit import Commit
from equipoise.state.fencing import Epoch
from equipoise.state.group_table import Chain, GroupTable
from equipoise.state.sections import LEAST_SECTION_BYTES, Section
from equipoise.storage import Storage, StoredFile

FOLDER = "log"
SUMMARY_EVERY = 20
"""Versions from one summary to the next."""

_COMMIT, _SUMMARY, _FORMAT_VERSION = "commit", "summary", 4
_NAME = re.compile(rf"(\d{{20}})(?:-(\d{{10}}))?(?:-(\d{{20}}))?\.({_COMMIT}|{_SUMMARY})")
_PATH = re.compile(r"(changes|snapshots|outputs)/\w+/\w[\w.-]*")
_T = TypeVar("_T")
_ALONE = 10**10
"""Placeholder epoch of a record that is the only one of its version."""


class CommitLog:
    """Reads and extends the log of one checkpoint."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def head(self) -> int:
        """Last committed version; -1 before the first."""
        return max(self._names(_COMMIT), default=-1)

    def last_epoch(self) -> int:
        """Highest epoch that has written a record, as far as the log shows; 0 before the first."""
        named = [record.epoch for record in self._records() if record.epoch != _ALONE]
        last = self.last()
        return max([*named, 0 if last is None else last.epoch])

    def last(self) -> Commit | None:
        """The last record; ``None`` before the first. A running query may commit and delete it at the same time."""
        while names := self._names(_COMMIT):
            head = max(names)
            try:
                return self._read(names[head])
            except StorageError:
                if self.head() == head:
                    raise
        return None

    def oldest(self) -> int:
        """Oldest version that can still be read; -1 where there is none.

        Older records may exist nevertheless: a query that was taken over may write one again after it was deleted, and
        a power cut may undo deletions. The names of the summaries contain the oldest version; a gap above it means that
        records were lost.
        """
        records = self._records()
        names = {record.version: record.name for record in records if record.kind == _COMMIT}
        if not names:
            return -1
        oldest = _kept_from(records)
        missing = next((version for version in range(oldest, max(names)) if version not in names), None)
        if missing is not None:
            raise self._missing(missing, names)
        return oldest

    def read(self, version: int) -> Commit:
        """The record of a version."""
        names = self._names(_COMMIT)
        if version not in names:
            raise self._missing(version, names)
        return self._read(names[version])

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """Records from version ``first`` to ``last``, each of which must exist."""
        yield from self._commits(self._names(_COMMIT), first, last)

    def latest(self, first: int, last: int) -> list[Commit]:
        """Records from version ``first``, or from the oldest kept version, to ``last``."""
        return self._while_kept(lambda oldest: list(self.commits(max(first, oldest, 0), last)))

    def since(self, first: int, last: int) -> tuple[GroupTable, list[Commit]]:
        """The table at version ``first``, or at the oldest kept version, and the records after it."""

        def read(oldest: int) -> tuple[GroupTable, list[Commit]]:
            start = max(first, oldest, 0)
            return self.table(start), list(self.commits(start + 1, last))

        return self._while_kept(read)

    def kept(self, first: int = 0) -> list[Commit]:
        """Every kept record from version ``first`` on, oldest first."""
        return self.latest(first, self.head())

    def table(self, version: int) -> GroupTable:
        """The table of key groups at a version."""
        records = self._records()  # listed once: a running query deletes records
        commits = {record.version: record.name for record in records if record.kind == _COMMIT}
        summaries = [record for record in records if record.kind == _SUMMARY and record.version <= version]
        table = self._read_summary(summaries[-1].name) if summaries else GroupTable()
        for commit in self._commits(commits, table.version + 1, version):
            table.advance(commit)
        return table

    def summaries(self) -> list[int]:
        """Versions of the summaries that are kept."""
        oldest = self.oldest()
        return sorted(version for version in self._names(_SUMMARY) if version >= oldest)

    def append(self, commit: Commit, epoch: Epoch) -> Commit:
        """Commit, unless another query has taken over; return the valid record, which is durable.

        The check after the write decides. A query that takes over first claims its epoch and then reads the log. If it
        did so before this write, the check finds its epoch and this query stops without delivering anything. If it did
        so after this write, it has read this record and continues from it.

        Where a version has one record, a query that was taken over may have written it first. That record is then
        valid. Its name is synced here, because its writer may have died before syncing it.

        The check before the write catches a query that hung while a copy of the checkpoint was restored: its record
        would lie above a gap.
        """
        epoch.check()
        name = _commit_name(commit.version, None if epoch.exclusive else commit.epoch)
        data = seal(_COMMIT, _FORMAT_VERSION, msgspec.to_builtins(commit, builtin_types=(bytes,)))
        try:
            self.storage.create(name, data)
        except AlreadyExistsError:
            epoch.check()
            failpoint("driver.late-commit")
            self.storage.sync(name)
            return self.read(commit.version)
        failpoint("driver.in-commit")
        epoch.check()
        return commit

    def adopt(self, epoch: Epoch) -> Commit | None:
        """Return the last record; where names include the epoch, write it again under the epoch of this query first.

        A query that was taken over may write its own record of that version later. Its epoch is lower, so that record
        is never valid.

        The names in the log are synced: the previous query may have died after it wrote a record or a summary and
        before it synced the name, and later commits depend on both.
        """
        last = self.last()
        if last is None:
            return None
        if epoch.exclusive or last.epoch == epoch.number:
            self.storage.sync(_commit_name(last.version, None if epoch.exclusive else last.epoch))
            return last
        return self.append(msgspec.structs.replace(last, epoch=epoch.number), epoch)

    def summarise(self, table: GroupTable, epoch: Epoch, keep_from: int = -1) -> int:
        """Write a summary of ``table``.

        Parameters
        ----------
        table
            The key groups and where their state is.
        epoch
            The right to commit.
        keep_from
            First version that must stay readable; default: the same as before.

        Returns
        -------
        int
            The oldest version that stays readable: that of the last summary up to ``keep_from``.
        """
        records = self._records()
        older = [each.version for each in records if each.kind == _SUMMARY and each.version <= keep_from]
        oldest = max([_kept_from(records), *older])
        chains = msgspec.to_builtins(table.chains, builtin_types=(bytes,))
        files = msgspec.to_builtins(table.stored())
        data = seal(_SUMMARY, _FORMAT_VERSION, [table.version, chains, files])
        self.storage.write(f"{FOLDER}/{table.version:020d}-{epoch.number:010d}-{oldest:020d}.{_SUMMARY}", data)
        return oldest

    def forget_before(self, version: int) -> None:
        """Delete records and summaries of versions below ``version``, which ``summarise`` has returned."""
        for record in self._records():
            if record.version < version:
                self.storage.delete(f"{FOLDER}/{record.name}")
                failpoint("driver.in-forgetting")

    def _while_kept(self, read: Callable[[int], _T]) -> _T:
        """Call ``read`` with the oldest version, and again if a running query deleted records during the call."""
        while True:
            oldest = self.oldest()
            try:
                return read(oldest)
            except (StorageError, LogBrokenError):
                if self.oldest() == oldest:
                    raise

    def _commits(self, names: dict[int, str], first: int, last: int) -> Iterator[Commit]:
        for version in range(first, last + 1):
            if version not in names:
                raise self._missing(version, names)
            yield self._read(names[version])

    def _names(self, kind: str) -> dict[int, str]:
        """Name of the valid file of each version: the only one, else that of the highest epoch."""
        return {record.version: record.name for record in self._records() if record.kind == kind}

    def _records(self) -> list["_Record"]:
        """The files of the log; files with other names are ignored."""
        found = ((name, _NAME.fullmatch(name)) for name in self.storage.names(FOLDER))
        return sorted(
            _Record(int(match[1]), _ALONE if match[2] is None else int(match[2]), int(match[3] or 0), match[4], name)
            for name, match in found
            if match
        )

    def _read(self, name: str) -> Commit:
        commit: Commit = self._decode(name, _COMMIT, Commit)
        sections = [*commit.sections.values(), *(each.section for each in commit.snapshots.values())]
        self._require_sound(name, commit.version, commit.files, sections, [file.path for file in commit.outputs])
        return commit

    def _read_summary(self, name: str) -> GroupTable:
        version, chains, files = self._decode(name, _SUMMARY, tuple[int, dict[str, Chain], list[StoredFile]])
        sections = [section for chain in chains.values() for section in chain.sections()]
        self._require_sound(name, version, files, sections)
        return GroupTable(version, chains, files)

    def _require_sound(
        self,
        name: str,
        version: int,
        files: list[StoredFile],
        sections: list[Section],
        others: Iterable[str] = (),
    ) -> None:
        """Refuse a record of another version, one that names foreign files, and sections outside of its files."""
        where = self.storage.at(f"{FOLDER}/{name}")
        if version != int(name[:20]):
            raise DamagedError(
                f"{where} holds the record of version {version}, not of the version in its name; restore it from a copy"
            )
        sizes = {file.path: file.size for file in files}
        named = dict.fromkeys([*sizes, *others, *(section.path for section in sections)])
        foreign = next((path for path in named if _PATH.fullmatch(path) is None), None)
        if foreign is not None:
            raise DamagedError(
                f"{where} names the file {foreign!r}, but may only name files in changes, snapshots and outputs; "
                "restore it from a copy"
            )
        for section in sections:
            size = sizes.get(section.path, -1)
            if not 0 <= section.offset <= section.offset + section.length <= size:
                has = "which it does not list with a SHA-256" if size < 0 else f"which has {size} bytes"
                raise DamagedError(
                    f"{where} has a section from byte {section.offset} on, of {section.length} bytes, in "
                    f"{section.path!r}, {has}; restore it from a copy"
                )
            if section.length < LEAST_SECTION_BYTES:
                raise DamagedError(
                    f"{where} has a section of {section.length} bytes in {section.path!r}, expected at least "
                    f"{LEAST_SECTION_BYTES}; restore it from a copy"
                )

    def _decode(self, name: str, kind: str, shape: Any) -> Any:
        path = f"{FOLDER}/{name}"
        try:
            return msgspec.convert(unseal(kind, _FORMAT_VERSION, self.storage.read(path)), shape)
        except msgspec.ValidationError as error:
            raise DamagedError(f"{self.storage.at(path)} is not a {kind}: {error}; restore it from a copy") from error
        except FormatError as error:
            raise unreadable(self.storage.at(path), error) from error

    def _missing(self, version: int, names: dict[int, str]) -> LogBrokenError:
        there = f"it has versions {min(names)} to {max(names)}" if names else "it is empty"
        return LogBrokenError(
            f"the log in {self.storage.at(FOLDER)} has no record of version {version} ({there}); "
            "restore the missing file from a copy, or read a version that it has"
        )


class _Record(NamedTuple):
    """A file of the log, by its name."""

    version: int
    epoch: int
    oldest: int
    kind: str
    name: str


def unreadable(where: str, error: FormatError, or_else: str = "") -> FormatError:
    """Return the error for a file of a checkpoint that cannot be read: where it is, and for another format the way out.

    Parameters
    ----------
    where
        Location of the file.
    error
        What was found in it.
    or_else
        Another way out, of this file alone.
    """
    if not isinstance(error, UnknownFormatError):
        return DamagedError(f"{where}: {error}{or_else}")
    return UnknownFormatError(
        f"{where}: {error}. To continue with this release, read the state with the other one (read_state), start a new "
        f"checkpoint with that state as initialState, and let the source start after the last batch{or_else}"
    )


def _kept_from(records: list[_Record]) -> int:
    """The oldest kept version: before older records are deleted, a summary that contains it is written."""
    return max((record.oldest for record in records), default=0)


def _commit_name(version: int, epoch: int | None) -> str:
    return f"{FOLDER}/{version:020d}.{_COMMIT}" if epoch is None else f"{FOLDER}/{version:020d}-{epoch:010d}.{_COMMIT}"
