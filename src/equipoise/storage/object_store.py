"""Object stores with a conditional PUT (S3, GCS, Azure), through the package ``obstore``.

One request writes a small object, and ``If-None-Match: *`` creates one only if it is absent. A client
that is opened before a fork must not be used after it, so each process opens its own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from equipoise.errors import StorageError
from equipoise.storage.store import Abilities, FolderEntry, Store, Upload

LARGEST_BYTES = 5 << 30
"""Bytes of one object: what S3 takes in one request."""


class ConditionalObjects(Store):
    """An object store that creates an object only if it is absent.

    Parameters
    ----------
    url
        Of the bucket or container, as ``obstore.store.from_url`` takes it.
    """

    abilities = Abilities(
        create_if_absent=True, atomic_rename=False, rename_may_report_false=False, list_after_write=True, sync=False
    )

    def __init__(self, url: str, **options: Any) -> None:
        self._url, self._options = url, options
        self._opened: tuple[int, Any] = (0, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._url, self._options)

    @property
    def _store(self) -> Any:
        if self._opened[0] != os.getpid():
            from obstore.store import from_url  # noqa: PLC0415 - an optional package

            self._opened = (os.getpid(), from_url(self._url, **self._options))
        return self._opened[1]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file."""
        with _as_os_errors(path):
            if offset == 0 and length is None:
                return bytes(self._store.get(path).bytes())
            end = self._store.head(path)["size"]
            end = end if length is None else min(end, offset + length)
            return bytes(self._store.get_range(path, start=offset, end=end)) if end > offset else b""

    def look(self, path: str) -> FolderEntry | None:
        """The file or folder of that name, if there is one."""
        try:
            with _as_os_errors(path):
                return FolderEntry(path.rpartition("/")[2], is_file=True, size=int(self._store.head(path)["size"]))
        except FileNotFoundError:
            return FolderEntry(path.rpartition("/")[2], is_file=False, size=0) if self.entries(path) else None

    def entries(self, folder: str, *, recursive: bool = False) -> list[FolderEntry]:
        """Files and folders in a folder."""
        prefix = _below(folder)
        with _as_os_errors(folder):
            if recursive:
                objects = [each for page in self._store.list(prefix or None) for each in page]
                folders: list[str] = []
            else:
                found = self._store.list_with_delimiter(prefix or None)
                objects, folders = found["objects"], found["common_prefixes"]
        start = len(prefix)
        files = [FolderEntry(each["path"][start:], is_file=True, size=int(each["size"])) for each in objects]
        return files + [FolderEntry(each.rstrip("/")[start:], is_file=False, size=0) for each in folders]

    def upload(self, path: str, *, replace: bool) -> Upload:
        """Begin a file; it is sent when it is complete."""
        return _Buffered(self._store, path, "overwrite" if replace else "create")

    def delete(self, path: str) -> None:
        """Delete a file."""
        with _as_os_errors(path):
            self._store.delete(path)

    def delete_folder(self, folder: str) -> None:
        """Delete every object below a folder."""
        paths = [f"{_below(folder)}{each.name}" for each in self.entries(folder, recursive=True)]
        if paths:
            with _as_os_errors(folder):
                self._store.delete(paths)


class _Buffered(Upload):
    """Buffers the bytes in memory and sends them in one request: a conditional upload cannot be multipart."""

    def __init__(self, store: Any, path: str, mode: str) -> None:
        self._store, self._path, self._mode, self._buffer = store, path, mode, bytearray()

    def write(self, data: bytes) -> None:
        self._buffer += data

    def complete(self) -> None:
        if len(self._buffer) > LARGEST_BYTES:
            raise StorageError(
                f"could not write {self._path}: it has {len(self._buffer)} bytes, and a conditional upload takes at "
                f"most {LARGEST_BYTES}; let each task write less, with more partitions (numPartitions) or smaller "
                "batches (for example maxFilesPerTrigger)"
            )
        with _as_os_errors(self._path):
            self._store.put(self._path, bytes(self._buffer), mode=self._mode, use_multipart=False)

    def abandon(self) -> None:
        self._buffer.clear()


def _below(folder: str) -> str:
    """Common prefix of the names below a folder; empty at the root of a bucket."""
    return f"{folder}/" if folder else ""


def is_installed() -> bool:
    """Whether the optional package is installed."""
    with suppress(ImportError):
        import obstore  # noqa: F401, PLC0415 - an optional package

        return True
    return False


def _made(url: str, options: dict[str, Any]) -> ConditionalObjects:
    return ConditionalObjects(url, **options)


@contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """Raise exceptions of obstore as ``OSError``."""
    from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError  # noqa: PLC0415 - an optional package

    try:
        yield
    except NotFoundError as error:
        raise FileNotFoundError(path) from error
    except AlreadyExistsError as error:
        raise FileExistsError(path) from error
    except BaseError as error:
        raise OSError(str(error)) from error
