"""The commit log: one record for each version of the state; the record is the moment of truth.

Version 0 is the initial state, version b + 1 is the state after micro-batch b. Files below the checkpoint's folder::

    log/<version, 20 digits>-<epoch, 10 digits>.commit     sealed "commit", format 1: the fields of Commit
    log/<version, 20 digits>-<epoch, 10 digits>.summary    sealed "summary", format 1: version, then for each group its
                                                           snapshot and the changes since

A summary says where the state of every key group is at its version, so nothing older than the last summary before the
oldest version that is kept has to be read. Where a version has several records, the one of the highest epoch counts:
a query that was taken over may write late, and a query that takes over writes the last record again under its epoch.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from equipoise.errors import Damaged, FormatError, LogBroken, UnknownFormat
from equipoise.failpoints import failpoint
from equipoise.framing import seal, unseal
from equipoise.state.fencing import Epoch
from equipoise.state.sections import Section
from equipoise.storage import Storage

FOLDER = "log"
SUMMARY_EVERY = 20
"""Versions from one summary to the next."""

_COMMIT, _SUMMARY, _FORMAT_VERSION = "commit", "summary", 1
_NAME = re.compile(rf"(\d{{20}})-(\d{{10}})\.({_COMMIT}|{_SUMMARY})")


class OutputFile(msgspec.Struct, frozen=True, array_like=True):
    """One file of delivered rows: path below the checkpoint, rows, bytes, CRC-32."""

    path: str
    rows: int
    size: int
    checksum: int


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
        Name of the plan that placed this batch, and of the one that places the next.
    sections
        Changes, by key group.
    snapshots
        Snapshots made in this batch, of earlier versions, by key group.
    dropped
        Key groups that ceased: their entries are in the changes of other groups.
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
    sections: dict[str, Section]
    snapshots: dict[str, Snapshot]
    dropped: list[str]
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
        """Files that hold this state."""
        if self.snapshot:
            yield self.snapshot.section.path
        for change in self.changes:
            yield change.section.path


class GroupTable:
    """Where the state of every key group is, at one version."""

    def __init__(self, version: int = -1, chains: dict[str, Chain] | None = None) -> None:
        self.version = version
        self.chains: dict[str, Chain] = {} if chains is None else chains
        self._references = Counter(path for chain in self.chains.values() for path in chain.files())

    def advance(self, commit: Commit) -> set[str]:
        """Take up the next commit; gives the files that this version needs no more."""
        if commit.version != self.version + 1:
            raise LogBroken(f"commit {commit.version} does not follow version {self.version}")
        idle: set[str] = set()
        for group, snapshot in commit.snapshots.items():
            chain = self.chains[group]
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
        return {path for path in idle if path not in self._references}

    def files(self) -> set[str]:
        """All files that hold this state."""
        return set(self._references)

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
        """Highest epoch that has written a record; 0 before the first."""
        return max((record.epoch for record in self._records()), default=0)

    def oldest(self) -> int:
        """Oldest version that can still be read; -1 where there is none."""
        summaries, commits = self._names(_SUMMARY), self._names(_COMMIT)
        if 0 in commits:
            return 0
        base = min(summaries, default=-1)
        return min((version for version in commits if version >= base), default=-1)

    def read(self, version: int) -> Commit:
        """The record of a version."""
        names = self._names(_COMMIT)
        if version not in names:
            raise self._missing(version, names)
        return self._read(names[version])

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """Records from version ``first`` to ``last``, each of which must be there."""
        names = self._names(_COMMIT)
        for version in range(first, last + 1):
            if version not in names:
                raise self._missing(version, names)
            yield self._read(names[version])

    def kept(self, first: int = 0) -> Iterator[Commit]:
        """Every record that is kept from version ``first`` on, oldest first."""
        names = self._names(_COMMIT)
        for version in sorted(names):
            if version >= first:
                yield self._read(names[version])

    def table(self, version: int) -> GroupTable:
        """Where the state is at a version."""
        summaries = {number: name for number, name in self._names(_SUMMARY).items() if number <= version}
        table = self._read_summary(summaries[max(summaries)]) if summaries else GroupTable()
        for commit in self.commits(table.version + 1, version):
            table.advance(commit)
        return table

    def append(self, commit: Commit, epoch: Epoch) -> None:
        """Commit, unless another query has taken over; after this returns, the version exists for good.

        The check comes after the write. A query that takes over first claims its epoch and then reads the log: if it
        did so before this write, the check finds its epoch and this query stops without delivering anything; if after,
        it has seen this record and goes on from it.
        """
        payload = msgspec.to_builtins(commit, builtin_types=(bytes,))
        self.storage.create(_name(commit.version, commit.epoch, _COMMIT), seal(_COMMIT, _FORMAT_VERSION, payload))
        failpoint("driver.in-commit")
        epoch.check()

    def adopt(self, epoch: Epoch) -> Commit:
        """The last record, written once more under the epoch of the query that goes on from it.

        A query that was taken over may write its own record of that version later; of a lower epoch, it never counts.
        """
        last = self.read(self.head())
        if last.epoch != epoch.number:
            last = msgspec.structs.replace(last, epoch=epoch.number)
            self.append(last, epoch)
        return last

    def summarise(self, table: GroupTable, epoch: Epoch) -> None:
        """Write where the state is at the version of ``table``."""
        chains = msgspec.to_builtins(table.chains, builtin_types=(bytes,))
        data = seal(_SUMMARY, _FORMAT_VERSION, [table.version, chains])
        self.storage.write(_name(table.version, epoch.number, _SUMMARY), data)

    def forget_before(self, version: int) -> None:
        """Delete records and summaries that no version from ``version`` on needs."""
        summaries = self._names(_SUMMARY)
        base = max((number for number in summaries if number <= version), default=None)
        if base is None:
            return
        for record in self._records():
            if record.version < base:
                self.storage.delete(f"{FOLDER}/{record.name}")
                failpoint("driver.in-forgetting")

    def _names(self, kind: str) -> dict[int, str]:
        """Name of the file of each version; sorted names put the highest epoch last."""
        return {record.version: record.name for record in self._records() if record.kind == kind}

    def _records(self) -> list["_Record"]:
        """The files of the log; those of other names are somebody else's and stay."""
        found = ((name, _NAME.fullmatch(name)) for name in self.storage.names(FOLDER))
        return [_Record(int(match[1]), int(match[2]), match[3], name) for name, match in found if match]

    def _read(self, name: str) -> Commit:
        commit: Commit = self._decode(name, _COMMIT, Commit)
        return commit

    def _read_summary(self, name: str) -> GroupTable:
        version, chains = self._decode(name, _SUMMARY, tuple[int, dict[str, Chain]])
        return GroupTable(version, chains)

    def _decode(self, name: str, kind: str, shape: Any) -> Any:
        path = f"{FOLDER}/{name}"
        try:
            return msgspec.convert(unseal(kind, _FORMAT_VERSION, self.storage.read(path)), shape)
        except msgspec.ValidationError as error:
            raise Damaged(f"{self.storage.at(path)} is not a {kind}: {error}; restore it from a copy") from error
        except FormatError as error:
            kind_of = UnknownFormat if isinstance(error, UnknownFormat) else Damaged
            raise kind_of(f"{self.storage.at(path)}: {error}") from error

    def _missing(self, version: int, names: dict[int, str]) -> LogBroken:
        there = f"versions {min(names)} to {max(names)} are there" if names else "it is empty"
        return LogBroken(
            f"the log in {self.storage.at(FOLDER)} has no record of version {version} ({there}); "
            "restore the missing file from a copy, or read a version that is kept"
        )


class _Record(NamedTuple):
    """A file of the log, by its name."""

    version: int
    epoch: int
    kind: str
    name: str


def _name(version: int, epoch: int, kind: str) -> str:
    return f"{FOLDER}/{version:020d}-{epoch:010d}.{kind}"
