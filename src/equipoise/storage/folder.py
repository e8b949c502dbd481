"""One folder of a store, and everything below it.

A file appears under its name only when it is complete, and a complete file survives a power cut. ``Storage.abilities``
states the other guarantees.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

import msgspec
import pyarrow.fs

from equipoise.errors import AlreadyExistsError, DamagedError, StorageError
from equipoise.failpoints import failpoint
from equipoise.storage import object_store
from equipoise.storage.file_systems import ArrowObjects, RenamingFiles
from equipoise.storage.local_disk import LocalDisk
from equipoise.storage.store import TEMPORARY, Abilities, Store, Upload

_ADVICE = "make it reachable and writable again, with free space; nothing that was committed is lost"
_OBJECTS = re.compile(r"(s3|gs|az|abfss?)://[^/]+")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class StoredFile(msgspec.Struct, frozen=True, array_like=True):
    """A file and its digest: path below the folder, bytes, SHA-256 in hexadecimal digits."""

    path: str
    size: int
    sha256: str


class Storage:
    """A folder; paths are relative to it and use ``/``.

    Parameters
    ----------
    location
        A local path or a URI (``file://``, ``hdfs://``, ``s3://``, ``gs://`` ...).
    store
        The store that ``location`` is a path in; default: by the URI. Object stores are accessed through ``obstore`` if
        it is installed, which can create a file only if it is absent; otherwise, and on HDFS, through pyarrow.
    """

    def __init__(self, location: str, store: Store | None = None) -> None:
        self.location = location.rstrip("/")
        self._given = store
        if store is not None:
            self._store, root = store, location
        elif (bucket := _OBJECTS.match(place := canonical(location))) and object_store.is_installed():
            self._store, root = object_store.ConditionalObjects(bucket[0]), place[len(bucket[0]) + 1 :]
        elif _URI.match(place):
            self._store, root = _by_uri(place)
        else:
            self._store, root = LocalDisk(), place
            self.location = root
        self._root = root.rstrip("/")

    def __reduce__(self) -> tuple[type[Self], tuple[str, Store | None]]:
        return type(self), (self.location, self._given)

    @property
    def abilities(self) -> Abilities:
        """Guarantees of the store."""
        return self._store.abilities

    def at(self, path: str) -> str:
        """Full location of a file, for messages and for Spark."""
        return f"{self.location}/{path}"

    def below(self, path: str) -> "Storage":
        """A folder below this one, in the same store."""
        self._full(path)
        return Storage(self.at(path), self._given)

    def above(self, path: str) -> "Storage | None":
        """The folder in which this one has the given path; ``None`` if its location does not end with that path."""
        root = self.location.removesuffix(f"/{path}")
        return None if root == self.location else Storage(root, self._given)

    def read(self, path: str) -> bytes:
        """All bytes of a file."""
        with _Explained("read", self.at(path)):
            return self._store.read(self._full(path))

    def read_if_exists(self, path: str) -> bytes | None:
        """All bytes of a file; ``None`` if there is none."""
        with _Explained("read", self.at(path)):
            try:
                return self._store.read(self._full(path))
            except FileNotFoundError:
                return None

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """``length`` bytes of a file from ``offset`` on; fewer if the file ends earlier."""
        with _Explained("read", self.at(path)):
            return self._store.read(self._full(path), offset, length)

    def chunks(self, path: str, length: int = 8 << 20) -> Iterator[bytes]:
        """Yield the bytes of a file in chunks of ``length``."""
        offset = 0
        while data := self.read_range(path, offset, length):
            yield data
            offset += len(data)

    def verify(self, file: StoredFile) -> None:
        """Read a file and compare its size and digest with the recorded ones."""
        size, digest = 0, hashlib.sha256()
        for data in self.chunks(file.path):
            size += len(data)
            digest.update(data)
        if (size, digest.hexdigest()) != (file.size, file.sha256):
            raise DamagedError(
                f"{self.at(file.path)} has {size} bytes with the SHA-256 {digest.hexdigest()}; its commit says "
                f"{file.size} bytes with {file.sha256}; restore the file from a copy"
            )

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder of this name."""
        with _Explained("look for", self.at(path)):
            return self._store.look(self._full(path)) is not None

    def names(self, folder: str) -> list[str]:
        """Names of the files and folders directly in a folder, sorted; none if the folder does not exist.

        Temporary files are left out.
        """
        with _Explained("list", self.at(folder)):
            found = self._store.entries(self._full(folder))
        return sorted(entry.name for entry in found if not entry.name.endswith(TEMPORARY))

    def size(self, path: str) -> int:
        """Bytes of a file."""
        with _Explained("look at", self.at(path)):
            found = self._store.look(self._full(path))
            if found is None or not found.is_file:
                raise FileNotFoundError(path)
        return found.size

    def usage(self, folder: str) -> int:
        """Bytes of all files below a folder; none where the folder does not exist."""
        with _Explained("list", self.at(folder)):
            return sum(entry.size for entry in self._store.entries(self._full(folder), recursive=True))

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file, in place of the one of that name, which stays if this fails."""
        with self.writing(path) as file:
            file.write(data)

    def create(self, path: str, data: bytes) -> None:
        """Write a whole file; raise ``AlreadyExistsError`` if there is one of that name.

        With ``abilities.create_if_absent`` exactly one of several callers succeeds, provided that their bytes differ:
        after a failure the file is read back. If it has the bytes of this caller, the write succeeded and only the
        answer was lost; other bytes mean that another caller was first. Without, callers must not depend on this alone.

        A file that was read back is synced again, as the failure may have been that of the first sync.
        """
        try:
            with self.writing(path, replace=False) as file:
                file.write(data)
        except StorageError as error:
            found = self._found(path)
            if found is None or (found != data and isinstance(error, AlreadyExistsError)):
                raise
            if found != data:
                raise AlreadyExistsError(f"{self.at(path)} already exists") from error
            self.sync(path)

    @contextmanager
    def writing(self, path: str, *, replace: bool = True) -> Iterator["Written"]:
        """Open a file for writing; it appears when the block succeeds, and leaves nothing behind if the block raises.

        Object stores hold the bytes in memory until then.
        """
        where = self.at(path)
        with _Explained("write", where):
            upload = self._store.upload(self._full(path), replace=replace)
        try:
            written = Written(upload, where)
            yield written
            failpoint("storage.before-name")
            with _Explained("write", where):
                upload.complete()
            written.closed = True
        except BaseException:
            upload.abandon()
            raise

    def sync(self, path: str) -> None:
        """Make a file or folder of another process survive a power cut, on a store that needs it.

        All names in its parent folder survive as well.
        """
        with _Explained("sync", self.at(path)):
            self._store.sync(self._full(path))

    def clean(self, folder: str, check: Callable[[], None], start: str = "") -> None:
        """Delete temporary files and folders that killed writers have left in a folder.

        Parameters
        ----------
        folder
            The folder.
        check
            Raises if another query has taken over. It is called between the listing and the first deletion, so the
            listed files are not those of a successor, which claims the checkpoint before it writes.
        start
            Only files whose names start with this.
        """
        with _Explained("list", self.at(folder)):
            found = self._store.entries(self._full(folder))
        left = [
            entry
            for entry in found
            if entry.name.endswith(TEMPORARY) and entry.name.removeprefix(".").startswith(start)
        ]
        if left:
            check()
        for entry in left:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_file:
                self.delete(path)
            else:
                self.delete_folder(path)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        with _Explained("delete", self.at(path)):
            try:
                self._store.delete(self._full(path))
            except FileNotFoundError:
                return

    def delete_folder(self, folder: str) -> None:
        """Delete a folder and everything in it, if it exists."""
        with _Explained("delete", self.at(folder)):
            self._store.delete_folder(self._full(folder))

    def _found(self, path: str) -> bytes | None:
        """Bytes of a file after a failure; ``None`` if it does not exist or the store does not answer."""
        try:
            return self._store.read(self._full(path))
        except OSError:  # it is unknown whether the file was written; the first error is reported
            return None

    def _full(self, path: str) -> str:
        """The path in the store; a path that leads out of the folder is refused."""
        if not path:
            return self._root
        if path.startswith("/") or any(part in {"", ".", ".."} for part in path.split("/")):
            raise DamagedError(
                f"the path {path!r} leads out of {self.location}, and a record may only name files below it; restore "
                "the file that names it from a copy"
            )
        return f"{self._root}/{path}" if self._root else path


class Written:
    """A stream that counts and digests the bytes written to it."""

    def __init__(self, upload: Upload, where: str) -> None:
        self._upload = upload
        self._where = where
        self._digest = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Append bytes."""
        with _Explained("write", self._where):
            self._upload.write(data)
        self.size += len(data)
        self._digest.update(data)
        return len(data)

    @property
    def sha256(self) -> str:
        """SHA-256 of all bytes so far, in hexadecimal digits."""
        return self._digest.hexdigest()

    def stored_as(self, path: str) -> StoredFile:
        """The file with its size and digest, for a record."""
        return StoredFile(path, self.size, self.sha256)

    def tell(self) -> int:
        """Bytes so far."""
        return self.size

    def flush(self) -> None:
        """Nothing to do: the file is flushed when it is complete."""

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
        """Do nothing: ``Storage.writing`` closes the file, so that a library cannot make it appear early."""


def canonical(location: str) -> str:
    """Normalise a location: an absolute path on the local disk, or a URI with Arrow's name of the scheme.

    Examples
    --------
    >>> canonical("file:/data/my table"), canonical("s3a://bucket/out/")
    ('/data/my table', 's3://bucket/out')
    """
    location = re.sub(r"^s3[an]://", "s3://", location)  # Hadoop's names
    local = re.sub(r"^file:/+", "/", location)  # Spark does not escape these
    return location.rstrip("/") if _URI.match(local) else os.path.abspath(local)  # noqa: PTH100 - may not exist yet


def _by_uri(location: str) -> tuple[Store, str]:
    """The store of a URI that pyarrow knows, and the path in it."""
    with _Explained("open", location):
        try:
            filesystem, root = pyarrow.fs.FileSystem.from_uri(location)
        except ValueError as error:  # pyarrow's word for a URI that it cannot read
            raise OSError(str(error)) from error
    renames = isinstance(filesystem, pyarrow.fs.HadoopFileSystem)
    return (RenamingFiles if renames else ArrowObjects)(filesystem), root


class _Explained:
    """Raise errors of the block as ``StorageError`` that names the file, the operation and what to do."""

    def __init__(self, verb: str, where: str) -> None:
        self._verb, self._where = verb, where

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if not isinstance(error, OSError) or isinstance(error, StorageError):
            return
        if isinstance(error, FileNotFoundError):
            raise StorageError(
                f"{self._where} is not there; restore it from a copy, or go back to a version without it"
            ) from error
        if isinstance(error, FileExistsError):
            raise AlreadyExistsError(f"{self._where} already exists") from error
        raise StorageError(f"could not {self._verb} {self._where}: {error}; {_ADVICE}") from error
