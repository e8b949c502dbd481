"""Tuples on disk: as they arrive, before they are acknowledged, and as sealed batches until they are processed.

Layout below the spool's folder::

    identity                       its name, schema and key, so that a spool is not taken for another's
    lock                           held by the one receiver
    open/00000000000000000012      tuples of batch 12 as they came; a file of frames
    sealed/00000000000000000012    what batch 12 is: its blocks and where they are; it is sealed once this is there
    blocks/00000000000000000012    the blocks themselves, one Arrow stream after the other
    released                       number of batches that were handed out
    tasks                          numbers of blocks and buckets for the next batch
    times                          how long the latest batches took, told by the query
    dead-letters.jsonl             what could not be read
    history.jsonl                  one line for each sealed batch
    cut-off/                       ends of open files that a crash has left, for whoever wants to look

Frames are those of ``equipoise.microbatch.frames``, lines those of ``equipoise.microbatch.record_lines``. Files of
other names are left alone.
"""

import fcntl
import os
import re
import threading
import time
import urllib.parse
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

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
from equipoise.failpoints import failpoint
from equipoise.framing import seal, unseal
from equipoise.microbatch.dead_letters import DeadLetter
from equipoise.microbatch.frames import frame, frames
from equipoise.microbatch.record_lines import add_records, records
from equipoise.storage import Storage, sync_folder

BUCKET = "__equipoise_bucket"
"""Column of a block: the reduce bucket of the row's key. With ``SPLIT`` it is the reference table of the block."""

SPLIT = "__equipoise_split"
"""Column of a block: whether the row's key has rows in other blocks too."""

HISTORY_LINES = 10_000
"""Batches that the history keeps at least."""

_FORMAT = 1
_IDENTITY_FORMAT = 4  # raised with the format of any file of the spool
_NAME = re.compile(r"[0-9]{20}")  # of a file of a batch
_T = TypeVar("_T")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_LETTERS_BYTES = 64 << 20  # of dead letters that are kept; the rest is only counted
_PATIENCE = 10.0  # seconds that a receiver waits for the one before it to end


class Tuples(NamedTuple):
    """Some tuples as they came.

    Parameters
    ----------
    table
        The tuples.
    time
        When they came, in seconds since 1970.
    position
        Where the feed is after them; plain values, or ``None``.
    """

    table: pa.Table
    time: float
    position: Any = None


class Tasks(NamedTuple):
    """How a batch is to be run: numbers of blocks and of reduce buckets, and seconds from batch to batch."""

    blocks: int
    buckets: int
    interval: float


class Section(msgspec.Struct, array_like=True, frozen=True):
    """Where a block lies in the file of its batch."""

    offset: int
    length: int
    checksum: int
    rows: int


class SealedBatch(msgspec.Struct, frozen=True):
    """A batch that is ready to be processed.

    Parameters
    ----------
    number
        Which batch, from 0 on.
    blocks
        Where each block is.
    position
        Where the feed is after the batch.
    measures
        Figures of the batch and of its planning, by name.
    """

    number: int
    blocks: list[Section]
    position: Any
    measures: dict[str, Any]


