"""Local cache of key groups on a machine: an LMDB environment for each group.

The cache only contains committed versions and may be deleted at any time: it is rebuilt from the checkpoint. All
processes of a machine share it. A commit to the cache does not wait for the disk, so after a power cut its files are
undefined. Its folder is therefore named after the current boot of the machine, and a new boot starts a new cache. Where
the system has no boot id, commits do wait for the disk.
"""

import errno
import getpass
import logging
import os
import shutil
import stat
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

import lmdb

from equipoise.errors import DamagedError, InvalidArgumentError, StorageError
from equipoise.state.cached_blocks import BlockReader, write_frames
from equipoise.state.cached_entries import CacheReader, Record, write_entries
from equipoise.state.entry_columns import Frame
from equipoise.state.environments import DAMAGE, ENVIRONMENTS, Environment

FORMAT_VERSION = 4
"""Format of the files in the cache; part of the folder's name, so another format uses another folder."""

Entries = Iterable[tuple[bytes, bytes | None]] | Iterable[Frame]
"""Keys with their values, None for a deletion; frames for a cache with blocks."""

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_log = logging.getLogger(__name__)


class GroupCache:
    """The cached groups of one query on one machine.

    Parameters
    ----------
    folder
        Folder on a local disk, used only by this query. The caches of earlier boots and runs in it are deleted.
    number, run
        Epoch and unique name of this run of the query. If the checkpoint is restored from a copy between two runs, the
        same version may have another content; within a run it never has. Of the caches of one boot, those of lower
        epochs are deleted, so that a late task of an earlier run does not delete the caches of later runs.
    above
        Parent folder that must be private as well.
    tag
        Number of the state variable whose plain entries are stored in blocks, the same for all processes of a run;
        ``None``: each entry is stored alone. Blocks are for operators that read and write many keys at once.

    Guarantees
    ----------
    - The folder is created with mode 0700. An existing one is used only if it is not a symbolic link, belongs to this
      user, and no other user can write to it; its mode is never changed. The same holds for ``above``.
    """

    def __init__(
        self,
        folder: Path,
        number: int = 0,
        run: str = "any",
        *,
        above: Path | None = None,
        tag: int | None = None,
    ) -> None:
        self.tag = tag
        boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else None
        start = f"cache-{FORMAT_VERSION}-{boot or 'any'}-"
        self.folder = Path(folder).absolute() / f"{start}{number:010d}-{_checked(run)}"
        self.sync = boot is None
        self._above, self._start, self._number = above, start, number
        self.make()

    @classmethod
    def of_query(
        cls, query: str, folder: str | None = None, number: int = 0, run: str = "any", *, tag: int | None = None
    ) -> "GroupCache":
        """The cache of a run of the query named ``query`` below ``folder``, or below the machine's temporary folder."""
        name = blake2b(query.encode(), digest_size=16).hexdigest()
        if folder is not None:
            _require_trusted(Path(folder))
            return cls(Path(folder) / name, number, run, tag=tag)
        owner = getpass.getuser() if sys.platform == "win32" else os.geteuid()
        parent = Path(tempfile.gettempdir()) / f"equipoise-{owner}"
        return cls(parent / name, number, run, above=parent, tag=tag)

    def make(self) -> None:
        """Create absent folders, and refuse folders that another user could change."""
        if self._above is not None:
            _make_private(self._above)
        parent = self.folder.parent
        _make_private(parent)
        with _usable(parent):
            if not (self.folder / "groups").exists():
                (self.folder / "groups").mkdir(parents=True, exist_ok=True)
                _delete_others(parent, self._start, self._number)

    def group(self, group_id: str) -> "CachedGroup":
        """The group ``group_id``, empty if it is not cached."""
        return CachedGroup(self, _checked(group_id))

    def forget(self, group_id: str) -> None:
        """Delete the group ``group_id``; nothing happens if it is not cached."""
        with _usable(self.folder):
            ENVIRONMENTS.discard(self.folder, _checked(group_id))

    def trim(self, most_bytes: int) -> None:
        """Delete the groups whose last use is longest ago, until the others take at most ``most_bytes``."""
        with _usable(self.folder):
            groups = ENVIRONMENTS.last_used(self.folder)
            excess = sum(size for _, size, _ in groups) - most_bytes
            for _, size, group_id in groups:
                if excess <= 0:
                    break
                ENVIRONMENTS.discard(self.folder, group_id)
                excess -= size
            ENVIRONMENTS.close_deleted(self.folder)

    def close(self) -> None:
        """Close the files that this process has open; they are opened again when the cache is used."""
        ENVIRONMENTS.close(self.folder)


