"""Stores through pyarrow: HDFS and similar ones, which can rename, and object stores, which cannot.

Neither has an atomic create-if-absent here. pyarrow's ``move`` on HDFS deletes an existing target, and its object
stores have no conditional upload: for a file that must be new, existence is checked first, and then it is written.
"""

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.fs

from equipoise.names import unique_name
from equipoise.storage.store import TEMPORARY, Abilities, Entry, Store, Upload


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

    def look(self, path: str) -> Entry | None:
        """The file or folder of that name, if there is one."""
        with _as_os_errors():
            info = self._filesystem.get_file_info(path)
        return None if info.type == pyarrow.fs.FileType.NotFound else _entry(info, info.base_name)

    def entries(self, folder: str, *, recursive: bool = False) -> list[Entry]:
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
        create_if_absent=False, atomic_rename=True, rename_may_report_false=True, list_after_write=True, sync=False
    )

    def upload(self, path: str, *, replace: bool) -> Upload:
        """Begin a file."""
        return _RenamedUpload(
            self._filesystem, path, replace=replace, may_report_false=self.abilities.rename_may_report_false
        )


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
    def __init__(self, filesystem: pyarrow.fs.FileSystem, path: str, *, replace: bool, may_report_false: bool) -> None:
        self._filesystem, self._path, self._replace, self._size = filesystem, path, replace, 0
        self._may_report_false = may_report_false
        folder, _, name = path.rpartition("/")
        self._temporary = f"{folder}/.{name}.{unique_name()}{TEMPORARY}"
        with _as_os_errors():
            filesystem.create_dir(folder, recursive=True)
            self._stream = filesystem.open_output_stream(self._temporary)

    def write(self, data: bytes) -> None:
        with _as_os_errors():
            self._stream.write(data)
        self._size += len(data)

    def complete(self) -> None:
        with _as_os_errors():
            self._stream.close()
            if not self._replace and self._filesystem.get_file_info(self._path).type != pyarrow.fs.FileType.NotFound:
                raise FileExistsError(self._path)
            try:
                self._filesystem.move(self._temporary, self._path)
            except (OSError, pa.ArrowException):
                if not (self._may_report_false and self._took_effect()):
                    raise

    def abandon(self) -> None:
        for step in (self._stream.close, lambda: self._filesystem.delete_file(self._temporary)):
            _try(step)

    def _took_effect(self) -> bool:
        """Whether a rename that reported a failure took effect: the temporary file is gone, the target has its size."""
        ours, theirs = self._filesystem.get_file_info([self._temporary, self._path])
        return bool(ours.type == pyarrow.fs.FileType.NotFound and theirs.size == self._size)


def _entry(info: Any, name: str) -> Entry:
    return Entry(name, bool(info.is_file), int(info.size or 0) if info.is_file else 0)


class _as_os_errors:  # noqa: N801 - used as a function
    """Raise pyarrow's own exceptions as ``OSError``."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pa.ArrowException) and not isinstance(error, OSError):
            raise OSError(str(error)) from error


def _try(step: Any) -> None:
    """Call ``step`` during the handling of another error, which is the one to report."""
    with suppress(OSError, pa.ArrowException):
        step()
