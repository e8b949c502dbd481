"""Single files of a spool: its identity, its lock, and helpers to read and name files.

Stored form of ``identity``, inside the envelope of ``equipoise.framing``, kind ``spool``, format 4: unique name of the
spool, Arrow schema of its tuples, names of the key columns. ``lock`` is an empty file that the receiver locks.
"""

import fcntl
import re
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow as pa

from equipoise.errors import (
    CheckpointInUseError,
    DamagedError,
    FormatError,
    InvalidArgumentError,
    MismatchError,
    StorageError,
    UnknownFormatError,
)
from equipoise.framing import seal, unseal
from equipoise.storage import Storage

_IDENTITY, _KIND = "identity", "spool"
_FORMAT = 4  # raised with the format of any file of the spool
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_PAUSE = 0.05  # seconds between two attempts to lock


def local_folder(folder: str) -> Path:
    """Return the path of a folder given as path or ``file:`` URI; refuse other URIs."""
    if folder.startswith("file:/"):
        parts = urllib.parse.urlsplit(folder)
        if parts.netloc in {"", "localhost"}:
            return Path(urllib.parse.unquote(parts.path))
    if _URI.match(folder):
        raise InvalidArgumentError(
            f"a spool needs a file system that can append and sync, got {folder}; give a path that the driver and all "
            "executors reach"
        )
    return Path(folder)


def take_lock(lock: BinaryIO, folder: Path, patience: float) -> None:
    """Lock the spool for this receiver, waiting at most ``patience`` seconds for another one to end."""
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise CheckpointInUseError(
                    f"another receiver uses the spool {folder}; stop its query, or give this one its own spool"
                ) from error
            time.sleep(_PAUSE)
        else:
            return


def identify(storage: Storage, schema: pa.Schema, key: Sequence[str]) -> None:
    """Store the schema and key of a new spool; refuse a spool of another schema or key."""
    known = read_identity(storage)
    if known is None:
        described = [uuid.uuid4().hex, schema.serialize().to_pybytes(), list(key)]
        storage.write(_IDENTITY, seal(_KIND, _FORMAT, described))
        return
    _, known_schema, known_key = known
    if known_key != list(key) or not known_schema.equals(schema):
        raise MismatchError(
            f"the spool {storage.location} holds tuples of another schema or key ({', '.join(known_key)}); use the "
            "same ones, or a new spool"
        )


def read_identity(storage: Storage) -> tuple[str, pa.Schema, list[str]] | None:
    """Name, schema and key of a spool; ``None`` before it was claimed for the first time."""
    if not storage.exists(_IDENTITY):
        return None
    with reading(storage, _IDENTITY):
        try:
            found = unseal(_KIND, _FORMAT, storage.read(_IDENTITY))
        except UnknownFormatError as error:
            raise UnknownFormatError(
                f"{error}: process its batches with that release and give this one a new spool and a new checkpoint"
            ) from error
        name, schema, key = msgspec.convert(found, tuple[str, bytes, list[str]])
        return name, pa.ipc.read_schema(pa.py_buffer(schema)), key


@contextmanager
def reading(storage: Storage, path: str) -> Iterator[None]:
    """Add the name of the file to errors about damaged content."""
    try:
        yield
    except FormatError as error:
        raise type(error)(f"{storage.at(path)}: {error}") from error
    except StorageError:
        raise
    except (ValueError, OSError, MemoryError, pa.ArrowException) as error:
        raise DamagedError(f"{storage.at(path)} is damaged: {error}; restore it from a copy") from error


def batch_name(number: int) -> str:
    """File name of a batch."""
    return f"{number:020d}"


def ipc_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
