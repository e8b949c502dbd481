"""Stores through pyarrow: HDFS and similar ones, which can rename, and object stores, which cannot.

pyarrow's object stores have no conditional upload: for a file that must be new, existence is checked first, and then it
is written.

HDFS itself never renames over a file. pyarrow's ``move`` to the name of an existing file is three requests: a rename
that HDFS refuses, a deletion of the target, and the rename again. So

- a file that may replace another is moved to its name. For a moment neither the old nor the new one is there, and a
  process that dies at this moment leaves neither. Nothing that a version needs is replaced in this way;
- a file that must be new lies under its own name in a temporary folder and is moved into its folder. HDFS gives it its
  name there in one step, or refuses because the name exists, and pyarrow deletes nothing, as the target is a folder.

The second form creates a file if it is absent. The log does not rely on it (``Abilities.create_if_absent``), since no
test here runs on HDFS itself; the sinks that copy files gain from it.
"""

import zlib
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.fs

from equipoise.names import unique_name
from equipoise.storage.store import TEMPORARY, Abilities, FolderEntry, Store, Upload

_CHUNK = 1 << 20


class ArrowObjects(Store):
    """An object store through pyarrow: a file appears under its name when its upload is complete.

    Parameters
    ----------
    filesystem
        pyarrow's file system.
    """

    abilities = Abilities(
        create_if_absent=False, atomic_rename=False, rename_may_report_false=False, list_after_write=True, sync=False
    )

    def __init__(self, filesystem: pyarrow.fs.FileSystem) -> None:
        self._filesystem = filesystem

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file."""
        with _as_os_errors(), self._filesystem.open_input_file(path) as file:
            data: bytes = file.read_at(file.size() - offset if length is None else length, offset)
            return data

    def look(self, path: str) -> FolderEntry | None:
        """The file or folder of that name, if there is one."""
        with _as_os_errors():
            info = self._filesystem.get_file_info(path)
        return None if info.type == pyarrow.fs.FileType.NotFound else _entry(info, info.base_name)

    def entries(self, folder: str, *, recursive: bool = False) -> list[FolderEntry]:
        """Files and folders in a folder."""
        selector = pyarrow.fs.FileSelector(folder, allow_not_found=True, recursive=recursive)
        with _as_os_errors():
            return [
                _entry(info, info.path.removeprefix(folder).lstrip("/"))
                for info in self._filesystem.get_file_info(selector)
            ]

    def upload(self, path: str, *, replace: bool) -> Upload:
        """Begin a file."""
        return _ObjectUpload(self._filesystem, path, replace=replace)

    def delete(self, path: str) -> None:
        """Delete a file."""
        with _as_os_errors():
            self._filesystem.delete_file(path)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder and everything in it."""
        with _as_os_errors():
            self._filesystem.delete_dir_contents(folder, missing_dir_ok=True)
            with suppress(FileNotFoundError):
                self._filesystem.delete_dir(folder)


class RenamingFiles(ArrowObjects):
    """HDFS and similar stores through pyarrow: a file is written under a temporary name and renamed."""

    abilities = Abilities(
        create_if_absent=False,
        atomic_rename=True,
        rename_may_report_false=True,
        list_after_write=True,
        sync=False,
        atomic_replace=False,
    )

    def upload(self, path: str, *, replace: bool) -> Upload:
        """Begin a file."""
        return (_ReplacingUpload if replace else _CreatingUpload)(self._filesystem, path)


class _ObjectUpload(Upload):
    """Buffers the bytes in memory and sends them when the file is complete.

    pyarrow cannot abort an upload: closing it makes the object appear. So the upload starts when all bytes are there,
    and an abandoned file neither replaces nor deletes an object that another writer has completed under its name.
    """

    def __init__(self, filesystem: pyarrow.fs.FileSystem, path: str, *, replace: bool) -> None:
        self._filesystem, self._path, self._replace, self._buffer = filesystem, path, replace, bytearray()

    def write(self, data: bytes) -> None:
        self._buffer += data

    def complete(self) -> None:
        with _as_os_errors():
            if not self._replace and self._filesystem.get_file_info(self._path).type != pyarrow.fs.FileType.NotFound:
                raise FileExistsError(self._path)
            stream = self._filesystem.open_output_stream(self._path)
            stream.write(bytes(self._buffer))
            stream.close()

    def abandon(self) -> None:
        self._buffer.clear()


