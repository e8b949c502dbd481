"""Full, read-only and vanished disks: an error that says so, and nothing half-written."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from equipoise.errors import StorageError
from equipoise.state.cache import GroupCache
from equipoise.storage import Storage


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["/bin/mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting a small disk needs root: {error}")
    yield place
    subprocess.run(["/bin/umount", "--lazy", str(place)], check=True)


def _write_in_chunks(storage):
    with storage.writing("third") as file:
        for _ in range(100):
            file.write(os.urandom(5000))


def test_a_full_disk_is_reported_and_has_room_again(small_disk):
    storage = Storage(str(small_disk / "cp"))
    storage.write("first", b"1" * 100_000)
    with pytest.raises(StorageError, match=r"could not write .*/cp/second: .*No space left.*free space"):
        storage.write("second", os.urandom(300_000))
    with pytest.raises(StorageError, match="No space left"):
        _write_in_chunks(storage)
    assert [path.name for path in (small_disk / "cp").iterdir()] == ["first"]
    storage.write("fourth", b"4" * 100_000)


def test_a_full_disk_of_caches_is_reported(small_disk):
    cache = GroupCache(small_disk / "cache")
    group = cache.group("t00001")
    assert group.replace(1, [(b"key", b"value")]) == 1
    with pytest.raises(StorageError, match=r"cache.*t00001.*space"):
        group.replace(2, [(number.to_bytes(4, "big"), os.urandom(1000)) for number in range(1000)])
    with group.read() as entries:
        assert (entries.version, entries.get(b"key")) == (1, b"value")
    cache.close()


def test_a_disk_that_fails_at_the_last_moment_leaves_nothing(tmp_path, monkeypatch):
    def fail(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    storage = Storage(str(tmp_path / "cp"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError, match=r"/cp/file: .*No space left on device; make it reachable"):
            storage.write("file", b"content")
    assert not list((tmp_path / "cp").iterdir())


def test_a_read_only_disk_is_reported(small_disk):
    storage = Storage(str(small_disk / "cp"))
    storage.write("file", b"content")
    subprocess.run(["/bin/mount", "-o", "remount,ro", str(small_disk)], check=True)
    for change in (
        lambda: storage.write("other", b""),
        lambda: storage.delete("file"),
        lambda: storage.create("x", b""),
    ):
        with pytest.raises(StorageError, match=r"Read-only file system.*writable again"):
            change()
    assert storage.read("file") == b"content"


def test_a_vanished_disk_is_reported(tmp_path):
    storage = Storage(str(tmp_path / "cp"))
    storage.write("file", b"content")
    Path(storage.at("file")).unlink()
    for look in (lambda: storage.read("file"), lambda: storage.read_range("file", 0, 1), lambda: storage.size("file")):
        with pytest.raises(StorageError, match=r"/cp/file is not there; "):
            look()
    assert storage.names("folder") == []
    storage.delete("file")
