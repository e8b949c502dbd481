"""Where the state of every key group is, and which groups need a new snapshot.

A group is due for a snapshot when its changes are larger than its last snapshot, so that snapshots never cost more than
changes, however large the state is. It is also due when its oldest change is many versions old: a file of changes is
kept as long as one group needs its part, and a chain of many files takes long to read. A batch writes few snapshots, so
that groups that become due together are spread over several batches. The first batch of a run, whose caches are empty,
writes only those that are twice overdue.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from equipoise.errors import DamagedError, LogBrokenError
from equipoise.state.commit import Change, Commit, GroupSnapshot
from equipoise.state.sections import Section
from equipoise.storage import StoredFile

SMALLEST_BYTES = 64 * 1024
"""Bytes of changes below which a group is not due for its size."""

MOST_VERSIONS = 200
"""Versions from a group's oldest change to the last version of all groups after which the group is due."""

PATIENCE = 2
"""How much overdue a group must be for a snapshot in the first batch of a run, which would read it whole for that."""

_GROUPS_A_BATCH = 16  # a batch writes snapshots of at most one in so many groups


class Chain(msgspec.Struct, array_like=True):
    """Where the state of one key group is: its last snapshot and the changes since, oldest first."""

    snapshot: GroupSnapshot | None = None
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
        """Sections that hold this state, oldest first."""
        if self.snapshot:
            yield self.snapshot.section
        for change in self.changes:
            yield change.section


class GroupTable:
    """The chain of every key group at one version.

    Parameters
    ----------
    version
        Version of the state.
    chains
        Chains by key group.
    files
        The files that hold the chains.

    Attributes
    ----------
    changed_bytes
        Bytes of the changes of each group since its snapshot, kept as a running sum.
    """

    def __init__(
        self, version: int = -1, chains: dict[str, Chain] | None = None, files: Iterable[StoredFile] = ()
    ) -> None:
        self.version = version
        self.chains: dict[str, Chain] = {} if chains is None else chains
        self.changed_bytes = {group: chain.changed_bytes for group, chain in self.chains.items()}
        self._references = Counter(path for chain in self.chains.values() for path in chain.files())
        self._stored = {file.path: file for file in files if file.path in self._references}

    def advance(self, commit: Commit) -> set[str]:
        """Apply the next commit; return the files that the new version no longer needs."""
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
                self.changed_bytes[group] += section.length
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
        """All files that hold this state, with their digests; raise ``DamagedError`` for a file without one."""
        unknown = self._references.keys() - self._stored.keys()
        if unknown:
            raise DamagedError(
                f"no commit names {min(unknown)} by its SHA-256, though version {self.version} needs it; restore the "
                "log from a copy"
            )
        return [self._stored[path] for path in sorted(self._references)]

    def _set(self, group: str, chain: Chain | None, idle: set[str]) -> None:
        """Replace the chain of a group; add files that are no longer referenced to ``idle``."""
        before = self.chains.pop(group, None)
        self.changed_bytes.pop(group, None)
        if chain is not None:
            self.chains[group] = chain
            self.changed_bytes[group] = chain.changed_bytes
            self._references.update(chain.files())
        for path in before.files() if before else ():
            self._references[path] -= 1
            if not self._references[path]:
                del self._references[path]
                idle.add(path)


def due_snapshots(table: GroupTable, patience: float = 1) -> frozenset[str]:
    """Names of the groups to write a snapshot of, the most overdue first.

    Parameters
    ----------
    table
        The groups.
    patience
        Multiple of the limits of size and age from which on a group is written.
    """
    overdue = {group: _overdue(table, group) for group in table.chains}
    due = sorted((group for group in overdue if overdue[group] >= patience), key=lambda group: (-overdue[group], group))
    return frozenset(due[: max(1, -(-len(table.chains) // _GROUPS_A_BATCH))])


def _overdue(table: GroupTable, group: str) -> float:
    """Ratio of a group's size or age of changes to the limit; the group is due from 1 on."""
    chain = table.chains[group]
    if not chain.changes:
        return 0.0
    snapshot = chain.snapshot.section.length if chain.snapshot else 0
    age = table.version + 1 - chain.changes[0].version
    return max(table.changed_bytes[group] / max(SMALLEST_BYTES, snapshot), age / MOST_VERSIONS)
