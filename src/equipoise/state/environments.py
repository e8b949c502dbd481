"""Pool of the LMDB environments that this process has open: each at most once, a bounded number, closed when unused.

Layout of a folder of environments; all processes of the machine may use it at the same time::

    lock            held shared while an environment is opened, exclusively while one is removed
    groups/NAME/    an environment: data.mdb and lock.mdb
    gone/           removed environments, being deleted

An environment is renamed before it is deleted. A process that has it open keeps its copy until the next use, which
finds another file behind the name. Without the lock, a process could open ``lock.mdb`` of the old folder and
``data.mdb`` of its successor, and two writers would not see each other.

LMDB writes ``data.mdb`` with system calls, which report a full disk. It maps ``lock.mdb``, its table of readers, as a
sparse file: a write to a page without a block kills the process (SIGBUS). So the blocks of ``lock.mdb`` are written
before LMDB opens it.
"""

import errno
import logging
import os
import shutil
import sys
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import lmdb

from equipoise.errors import MismatchError, StorageError
from equipoise.storage.local_disk import NO_HARD_LINKS

if sys.platform != "win32":
    import fcntl
    import resource


def _affordable() -> int:
    """Number of environments, of three file descriptors each, that takes less than half of the process's limit."""
    if sys.platform == "win32":
        return 128
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1024 if files == resource.RLIM_INFINITY else min(max(files // 8, 16), 1024)


MOST_OPEN = _affordable()
"""Unused environments that stay open; a task with more groups than that opens each environment again for each use."""

READERS = 126
"""Readers that one environment admits at a time, over all processes."""

LOCK_BYTES = 192 + (READERS - 1) * 64
"""Length of ``lock.mdb`` in LMDB: a head and a slot for each reader, 64 bytes each; two pages."""

_MAP_STEP = 1 << 20  # bytes; a map consists of whole pages

DAMAGE = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)
"""Errors that LMDB raises for a damaged data file."""

_UNREADABLE = {errno.EACCES, errno.EPERM, errno.EISDIR, errno.EINVAL, errno.EIO}
_log = logging.getLogger(__name__)


class Environment:
    """An open LMDB environment whose map grows with its contents.

    The map may only be resized while this process has no open transaction, so ``resize`` waits for other threads, and
    a thread that reads may not write.

    Parameters
    ----------
    path
        Folder of the environment.
    sync
        Whether commits wait for the disk.
    """

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path, self.users, self.retired = path, 0, False
        _reserve_lock_table(path)
        # a map size of 0: the stored size, 1 MiB if new
        self._lmdb = lmdb.open(str(path), map_size=0, max_readers=READERS, sync=sync, metasync=False)
        self._identity = _identity(path)
        self._gate = threading.Condition()
        self._inside: list[int] = []
        pages = self._lmdb.info()["last_pgno"] + 1
        if self._identity is None or self._identity[2] < pages * self._lmdb.stat()["psize"]:
            # Reading a mapped page behind the end of the file would kill the process. LMDB may leave the last pages
            # unwritten if they are free; such a file is treated as damaged too, as it looks like a truncated one.
            self._lmdb.close()
            raise lmdb.CorruptedError(f"{path}: the data file ends before its page {pages}")
        self._lmdb.reader_check()
        self.main = self._lmdb.open_db()

    @property
    def current(self) -> bool:
        """Whether the path still refers to the open file."""
        found = _identity(self.path)
        return found is not None and self._identity is not None and found[:2] == self._identity[:2]

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator["lmdb.Transaction[bytes]"]:
        """A transaction; a write is committed at the end of the block, or undone if the block raises."""
        thread = threading.get_ident()
        transaction = self._begin(thread, write=write)
        try:
            with transaction:
                yield transaction
        finally:
            self._leave(thread)

    def grow(self) -> None:
        """Double the map."""
        self.resize(2 * self._lmdb.info()["map_size"])

    def reserve(self, size: int) -> None:
        """Grow the map to at least ``size`` bytes; this takes address space, not disk."""
        if self._lmdb.info()["map_size"] < size:
            self.resize(-(-size // _MAP_STEP) * _MAP_STEP)

    def resize(self, map_size: int) -> None:
        """Resize the map to ``map_size`` bytes; 0 adopts the size that another process has set."""
        with self._gate:
            self._refuse_if_reading(threading.get_ident())
            self._gate.wait_for(lambda: not self._inside)
            self._lmdb.set_mapsize(map_size)

    def close(self) -> None:
        """Close the environment, which must not be in use."""
        self._lmdb.close()

    def _begin(self, thread: int, *, write: bool) -> "lmdb.Transaction[bytes]":
        while True:
            with self._gate:
                if write:
                    self._refuse_if_reading(thread)
                self._inside.append(thread)
            try:
                return self._lmdb.begin(write=write)
            except lmdb.MapResizedError:  # another process has written beyond this map
                self._leave(thread)
            except BaseException:
                self._leave(thread)
                raise
            self.resize(0)

    def _leave(self, thread: int) -> None:
        with self._gate:
            self._inside.remove(thread)
            self._gate.notify_all()

    def _refuse_if_reading(self, thread: int) -> None:
        if thread in self._inside:
            raise MismatchError(
                f"this thread is reading the cache of group {self.path.name}, whose map can only grow while no thread "
                "reads it; leave the `with ... .read()` block first"
            )


class Environments:
    """The environments that one process has open, by their path."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, Environment] = OrderedDict()
        self._lock = threading.RLock()

    @contextmanager
    def using(self, folder: Path, name: str, *, sync: bool) -> Iterator[Environment]:
        """The environment ``name`` of ``folder``, created if it is absent and replaced if it is damaged.

        Raises ``FileNotFoundError`` if ``folder`` itself or its ``groups`` are absent.
        """
        path = folder / "groups" / name
        with self._lock:
            environment = self._open.get(path)
            if environment is None or not environment.current:
                self._retire(path)
                environment = self._open[path] = self._opened_or_renewed(folder, name, sync=sync)
                self._close_the_least_used()
            else:
                self._open.move_to_end(path)
            environment.users += 1
        try:
            os.utime(path)  # for ``last_used``
            yield environment
        finally:
            with self._lock:
                environment.users -= 1
                if environment.retired and not environment.users:
                    environment.close()

    def last_used(self, folder: Path) -> list[tuple[int, int, str]]:
        """Time of the last use in nanoseconds, bytes and name of each environment of ``folder``, of all processes."""
        found = []
        for path in (folder / "groups").iterdir():
            with suppress(FileNotFoundError):  # another process deletes it
                found.append((path.stat().st_mtime_ns, (path / "data.mdb").stat().st_size, path.name))
        return sorted(found)

    def close_deleted(self, folder: Path) -> None:
        """Close the environments of ``folder`` that another process has deleted, so that their disk space is free."""
        with self._lock:
            for path in [path for path in self._open if path.parent.parent == folder]:
                if not self._open[path].current:
                    self._retire(path)

    def discard(self, folder: Path, name: str) -> None:
        """Delete the environment ``name`` of ``folder``; its present users keep their open copy."""
        with self._lock:
            self._retire(folder / "groups" / name)
        gone = folder / "gone" / uuid.uuid4().hex
        try:
            gone.parent.mkdir(exist_ok=True)
            with _folder_lock(folder, exclusive=True):
                (folder / "groups" / name).rename(gone)
        except FileNotFoundError:  # another process was faster, or the whole folder was deleted
            return
        shutil.rmtree(gone, ignore_errors=True)

    def close(self, folder: Path) -> None:
        """Close all environments of ``folder``, those in use when their users are done."""
        with self._lock:
            for path in [path for path in self._open if path.parent.parent == folder]:
                self._retire(path)

    def leave_to_parent(self) -> None:
        """Drop the parent's environments in a forked child: LMDB handles must not be used in both processes."""
        self._open, self._lock = OrderedDict(), threading.RLock()

    def _opened_or_renewed(self, folder: Path, name: str, *, sync: bool) -> Environment:
        try:
            return _opened(folder, name, sync=sync)
        except lmdb.Error as error:
            if not isinstance(error, DAMAGE) and error.code not in _UNREADABLE:
                raise
            _log.warning("the cache of group %s cannot be used and is rebuilt: %s", name, error)
        self.discard(folder, name)
        return _opened(folder, name, sync=sync)

    def _close_the_least_used(self) -> None:
        spare = len(self._open) - MOST_OPEN
        for path in [path for path, environment in self._open.items() if not environment.users][: max(spare, 0)]:
            self._retire(path)

    def _retire(self, path: Path) -> None:
        environment = self._open.pop(path, None)
        if environment is not None:
            environment.retired = True
            if not environment.users:
                environment.close()


def _opened(folder: Path, name: str, *, sync: bool) -> Environment:
    path = folder / "groups" / name
    path.mkdir(exist_ok=True)
    with _folder_lock(folder, exclusive=False):
        return Environment(path, sync=sync)


def _reserve_lock_table(path: Path) -> None:
    """Write the blocks of ``lock.mdb`` if it is absent; raise ``OSError`` if the disk has no room for them.

    The file gets its name when it is complete, so no process can open it earlier.
    """
    table = path / "lock.mdb"
    if table.exists():
        return
    new = path / f"{uuid.uuid4().hex}.new"
    try:
        new.write_bytes(bytes(LOCK_BYTES))
        os.link(new, table)
    except FileExistsError:  # another process was faster
        pass
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        raise StorageError(
            f"the cache in {path} cannot be used: its file system has no hard links ({error}); give the query a cache "
            "folder on a local disk (cache=)"
        ) from error
    finally:
        new.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Device, inode and length of the data file at ``path``."""
    try:
        found = os.stat(f"{path}/data.mdb")  # noqa: PTH116 - paths are text here
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size


@contextmanager
def _folder_lock(folder: Path, *, exclusive: bool) -> Iterator[None]:
    if sys.platform == "win32":  # which does not rename files in use, so an environment in use is never removed
        yield
        return
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


ENVIRONMENTS = Environments()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ENVIRONMENTS.leave_to_parent)
