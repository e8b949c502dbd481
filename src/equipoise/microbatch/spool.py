"""Tuples on disk: as they arrive, before they are acknowledged, and as sealed batches until they are processed.

Layout below the spool's folder::

    identity                       schema and key, so that a spool is not taken for another's
    lock                           held by the one receiver
    open/00000000000000000012      tuples of batch 12 as they came; a file of frames
    sealed/00000000000000000012    what batch 12 is: its blocks and where they are; it is sealed once this is there
    blocks/00000000000000000012    the blocks themselves, one Arrow stream after the other
    released                       number of batches that were handed out
    tasks                          numbers of blocks and buckets for the next batch
    times                          how long the latest batches took, told by the query
    dead-letters.jsonl             what could not be read
    history.jsonl                  one line for each sealed batch

A frame is its length in 8 bytes, little-endian, and an envelope of ``equipoise.framing``. A frame that is cut short at
the end of a file was never acknowledged and is dropped; one that is damaged anywhere else is an error.
"""

import fcntl
import json
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow as pa

from equipoise.errors import CheckpointInUse, Damaged, FormatError, Mismatch, StorageFailed
from equipoise.failpoints import failpoint
from equipoise.framing import seal, unseal
from equipoise.storage import Storage, sync_folder

BUCKET = "__equipoise_bucket"
"""Column of a block, its reference table: twice the reduce bucket of the row's key, plus 1 if that key has rows in
other blocks too."""

HISTORY_LINES = 10_000
"""Batches that the history keeps at least."""

