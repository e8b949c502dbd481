"""Tuples from the network: JSON lines or an Arrow stream, from any number of senders.

A sender is told ``{"accepted": n}``, in a line, when its first n tuples are on disk. It need not read that. What it has
sent beyond n when the connection breaks may be lost, and it should send it again. When the receiver falls behind it
stops reading, which slows the sender down.
"""

import io
import json
import queue
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.json

from equipoise.errors import FeedFailed, InvalidArgument
from equipoise.microbatch.feeds import CHUNK_ROWS, Chunk, Feed

FORMATS = ("json", "arrow")
"""How tuples may be sent."""

_READ_BYTES = 1 << 20
_WAITING = 64  # reads that may wait before senders are slowed down


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
        Seconds after which a sender that cannot be reached is an error.
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
            self._listening.close()

    def _accept(self) -> None:
        assert self._listening is not None  # noqa: S101 - this tells the type checker
        while not self._closed.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._receive, args=(connection,), daemon=True).start()

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
                time.sleep(min(1.0, self._patience / 10))
                continue
            connection.settimeout(None)
            self._receive(connection)
            until = time.monotonic() + self._patience

    def _receive(self, connection: socket.socket) -> None:
        sender = _Sender(connection)
        with connection, suppress(OSError):  # a sender that is gone has had its last acknowledgement
            if self._format == "arrow":
                self._receive_arrow(connection, sender)
            else:
                self._receive_lines(connection, sender)
            while sender.accepted < sender.sent and not self._closed.is_set():
                time.sleep(0.01)  # until what was sent is on disk and the sender knows

    def _receive_lines(self, connection: socket.socket, sender: "_Sender") -> None:
        rest = b""
        while data := connection.recv(_READ_BYTES):
            whole, found, rest = (rest + data).rpartition(b"\n")
            if found:
                self._put(_Lines(sender, whole + b"\n"))
        if rest:
            self._put(_Lines(sender, rest + b"\n"))

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

    def accept(self, count: int) -> None:
        """Tell how much is on disk; one who does not read is not told, and nobody waits for that."""
        self.accepted += count
        line = json.dumps({"accepted": self.accepted}).encode() + b"\n"
        with suppress(OSError):
            self._connection.send(line, socket.MSG_DONTWAIT)


class _Arrived:
    """What one read of a connection gave."""

    def __init__(self, sender: _Sender, count: int) -> None:
        self.sender, self.count = sender, count

    def __len__(self) -> int:
        return self.count

    def parsed(self, schema: pa.Schema) -> tuple[pa.Table, list[tuple[str, str]]]:
        """Tuples, and what could not be read."""
        raise NotImplementedError


class _Lines(_Arrived):
    def __init__(self, sender: _Sender, data: bytes) -> None:
        super().__init__(sender, data.count(b"\n"))
        self._data = data

    def parsed(self, schema: pa.Schema) -> tuple[pa.Table, list[tuple[str, str]]]:
        try:
            return parse_lines(self._data, schema), []
        except pa.ArrowException:
            return _line_by_line(self._data.splitlines(), schema)


class _Batch(_Arrived):
    def __init__(self, sender: _Sender, batch: pa.RecordBatch) -> None:
        super().__init__(sender, batch.num_rows)
        self._batch = batch

    def parsed(self, schema: pa.Schema) -> tuple[pa.Table, list[tuple[str, str]]]:
        try:
            return pa.Table.from_batches([self._batch]).select(schema.names).cast(schema), []
        except (KeyError, pa.ArrowException) as error:
            return schema.empty_table(), [(str(self._batch.slice(0, 1).to_pylist()), f"not of the schema: {error}")]


class _Broken(_Arrived):
    def __init__(self, sender: _Sender, reason: str) -> None:
        super().__init__(sender, 0)
        self._reason = reason

    def parsed(self, schema: pa.Schema) -> tuple[pa.Table, list[tuple[str, str]]]:
        return schema.empty_table(), [("", self._reason)]


def parse_lines(data: bytes, schema: pa.Schema) -> pa.Table:
    """Tuples from JSON lines; columns that a line lacks are NULL, others than the schema's are ignored."""
    if not data.strip():
        return schema.empty_table()
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    read = pyarrow.json.ReadOptions(block_size=max(len(data), 1 << 20), use_threads=False)
    return pyarrow.json.read_json(io.BytesIO(data), read_options=read, parse_options=options)


def _line_by_line(lines: Sequence[bytes], schema: pa.Schema) -> tuple[pa.Table, list[tuple[str, str]]]:
    tables, letters = [], []
    for line in lines:
        try:
            tables.append(parse_lines(line + b"\n", schema))
        except pa.ArrowException as error:
            letters.append((line.decode("utf-8", "backslashreplace"), str(error).splitlines()[0]))
    return pa.concat_tables(tables) if tables else schema.empty_table(), letters