class CachedGroup:
    """One group of a cache; it does not keep files open.

    Guarantees
    ----------
    - A reader sees one committed version, whatever other threads and processes do.
    - A write is atomic, also if the process is killed or the map has to grow.
    - A damaged file is logged, deleted and treated as an empty group.
    """

    def __init__(self, cache: GroupCache, group_id: str) -> None:
        self._cache, self.group_id = cache, group_id
        self._entries: Callable[..., None] = write_entries if cache.tag is None else write_frames

    @property
    def tag(self) -> int | None:
        """Number of the state variable whose entries are stored in blocks, if any."""
        return self._cache.tag

    @property
    def version(self) -> int:
        """Version of the last change applied, -1 for none."""
        return self.record.version

    @property
    def record(self) -> Record:
        """Version and extent of the group."""
        try:
            with self.read() as entries:
                return entries.record
        except DamagedError:  # logged and deleted by read()
            return Record()

    @contextmanager
    def read(self) -> Iterator[CacheReader]:
        """The entries at the current version, valid within the block; check their ``version`` first."""
        try:
            with self._environment() as environment, environment.transaction(write=False) as transaction:
                yield CacheReader(transaction) if self.tag is None else BlockReader(transaction, self.tag)
        except DAMAGE as error:
            self._delete_damaged(error)
            raise DamagedError(
                f"the cache of group {self.group_id} is damaged ({error}) and was deleted; run the task again: it "
                "rebuilds the group from the checkpoint"
            ) from error

    def apply(self, changes: Iterable[tuple[int, bool, Entries]], *, expected: int) -> int:
        """Apply the changes of later batches, in one transaction.

        Parameters
        ----------
        changes
            Version, whether the group is emptied before it, and entries of each change, versions ascending. They are
            read again if the map has to grow; iterators are therefore copied into memory, other iterables not.
        expected
            Version that the changes continue.

        Returns
        -------
        int
            The version now stored. Changes that another process has already applied are skipped. If the group was
            deleted in the meantime and is older than ``expected``, nothing is applied, unless the first change empties
            the group: check the version again and collect more changes.
        """
        batches = [(version, reset, _repeatable(entries)) for version, reset, entries in changes]
        _require_ascending([version for version, _, _ in batches], expected)

        def work(environment: Environment, transaction: "lmdb.Transaction[bytes]") -> int:
            record = Record.load(transaction)
            is_reset = bool(batches) and batches[0][1]
            if record.version < expected and not is_reset:
                return record.version
            for version, reset, entries in batches:
                if version > record.version:
                    if reset:
                        transaction.drop(environment.main, delete=False)
                        record = Record()
                    self._entries(transaction, record, entries, to_empty=reset)
                    record.version = version
            record.spent = 0
            record.store(transaction)
            return record.version

        return self._write(work)

    def replace(self, version: int, entries: Entries, *, expected: int | None = None) -> int:
        """Start from a snapshot: empty the group and put all ``entries``, in one transaction.

        Parameters
        ----------
        version
            Version of the snapshot; it may be older than what is stored.
        entries
            Entries of the snapshot, best in ascending order. Iterators are copied into memory, other iterables not.
        expected
            If given, replace the group only if the stored version still is this one.

        Returns
        -------
        int
            The version now stored.
        """
        content = _repeatable(entries)

        def work(environment: Environment, transaction: "lmdb.Transaction[bytes]") -> int:
            stored = Record.load(transaction).version
            if expected is not None and stored != expected:
                return stored
            transaction.drop(environment.main, delete=False)
            record = Record(version)
            self._entries(transaction, record, content, to_empty=True)
            record.store(transaction)
            return version

        return self._write(work)

    def reserve(self, size: int) -> None:
        """Prepare for ``size`` bytes, so that changes are not read again because the map has to grow for them."""
        with self._environment() as environment:
            environment.reserve(size)

    def spend(self, size: int) -> None:
        """Add the bytes that were read from the checkpoint because the cache did not have the group."""

        def work(environment: Environment, transaction: "lmdb.Transaction[bytes]") -> int:  # noqa: ARG001 - as for others
            record = Record.load(transaction)
            record.spent += size
            record.store(transaction)
            return record.version

        self._write(work)

    def _write(self, work: Callable[[Environment, "lmdb.Transaction[bytes]"], int]) -> int:
        try:
            try:
                return self._write_growing(work)
            except DAMAGE as error:
                self._delete_damaged(error)
            return self._write_growing(work)
        except lmdb.Error as error:
            if error.code in _DISK:
                raise self._unusable(error) from error
            raise

    def _write_growing(self, work: Callable[[Environment, "lmdb.Transaction[bytes]"], int]) -> int:
        with self._environment() as environment:
            while True:
                try:
                    with environment.transaction(write=True) as transaction:
                        return work(environment, transaction)
                except lmdb.MapFullError:  # the transaction is rolled back: grow, and repeat it
                    environment.grow()

    @contextmanager
    def _environment(self) -> Iterator[Environment]:
        with ExitStack() as stack:
            try:
                try:
                    environment = stack.enter_context(self._using())
                except FileNotFoundError:  # the cache was deleted
                    self._cache.make()
                    environment = stack.enter_context(self._using())
            except (lmdb.Error, OSError) as error:
                code = error.code if isinstance(error, lmdb.Error) else error.errno
                if code in _DISK:
                    raise self._unusable(error) from error
                raise
            yield environment

    def _using(self) -> AbstractContextManager[Environment]:
        return ENVIRONMENTS.using(self._cache.folder, self.group_id, sync=self._cache.sync)

    def _unusable(self, error: Exception) -> StorageError:
        return _unusable(f"the cache of group {self.group_id} in {self._cache.folder}", error)

    def _delete_damaged(self, error: Exception) -> None:
        _log.warning("the cache of group %s is damaged and deleted: %s", self.group_id, error)
        self._cache.forget(self.group_id)


