"""The local disk, and mounted file systems.

A file is written under a temporary name, synced, and renamed; then its folder is synced. A file that must be new gets
its name by a hard link instead of a rename, which fails if the name exists. The parent of a new folder is synced as
well. Deletions are not synced: after a power cut a deleted file may exist again.
"""

import errno
import os
import shutil
from contextlib import suppress
from typing import BinaryIO

from equipoise.errors import StorageError
from equipoise.names import unique_name
from equipoise.storage.store import TEMPORARY, Abilities, FolderEntry, Store, Upload

NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""Error codes of file systems without hard links: SMB, exFAT and mounts of object stores."""


class LocalDisk(Store):
    """Files of this machine."""

    abilities = Abilities(
        create_if_absent=True, atomic_rename=True, rename_may_report_false=False, list_after_write=True, sync=True
    )

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file."""
        with open(path, "rb") as file:  # noqa: PTH123 - paths are text here
            file.seek(offset)
            return file.read() if length is None else file.read(length)

    def look(self, path: str) -> FolderEntry | None:
        """The file or folder of that name, if there is one."""
        try:
            found = os.stat(path)  # noqa: PTH116 - paths are text here
        except (FileNotFoundError, NotADirectoryError):
            return None
        is_file = not os.path.isdir(path)  # noqa: PTH112 - as above
        return FolderEntry(path.rpartition("/")[2], is_file, found.st_size if is_file else 0)

    def entries(self, folder: str, *, recursive: bool = False) -> list[FolderEntry]:
        """Files and folders in a folder."""
        found: list[FolderEntry] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    is_file = not entry.is_dir()
                    with suppress(FileNotFoundError):  # deleted while it was listed
                        found.append(FolderEntry(entry.name, is_file, entry.stat().st_size if is_file else 0))
        except (FileNotFoundError, NotADirectoryError):
            return []
        if recursive:
            for name in [each.name for each in found if not each.is_file]:
                below = self.entries(f"{folder}/{name}", recursive=True)
                found += [FolderEntry(f"{name}/{each.name}", each.is_file, each.size) for each in below]
        return found

    def upload(self, path: str, *, replace: bool) -> Upload:
        """Begin a file."""
        return _LocalUpload(path, replace=replace)

    def delete(self, path: str) -> None:
        """Delete a file."""
        os.unlink(path)  # noqa: PTH108 - paths are text here

    def delete_folder(self, folder: str) -> None:
        """Delete a folder and everything in it."""
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def sync(self, path: str) -> None:
        """Make a file or folder survive a power cut, and all names beside it."""
        _sync(path)
        sync_folder(path.rpartition("/")[0])


class _LocalUpload(Upload):
    def __init__(self, path: str, *, replace: bool) -> None:
        self._path, self._replace = path, replace
        self._folder, _, name = path.rpartition("/")
        _make_folder(self._folder)
        self._temporary = f"{self._folder}/.{name}.{unique_name()}{TEMPORARY}"
        self._file: BinaryIO = open(self._temporary, "wb")  # noqa: PTH123, SIM115 - closed by complete or abandon

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def complete(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self._replace:
            os.replace(self._temporary, self._path)  # noqa: PTH105 - paths are text here
        else:
            self._link()
            os.unlink(self._temporary)  # noqa: PTH108 - as above
        sync_folder(self._folder)

    def _link(self) -> None:
        try:
            os.link(self._temporary, self._path)
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            raise StorageError(
                f"could not create {self._path}: its file system has no hard links ({error}), and without them a file "
                "cannot be created only if it is absent; give a folder on a disk that has them (ext4, XFS, APFS, "
                "NFS), or name the bucket behind a mount by its own URI (s3://, gs://, abfss://)"
            ) from error

    def abandon(self) -> None:
        for step in (self._file.close, lambda: os.unlink(self._temporary)):  # noqa: PTH108 - as above
            with suppress(OSError):  # closing a file on a full disk fails, and just then it must be deleted
                step()


def _make_folder(folder: str) -> None:
    """Create a folder and its parents; the names of new ones survive a power cut."""
    if not folder or os.path.isdir(folder):  # noqa: PTH112 - paths are text here
        return
    above = os.path.dirname(folder)  # noqa: PTH120 - as above
    _make_folder(above)
    try:
        os.mkdir(folder)  # noqa: PTH102 - as above
    except FileExistsError as error:
        if not os.path.isdir(folder):  # noqa: PTH112 - as above; else another process was faster
            raise NotADirectoryError(f"{folder} is a file, expected a folder") from error
    _sync(above or os.curdir)


def sync_folder(folder: str) -> None:
    """Make the names in a local folder survive a power cut."""
    _sync(folder)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
