"""The commit log: one record for each version of the state; the record is the moment of truth.

Version 0 is the initial state, version b + 1 is the state after micro-batch b. Files below the checkpoint's folder::

    log/<version, 20 digits>.commit                        sealed "commit", format 2: the fields of Commit
    log/<version, 20 digits>-<epoch, 10 digits>.commit     the same, where the store cannot create a file if absent
    log/<version, 20 digits>-<epoch, 10 digits>-<oldest, 20 digits>.summary    sealed "summary", format 2: version; for
                                                           each group its snapshot and the changes since; the files
                                                           that hold them. Versions below the oldest are not kept

A summary says where the state of every key group is at its version, so nothing older than the last summary before the
oldest version that is kept has to be read. A commit names everything that it rests on by SHA-256: its plan, Spark's
offsets of the batch, its output files and its state files.

Which record of a version counts depends on the store (``Abilities.create_if_absent``):

- With create-if-absent a version has one record and it never changes. A query that was taken over may still write the
  next version, which is then valid: it is made from the same state and the same offsets. The query that has taken over
  finds the record when it commits the same version, and goes on from it.
- Without, records are named after the epoch too, and of several the one of the highest epoch counts. A query that takes
  over writes the last record again under its epoch, so that a late record of the other one never takes its place.
"""

import re
from collections import Counter
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
from equipoise.state.fencing import Epoch
from equipoise.state.sections import LEAST_SECTION_BYTES, Section
from equipoise.storage import Storage, StoredFile

FOLDER = "log"
SUMMARY_EVERY = 20
"""Versions from one summary to the next."""

_COMMIT, _SUMMARY, _FORMAT_VERSION = "commit", "summary", 2
_NAME = re.compile(rf"(\d{{20}})(?:-(\d{{10}}))?(?:-(\d{{20}}))?\.({_COMMIT}|{_SUMMARY})")
_PATH = re.compile(r"(changes|snapshots|outputs)/\w+/\w[\w.-]*")
_T = TypeVar("_T")
_ALONE = 10**10
"""Stands for the epoch of a record that is the only one of its version."""


class OutputFile(msgspec.Struct, frozen=True, array_like=True):
    """One file of delivered rows: path below the checkpoint, bytes, SHA-256, rows."""

    path: str
    size: int
    sha256: str
    rows: int

    @property
    def stored(self) -> StoredFile:
        """The file without its rows."""
        return StoredFile(self.path, self.size, self.sha256)


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """All entries of one key group at a version."""

    version: int
    section: Section


class Change(msgspec.Struct, frozen=True, array_like=True):
    """What one version changed in one key group."""

    version: int
    section: Section


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """All that one micro-batch did, and all that the next one needs to know.

    Parameters
    ----------
    version
        Version of the state that this record makes: the number of the batch plus 1.
    epoch
        Epoch of the query that wrote it.
    time_ms
        Processing time of the batch, milliseconds since 1970.
    watermark_ms, next_watermark_ms
        Watermark of this batch, and of the next.
    plan, next_plan
        Name of the plan that placed this batch, and of the one that places the next; a name has the plan's SHA-256.
    offsets
        SHA-256 of Spark's offsets of the batch; empty for the initial state.
    sections
        Changes, by key group.
    snapshots
        Snapshots made in this batch, of earlier versions, by key group.
    dropped
        Key groups that ceased: their entries are in the changes of other groups.
    files
        Files that hold the changes and snapshots.
    outputs
        Files of rows for the sink.
    variables
        State variables by name: the fields of ``VariableSpec``.
    loads
        Stored form of what is known of the load.
    decision
        What was decided about the plan, why, and the numbers behind it.
    measures
        What was measured: rows, seconds, imbalance and so on.
    """

    version: int
    epoch: int
    time_ms: int
    watermark_ms: int
    next_watermark_ms: int
    plan: str
    next_plan: str
    offsets: str
    sections: dict[str, Section]
    snapshots: dict[str, Snapshot]
    dropped: list[str]
    files: list[StoredFile]
    outputs: list[OutputFile]
    variables: dict[str, Any]
    loads: bytes
    decision: dict[str, Any]
    measures: dict[str, Any]

    @property
    def batch(self) -> int:
        """Number of the micro-batch; -1 for the initial state."""
        return self.version - 1


class Chain(msgspec.Struct, array_like=True):
    """Where the state of one key group is: its last snapshot and the changes since, oldest first."""

    snapshot: Snapshot | None = None
    changes: list[Change] = []

    @property
    def version(self) -> int:
        """Version of the last change; the state has been the same since."""
        if self.changes:
            return self.changes[-1].version
        return self.snapshot.version if self.snapshot else -1

    @property
    def changed_bytes(self) -> int:
        """Bytes of the changes since the snapshot."""
        return sum(change.section.length for change in self.changes)

    def files(self) -> Iterator[str]:
        """Files that hold this state, once for each section."""
        return (section.path for section in self.sections())

    def sections(self) -> Iterator[Section]:
        """Sections that hold this state."""
        if self.snapshot:
            yield self.snapshot.section
        for change in self.changes:
            yield change.section


