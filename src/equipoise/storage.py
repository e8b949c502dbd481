"""The files of a checkpoint, on any filesystem that pyarrow knows.

A file appears under its name only when it is complete. On the local disk and on HDFS it is written under a temporary
name and renamed; object stores show a file only once it is closed. Local files and their folder are synced to disk
before the name appears, so a file that is there survives a power cut.
"""

import os
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Self, cast

import pyarrow as pa
import pyarrow.fs

from equipoise.errors import AlreadyThere, StorageFailed
from equipoise.failpoints import failpoint

_TEMPORARY = ".tmp"
_ADVICE = "make it reachable and writable again, with free space; nothing that was committed is lost"


class Storage:
    """A folder and everything below it; paths are relative to it and use ``/``.

    Parameters
    ----------
    location
        A local path or any URI that ``pyarrow.fs`` knows (``file://``, ``s3://``, ``hdfs://``, ``gs://`` ...).
    filesystem
        The filesystem that ``location`` is a path of; default: by the URI.
    """

    def __init__(self, location: str, filesystem: pyarrow.fs.FileSystem | None = None) -> None:
        self.location = location.rstrip("/")
        self._given = filesystem
        if filesystem is not None:
            self._filesystem, root = filesystem, location
        elif "://" in location:
            with _told("open", location):
                self._filesystem, root = pyarrow.fs.FileSystem.from_uri(location)
        else:
            self._filesystem, root = pyarrow.fs.LocalFileSystem(), os.path.abspath(location)  # noqa: PTH100 - may not exist yet
            self.location = root
        self._root = root.rstrip("/")
        self._is_local = isinstance(self._filesystem, pyarrow.fs.LocalFileSystem)
        self._renames = self._is_local or isinstance(self._filesystem, pyarrow.fs.HadoopFileSystem)

    def __reduce__(self) -> tuple[type[Self], tuple[str, pyarrow.fs.FileSystem | None]]:
        return type(self), (self.location, self._given)

    def at(self, path: str) -> str:
        """Where a file is, for messages and for Spark."""
        return f"{self.location}/{path}"

    def read(self, path: str) -> bytes:
        """All bytes of a file."""
        with _told("read", self.at(path)), self._filesystem.open_input_file(self._full(path)) as file:
            return cast("bytes", file.read())

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """``length`` bytes of a file from ``offset`` on; fewer where the file ends before."""
        with _told("read", self.at(path)), self._filesystem.open_input_file(self._full(path)) as file:
            return cast("bytes", file.read_at(length, offset))

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder of this name."""
        with _told("look for", self.at(path)):
            info = self._filesystem.get_file_info(self._full(path))
        return bool(info.type != pyarrow.fs.FileType.NotFound)

    def names(self, folder: str) -> list[str]:
        """Names of the files and folders directly in a folder, sorted; none where the folder does not exist.

        Files that are still being written are left out.
        """
        selector = pyarrow.fs.FileSelector(self._full(folder), allow_not_found=True)
        with _told("list", self.at(folder)):
            found = self._filesystem.get_file_info(selector)
        return sorted(info.base_name for info in found if not info.base_name.endswith(_TEMPORARY))

    def size(self, path: str) -> int:
        """Bytes of a file."""
        with _told("look at", self.at(path)):
            info = self._filesystem.get_file_info(self._full(path))
        if info.type != pyarrow.fs.FileType.File:
            raise StorageFailed(f"{self.at(path)} is not there; {_ADVICE}")
        return int(info.size)

    def usage(self, folder: str) -> int:
        """Bytes of all files below a folder; none where the folder does not exist."""
        selector = pyarrow.fs.FileSelector(self._full(folder), allow_not_found=True, recursive=True)
        with _told("list", self.at(folder)):
            return sum(info.size for info in self._filesystem.get_file_info(selector) if info.is_file)

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file, in place of the one of that name, which stays if this fails."""
        if self._renames:
            with self.writing(path) as file:
                file.write(data)
        else:
            self._put(path, data, is_new=not self.exists(path))

    def create(self, path: str, data: bytes) -> None:
        """Write a whole file unless there is one of that name.

        On the local disk this is one atomic step. Elsewhere there is a moment between looking and writing, so callers
        must not rely on it alone.
        """
        if self._is_local:
            with self.writing(path, replace=False) as file:
                file.write(data)
        elif self.exists(path):
            raise AlreadyThere(f"{self.at(path)} is there already")
        else:
            self._put(path, data, is_new=True)

    @contextmanager
    def writing(self, path: str, *, replace: bool = True) -> Iterator["Written"]:
        """A file to be written piece by piece, which appears when the block ends well and leaves nothing if not.

        Away from the local disk and HDFS, "nothing" also means nothing of a file of that name: give new names.
        """
        full, where = self._full(path), self.at(path)
        temporary = f"{full}.{uuid.uuid4().hex}{_TEMPORARY}" if self._renames else full
        with _told("write", where):
            if self._renames:
                self._filesystem.create_dir(full.rpartition("/")[0], recursive=True)
            stream = open(temporary, "wb") if self._is_local else self._filesystem.open_output_stream(temporary)  # noqa: PTH123, SIM115 - paths are text here
        try:
            yield Written(stream, where)
            failpoint("storage.before-name")
            with _told("write", where):
                self._complete(stream, temporary, full, replace=replace)
        except BaseException:
            self._abandon(stream, temporary)
            raise

    def clean(self, folder: str) -> None:
        """Delete what writers that were killed have left half-written in a folder."""
        selector = pyarrow.fs.FileSelector(self._full(folder), allow_not_found=True)
        with _told("clean", self.at(folder)):
            for info in self._filesystem.get_file_info(selector):
                if info.base_name.endswith(_TEMPORARY):
                    self._filesystem.delete_file(info.path)

    def delete(self, path: str) -> None:
        """Delete a file; that it is not there is as good."""
        with _told("delete", self.at(path)):
            try:
                self._filesystem.delete_file(self._full(path))
            except FileNotFoundError:
                return

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it; that it is not there is as good."""
        with _told("delete", self.at(folder)):
            self._filesystem.delete_dir_contents(self._full(folder), missing_dir_ok=True)
            try:
                self._filesystem.delete_dir(self._full(folder))
            except FileNotFoundError:
                return

    def _put(self, path: str, data: bytes, *, is_new: bool) -> None:
        """Write a whole file under its own name; if this fails, one that was there before is not deleted."""
        full = self._full(path)
        with _told("write", self.at(path)):
            stream = self._filesystem.open_output_stream(full)
            try:
                stream.write(data)
                failpoint("storage.before-name")
                stream.close()
            except BaseException:
                if is_new:
                    self._abandon(stream, full)
                raise

    def _complete(self, stream: Any, temporary: str, full: str, *, replace: bool) -> None:
        if not self._is_local:
            stream.close()
            if self._renames:
                self._filesystem.move(temporary, full)
            return
        stream.flush()
        os.fsync(stream.fileno())
        stream.close()
        if replace:
            os.replace(temporary, full)  # noqa: PTH105 - paths are text here
        else:
            try:
                os.link(temporary, full)
            except FileExistsError as error:
                raise AlreadyThere(f"{self.at('')}{full.removeprefix(self._root + '/')} is there already") from error
            os.unlink(temporary)  # noqa: PTH108 - paths are text here
        sync_folder(full.rpartition("/")[0])

    def _abandon(self, stream: Any, temporary: str) -> None:
        """Leave no half-written file; where even that fails, the first error is the one to tell."""
        for step in (stream.close, lambda: self._filesystem.delete_file(temporary)):
            with suppress(
                OSError, pa.ArrowException
            ):  # closing a file on a full disk fails, and just then it must be deleted
                step()

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


class Written:
    """A stream that counts and checksums what goes through it."""

    def __init__(self, stream: BinaryIO | pa.NativeFile, where: str) -> None:
        self._stream = stream
        self._where = where
        self.size = 0
        self.checksum = 0

    def write(self, data: bytes) -> int:
        """Append bytes."""
        with _told("write", self._where):
            self._stream.write(data)
        self.size += len(data)
        self.checksum = zlib.crc32(data, self.checksum)
        return len(data)

    def tell(self) -> int:
        """Bytes so far."""
        return self.size

    def flush(self) -> None:
        """Nothing to do: the file is flushed when it is complete."""

    @property
    def closed(self) -> bool:
        """Whether the file below is closed."""
        return bool(self._stream.closed)

    def writable(self) -> bool:
        """Yes."""
        return True

    def readable(self) -> bool:
        """No."""
        return False

    def seekable(self) -> bool:
        """No."""
        return False

    def close(self) -> None:
        """Left to ``Storage.writing``, so that libraries which close their file do not make it appear early."""


def sync_folder(folder: str) -> None:
    """Make the names in a local folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _told(verb: str, where: str) -> Iterator[None]:
    """Say which file it was, what was tried and what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageFailed(
            f"{where} is not there; restore it from a copy, or go back to a version without it"
        ) from error
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, StorageFailed | AlreadyThere):
            raise
        raise StorageFailed(f"could not {verb} {where}: {error}; {_ADVICE}") from error
