"""Tuples from the network: JSON lines or an Arrow stream, from any number of senders.

A sender is told ``{"accepted": n}``, in a line, when its first n lines or rows are on disk or among the dead letters.
What it has sent beyond n when the connection breaks may be lost, and it should send it again. To be sure that all has
arrived it ends its side of the connection (``shutdown``) and reads to the end: who closes a connection with
acknowledgements unread makes the system throw away what is still on its way. When the receiver falls behind it stops
reading, which slows the sender down.
"""

import io
import json
import queue
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.json

from equipoise.errors import FeedFailed, InvalidArgument
from equipoise.microbatch.feeds import CHUNK_ROWS, Chunk, Feed

FORMATS = ("json", "arrow")
"""How tuples may be sent."""

_READ_BYTES = 1 << 20
_LINE_BYTES = 16 << 20  # of one line
_WAITING = 64  # reads that may wait before senders are slowed down
_LAST_WORD = 10.0  # seconds that a sender who has ended may take to read its acknowledgements
_PAUSE = 0.1  # seconds until what failed is tried again


class SocketFeed(Feed):
    """Listens for senders, or connects to one.

    Parameters
    ----------
    schema
        Schema of the tuples.
    host, port
        Where to listen; loopback unless told otherwise. With ``connect`` where to connect to.
    format
        ``json`` for a JSON object a line, ``arrow`` for one Arrow stream a connection.
    connect
        Whether to connect to a sender instead of listening.
    patience
        Seconds after which a sender that cannot be reached, or that no sender can be let in, is an error.
    """

    def __init__(
        self,
        schema: pa.Schema,
        host: str = "127.0.0.1",
        port: int = 0,
        format: str = "json",  # noqa: A002 - the name that readers of Spark know
        *,
        connect: bool = False,
        patience: float = 30.0,
    ) -> None:
        if format not in FORMATS:
            raise InvalidArgument(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
        self._schema, self._address, self._format = schema, (host, port), format
        self._connect, self._patience = connect, patience
        self._arrived: queue.Queue[_Arrived] = queue.Queue(_WAITING)
        self._listening: socket.socket | None = None
        self._closed = threading.Event()
        self._failure: Exception | None = None

    @property
    def port(self) -> int:
        """Port that is listened to; of use where 0 was asked for."""
        return int(self._listening.getsockname()[1]) if self._listening is not None else self._address[1]

    def open(self, position: Any) -> None:  # noqa: ARG002 - what senders were told they need not send again
        """Begin to listen, or to connect."""
        if self._connect:
            threading.Thread(target=self._connected, daemon=True).start()
            return
        try:
            self._listening = socket.create_server(self._address)
        except OSError as error:
            host, port = self._address
            raise FeedFailed(
                f"cannot listen on {host}:{port}: {error}; stop what uses it, or give another port"
            ) from error
        threading.Thread(target=self._accept, daemon=True).start()

    def read(self, seconds: float) -> Chunk | None:
        """What has arrived from any of the senders."""
        if self._failure is not None:
            raise self._failure
        try:
            first = self._arrived.get(timeout=seconds)
        except queue.Empty:
            return None
        arrived, rows = [first], len(first)
        while rows < CHUNK_ROWS:
            try:
                arrived.append(self._arrived.get_nowait())
            except queue.Empty:
                break
            rows += len(arrived[-1])
        tables, letters = [], []
        for each in arrived:
            table, bad = each.parsed(self._schema)
            tables.append(table)
            letters += bad

        def acknowledge() -> None:
            for each in arrived:
                each.sender.accept(each.count)

        return Chunk(pa.concat_tables(tables), None, acknowledge, letters)

    def close(self) -> None:
        """Stop listening; senders notice."""
        self._closed.set()
        if self._listening is not None:
            with suppress(OSError):  # wakes whoever waits in accept, which closing does not
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()

    def _accept(self) -> None:
        assert self._listening is not None  # noqa: S101 - this tells the type checker
        until = None
        while not self._closed.is_set():
            try:
                self._let_in(self._listening)
            except (OSError, RuntimeError) as error:  # too many files or threads, or a sender that is gone
                now = time.monotonic()
                until = until or now + self._patience
                if now > until and not self._closed.is_set():
                    self._failure = FeedFailed(
                        f"no sender could be let in for {self._patience:g} seconds: {error}; let the process have more "
                        "open files, or have fewer senders"
                    )
                    return
                self._closed.wait(_PAUSE)
            else:
                until = None

    def _let_in(self, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        try:
            threading.Thread(target=self._receive, args=(connection,), daemon=True).start()
        except RuntimeError:
            connection.close()
            raise

    def _connected(self) -> None:
        until = time.monotonic() + self._patience
        while not self._closed.is_set():
            try:
                connection = socket.create_connection(self._address, timeout=self._patience)
            except OSError as error:
                if time.monotonic() > until:
                    host, port = self._address
                    self._failure = FeedFailed(
                        f"cannot reach the feed at {host}:{port} for {self._patience:g} seconds: {error}; start it, or "
                        "check the address"
                    )
                    return
                self._closed.wait(min(1.0, self._patience / 10))
                continue
            connection.settimeout(None)
            self._receive(connection)
            self._closed.wait(_PAUSE)
            until = time.monotonic() + self._patience

    def _receive(self, connection: socket.socket) -> None:
        sender = _Sender(connection)
        with connection, suppress(OSError):  # a sender that is gone has had its last acknowledgement
            if self._format == "arrow":
                self._receive_arrow(connection, sender)
            else:
                self._receive_lines(connection, sender)
            while sender.accepted < sender.sent and not self._closed.is_set():
                time.sleep(0.01)  # until what was sent is on disk
            sender.finish()  # and the sender knows

    def _receive_lines(self, connection: socket.socket, sender: "_Sender") -> None:
        rest: list[bytes] = []
        length = 0
        while data := connection.recv(_READ_BYTES):
            whole, found, after = data.rpartition(b"\n")
            if not found:
                rest.append(after)
                length += len(after)
                if length > _LINE_BYTES:
                    self._put(_Broken(sender, f"a line of more than {_LINE_BYTES} bytes; the connection was closed"))
                    return
                continue
            self._put(_Lines(sender, b"".join([*rest, whole, b"\n"])))
            rest, length = [after], len(after)
        if length:
            self._put(_Lines(sender, b"".join([*rest, b"\n"])))

    def _receive_arrow(self, connection: socket.socket, sender: "_Sender") -> None:
        try:
            with connection.makefile("rb") as file:
                for batch in pa.ipc.open_stream(file):
                    self._put(_Batch(sender, batch))
        except pa.ArrowException as error:
            self._put(_Broken(sender, f"not an Arrow stream, or cut short: {error}"))

    def _put(self, arrived: "_Arrived") -> None:
        arrived.sender.sent += arrived.count
        while not self._closed.is_set():
            try:
                self._arrived.put(arrived, timeout=0.5)
            except queue.Full:
                continue
            return


class _Sender:
    """The other end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.sent = self.accepted = 0
        self._told = 0
        self._unsent = b""  # of a line that was sent in part
        self._telling = threading.Lock()

    def accept(self, count: int) -> None:
        """Tell how much is on disk; one who does not read is not told, and nobody waits for that."""
        if not count:
            return
        with self._telling, suppress(OSError):
            self.accepted += count
            self._tell(socket.MSG_DONTWAIT)

    def finish(self) -> None:
        """Tell the rest to one who has sent all and may read only now."""
        with self._telling:
            self._connection.settimeout(_LAST_WORD)
            self._tell(0)

    def _tell(self, flags: int) -> None:
        while self._unsent or self._told < self.accepted:
            if not self._unsent:
                self._told = self.accepted
                self._unsent = json.dumps({"accepted": self._told}).encode() + b"\n"
            self._unsent = self._unsent[self._connection.send(self._unsent, flags) :]


class _Arrived(ABC):
    """What one read of a connection gave."""

    def __init__(self, sender: _Sender, count: int) -> None:
        self.sender, self.count = sender, count

    def __len__(self) -> int:
        return self.count

    @abstractmethod
    def parsed(self, schema: pa.Schema) -> tuple[pa.Table, list[tuple[str, str]]]:
        """Tuples, and what could not be read."""


class _Lines(_Arrived):
    def __init__(self, sender: _Sender, data: bytes) -> None:
        super().__init__(sender, data.count(b"\n"))
        self._data = data

    def parsed(self, schema: pa.Schema) -> tuple[pa.Table, list[tuple[str, str]]]:
        good, letters = [], []
        for line in self._data.split(b"\n"):
            if line.lstrip()[:1] == b"{":
                good.append(line)
            elif line.strip():
                letters.append((_shown(line), "not a JSON object"))
        tables, bad = _by_halves(good, lambda lines: parse_lines(b"\n".join(lines) + b"\n", schema))
        return pa.concat_tables([schema.empty_table(), *tables]), letters + [(_shown(line), why) for line, why in bad]


class _Batch(_Arrived):
    def __init__(self, sender: _Sender, batch: pa.RecordBatch) -> None:
        super().__init__(sender, batch.num_rows)
        self._batch = batch

    def parsed(self, schema: pa.Schema) -> tuple[pa.Table, list[tuple[str, str]]]:
        def cast(rows: range) -> pa.Table:
            table = pa.Table.from_batches([self._batch.slice(rows.start, len(rows))])
            return checked(table.select(schema.names).cast(schema))

        tables, bad = _by_halves(range(self._batch.num_rows), cast)
        letters = [(_shown_row(self._batch, row), why) for row, why in bad]
        return pa.concat_tables([schema.empty_table(), *tables]), letters


class _Broken(_Arrived):
    def __init__(self, sender: _Sender, reason: str) -> None:
        super().__init__(sender, 0)
        self._reason = reason

    def parsed(self, schema: pa.Schema) -> tuple[pa.Table, list[tuple[str, str]]]:
        return schema.empty_table(), [("", self._reason)]


def parse_lines(data: bytes, schema: pa.Schema) -> pa.Table:
    """Tuples from lines of JSON objects; columns that a line lacks are NULL, others than the schema's are ignored."""
    if not data.strip():
        return schema.empty_table()
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    read = pyarrow.json.ReadOptions(block_size=max(len(data), 1 << 20), use_threads=False)
    return checked(pyarrow.json.read_json(io.BytesIO(data), read_options=read, parse_options=options))


def checked(table: pa.Table) -> pa.Table:
    """The same table, whose strings are text indeed: a sender may say so of any bytes."""
    table.validate(full=True)
    return table


def _by_halves(items: Any, parse: Callable[[Any], pa.Table]) -> tuple[list[pa.Table], list[tuple[Any, str]]]:
    """What can be parsed of some items, and those that cannot, each with the reason."""
    if not len(items):
        return [], []
    try:
        return [parse(items)], []
    except (KeyError, pa.ArrowException) as error:
        if len(items) == 1:
            return [], [(items[0], str(error).splitlines()[0])]
    middle = len(items) // 2
    (left, left_bad), (right, right_bad) = _by_halves(items[:middle], parse), _by_halves(items[middle:], parse)
    return left + right, left_bad + right_bad


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")


def _shown_row(batch: pa.RecordBatch, row: int) -> str:
    values = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values[name] = column[row].as_py()
        except UnicodeDecodeError:
            values[name] = column.slice(row, 1).cast(pa.binary())[0].as_py()
    return json.dumps(values, default=lambda value: _shown(value) if isinstance(value, bytes) else str(value))