class _RenamedUpload(Upload):
    """A file that is written under a temporary name and renamed.

    Parameters
    ----------
    filesystem
        pyarrow's file system.
    path
        Name of the file.
    temporary
        Name under which it is written.
    """

    def __init__(self, filesystem: pyarrow.fs.FileSystem, path: str, temporary: str) -> None:
        self._filesystem, self._path, self._temporary = filesystem, path, temporary
        self._size = self._checksum = 0
        with _as_os_errors():
            filesystem.create_dir(temporary.rpartition("/")[0], recursive=True)
            self._stream = filesystem.open_output_stream(temporary)

    def write(self, data: bytes) -> None:
        with _as_os_errors():
            self._stream.write(data)
        self._size += len(data)
        self._checksum = zlib.crc32(data, self._checksum)

    def _rename(self, target: str) -> None:
        """Move the file to ``target``; a move that reports a failure although it took effect is a success."""
        try:
            self._filesystem.move(self._temporary, target)
        except (OSError, pa.ArrowException):
            if not self._took_effect():
                raise

    def _took_effect(self) -> bool:
        """Whether a rename that reported a failure took effect: the temporary file is gone, the target has its bytes.

        The size alone would not do: a successor may have deleted the temporary file, and the target may be an earlier
        file of the same size.
        """
        ours, theirs = self._filesystem.get_file_info([self._temporary, self._path])
        if ours.type != pyarrow.fs.FileType.NotFound or theirs.size != self._size:
            return False
        checksum = 0
        with self._filesystem.open_input_stream(self._path) as file:
            while data := file.read(_CHUNK):
                checksum = zlib.crc32(data, checksum)
        return checksum == self._checksum


class _ReplacingUpload(_RenamedUpload):
    """A file that may replace another: pyarrow deletes that one before it renames."""

    def __init__(self, filesystem: pyarrow.fs.FileSystem, path: str) -> None:
        super().__init__(filesystem, path, _temporary_name(path))

    def complete(self) -> None:
        with _as_os_errors():
            self._stream.close()
            self._rename(self._path)

    def abandon(self) -> None:
        for step in (self._stream.close, lambda: self._filesystem.delete_file(self._temporary)):
            _try(step)


class _CreatingUpload(_RenamedUpload):
    """A file that must be new: it is moved into its folder, where HDFS refuses a name that exists."""

    def __init__(self, filesystem: pyarrow.fs.FileSystem, path: str) -> None:
        self._folder, _, name = path.rpartition("/")
        self._own = _temporary_name(path)
        super().__init__(filesystem, path, f"{self._own}/{name}")

    def complete(self) -> None:
        with _as_os_errors():
            self._stream.close()
            try:
                self._rename(self._folder)
            except (OSError, pa.ArrowException) as error:
                if self._filesystem.get_file_info(self._path).type == pyarrow.fs.FileType.NotFound:
                    raise
                raise FileExistsError(self._path) from error
        _try(lambda: self._filesystem.delete_dir(self._own))

    def abandon(self) -> None:
        for step in (self._stream.close, lambda: self._filesystem.delete_dir(self._own)):
            _try(step)


def _temporary_name(path: str) -> str:
    """Return the name of a temporary file or folder beside a file."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{unique_name()}{TEMPORARY}"


def _entry(info: Any, name: str) -> FolderEntry:
    return FolderEntry(name, bool(info.is_file), int(info.size or 0) if info.is_file else 0)


class _as_os_errors:  # noqa: N801 - used as a function
    """Raise pyarrow's own exceptions as ``OSError``."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pa.ArrowException) and not isinstance(error, OSError):
            raise OSError(str(error)) from error


def _try(step: Any) -> None:
    """Call ``step``; it only cleans up, and what it leaves behind is cleaned away later."""
    with suppress(OSError, pa.ArrowException):
        step()
