"""The LMDB environments that this process has open: each at most once, not too many, closed when nobody uses them.

A folder of environments looks like this; every process of the machine may use it at the same time::

    lock            held shared while an environment is opened, exclusively while one is taken away
    groups/NAME/    an environment: data.mdb and lock.mdb
    gone/           environments taken away, being deleted

An environment is taken away by renaming it first. Whoever has it open keeps its copy until the next use, which sees
that the file behind the name is another one. Without the lock, a process could open ``lock.mdb`` of the old folder and
``data.mdb`` of its successor, and two writers would not know of each other.

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
from contextlib import contextmanager
from pathlib import Path

import lmdb

from equipoise.errors import MismatchError, StorageError
from equipoise.storage.local_disk import NO_HARD_LINKS

if sys.platform != "win32":
    import fcntl
    import resource


def _affordable() -> int:
    """Each environment takes three file descriptors: less than half of what the process may have."""
    if sys.platform == "win32":
        return 128
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1024 if files == resource.RLIM_INFINITY else min(max(files // 8, 16), 1024)


MOST_OPEN = _affordable()
"""Environments kept open though unused: a task that visits more groups than that opens every one of them anew."""

READERS = 126
"""Readers of one environment at a time, of all processes."""

LOCK_BYTES = 192 + (READERS - 1) * 64
"""Length that LMDB gives ``lock.mdb``: a head and a slot for each reader, 64 bytes each; two pages."""

DAMAGE = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)
"""What LMDB raises for a data file that is not a sound one."""

_UNREADABLE = {errno.EACCES, errno.EPERM, errno.EISDIR, errno.EINVAL, errno.EIO}
_log = logging.getLogger(__name__)


class Environment:
    """An open LMDB environment whose map grows with its contents.

    The map may only change while this process has no transaction in it, so ``resize`` waits for other threads, and a
    thread that reads may not write.

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
        # a map size of 0 means: as stored, 1 MiB if new
        self._lmdb = lmdb.open(str(path), map_size=0, max_readers=READERS, sync=sync, metasync=False)
        self._identity = _identity(path)
        self._gate = threading.Condition()
        self._inside: list[int] = []
        pages = self._lmdb.info()["last_pgno"] + 1
        if self._identity is None or self._identity[2] < pages * self._lmdb.stat()["psize"]:
            # Reading a mapped page behind the end of the file would kill the process. LMDB may leave the last
            # pages unwritten if they are free; such a file is given up, too, as nothing tells it from a cut one.
            self._lmdb.close()
            raise lmdb.CorruptedError(f"{path}: the data file ends before its page {pages}")
        self._lmdb.reader_check()
        self.main = self._lmdb.open_db()

    @property
    def current(self) -> bool:
        """Whether the path still leads to the file that is open."""
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

    def resize(self, map_size: int) -> None:
        """Change the map to ``map_size`` bytes, or to what another process made of it for 0."""
        with self._gate:
            self._refuse_if_reading(threading.get_ident())
            self._gate.wait_for(lambda: not self._inside)
            self._lmdb.set_mapsize(map_size)

    def close(self) -> None:
        """Close the environment; nobody may be using it."""
        self._lmdb.close()

    def _begin(self, thread: int, *, write: bool) -> "lmdb.Transaction[bytes]":
        while True:
            with self._gate:
                if write:
                    self._refuse_if_reading(thread)
                self._inside.append(thread)
            try:
                return self._lmdb.begin(write=write)
            except lmdb.MapResizedError:  # another process wrote more than our map shows
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
                f"this thread is reading the cache of group {self.path.name}, and its map can only grow when nobody "
                "does; leave the `with ... .read()` block first"
            )


class Environments:
    """The environments that one process has open, by their path."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, Environment] = OrderedDict()
        self._lock = threading.RLock()

    @contextmanager
    def using(self, folder: Path, name: str, *, sync: bool) -> Iterator[Environment]:
        """The environment ``name`` of ``folder``, made if it is absent and made anew if it is damaged.

        ``FileNotFoundError`` if ``folder`` itself or its ``groups`` are absent.
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
            yield environment
        finally:
            with self._lock:
                environment.users -= 1
                if environment.retired and not environment.users:
                    environment.close()

    def discard(self, folder: Path, name: str) -> None:
        """Delete the environment ``name`` of ``folder``; users of it finish with what they have."""
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
        """Close all environments of ``folder``, those in use as soon as they are not."""
        with self._lock:
            for path in [path for path in self._open if path.parent.parent == folder]:
                self._retire(path)

    def leave_to_parent(self) -> None:
        """Forget, in a forked child, what belongs to its parent: LMDB's handles must not be used in both."""
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
    """Write the blocks of ``lock.mdb`` if it is absent; raise ``OSError`` where the disk has no room for them.

    The file gets its name when it is complete, so no process can open it before.
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
    if sys.platform == "win32":  # which does not let go of files in use, so none is taken away under a user
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