_FORMAT = 1
_LENGTH = struct.Struct("<Q")
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
        A folder that the driver and all executors reach by this path.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
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
            raise StorageFailed(f"could not use {self.folder} as a spool: {error}; make it writable") from error
        try:
            self._take_lock(patience)
            self._identify(schema, key)
        except BaseException:
            self.close()
            raise
        for name in ("", "sealed", "blocks"):
            self._storage.clean(name)
        newest = max(self.numbers(), default=-1)
        for name in set(self._storage.names("blocks")).difference(self._storage.names("sealed")):
            if int(name) < newest:  # forgotten by half
                self._storage.delete(f"blocks/{name}")

    def close(self) -> None:
        """Let another receiver in."""
        with self._writing:
            self._close_log()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def append(self, batch: int, tuples: Tuples) -> None:
        """Write tuples of a batch to the disk; when this returns they survive a crash."""
        frame = seal("tuples", _FORMAT, [_ipc(tuples.table), tuples.time, tuples.position])
        try:
            with self._writing:
                if self._log is None or self._log[0] != batch:
                    self._close_log()
                    self._log = (batch, (self.folder / "open" / _name(batch)).open("ab"))
                    sync_folder(str(self.folder / "open"))
                file = self._log[1]
                failpoint("spool.before-append")
                file.write(_LENGTH.pack(len(frame)) + frame)
                file.flush()
                os.fsync(file.fileno())
                failpoint("spool.after-append")
        except OSError as error:
            raise StorageFailed(
                f"could not write to the spool {self.folder}: {error}; make room and start the query again: what was "
                "acknowledged is kept, the rest was not"
            ) from error

    def unsealed(self) -> dict[int, list[Tuples]]:
        """Tuples of batches that are not sealed, by batch; what is left of sealed ones is deleted."""
        found = {}
        for name in sorted(path.name for path in (self.folder / "open").iterdir()):
            if self._is_sealed(int(name)) or int(name) < self.released():
                (self.folder / "open" / name).unlink()
            else:
                found[int(name)] = list(self._frames(self.folder / "open" / name))
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
        return [int(name) for name in self._storage.names("sealed")]

    def batch(self, number: int) -> SealedBatch:
        """A sealed batch."""
        payload = unseal("micro-batch", _FORMAT, self._storage.read(f"sealed/{_name(number)}"))
        return msgspec.convert(payload, SealedBatch)

    def block(self, number: int, section: Section) -> pa.Table:
        """A block of a sealed batch."""
        path = f"blocks/{_name(number)}"
        data = self._storage.read_range(path, section.offset, section.length)
        if len(data) != section.length or zlib.crc32(data) != section.checksum:
            raise Damaged(f"{self._storage.at(path)} does not match its checksum; restore it from a copy")
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
        return int(self._small("released", 0))

    def release(self, count: int) -> None:
        """Remember that so many batches were handed out."""
        self._keep("released", count)

    def handed_out(self) -> SealedBatch | None:
        """The batch that was handed out last; ``None`` where there is none, or it is gone."""
        number = self.released() - 1
        return self.batch(number) if number in self.numbers() else None

    def tasks(self) -> "Tasks | None":
        """How the next batch is to be run; ``None`` before a receiver began."""
        found = self._small("tasks", None)
        return None if found is None else Tasks(int(found[0]), int(found[1]), float(found[2]))

    def set_tasks(self, tasks: "Tasks") -> None:
        """Say how the next batch is to be run."""
        self._keep("tasks", list(tasks))

    def times(self) -> list[tuple[int, float]]:
        """Number and seconds of the latest batches that the query has processed."""
        return [(int(number), float(seconds)) for number, seconds in self._small("times", [])]

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

    def bury(self, letters: Sequence[tuple[str, str]]) -> None:
        """Keep what could not be read, each with the reason."""
        self._letters += len(letters)
        path = self.folder / "dead-letters.jsonl"
        with path.open("a") as file:
            if file.tell() < _LETTERS_BYTES:
                file.writelines(
                    json.dumps({"time": time.time(), "reason": reason, "letter": letter}) + "\n"
                    for letter, reason in letters
                )

    @property
    def letters(self) -> int:
        """What could not be read since this receiver began."""
        return self._letters

    def record(self, line: dict[str, Any]) -> None:
        """Add a line to the history, of which the latest ``HISTORY_LINES`` are kept."""
        path = self.folder / "history.jsonl"
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if line["batch"] % HISTORY_LINES == HISTORY_LINES - 1:
            lines = path.read_text().splitlines(keepends=True)[-HISTORY_LINES:]
            self._storage.write(path.name, "".join(lines).encode())

    def history(self, latest: int | None = None) -> list[dict[str, Any]]:
        """Lines of the history, all or the latest; one that was cut short by a crash is left out."""
        path = self.folder / "history.jsonl"
        if not path.exists():
            return []
        lines, found = path.read_text().splitlines(), []
        for line in lines if latest is None else lines[-latest - 1 :]:
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue  # the process was killed while it wrote this line
        return found if latest is None else found[-latest:]

    def _take_lock(self, patience: float) -> None:
        assert self._lock is not None  # noqa: S101 - this tells the type checker
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > until:
                    raise CheckpointInUse(
                        f"another receiver uses the spool {self.folder}; stop its query, or give this one a spool of "
                        "its own"
                    ) from error
                time.sleep(0.05)
            else:
                return

    def _identify(self, schema: pa.Schema, key: Sequence[str]) -> None:
        described = [schema.serialize().to_pybytes(), list(key)]
        if not self._storage.exists("identity"):
            self._storage.write("identity", seal("spool", _FORMAT, described))
            return
        known_schema, known_key = unseal("spool", _FORMAT, self._storage.read("identity"))
        if known_key != list(key) or not pa.ipc.read_schema(pa.py_buffer(known_schema)).equals(schema):
            raise Mismatch(
                f"the spool {self.folder} holds tuples of another schema or key ({', '.join(known_key)}); use the same "
                "ones, or a new spool"
            )

    def _frames(self, path: Path) -> Iterator[Tuples]:
        data = path.read_bytes()
        at = 0
        while at < len(data):
            end = (
                at + _LENGTH.size + (_LENGTH.unpack_from(data, at)[0] if at + _LENGTH.size <= len(data) else len(data))
            )
            if end > len(data) or not data[at:].strip(b"\0"):
                break  # cut short by a crash, or of bytes that never came to the disk: never acknowledged
            try:
                stored, when, position = unseal("tuples", _FORMAT, data[at + _LENGTH.size : end])
            except FormatError as error:
                if end == len(data) and isinstance(error, Damaged):
                    break  # its bytes had not all come to the disk: never acknowledged
                raise Damaged(f"{path} is damaged at byte {at}: {error}") from error
            yield Tuples(pa.ipc.open_stream(stored).read_all(), when, position)
            at = end
        if at < len(data):
            os.truncate(path, at)

    def _is_sealed(self, number: int) -> bool:
        return self._storage.exists(f"sealed/{_name(number)}")

    def _small(self, name: str, otherwise: Any) -> Any:
        if not self._storage.exists(name):
            return otherwise
        return unseal(f"spool-{name}", _FORMAT, self._storage.read(name))

    def _keep(self, name: str, value: Any) -> None:
        self._storage.write(name, seal(f"spool-{name}", _FORMAT, value))

    def _close_log(self) -> None:
        if self._log is not None:
            self._log[1].close()
            self._log = None


def _name(number: int) -> str:
    return f"{number:020d}"


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
