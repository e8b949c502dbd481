"""The spool: tuples on disk, written before they are acknowledged and kept as sealed batches until processed.

Layout below the spool's folder::

    identity                       its name, schema and key; see equipoise.microbatch.spool_files
    lock                           held by the one receiver
    open/00000000000000000012      tuples of batch 12 in order of arrival; a file of frames
    sealed/00000000000000000012    locations of the blocks of batch 12, which is sealed when this file exists
    blocks/00000000000000000012    the blocks themselves, one Arrow stream after the other
    released                       number of batches that were handed out
    tasks                          numbers of blocks and buckets for the next batch
    times                          processing times of the latest batches, written by the query
    dead-letters.jsonl             lines and rows that could not be read
    batches.jsonl                  one line for each sealed batch
    cut-off/                       incomplete ends of open files after a crash, kept for inspection

For frames see ``equipoise.microbatch.frames``, for lines ``equipoise.microbatch.record_lines``. Files with other names
are ignored.
"""

import logging
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from equipoise.errors import (
    DamagedError,
    InvalidArgumentError,
    StorageError,
)
from equipoise.failpoints import failpoint
from equipoise.framing import seal, unseal
from equipoise.microbatch.dead_letters import DeadLetter
from equipoise.microbatch.frames import frame, frames
from equipoise.microbatch.record_lines import add_records, records
from equipoise.microbatch.spool_files import (
    batch_name,
    identify,
    ipc_bytes,
    local_folder,
    read_identity,
    reading,
    take_lock,
)
from equipoise.storage import Storage, sync_folder

BUCKET = "__equipoise_bucket"
"""Column of a block: the reduce bucket of the row's key. With ``SPLIT`` it is the reference table of the block."""

SPLIT = "__equipoise_split"
"""Column of a block: whether the row's key has rows in other blocks too."""

BATCH_LINES_KEPT = 10_000
"""Lines of ``batches.jsonl`` that are kept at least."""

_FORMAT = 1
_NAME = re.compile(r"[0-9]{20}")  # of a file of a batch
_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_DEAD_LETTERS_BYTES = 64 << 20  # bytes of dead letters that are kept; further ones are only counted
_PATIENCE = 10.0  # seconds that a receiver waits for the previous one to end


class Tuples(NamedTuple):
    """Tuples that arrived together.

    Parameters
    ----------
    table
        The tuples.
    time
        Time of arrival, in seconds since 1970.
    position
        Position of the feed after them; plain values, or ``None``.
    """

    table: pa.Table
    time: float
    position: Any = None


class Tasks(NamedTuple):
    """Numbers of blocks and of reduce buckets of a batch, and seconds from batch to batch."""

    blocks: int
    buckets: int
    interval: float


class SpoolSection(msgspec.Struct, array_like=True, frozen=True):
    """Location of a block in the file of its batch."""

    offset: int
    length: int
    checksum: int
    rows: int


class SealedBatch(msgspec.Struct, frozen=True):
    """A batch that is ready to be processed.

    Parameters
    ----------
    number
        Number of the batch, from 0.
    blocks
        Location of each block.
    position
        Position of the feed after the batch.
    measures
        Figures of the batch and of its planning, by name.
    """

    number: int
    blocks: list[SpoolSection]
    position: Any
    measures: dict[str, Any]


