"""Checkpoints without a query: commits that are made by hand."""

import uuid

import pytest

from equipoise.state.fencing import claim
from equipoise.state.log import Commit, CommitLog, Snapshot
from equipoise.state.sections import CHANGES, SNAPSHOT, SectionWriter
from equipoise.storage import Storage


class Hand:
    """Writes the files and records of one checkpoint."""

    def __init__(self, folder):
        self.storage = Storage(str(folder))
        self.log = CommitLog(self.storage)
        self.epoch = claim(self.storage, lambda _: False)

    def file(self, version, contents, *, reset=(), folder="changes"):
        """One file; sections by group."""
        path = f"{folder}/{version:020d}/{uuid.uuid4().hex}"
        with self.storage.writing(path) as stream:
            writer = SectionWriter(stream, CHANGES if folder == "changes" else SNAPSHOT, path)
            return {group: writer.add(group, entries, reset=group in reset) for group, entries in contents.items()}

    def commit(self, version, sections=None, snapshots=None, dropped=(), **fields):
        return Commit(
            **{
                "version": version,
                "epoch": self.epoch.number,
                "time_ms": 1000 + version,
                "watermark_ms": 0,
                "next_watermark_ms": 0,
                "plan": "0000000000-0000000001",
                "next_plan": "0000000000-0000000001",
                "sections": sections or {},
                "snapshots": snapshots or {},
                "dropped": list(dropped),
                "outputs": [],
                "variables": {},
                "loads": b"\x00\xff",
                "decision": {"action": "keep", "applied": False, "reason": "", "numbers": {"bound": 1.5}},
                "measures": {"rows": 3},
            }
            | fields
        )

    def append(self, version, *args, **fields):
        commit = self.commit(version, *args, **fields)
        self.log.append(commit, self.epoch)
        return commit

    def snapshot(self, table, group, section):
        """A snapshot of a group as it is at ``table``."""
        return Snapshot(table.chains[group].version, section)

    def batch(self, table, changes, *, reset=(), snapshots=(), dropped=()):
        """The next version: ``changes`` by group, and snapshots of some groups as they are at ``table``."""
        version = table.version + 1
        sections = self.file(version, changes, reset=reset) if changes else {}
        made = self.file(version, dict.fromkeys(snapshots, ()), folder="snapshots") if snapshots else {}
        taken = {group: self.snapshot(table, group, section) for group, section in made.items()}
        return self.append(version, sections, taken, dropped)


@pytest.fixture(scope="session")
def make_hand():
    """Makes the hand of a folder."""
    return Hand


@pytest.fixture
def hand(tmp_path):
    return Hand(tmp_path / "checkpoint")
