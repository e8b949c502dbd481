"""A cache on a disk with little room works or says that it has none; no process dies of a signal."""

import os
import shutil
import subprocess
import sys
import textwrap
from collections import Counter

import pytest

DISK_BYTES = 4 * 1024 * 1024
PAGE = 4096

STORY = """
    import os, shutil, sys
    from contextlib import ExitStack
    from pathlib import Path
    from equipoise.errors import StorageError
    from equipoise.state.cache import GroupCache

    disk = Path(sys.argv[1])

    def leave(free):
        (disk / "filler").unlink(missing_ok=True)
        found = os.statvfs(disk)
        with open(disk / "filler", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(found.f_bavail * found.f_frsize - free, 1))

    def sweep(frees, work):
        for free in frees:
            child = os.fork()
            if not child:
                leave(free)
                try:
                    work(GroupCache(disk / "cache"))
                except StorageError as error:
                    assert "make space" in str(error), error
                    os._exit(3)
                except BaseException as error:
                    print(free, repr(error), file=sys.stderr, flush=True)
                    os._exit(1)
                os._exit(0)
            print(free, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            shutil.rmtree(disk / "cache", ignore_errors=True)

    def entries(count):
        return [(number.to_bytes(8, "big"), os.urandom(300)) for number in range(count)]
"""


def _mounted(place, command):
    place.mkdir()
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting a small disk needs root: {error}")
    yield place
    subprocess.run(["/bin/umount", "--lazy", str(place)], check=True)


@pytest.fixture
def memory_disk(tmp_path):
    place = tmp_path / "disk"
    yield from _mounted(place, ["/bin/mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)])


@pytest.fixture
def ext4_disk(tmp_path):
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, 2 * DISK_BYTES)
    make = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin")
    if make is None:
        pytest.skip("mkfs.ext4 is not installed")
    subprocess.run([make, "-q", "-F", "-O", "^has_journal", "-m", "0", str(image)], check=True, capture_output=True)
    place = tmp_path / "disk"
    yield from _mounted(place, ["/bin/mount", "-o", "loop", str(image), str(place)])


@pytest.fixture(params=["memory_disk", "ext4_disk"])
def disk(request):
    """A small disk of each kind."""
    return request.getfixturevalue(request.param)


def ends(disk, code):
    """Number of children that ended with each exit code; 3 stands for STORAGE_FAILED."""
    program = textwrap.dedent(STORY) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", program, str(disk)], capture_output=True, text=True, check=True)
    found = Counter(int(line.split()[1]) for line in done.stdout.splitlines())
    assert set(found) <= {0, 3}, (found, done.stdout, done.stderr)
    return found


def test_groups_open_or_are_refused_at_every_amount_of_room(disk):
    found = ends(
        disk,
        f"""
        def work(cache):
            for number in range(4):
                group = cache.group(f"t{{number:05d}}")
                assert group.version == -1
                group.replace(1, [(b"key", b"value")])

        sweep(range(0, 40 * {PAGE}, {PAGE}), work)
        """,
    )
    assert found[0]
    assert found[3]
    assert found.total() == 40


def test_groups_grow_or_keep_what_they_have_at_every_amount_of_room(disk):
    found = ends(
        disk,
        f"""
        def work(cache):
            group = cache.group("t00017")
            group.replace(0, [(b"key", b"value")])
            for version in range(1, 12):
                try:
                    group.apply([(version, False, entries(2**version))], expected=version - 1)
                except StorageError:
                    with group.read() as found:
                        assert (found.version, found.get(b"key")) == (version - 1, b"value")
                        assert sum(1 for _ in found.entries()) == found.count
                    raise

        sweep(range(0, 2 * 1024 * 1024, 9 * {PAGE}), work)
        """,
    )
    assert found[0]
    assert found[3]


def test_a_disk_that_fills_up_stops_writers_and_no_reader(disk):
    found = ends(
        disk,
        f"""
        def work(cache):
            group = cache.group("t00017")
            group.replace(0, entries(100))
            leave(0)
            with ExitStack() as stack:  # more readers than have room in one page of the table of readers
                readers = [stack.enter_context(group.read()) for _ in range(100)]
                assert all(reader.count == 100 for reader in readers)
            try:
                cache.group("t00018").version
            except StorageError as error:
                assert "t00018" in str(error)
            else:
                raise AssertionError("a group was opened on a full disk")
            assert group.version == 0
            group.apply([(1, False, entries(2000))], expected=0)

        sweep(range(200 * {PAGE}, 205 * {PAGE}, {PAGE}), work)
        """,
    )
    assert found == {3: 5}


def test_a_group_that_another_process_has_grown_is_read_on_a_full_disk(disk):
    found = ends(
        disk,
        f"""
        def work(cache):
            group = cache.group("t00017")
            group.replace(0, entries(100))
            child = os.fork()
            if not child:
                group.apply([(1, False, entries(4000))], expected=0)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            leave(0)
            with group.read() as found:
                assert (found.version, sum(1 for _ in found.entries())) == (1, 4000)
            group.apply([(2, False, entries(8000))], expected=1)

        sweep([600 * {PAGE}, 700 * {PAGE}], work)
        """,
    )
    assert found == {3: 2}


def test_a_damaged_group_on_a_full_disk_is_rebuilt_or_refused(disk):
    ends(
        disk,
        f"""
        def work(cache):
            group = cache.group("t00017")
            group.replace(0, entries(100))
            cache.close()
            with open(cache.folder / "groups" / "t00017" / "data.mdb", "r+b") as file:
                file.write(b"rubbish" * 4000)
            leave(0)
            group.replace(1, entries(100))

        sweep(range(100 * {PAGE}, 105 * {PAGE}, {PAGE}), work)
        """,
    )


def test_a_group_that_had_no_room_is_used_when_there_is_some(disk):
    found = ends(
        disk,
        f"""
        def work(cache):
            group = cache.group("t00017")
            for free in (0, 1):
                leave(free * {PAGE})
                try:
                    group.replace(1, [(b"key", b"value")])
                except StorageError:
                    continue
                raise AssertionError(f"a group fits into {{free}} pages")
            leave(40 * {PAGE})
            assert group.replace(1, [(b"key", b"value")]) == 1

        sweep([40 * {PAGE}], work)
        """,
    )
    assert found == {0: 1}