class Spool:
    """The folder of one receiver.

    Guarantees
    ----------
    - After any crash ``unsealed`` returns all tuples for which ``append`` has returned, until their batch is sealed.
    - The blocks of a sealed batch are the same whenever they are read, until ``forget``.

    Parameters
    ----------
    folder
        A folder that the driver and all executors reach by this path; a path, or ``file://`` and a path.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = local_folder(str(folder))
        self._storage = Storage(str(self.folder))
        self._lock: BinaryIO | None = None
        self._log: tuple[int, BinaryIO] | None = None
        self._writing = threading.Lock()  # guards the log: tuples arrive while the previous batch is sealed
        self._dead_letter_count = 0

    def claim(self, schema: pa.Schema, key: Sequence[str], patience: float = _PATIENCE) -> None:
        """Become the one receiver of this spool, which must be new or of the same schema and key."""
        try:
            for name in ("open", "sealed", "blocks"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("ab")
        except OSError as error:
            raise StorageError(f"could not use {self.folder} as a spool: {error}; make it writable") from error
        try:
            take_lock(self._lock, self.folder, patience)
            identify(self._storage, schema, key)
        except BaseException:
            self.close()
            raise
        for name in ("", "sealed", "blocks"):
            self._storage.clean(name, lambda: None)  # the lock keeps other receivers out
        sealed = self.numbers()
        for number in set(self._numbers("blocks")).difference(sealed):
            if number < max(sealed, default=-1):  # a crash interrupted its deletion
                self._storage.delete(f"blocks/{batch_name(number)}")

    def close(self) -> None:
        """Close the files and release the lock for another receiver."""
        with self._writing:
            self._close_log()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def name(self) -> str | None:
        """Unique name of this spool, independent of its folder; ``None`` before it was claimed for the first time."""
        known = read_identity(self._storage)
        return None if known is None else str(known[0])

    def append(self, batch: int, tuples: Tuples) -> None:
        """Write tuples of a batch to the disk; when this returns they survive a crash."""
        data = frame([ipc_bytes(tuples.table), tuples.time, tuples.position])
        try:
            with self._writing:
                if self._log is None or self._log[0] != batch:
                    self._close_log()
                    self._log = (batch, (self.folder / "open" / batch_name(batch)).open("ab"))
                    sync_folder(str(self.folder / "open"))
                file = self._log[1]
                failpoint("spool.before-append")
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                failpoint("spool.after-append")
        except OSError as error:
            raise StorageError(
                f"could not write to the spool {self.folder}: {error}; make room and start the query again: all "
                "acknowledged tuples are kept, senders send the others again"
            ) from error

    def unsealed(self) -> dict[int, list[Tuples]]:
        """Tuples of batches that are not sealed, by batch; remaining open files of sealed batches are deleted."""
        found = {}
        for number in self._numbers("open"):
            if self._is_sealed(number) or number < self.released():
                self._storage.delete(f"open/{batch_name(number)}")
            else:
                found[number], whole, behind = self._frames(number)
                if behind:
                    path = f"cut-off/{batch_name(number)}-{whole}"
                    self._storage.write(path, behind.tobytes())
                    _log.warning(
                        "the last %d bytes of %s are not a whole frame and were kept in %s: if a crash cut them short, "
                        "they were never acknowledged and their senders send them again; if the disk has damaged them, "
                        "they were, and only a copy has them",
                        len(behind),
                        self._storage.at(f"open/{batch_name(number)}"),
                        self._storage.at(path),
                    )
                    os.truncate(self.folder / "open" / batch_name(number), whole)
        return found

    def seal(self, number: int, blocks: Sequence[pa.Table], position: Any, measures: dict[str, Any]) -> SealedBatch:
        """Write a batch as blocks; when this returns the batch is sealed and its open file is deleted."""
        sections: list[SpoolSection] = []
        with self._storage.writing(f"blocks/{batch_name(number)}") as file:
            for block in blocks:
                data = ipc_bytes(block)
                sections.append(SpoolSection(file.tell(), len(data), zlib.crc32(data), block.num_rows))
                file.write(data)
        sealed = SealedBatch(number, sections, position, measures)
        failpoint("spool.before-seal")
        self._storage.write(f"sealed/{batch_name(number)}", seal("micro-batch", _FORMAT, msgspec.to_builtins(sealed)))
        failpoint("spool.after-seal")
        with self._writing:
            if self._log is not None and self._log[0] == number:
                self._close_log()
        self._storage.delete(f"open/{batch_name(number)}")
        return sealed

    def numbers(self) -> list[int]:
        """Numbers of the sealed batches that exist."""
        return self._numbers("sealed")

    def sealed(self) -> int:
        """Number of batches that were sealed, including deleted ones."""
        return max([*(number + 1 for number in self.numbers()), self.released()])

    def batch(self, number: int) -> SealedBatch:
        """A sealed batch."""
        path = f"sealed/{batch_name(number)}"
        with reading(self._storage, path):
            found = msgspec.convert(unseal("micro-batch", _FORMAT, self._storage.read(path)), SealedBatch)
            if found.number != number:
                raise ValueError(f"it holds batch {found.number}")
            return found

    def block(self, number: int, section: SpoolSection) -> pa.Table:
        """A block of a sealed batch."""
        path = f"blocks/{batch_name(number)}"
        size = self._storage.size(path)
        with reading(self._storage, path):
            if min(section.offset, section.length) < 0 or section.offset + section.length > size:
                raise ValueError(f"it has {size} bytes, and {section.length} were expected at {section.offset}")
            data = self._storage.read_range(path, section.offset, section.length)
            if zlib.crc32(data) != section.checksum:
                raise ValueError("it does not match its checksum")
            return pa.ipc.open_stream(data).read_all()

    def forget(self, upto: int) -> None:
        """Delete the sealed batches below ``upto``, which were processed."""
        for number in self.numbers():
            if number < upto:
                self._storage.delete(f"sealed/{batch_name(number)}")
                failpoint("spool.in-forgetting")
                self._storage.delete(f"blocks/{batch_name(number)}")

    def released(self) -> int:
        """Number of batches that were handed out so far."""
        return self._small("released", int) or 0

    def release(self, count: int) -> None:
        """Store the number of batches that were handed out."""
        self._keep("released", count)

    def handed_out(self) -> SealedBatch | None:
        """The batch that was handed out last; ``None`` where there is none, or it was deleted."""
        number = self.released() - 1
        return self.batch(number) if number in self.numbers() else None

    def tasks(self) -> "Tasks | None":
        """Numbers of blocks and buckets for the next batch; ``None`` before a receiver started."""
        return self._small("tasks", Tasks)

    def set_tasks(self, tasks: "Tasks") -> None:
        """Store the numbers of blocks and buckets for the next batch."""
        self._keep("tasks", list(tasks))

    def times(self) -> list[tuple[int, float]]:
        """Number and seconds of the latest batches that the query has processed."""
        return self._small("times", list[tuple[int, float]]) or []

    def forget_times(self) -> None:
        """Delete the processing times, which belong to another run."""
        self._keep("times", [])

    def add_time(self, number: int, seconds: float) -> None:
        """Store how long processing a batch took."""
        known = [each for each in self.times() if each[0] != number]
        self._keep("times", [*known, (number, seconds)][-16:])

    @property
    def bytes(self) -> int:
        """Bytes of all tuples that are not processed yet."""
        size = 0
        for name in ("open", "blocks"):
            for file in (self.folder / name).iterdir():
                with suppress(FileNotFoundError):  # deleted or renamed since it was listed
                    size += file.stat().st_size
        return size

    def add_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> bool:
        """Write dead letters to the disk; when this returns they survive a crash.

        If the file has 64 MiB, dead letters are only counted and this returns false, until the file is deleted.
        """
        self._dead_letter_count += sum(each.rows for each in dead_letters)
        path = self.folder / "dead-letters.jsonl"
        now = time.time()
        lines = [{"time": now, "reason": each.reason, "rows": each.rows, "text": each.text} for each in dead_letters]
        try:
            is_room = self.lists_dead_letters
            if is_room:
                add_records(path, lines, sync=True)
        except OSError as error:
            raise StorageError(
                f"could not write to {path}: {error}; make room and start the query again: the unreadable lines and "
                "rows were not acknowledged"
            ) from error
        return is_room

    @property
    def lists_dead_letters(self) -> bool:
        """Whether there is room for dead letters, so that further ones are not only counted."""
        path = self.folder / "dead-letters.jsonl"
        return not path.exists() or path.stat().st_size < _DEAD_LETTERS_BYTES

    @property
    def dead_letter_count(self) -> int:
        """Number of lines and rows that could not be read since this receiver started, and of broken streams."""
        return self._dead_letter_count

    def add_batch_line(self, line: dict[str, Any]) -> None:
        """Add the line of a sealed batch to ``batches.jsonl``; the latest ``BATCH_LINES_KEPT`` are kept."""
        path = self.folder / "batches.jsonl"
        add_records(path, [line], sync=False)
        if line["batch"] % BATCH_LINES_KEPT == BATCH_LINES_KEPT - 1:
            lines = path.read_bytes().splitlines(keepends=True)[-BATCH_LINES_KEPT:]
            self._storage.write(path.name, b"".join(lines))

    def batch_lines(self, latest: int | None = None) -> list[dict[str, Any]]:
        """Lines of ``batches.jsonl``, all or the latest; a line that a crash has cut short is left out."""
        return self._lines("batches.jsonl", latest)

    def dead_letters(self) -> list[dict[str, Any]]:
        """Lines of ``dead-letters.jsonl``: ``time``, ``reason``, ``rows``, and ``text``, empty for a whole stream."""
        return self._lines("dead-letters.jsonl")

    def verify(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the checks of all stored files: a description, and a function that raises if the file is damaged.

        Nothing is changed. A receiver may be running: files that it deletes during the check are skipped.
        """
        yield "identity of the spool", self._verify_identity
        yield from {f"{name} of the spool": getattr(self, name) for name in ("released", "tasks", "times")}.items()
        for number in self.numbers():
            yield f"sealed batch {number}", partial(self._verify_batch, number)
        for number in self._numbers("open"):
            yield f"open batch {number}", partial(self._verify_open, number)
        for name in ("batches.jsonl", "dead-letters.jsonl"):
            yield name, partial(self._lines, name)

    def _verify_identity(self) -> None:
        if read_identity(self._storage) is None:
            raise InvalidArgumentError(
                f"{self.folder} is not a spool: it has no file identity; give the folder of the option spool"
            )

    def _verify_batch(self, number: int) -> None:
        try:
            for section in self.batch(number).blocks:
                rows = self.block(number, section).num_rows
                if rows != section.rows:
                    raise DamagedError(
                        f"a block of batch {number} in {self.folder} has {rows} rows, expected {section.rows}; "
                        "restore it from a copy"
                    )
        except StorageError:
            if self._is_sealed(number):  # not deleted in the meantime
                raise

    def _verify_open(self, number: int) -> None:
        try:
            self._frames(number)
        except StorageError:
            if self._storage.exists(f"open/{batch_name(number)}"):  # not sealed in the meantime
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

    def _frames(self, number: int) -> tuple[list[Tuples], int, memoryview]:
        """Tuples of a batch that is not sealed, the end of the last whole frame, and the bytes behind it."""
        path = f"open/{batch_name(number)}"
        data, found, whole = self._storage.read(path), [], 0
        for payload, end in frames(data, self._storage.at(path)):
            with reading(self._storage, path):
                stored, when, position = msgspec.convert(payload, tuple[bytes, float, Any])
                found.append(Tuples(pa.ipc.open_stream(stored).read_all(), when, position))
            whole = end
        return found, whole, memoryview(data)[whole:]

    def _is_sealed(self, number: int) -> bool:
        return self._storage.exists(f"sealed/{batch_name(number)}")

    def _small(self, name: str, kind: type[_T]) -> _T | None:
        if not self._storage.exists(name):
            return None
        with reading(self._storage, name):
            return msgspec.convert(unseal(f"spool-{name}", _FORMAT, self._storage.read(name)), kind)

    def _keep(self, name: str, value: Any) -> None:
        self._storage.write(name, seal(f"spool-{name}", _FORMAT, value))

    def _close_log(self) -> None:
        if self._log is not None:
            self._log[1].close()
            self._log = None