class Spool:
    """The folder of one receiver.

    Guarantees
    ----------
    - What ``append`` has returned for is read again by ``unsealed`` after any crash, until its batch is sealed.
    - The blocks of a sealed batch are the same whenever they are read, until ``forget``.

    Parameters
    ----------
    folder
        A folder that the driver and all executors reach by this path; a path, or ``file://`` and a path.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = _local(str(folder))
        self._storage = Storage(str(self.folder))
        self._lock: BinaryIO | None = None
        self._log: tuple[int, BinaryIO] | None = None
        self._writing = threading.Lock()  # of the log: tuples arrive while the batch before is sealed
        self._letters = 0

    def claim(self, schema: pa.Schema, key: Sequence[str], patience: float = _PATIENCE) -> None:
        """Become the one receiver of this spool, which must be new or of the same schema and key."""
        try:
            for name in ("open", "sealed", "blocks"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("ab")
        except OSError as error:
            raise StorageError(f"could not use {self.folder} as a spool: {error}; make it writable") from error
        try:
            self._take_lock(patience)
            self._identify(schema, key)
        except BaseException:
            self.close()
            raise
        for name in ("", "sealed", "blocks"):
            self._storage.clean(name, lambda: None)  # the lock keeps other receivers out
        sealed = self.numbers()
        for number in set(self._numbers("blocks")).difference(sealed):
            if number < max(sealed, default=-1):  # forgotten by half
                self._storage.delete(f"blocks/{_name(number)}")

    def close(self) -> None:
        """Let another receiver in."""
        with self._writing:
            self._close_log()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def name(self) -> str | None:
        """What this spool alone is called, whatever its folder; ``None`` before it was claimed for the first time."""
        known = self._identity()
        return None if known is None else str(known[0])

    def append(self, batch: int, tuples: Tuples) -> None:
        """Write tuples of a batch to the disk; when this returns they survive a crash."""
        data = frame([_ipc(tuples.table), tuples.time, tuples.position])
        try:
            with self._writing:
                if self._log is None or self._log[0] != batch:
                    self._close_log()
                    self._log = (batch, (self.folder / "open" / _name(batch)).open("ab"))
                    sync_folder(str(self.folder / "open"))
                file = self._log[1]
                failpoint("spool.before-append")
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                failpoint("spool.after-append")
        except OSError as error:
            raise StorageError(
                f"could not write to the spool {self.folder}: {error}; make room and start the query again: what was "
                "acknowledged is kept, the rest was not"
            ) from error

    def unsealed(self) -> dict[int, list[Tuples]]:
        """Tuples of batches that are not sealed, by batch; what is left of sealed ones is deleted."""
        found = {}
        for number in self._numbers("open"):
            if self._is_sealed(number) or number < self.released():
                self._storage.delete(f"open/{_name(number)}")
            else:
                found[number], whole, behind = self._frames(number)
                if behind:
                    self._storage.write(f"cut-off/{_name(number)}-{whole}", behind.tobytes())
                    os.truncate(self.folder / "open" / _name(number), whole)
        return found

    def seal(self, number: int, blocks: Sequence[pa.Table], position: Any, measures: dict[str, Any]) -> SealedBatch:
        """Write a batch as blocks; it is sealed when this returns, and what was open of it is gone."""
        sections: list[Section] = []
        with self._storage.writing(f"blocks/{_name(number)}") as file:
            for block in blocks:
                data = _ipc(block)
                sections.append(Section(file.tell(), len(data), zlib.crc32(data), block.num_rows))
                file.write(data)
        sealed = SealedBatch(number, sections, position, measures)
        failpoint("spool.before-seal")
        self._storage.write(f"sealed/{_name(number)}", seal("micro-batch", _FORMAT, msgspec.to_builtins(sealed)))
        failpoint("spool.after-seal")
        with self._writing:
            if self._log is not None and self._log[0] == number:
                self._close_log()
        self._storage.delete(f"open/{_name(number)}")
        return sealed

    def numbers(self) -> list[int]:
        """Numbers of the sealed batches that are there."""
        return self._numbers("sealed")

    def sealed(self) -> int:
        """Number of batches that were sealed, with those that were forgotten."""
        return max([*(number + 1 for number in self.numbers()), self.released()])

    def batch(self, number: int) -> SealedBatch:
        """A sealed batch."""
        path = f"sealed/{_name(number)}"
        with self._reading(path):
            found = msgspec.convert(unseal("micro-batch", _FORMAT, self._storage.read(path)), SealedBatch)
            if found.number != number:
                raise ValueError(f"it holds batch {found.number}")
            return found

    def block(self, number: int, section: Section) -> pa.Table:
        """A block of a sealed batch."""
        path = f"blocks/{_name(number)}"
        size = self._storage.size(path)
        with self._reading(path):
            if min(section.offset, section.length) < 0 or section.offset + section.length > size:
                raise ValueError(f"it has {size} bytes, and {section.length} were expected at {section.offset}")
            data = self._storage.read_range(path, section.offset, section.length)
            if zlib.crc32(data) != section.checksum:
                raise ValueError("it does not match its checksum")
            return pa.ipc.open_stream(data).read_all()

    def forget(self, upto: int) -> None:
        """Delete the sealed batches below ``upto``, which nobody will ask for again."""
        for number in self.numbers():
            if number < upto:
                self._storage.delete(f"sealed/{_name(number)}")
                failpoint("spool.in-forgetting")
                self._storage.delete(f"blocks/{_name(number)}")

    def released(self) -> int:
        """Number of batches that were handed out, so far."""
        return self._small("released", int) or 0

    def release(self, count: int) -> None:
        """Remember that so many batches were handed out."""
        self._keep("released", count)

    def handed_out(self) -> SealedBatch | None:
        """The batch that was handed out last; ``None`` where there is none, or it is gone."""
        number = self.released() - 1
        return self.batch(number) if number in self.numbers() else None

    def tasks(self) -> "Tasks | None":
        """How the next batch is to be run; ``None`` before a receiver began."""
        return self._small("tasks", Tasks)

    def set_tasks(self, tasks: "Tasks") -> None:
        """Say how the next batch is to be run."""
        self._keep("tasks", list(tasks))

    def times(self) -> list[tuple[int, float]]:
        """Number and seconds of the latest batches that the query has processed."""
        return self._small("times", list[tuple[int, float]]) or []

    def forget_times(self) -> None:
        """Forget how long batches took: they are of another run."""
        self._keep("times", [])

    def add_time(self, number: int, seconds: float) -> None:
        """Tell how long processing a batch took."""
        known = [each for each in self.times() if each[0] != number]
        self._keep("times", [*known, (number, seconds)][-16:])

    @property
    def bytes(self) -> int:
        """Bytes of all tuples that are not processed yet."""
        size = 0
        for name in ("open", "blocks"):
            for file in (self.folder / name).iterdir():
                with suppress(FileNotFoundError):  # deleted, or renamed, while we look
                    size += file.stat().st_size
        return size

    def bury(self, letters: Sequence[DeadLetter]) -> bool:
        """Keep what could not be read; when this returns they survive a crash.

        Beyond 64 MiB they are only counted, until the file is deleted; then this is false.
        """
        self._letters += sum(letter.rows for letter in letters)
        path = self.folder / "dead-letters.jsonl"
        now = time.time()
        buried = [{"time": now, "reason": each.reason, "rows": each.rows, "letter": each.text} for each in letters]
        try:
            is_room = not path.exists() or path.stat().st_size < _LETTERS_BYTES
            if is_room:
                add_records(path, buried, sync=True)
        except OSError as error:
            raise StorageError(
                f"could not write to {path}: {error}; make room and start the query again: what could not be read was "
                "not acknowledged"
            ) from error
        return is_room

    @property
    def letters(self) -> int:
        """Lines and rows that could not be read since this receiver began, and streams that broke."""
        return self._letters

    def record(self, line: dict[str, Any]) -> None:
        """Add a line to the history, of which the latest ``HISTORY_LINES`` are kept."""
        path = self.folder / "history.jsonl"
        add_records(path, [line], sync=False)
        if line["batch"] % HISTORY_LINES == HISTORY_LINES - 1:
            lines = path.read_bytes().splitlines(keepends=True)[-HISTORY_LINES:]
            self._storage.write(path.name, b"".join(lines))

    def history(self, latest: int | None = None) -> list[dict[str, Any]]:
        """Lines of the history, all or the latest; one that was cut short by a crash is left out."""
        return self._lines("history.jsonl", latest)

    def dead_letters(self) -> list[dict[str, Any]]:
        """Lines of the dead letters: ``time``, ``reason``, ``rows``, and ``letter``, empty for a whole stream."""
        return self._lines("dead-letters.jsonl")

    def verify(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Checks of everything that is stored: what is checked, and a function that raises if it is damaged.

        Nothing is changed. A receiver may be running: files that it deletes meanwhile are skipped.
        """
        yield "identity of the spool", self._verify_identity
        yield from {f"{name} of the spool": getattr(self, name) for name in ("released", "tasks", "times")}.items()
        for number in self.numbers():
            yield f"sealed batch {number}", partial(self._verify_batch, number)
        for number in self._numbers("open"):
            yield f"open batch {number}", partial(self._verify_open, number)
        for name in ("history.jsonl", "dead-letters.jsonl"):
            yield name, partial(self._lines, name)

    def _verify_identity(self) -> None:
        if self._identity() is None:
            raise InvalidArgumentError(
                f"{self.folder} is not a spool: it has no file identity; give the folder of the option spool"
            )

    def _verify_batch(self, number: int) -> None:
        try:
            for section in self.batch(number).blocks:
                rows = self.block(number, section).num_rows
                if rows != section.rows:
                    raise DamagedError(
                        f"a block of batch {number} in {self.folder} has {rows} rows, and {section.rows} were "
                        "expected; restore it from a copy"
                    )
        except StorageError:
            if self._is_sealed(number):  # not forgotten meanwhile
                raise

    def _verify_open(self, number: int) -> None:
        try:
            self._frames(number)
        except StorageError:
            if self._storage.exists(f"open/{_name(number)}"):  # not sealed meanwhile
                raise

    def _lines(self, name: str, latest: int | None = None) -> list[dict[str, Any]]:
        if not self._storage.exists(name):
            return []
        lines = self._storage.read(name).split(b"\n")
        skipped = 0 if latest is None else max(0, len(lines) - 1 - latest)
        return list(records(b"\n".join(lines[skipped:]), self._storage.at(name), skipped + 1))

    def _numbers(self, folder: str) -> list[int]:
        """Numbers of the batches that have a file in a folder, in order."""
        return [int(name) for name in self._storage.names(folder) if _NAME.fullmatch(name)]

    def _take_lock(self, patience: float) -> None:
        assert self._lock is not None  # noqa: S101 - this tells the type checker
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > until:
                    raise CheckpointInUseError(
                        f"another receiver uses the spool {self.folder}; stop its query, or give this one a spool of "
                        "its own"
                    ) from error
                time.sleep(0.05)
            else:
                return

    def _identify(self, schema: pa.Schema, key: Sequence[str]) -> None:
        known = self._identity()
        if known is None:
            described = [uuid.uuid4().hex, schema.serialize().to_pybytes(), list(key)]
            self._storage.write("identity", seal("spool", _IDENTITY_FORMAT, described))
            return
        _, known_schema, known_key = known
        if known_key != list(key) or not known_schema.equals(schema):
            raise MismatchError(
                f"the spool {self.folder} holds tuples of another schema or key ({', '.join(known_key)}); use the same "
                "ones, or a new spool"
            )

    def _identity(self) -> tuple[str, pa.Schema, list[str]] | None:
        """Name, schema and key of the spool."""
        if not self._storage.exists("identity"):
            return None
        with self._reading("identity"):
            try:
                found = unseal("spool", _IDENTITY_FORMAT, self._storage.read("identity"))
            except UnknownFormatError as error:
                raise UnknownFormatError(
                    f"{error}: process what it holds with that release and give this one a new spool and a new "
                    "checkpoint"
                ) from error
            name, schema, key = msgspec.convert(found, tuple[str, bytes, list[str]])
            return name, pa.ipc.read_schema(pa.py_buffer(schema)), key

    def _frames(self, number: int) -> tuple[list[Tuples], int, memoryview]:
        """Tuples of a batch that is not sealed, where the last whole frame ends, and what is behind it."""
        path = f"open/{_name(number)}"
        data, found, whole = self._storage.read(path), [], 0
        for payload, end in frames(data, self._storage.at(path)):
            with self._reading(path):
                stored, when, position = msgspec.convert(payload, tuple[bytes, float, Any])
                found.append(Tuples(pa.ipc.open_stream(stored).read_all(), when, position))
            whole = end
        return found, whole, memoryview(data)[whole:]

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        """Name the file where its content is damaged, or is not what its checksum promises."""
        try:
            yield
        except FormatError as error:
            raise type(error)(f"{self._storage.at(path)}: {error}") from error
        except StorageError:
            raise
        except (ValueError, OSError, MemoryError, pa.ArrowException) as error:
            raise DamagedError(f"{self._storage.at(path)} is damaged: {error}; restore it from a copy") from error

    def _is_sealed(self, number: int) -> bool:
        return self._storage.exists(f"sealed/{_name(number)}")

    def _small(self, name: str, kind: type[_T]) -> _T | None:
        if not self._storage.exists(name):
            return None
        with self._reading(name):
            return msgspec.convert(unseal(f"spool-{name}", _FORMAT, self._storage.read(name)), kind)

    def _keep(self, name: str, value: Any) -> None:
        self._storage.write(name, seal(f"spool-{name}", _FORMAT, value))

    def _close_log(self) -> None:
        if self._log is not None:
            self._log[1].close()
            self._log = None


def _local(folder: str) -> Path:
    """The folder that a user has named."""
    if folder.startswith("file:/"):
        parts = urllib.parse.urlsplit(folder)
        if parts.netloc in {"", "localhost"}:
            return Path(urllib.parse.unquote(parts.path))
    if _URI.match(folder):
        raise InvalidArgumentError(
            f"a spool is a folder of a file system that can append and sync, and {folder} is none; give a path that "
            "the driver and all executors reach"
        )
    return Path(folder)


def _name(number: int) -> str:
    return f"{number:020d}"


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