def _delete_others(parent: Path, start: str, number: int) -> None:
    """Delete the caches of earlier formats, boots and runs; renamed first, so that no process sees half of a cache."""
    for other in parent.glob("cache-*"):
        of_boot, found = other.name.startswith(start), other.name.removeprefix(start)[:10]
        if not of_boot or (found.isdigit() and int(found) < number):
            with suppress(OSError):  # another process was faster, or has it in use
                other.rename(parent / f"gone-{uuid.uuid4().hex}")
    for gone in parent.glob("gone-*"):
        shutil.rmtree(gone, ignore_errors=True)


def _make_private(folder: Path) -> None:
    """Create ``folder`` for this user alone, or refuse an existing one that another user could change."""
    with _usable(folder):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
        found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise _unsafe(folder, "is a symbolic link")
    if not stat.S_ISDIR(found.st_mode):
        raise _unsafe(folder, "is not a folder")
    if sys.platform == "win32":
        return
    if found.st_uid != os.geteuid():
        raise _unsafe(folder, f"belongs to user {found.st_uid}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        advice = "`chmod go-w` it if nobody has changed what is in it, or "
        raise _unsafe(folder, f"has mode {stat.S_IMODE(found.st_mode):04o}", advice)


def _require_trusted(folder: Path) -> None:
    """Refuse a ``folder`` in which users other than this one and root could rename files, or a symbolic link of theirs.

    In a folder that everybody may write to, the sticky bit lets only the owner of a folder rename it.
    """
    with _usable(folder):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
        itself, target = folder.lstat(), folder.stat()
    if not stat.S_ISDIR(target.st_mode):
        raise _unsafe(folder, "is not a folder")
    if sys.platform == "win32":
        return
    trusted = {0, os.geteuid()}
    if itself.st_uid not in trusted and stat.S_ISLNK(itself.st_mode):
        raise _unsafe(folder, f"is a symbolic link of user {itself.st_uid}")
    if target.st_uid not in trusted:
        raise _unsafe(folder, f"belongs to user {target.st_uid}")
    if target.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not target.st_mode & stat.S_ISVTX:
        raise StorageError(
            f"the cache folder {folder} has mode {stat.S_IMODE(target.st_mode):04o}: other users could rename the "
            f"files of the query; `chmod go-w` it, or `chmod +t` it, or name a folder below it "
            f"(cache={folder}/equipoise), which is created with mode 0700"
        )


def _unsafe(folder: Path, found: str, advice: str = "") -> StorageError:
    owner = getpass.getuser() if sys.platform == "win32" else f"user {os.geteuid()}"
    return StorageError(
        f"the cache folder {folder} {found}, expected a folder of {owner} that no other user can write to; remove it, "
        f"or {advice}give the query another folder (cache=)"
    )


@contextmanager
def _usable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unusable(f"the cache in {folder}", error) from error


def _unusable(what: str, error: Exception) -> StorageError:
    return StorageError(
        f"{what} cannot be used ({error}): its disk is full, read-only or broken; make space, or give the query "
        "another cache folder; nothing that was committed is lost"
    )


def _checked(group_id: str) -> str:
    if not (group_id.isascii() and group_id.isalnum()):
        raise InvalidArgumentError(f"a group id consists of ASCII letters and digits, got {group_id!r}")
    return group_id


def _repeatable(entries: Entries) -> Entries:
    return list(entries) if isinstance(entries, Iterator) else entries


def _require_ascending(versions: Sequence[int], expected: int) -> None:
    for before, version in zip([expected, *versions], versions, strict=False):
        if version <= before:
            raise InvalidArgumentError(
                f"changes must have ascending versions above {expected}, got {list(versions)}; leave out versions that "
                "the cache has, and sort the others"
            )
