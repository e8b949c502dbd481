"""A file of a checkpoint is there as a whole or not at all, and a failing disk is reported in words."""

import builtins
import errno
import io
import os
import pickle
from hashlib import sha256

import pyarrow.fs
import pytest

from equipoise.errors import AlreadyExistsError, StorageError
from equipoise.storage import Storage, StoredFile
from equipoise.storage.file_systems import ArrowObjects


@pytest.fixture(params=["local", "uri", "other"])
def storage(request, tmp_path):
    """A folder on the local disk, the same by its URI, and one on a filesystem of which nothing is known."""
    if request.param == "other":
        (tmp_path / "store").mkdir()
        below = pyarrow.fs.SubTreeFileSystem(str(tmp_path / "store"), pyarrow.fs.LocalFileSystem())
        below.create_dir("root/a")
        return Storage("root", store=ArrowObjects(below))
    return Storage(str(tmp_path / "root") if request.param == "local" else f"file://{tmp_path}/root")


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def write_half(storage, path, error):
    with storage.writing(path) as file:
        file.write(b"half")
        raise error


def test_what_is_written_is_read_whole_or_in_part(storage):
    storage.write("a/file", b"0123456789")
    assert storage.read("a/file") == b"0123456789"
    assert storage.read_range("a/file", 3, 4) == b"3456"
    assert storage.read_range("a/file", 8, 100) == b"89"
    assert storage.size("a/file") == 10
    assert storage.exists("a/file")
    assert storage.exists("a")
    assert storage.names("a") == ["file"]
    storage.write("a/file", b"new")
    assert storage.read("a/file") == b"new"


def test_what_was_written_in_chunks_is_counted_and_checksummed(storage):
    with storage.writing("a/file") as file:
        assert [file.write(piece) for piece in (b"ab", b"", b"cde")] == [2, 0, 3]
        assert (file.tell(), file.writable(), file.readable(), file.seekable()) == (5, True, False, False)
        file.flush()
        file.close()  # left to the block
        assert not file.closed
    assert file.closed
    assert file.stored_as("a/file") == StoredFile("a/file", 5, sha256(b"abcde").hexdigest())
    storage.verify(file.stored_as("a/file"))
    assert storage.read("a/file") == b"abcde"


def test_a_file_that_is_created_must_be_new(storage):
    storage.create("a/file", b"first")
    with pytest.raises(AlreadyExistsError, match="a/file already exists"):
        storage.create("a/file", b"second")
    assert storage.read("a/file") == b"first"
    assert storage.names("a") == ["file"]


def test_deleting_what_is_not_there_is_as_good(storage):
    storage.write("a/file", b"1")
    storage.delete("a/file")
    storage.delete("a/file")
    assert not storage.exists("a/file")
    storage.write("a/one", b"1")
    storage.delete_folder("a")
    storage.delete_folder("a")
    assert not storage.exists("a")
    assert storage.names("a") == []


def test_a_missing_file_is_named_with_what_to_do(storage):
    for reach in (storage.read, storage.size, lambda path: storage.read_range(path, 0, 1)):
        with pytest.raises(StorageError, match=r"root/a/gone is not there; restore it from a copy"):
            reach("a/gone")


def test_an_error_inside_the_block_passes_through_and_leaves_nothing(storage, tmp_path):
    for error in (ValueError("mine"), OSError(errno.EIO, "mine too"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised:
            write_half(storage, "a/file", error)
        assert raised.value is error
    assert files(tmp_path) == []


def test_a_failed_overwrite_keeps_what_was_there(tmp_path):
    storage = Storage(str(tmp_path))
    storage.write("file", b"old")
    with pytest.raises(ZeroDivisionError):
        write_half(storage, "file", ZeroDivisionError())
    assert storage.read("file") == b"old"
    assert files(tmp_path) == ["file"]


class LosesConnection:
    """A filesystem that shows a file when it is closed, and cannot be reached at that moment."""

    def __init__(self, real):
        self.real, self.closed = real, False

    def __getattr__(self, name):
        return getattr(self.real, name)

    def open_output_stream(self, _):
        return self

    def write(self, _):
        pass

    def close(self):
        raise OSError(errno.ETIMEDOUT, "no answer")


@pytest.mark.parametrize("storage", ["other"], indirect=True)
def test_a_failed_overwrite_deletes_nothing_where_files_are_not_renamed(storage):
    storage.write("a/file", b"old")
    storage._store._filesystem = LosesConnection(storage._store._filesystem)
    for write in (storage.write, storage.create):
        with pytest.raises(StorageError, match=r"could not write root/a/new: .*no answer"):
            write("a/new", b"new")
    with pytest.raises(StorageError, match=r"could not write root/a/file: .*no answer"):
        storage.write("a/file", b"new")
    assert storage.read("a/file") == b"old"
    assert storage.names("a") == ["file"]


def test_a_file_appears_only_when_it_is_complete(tmp_path):
    storage = Storage(str(tmp_path))
    with storage.writing("a/file") as file:
        file.write(b"half")
        assert not storage.exists("a/file")
        assert storage.names("a") == []
    assert storage.names("a") == ["file"]


def test_what_killed_writers_left_is_cleaned(tmp_path):
    storage = Storage(str(tmp_path))
    storage.write("a/file", b"1")
    (tmp_path / "a" / "file.123.tmp").write_bytes(b"half")
    assert storage.names("a") == ["file"]
    storage.clean("a", check=lambda: None)
    storage.clean("nowhere", check=lambda: None)
    assert files(tmp_path) == ["file"]


class FullDisk(io.FileIO):
    """A file on a disk without space, which says so when it is written to and again when it is closed."""

    def write(self, _):
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self):
        super().close()
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("how", ["write", "create"])
def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path, monkeypatch, how):
    storage = Storage(str(tmp_path))
    real = builtins.open
    monkeypatch.setattr(
        builtins,
        "open",
        lambda path, mode="r", **more: FullDisk(path, mode) if mode == "wb" else real(path, mode, **more),
    )
    with pytest.raises(StorageError, match=r"could not write .*/a/file: .*No space left.*with free space") as raised:
        getattr(storage, how)("a/file", b"1")
    assert isinstance(raised.value.__cause__, OSError)
    assert files(tmp_path) == []


def test_a_read_only_disk_is_reported(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    storage = Storage(str(tmp_path))
    monkeypatch.setattr(builtins, "open", refuse)
    with pytest.raises(StorageError, match=r"could not write .*/a/file: .*Read-only file system.*writable again"):
        storage.write("a/file", b"1")
    monkeypatch.undo()
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StorageError, match="Read-only file system"):
        storage.write("a/file", b"1")
    assert files(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_reported(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="could not write"):
        Storage(str(tmp_path)).write("a/file", b"1")


def test_a_file_in_place_of_a_folder_is_reported(tmp_path):
    (tmp_path / "a").write_bytes(b"in the way")
    with pytest.raises(StorageError, match="could not write"):
        Storage(str(tmp_path)).write("a/file", b"1")


def test_an_unknown_kind_of_filesystem_is_reported():
    with pytest.raises(StorageError, match="could not open what://there"):
        Storage("what://there")


def test_a_storage_travels_with_its_filesystem(storage):
    storage.write("a/file", b"1")
    travelled = pickle.loads(pickle.dumps(storage))  # noqa: S301 - our own bytes
    assert travelled.read("a/file") == b"1"
    assert travelled.at("a/file") == storage.at("a/file")