class GroupTable:
    """Where the state of every key group is, at one version.

    Parameters
    ----------
    version
        Of the state.
    chains
        By key group.
    files
        The files that hold the chains.
    """

    def __init__(
        self, version: int = -1, chains: dict[str, Chain] | None = None, files: Iterable[StoredFile] = ()
    ) -> None:
        self.version = version
        self.chains: dict[str, Chain] = {} if chains is None else chains
        self._references = Counter(path for chain in self.chains.values() for path in chain.files())
        self._stored = {file.path: file for file in files if file.path in self._references}

    def advance(self, commit: Commit) -> set[str]:
        """Take up the next commit; gives the files that this version needs no more."""
        if commit.version != self.version + 1:
            raise LogBrokenError(
                f"commit {commit.version} does not follow version {self.version}; restore the records between them "
                "from a copy, or the whole checkpoint"
            )
        idle: set[str] = set()
        self._stored |= {file.path: file for file in commit.files}
        for group, snapshot in commit.snapshots.items():
            chain = self.chains.get(group)
            if chain is None or snapshot.version > self.version:
                raise DamagedError(
                    f"commit {commit.version} has a snapshot of the key group {group!r} at version {snapshot.version}, "
                    f"which version {self.version} does not have; restore the log from a copy"
                )
            later = [change for change in chain.changes if change.version > snapshot.version]
            self._set(group, Chain(snapshot, later), idle)
        for group, section in commit.sections.items():
            known = self.chains.get(group)
            change = Change(commit.version, section)
            if known is None or section.reset:
                self._set(group, Chain(None, [change]), idle)
            else:
                known.changes.append(change)
                self._references[section.path] += 1
        for group in commit.dropped:
            self._set(group, None, idle)
        self.version = commit.version
        gone = {path for path in idle if path not in self._references}
        for path in gone:
            self._stored.pop(path, None)
        return gone

    def files(self) -> set[str]:
        """Paths of all files that hold this state."""
        return set(self._references)

    def stored(self) -> list[StoredFile]:
        """All files that hold this state, with their digests; a file that no commit named is ``DamagedError``."""
        unknown = self._references.keys() - self._stored.keys()
        if unknown:
            raise DamagedError(
                f"no commit names {min(unknown)} by its SHA-256, though version {self.version} needs it; restore the "
                "log from a copy"
            )
        return [self._stored[path] for path in sorted(self._references)]

    def _set(self, group: str, chain: Chain | None, idle: set[str]) -> None:
        """Put a chain in place of another; files that nothing refers to any more go into ``idle``."""
        before = self.chains.pop(group, None)
        if chain is not None:
            self.chains[group] = chain
            self._references.update(chain.files())
        for path in before.files() if before else ():
            self._references[path] -= 1
            if not self._references[path]:
                del self._references[path]
                idle.add(path)


