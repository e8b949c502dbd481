"""One folder of a store, and everything below it.

A file appears under its name only when it is complete, and a complete file survives a power cut. What else may be
relied on is in ``Storage.abilities``.
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
    """A file and what it must contain: path below the folder, bytes, SHA-256 in hexadecimal digits."""

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
        The store that ``location`` is a path of; default: by the URI. Object stores are reached through ``obstore``
        where it is installed, which can create a file only if it is absent; otherwise, and on HDFS, through pyarrow.
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
        """What the store guarantees."""
        return self._store.abilities

    def at(self, path: str) -> str:
        """Where a file is, for messages and for Spark."""
        return f"{self.location}/{path}"

    def read(self, path: str) -> bytes:
        """All bytes of a file."""
        with _explained("read", self.at(path)):
            return self._store.read(self._full(path))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """``length`` bytes of a file from ``offset`` on; fewer where the file ends before."""
        with _explained("read", self.at(path)):
            return self._store.read(self._full(path), offset, length)

    def pieces(self, path: str, length: int = 8 << 20) -> Iterator[bytes]:
        """Bytes of a file, piece by piece."""
        offset = 0
        while data := self.read_range(path, offset, length):
            yield data
            offset += len(data)

    def verify(self, file: StoredFile) -> None:
        """Read a file and compare it with what was recorded of it."""
        size, digest = 0, hashlib.sha256()
        for data in self.pieces(file.path):
            size += len(data)
            digest.update(data)
        if (size, digest.hexdigest()) != (file.size, file.sha256):
            raise DamagedError(
                f"{self.at(file.path)} has {size} bytes with the SHA-256 {digest.hexdigest()}; its commit says "
                f"{file.size} bytes with {file.sha256}; restore the file from a copy"
            )

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder of this name."""
        with _explained("look for", self.at(path)):
            return self._store.look(self._full(path)) is not None

    def names(self, folder: str) -> list[str]:
        """Names of the files and folders directly in a folder, sorted; none where the folder does not exist.

        Files that are still being written are left out.
        """
        with _explained("list", self.at(folder)):
            found = self._store.entries(self._full(folder))
        return sorted(entry.name for entry in found if not entry.name.endswith(TEMPORARY))

    def size(self, path: str) -> int:
        """Bytes of a file."""
        with _explained("look at", self.at(path)):
            found = self._store.look(self._full(path))
            if found is None or not found.is_file:
                raise FileNotFoundError(path)
        return found.size

    def usage(self, folder: str) -> int:
        """Bytes of all files below a folder; none where the folder does not exist."""
        with _explained("list", self.at(folder)):
            return sum(entry.size for entry in self._store.entries(self._full(folder), recursive=True))

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file, in place of the one of that name, which stays if this fails."""
        with self.writing(path) as file:
            file.write(data)

    def create(self, path: str, data: bytes) -> None:
        """Write a whole file unless there is one of that name, which raises ``AlreadyExistsError``.

        With ``abilities.create_if_absent`` exactly one of several callers succeeds, provided that each has bytes of
        its own: after a failure the file is read back. The bytes of this caller mean that it won although the answer
        was lost, other bytes that it lost. Without, callers must not rely on this alone.

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
                raise AlreadyExistsError(f"{self.at(path)} is there already") from error
            self.sync(path)

    @contextmanager
    def writing(self, path: str, *, replace: bool = True) -> Iterator["Written"]:
        """A file to be written piece by piece, which appears when the block ends well and leaves nothing if not.

        Object stores hold the pieces in memory until then.
        """
        where = self.at(path)
        with _explained("write", where):
            upload = self._store.upload(self._full(path), replace=replace)
        try:
            written = Written(upload, where)
            yield written
            failpoint("storage.before-name")
            with _explained("write", where):
                upload.complete()
            written.closed = True
        except BaseException:
            upload.abandon()
            raise

    def sync(self, path: str) -> None:
        """Make a file or folder that another process has written survive a power cut, where the store asks for that.

        All names in the folder above it survive, too.
        """
        with _explained("sync", self.at(path)):
            self._store.sync(self._full(path))

    def clean(self, folder: str, check: Callable[[], None], start: str = "") -> None:
        """Delete temporary files that writers left half-written in a folder when they were killed.

        Parameters
        ----------
        folder
            The folder.
        check
            Raises where another query has taken over. It is called between the listing and the first deletion, so the
            files that were listed are not those of a successor, which claims the checkpoint before it writes.
        start
            Only files whose names start with this.
        """
        with _explained("list", self.at(folder)):
            found = self._store.entries(self._full(folder))
        left = [entry.name for entry in found if entry.is_file and entry.name.endswith(TEMPORARY)]
        left = [name for name in left if name.removeprefix(".").startswith(start)]
        if left:
            check()
        for name in left:
            self.delete(f"{folder}/{name}" if folder else name)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        with _explained("delete", self.at(path)):
            try:
                self._store.delete(self._full(path))
            except FileNotFoundError:
                return

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it, if it exists."""
        with _explained("delete", self.at(folder)):
            self._store.delete_folder(self._full(folder))

    def _found(self, path: str) -> bytes | None:
        """Bytes of a file after a failure; ``None`` where there are none or the store does not answer."""
        try:
            return self._store.read(self._full(path))
        except OSError:  # whether the file was written is unknown, and the first error tells
            return None

    def _full(self, path: str) -> str:
        """The path in the store; one that would leave the folder is refused."""
        if not path:
            return self._root
        if path.startswith("/") or any(part in {"", ".", ".."} for part in path.split("/")):
            raise DamagedError(
                f"the path {path!r} leads out of {self.location}, and a record may only name files below it; restore "
                "the file that names it from a copy"
            )
        return f"{self._root}/{path}" if self._root else path


class Written:
    """A stream that counts and digests what goes through it."""

    def __init__(self, upload: Upload, where: str) -> None:
        self._upload = upload
        self._where = where
        self._digest = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Append bytes."""
        with _explained("write", self._where):
            self._upload.write(data)
        self.size += len(data)
        self._digest.update(data)
        return len(data)

    @property
    def sha256(self) -> str:
        """SHA-256 of all bytes so far, in hexadecimal digits."""
        return self._digest.hexdigest()

    def stored_as(self, path: str) -> StoredFile:
        """What a record says of the file."""
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
        """Left to ``Storage.writing``, so that libraries which close their file do not make it appear early."""


def canonical(location: str) -> str:
    """One way to write a place: an absolute path on the local disk, or a URI with the name that stores have in Arrow.

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
    with _explained("open", location):
        try:
            filesystem, root = pyarrow.fs.FileSystem.from_uri(location)
        except ValueError as error:  # pyarrow's word for a URI that it cannot read
            raise OSError(str(error)) from error
    renames = isinstance(filesystem, pyarrow.fs.HadoopFileSystem)
    return (RenamingFiles if renames else ArrowObjects)(filesystem), root


@contextmanager
def _explained(verb: str, where: str) -> Iterator[None]:
    """Say which file it was, what was tried and what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(
            f"{where} is not there; restore it from a copy, or go back to a version without it"
        ) from error
    except FileExistsError as error:
        raise (
            error if isinstance(error, AlreadyExistsError) else AlreadyExistsError(f"{where} is there already")
        ) from error
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"could not {verb} {where}: {error}; {_ADVICE}") from error
