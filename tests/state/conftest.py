"""Checkpoints without a query: commits that are made by hand."""

import errno
import uuid
from hashlib import sha256

import pyarrow.fs
import pytest

from equipoise.state.commit import Commit, GroupSnapshot
from equipoise.state.fencing import claim
from equipoise.state.log import CommitLog
from equipoise.state.sections import CHANGES, SNAPSHOT, SectionWriter
from equipoise.storage import Storage
from equipoise.storage.file_systems import RenamingFiles

PLAN = f"0000000000-{sha256(b'').hexdigest()}"


PROTOCOLS = ["exclusive", "by epoch"]
"""How claims and commits are distinguished: one file of a name, or names with the epoch."""


class HadoopFolder:
    """A local folder whose ``move`` is that of ``pyarrow.fs.HadoopFileSystem`` on HDFS.

    Parameters
    ----------
    folder
        Its root; ``None``: paths are those of the machine.
    """

    def __init__(self, folder=None):
        self._folder = folder
        local = pyarrow.fs.LocalFileSystem()
        self._real = local if folder is None else pyarrow.fs.SubTreeFileSystem(str(folder), local)

    def __reduce__(self):
        return type(self), (self._folder,)

    def __getattr__(self, name):
        return getattr(self._real, name)

    def move(self, source, target):
        """Rename; if that fails and both are files, delete the target and rename again."""
        try:
            self.rename(source, target)
        except OSError:
            if not (self._is(source, "File") and self._is(target, "File")):
                raise
            self._real.delete_file(target)
            self.between_delete_and_rename()
            self.rename(source, target)

    def rename(self, source, target):
        """Rename as the name node does: into a folder that exists, and never over a file."""
        if self._is(target, "Directory"):
            target = f"{target}/{source.rpartition('/')[2]}"
        if self._is(source, "NotFound") or not self._is(target, "NotFound"):
            raise OSError(errno.EIO, f"cannot rename {source} to {target}")
        self._real.move(source, target)

    def between_delete_and_rename(self):
        """Overridden by tests."""

    def _is(self, path, kind):
        return self._real.get_file_info(path).type == getattr(pyarrow.fs.FileType, kind)


@pytest.fixture
def hadoop_folder():
    """Class of a folder that renames as HDFS does."""
    return HadoopFolder


def storage_of(folder, protocol):
    """A local folder, on a store that can create a file only if it is absent, or on one that cannot."""
    return Storage(str(folder), store=None if protocol == "exclusive" else RenamingFiles(HadoopFolder()))


class Hand:
    """Writes the files and records of one checkpoint."""

    def __init__(self, folder, protocol="exclusive"):
        self.storage = storage_of(folder, protocol)
        self.log = CommitLog(self.storage)
        self.epoch = claim(self.storage, lambda _: False)
        self._files = []

    def file(self, version, contents, *, reset=(), folder="changes"):
        """One file; sections by group."""
        path = f"{folder}/{version:020d}/{uuid.uuid4().hex}"
        with self.storage.writing(path) as stream:
            writer = SectionWriter(stream, CHANGES if folder == "changes" else SNAPSHOT, path)
            made = {group: writer.add(group, entries, reset=group in reset) for group, entries in contents.items()}
        self._files.append(stream.stored_as(path))
        return made

    def commit(self, version, sections=None, snapshots=None, dropped=(), **fields):
        return Commit(
            **{
                "version": version,
                "epoch": self.epoch.number,
                "time_ms": 1000 + version,
                "watermark_ms": 0,
                "next_watermark_ms": 0,
                "plan": PLAN,
                "offsets": "",
                "files": self._files,
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
        self._files = []
        self.log.append(commit, self.epoch)
        return commit

    def snapshot(self, table, group, section):
        """A snapshot of a group as it is at ``table``."""
        return GroupSnapshot(table.chains[group].version, section)

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


@pytest.fixture(scope="session")
def make_storage():
    """Makes the storage of a folder and a protocol."""
    return storage_of


@pytest.fixture(scope="session", params=PROTOCOLS)
def protocol(request):
    """Each protocol of claims and commits."""
    return request.param


@pytest.fixture
def hand(tmp_path, protocol):
    return Hand(tmp_path / "checkpoint", protocol)