class CommitLog:
    """Reads and extends the log of one checkpoint."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def head(self) -> int:
        """Last committed version; -1 before the first."""
        return max(self._names(_COMMIT), default=-1)

    def last_epoch(self) -> int:
        """Highest epoch that is known to have written a record; 0 before the first."""
        named = [record.epoch for record in self._records() if record.epoch != _ALONE]
        last = self.last()
        return max([*named, 0 if last is None else last.epoch])

    def last(self) -> Commit | None:
        """The last record; ``None`` before the first. A running query may go on and delete it meanwhile."""
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

        Older records may be there all the same: a query that was taken over may write one that was deleted since, and
        a power cut may undo some deletions. The names of the summaries say which version is the oldest; a gap above it
        is a loss.
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
        """Records from version ``first`` to ``last``, each of which must be there."""
        yield from self._commits(self._names(_COMMIT), first, last)

    def latest(self, first: int, last: int) -> list[Commit]:
        """Records from version ``first``, or from the oldest that is kept, to ``last``."""
        return self._while_kept(lambda oldest: list(self.commits(max(first, oldest, 0), last)))

    def since(self, first: int, last: int) -> tuple[GroupTable, list[Commit]]:
        """Where the state was at version ``first``, or at the oldest that is kept, and the records after it."""

        def read(oldest: int) -> tuple[GroupTable, list[Commit]]:
            start = max(first, oldest, 0)
            return self.table(start), list(self.commits(start + 1, last))

        return self._while_kept(read)

    def kept(self, first: int = 0) -> list[Commit]:
        """Every record that is kept from version ``first`` on, oldest first."""
        return self.latest(first, self.head())

    def table(self, version: int) -> GroupTable:
        """Where the state is at a version."""
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
        """Commit, unless another query has taken over; gives the record that counts, which is durable.

        What decides is the check after the write. A query that takes over first claims its epoch and then reads the
        log: if it did so before this write, the check finds its epoch and this query stops without delivering anything;
        if after, it has seen this record and goes on from it.

        Where a version has one record, that of a query which was taken over may be there first. It counts then, once
        its name is synced: its writer may have died before that.

        The check before the write is for a query that hung while a copy of the checkpoint was restored: its record
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
        """The last record; where records have epochs, written once more under that of the query that goes on from it.

        A query that was taken over may write its own record of that version later; of a lower epoch, it never counts.

        The names in the log are synced: the query before may have died when it had written a record or a summary and
        not synced its name, and what follows relies on both.
        """
        last = self.last()
        if last is None:
            return None
        if epoch.exclusive or last.epoch == epoch.number:
            self.storage.sync(_commit_name(last.version, None if epoch.exclusive else last.epoch))
            return last
        return self.append(msgspec.structs.replace(last, epoch=epoch.number), epoch)

    def summarise(self, table: GroupTable, epoch: Epoch, keep_from: int = -1) -> int:
        """Write where the state is at the version of ``table``.

        Parameters
        ----------
        table
            Where it is.
        epoch
            The right to commit.
        keep_from
            Version from which on versions stay readable; default: as before.

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
        """Delete records and summaries of versions below ``version``, which is one that ``summarise`` gave."""
        for record in self._records():
            if record.version < version:
                self.storage.delete(f"{FOLDER}/{record.name}")
                failpoint("driver.in-forgetting")

    def _while_kept(self, read: Callable[[int], _T]) -> _T:
        """Read from the oldest version on, and again where a query has deleted records meanwhile."""
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
        """Name of the file of each version that counts: the only one, else that of the highest epoch."""
        return {record.version: record.name for record in self._records() if record.kind == kind}

    def _records(self) -> list["_Record"]:
        """The files of the log; those of other names are somebody else's and stay."""
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
        """Refuse a record of another version, one that names files of others, and sections outside of its files."""
        where = self.storage.at(f"{FOLDER}/{name}")
        if version != int(name[:20]):
            raise DamagedError(f"{where} is the record of version {version}; restore it from a copy")
        sizes = {file.path: file.size for file in files}
        named = dict.fromkeys([*sizes, *others, *(section.path for section in sections)])
        foreign = next((path for path in named if _PATH.fullmatch(path) is None), None)
        if foreign is not None:
            raise DamagedError(
                f"{where} names the file {foreign!r}, and a record names only files in changes, snapshots and outputs; "
                "restore it from a copy"
            )
        for section in sections:
            size = sizes.get(section.path, -1)
            if not 0 <= section.offset <= section.offset + section.length <= size:
                has = "which it does not name with its SHA-256" if size < 0 else f"which has {size} bytes"
                raise DamagedError(
                    f"{where} has a section from byte {section.offset} on, of {section.length} bytes, in "
                    f"{section.path!r}, {has}; restore it from a copy"
                )
            if section.length < LEAST_SECTION_BYTES:
                raise DamagedError(
                    f"{where} has a section of {section.length} bytes in {section.path!r}, and the shortest has "
                    f"{LEAST_SECTION_BYTES}; restore it from a copy"
                )

    def _decode(self, name: str, kind: str, shape: Any) -> Any:
        path = f"{FOLDER}/{name}"
        try:
            return msgspec.convert(unseal(kind, _FORMAT_VERSION, self.storage.read(path)), shape)
        except msgspec.ValidationError as error:
            raise DamagedError(f"{self.storage.at(path)} is not a {kind}: {error}; restore it from a copy") from error
        except FormatError as error:
            kind_of = UnknownFormatError if isinstance(error, UnknownFormatError) else DamagedError
            raise kind_of(f"{self.storage.at(path)}: {error}") from error

    def _missing(self, version: int, names: dict[int, str]) -> LogBrokenError:
        there = f"versions {min(names)} to {max(names)} are there" if names else "it is empty"
        return LogBrokenError(
            f"the log in {self.storage.at(FOLDER)} has no record of version {version} ({there}); "
            "restore the missing file from a copy, or read a version that is kept"
        )


class _Record(NamedTuple):
    """A file of the log, by its name."""

    version: int
    epoch: int
    oldest: int
    kind: str
    name: str


def _kept_from(records: list[_Record]) -> int:
    """The oldest version that is kept: who deletes older records has written a summary that says so."""
    return max((record.oldest for record in records), default=0)


def _commit_name(version: int, epoch: int | None) -> str:
    return f"{FOLDER}/{version:020d}.{_COMMIT}" if epoch is None else f"{FOLDER}/{version:020d}-{epoch:010d}.{_COMMIT}"
