"""Tuples from the network: JSON lines or an Arrow stream, from any number of senders.

The feed acknowledges with a line ``{"accepted": n}`` when the first n lines or rows of a sender are on disk or among
the dead letters. If the connection breaks, later lines or rows may be lost, and the sender should send them again. If
the feed ends the connection because of an error, the last line is ``{"accepted": n, "error": "..."}``. To be sure that
everything has arrived, a sender shuts down its side of the connection (``shutdown``) and reads to the end: closing a
connection with unread acknowledgements makes the system discard bytes in transit. When the receiver falls behind it
stops reading, which slows the sender down.

Senders are not trusted. Each connection is read and parsed in its own thread, so that a bad sender only slows down
itself, and its use of resources is bounded by ``Limits``.
"""

import logging
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from equipoise.arguments import at_least, whole
from equipoise.errors import FeedError, InvalidArgumentError
from equipoise.microbatch.arrow_messages import Bounds
from equipoise.microbatch.arrow_rows import ArrowRows
from equipoise.microbatch.connections import READ_BYTES, Arrived, Incoming, Sender, Waiting, peer
from equipoise.microbatch.dead_letters import DeadLetter, RefusedError, TimedOutError, shown
from equipoise.microbatch.feeds import CHUNK_ROWS, Chunk, Feed
from equipoise.microbatch.json_lines import parse_lines, unreadable

FORMATS = ("json", "arrow")
"""Formats in which tuples may be sent."""

_PAUSE = 0.1  # seconds until a failed operation is tried again
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Bounds on the resources that senders may use.

    Memory is about ``waiting_bytes + connections * c``. With Arrow, ``c`` is up to four times ``message_bytes``: a
    message as sent, decompressed and converted, and the dictionaries of its stream. With the defaults that is 8 GiB, if
    all senders send the largest messages at once. With JSON lines, ``c`` is some tens of times ``line_bytes`` at worst.

    Parameters
    ----------
    connections
        Connections at a time; further ones get an error message and are closed.
    idle
        Seconds in which a sender must complete a line or an Arrow message; after that its connection is closed. With
        ``connect`` they are counted only while a line or a message has begun.
    waiting_bytes
        Bytes of waiting tuples above which senders are slowed down.
    line_bytes
        Length of a line.
    message_rows, message_bytes
        Rows of an Arrow message, and its bytes, as sent and when decompressed.
    """

    connections: int = 64
    idle: float = 300.0
    waiting_bytes: int = 64 << 20
    line_bytes: int = 1 << 20
    message_rows: int = 1_000_000
    message_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        for name in ("connections", "waiting_bytes", "line_bytes", "message_rows", "message_bytes"):
            whole(name, getattr(self, name), 1)
        at_least("idle", self.idle, 0.001)


class SocketFeed(Feed):
    """Listens for senders, or connects to one.

    Parameters
    ----------
    schema
        Schema of the tuples.
    host, port
        Address to listen on, loopback by default; with ``connect`` the address to connect to.
    format
        ``json`` for a JSON object a line, ``arrow`` for one Arrow stream a connection.
    connect
        Whether to connect to a sender instead of listening.
    patience
        Seconds after which it is an error that a sender cannot be reached, or that no sender can be accepted.
    limits
        Bounds on the resources that senders may use.
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
        limits: Limits | None = None,
    ) -> None:
        if format not in FORMATS:
            raise InvalidArgumentError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
        if format == "json" and (reason := unreadable(schema)) is not None:
            raise InvalidArgumentError(
                f"format json cannot read this schema: {reason}; use format arrow, or other types"
            )
        self._schema, self._address, self._format = schema, (host, port), format
        self._connect, self._patience, self._limits = connect, patience, limits or Limits()
        self._waiting = Waiting(self._limits.waiting_bytes)
        self._listening: socket.socket | None = None
        self._closed = threading.Event()
        self._failure: Exception | None = None
        self._open: set[socket.socket] = set()
        self._counting = threading.Lock()  # of open connections
        self._refused = 0

    @property
    def port(self) -> int:
        """Port that the feed listens on; chosen by the system if 0 was given."""
        return int(self._listening.getsockname()[1]) if self._listening is not None else self._address[1]

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._open)

    def open(self, position: Any) -> None:  # noqa: ARG002 - senders repeat what was not acknowledged
        """Start to listen, or to connect."""
        if self._connect:
            threading.Thread(target=self._connected, daemon=True).start()
            return
        try:
            self._listening = socket.create_server(self._address)
        except OSError as error:
            host, port = self._address
            raise FeedError(
                f"cannot listen on {host}:{port}: {error}; stop what uses it, or give another port"
            ) from error
        threading.Thread(target=self._accept, daemon=True).start()

    def read(self, seconds: float) -> Chunk | None:
        """Tuples that have arrived from any of the senders."""
        if self._failure is not None:
            raise self._failure
        first = self._waiting.get(seconds)
        if first is None:
            return None
        arrived, rows = [first], first.count
        while rows < CHUNK_ROWS and (more := self._waiting.get(0)) is not None:
            arrived.append(more)
            rows += more.count

        def acknowledge() -> None:
            for each in arrived:
                each.sender.accept(each.count)

        dead_letters = [letter for each in arrived for letter in each.dead_letters]
        return Chunk(pa.concat_tables([each.table for each in arrived]), None, acknowledge, dead_letters)

    def close(self) -> None:
        """Stop listening, and end all connections."""
        self._waiting.close()
        with self._counting:
            self._closed.set()  # from here on no connection is added
            ending = [*self._open, *([] if self._listening is None else [self._listening])]
        for each in ending:
            with suppress(OSError):  # wakes the threads that wait for it, which closing does not
                each.shutdown(socket.SHUT_RDWR)
        if self._listening is not None:
            self._listening.close()

    def _accept(self) -> None:
        assert self._listening is not None  # noqa: S101 - this tells the type checker
        until = None
        while not self._closed.is_set():
            try:
                self._let_in(self._listening)
            except (OSError, RuntimeError, MemoryError) as error:  # too many files or threads, or a sender that is gone
                now = time.monotonic()
                until = until or now + self._patience
                if now > until and not self._closed.is_set():
                    self._failure = FeedError(
                        f"no sender could be let in for {self._patience:g} seconds: {error}; let the process have more "
                        "open files, or have fewer senders"
                    )
                    return
                self._closed.wait(_PAUSE)
            else:
                until = None

    def _let_in(self, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        if self.connections >= self._limits.connections:
            self._refuse(connection)
        elif self._keep(connection):
            try:
                threading.Thread(target=self._receive, args=(connection,), daemon=True).start()
            except BaseException:
                self._forget(connection)
                raise

    def _refuse(self, connection: socket.socket) -> None:
        """Close a connection above the limit, and log a warning at the 1st, 2nd, 4th, 8th of them."""
        self._refused += 1
        most = self._limits.connections
        if self._refused & (self._refused - 1) == 0:
            _log.warning(
                "%d connections were refused so far, the last from %s: %d are open, and no more are let in; end some, "
                "or raise connections",
                self._refused,
                peer(connection),
                most,
            )
        with connection, suppress(OSError):
            sender = Sender(connection)
            sender.finish(f"{most} connections are open, and no more are let in; try again later")

    def _keep(self, connection: socket.socket) -> bool:
        """Register a connection, to be closed with the feed; close it now if the feed is closed."""
        with self._counting:
            if not self._closed.is_set():
                self._open.add(connection)
                return True
        connection.close()
        return False

    def _forget(self, connection: socket.socket) -> None:
        with self._counting:
            self._open.discard(connection)
        connection.close()

    def _connected(self) -> None:
        until = time.monotonic() + self._patience
        while not self._closed.is_set():
            try:
                connection = socket.create_connection(self._address, timeout=self._patience)
            except OSError as error:
                if time.monotonic() > until:
                    host, port = self._address
                    self._failure = FeedError(
                        f"cannot reach the feed at {host}:{port} for {self._patience:g} seconds: {error}; start it, or "
                        "check the address"
                    )
                    return
                self._closed.wait(min(1.0, self._patience / 10))
                continue
            connection.settimeout(None)
            with suppress(OSError):  # detects a lost machine while a sender is silent for long
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._keep(connection):
                self._receive(connection)
            self._closed.wait(_PAUSE)
            until = time.monotonic() + self._patience

    def _receive(self, connection: socket.socket) -> None:
        """Read a connection to its end, and release it."""
        try:
            self._read_out(connection)
        except Exception:  # noqa: BLE001 - no descriptor or memory is left
            _log.exception("a connection could not be read")
        finally:
            self._forget(connection)

    def _read_out(self, connection: socket.socket) -> None:
        """Read a connection to its end, send the last acknowledgement or error, and account for unread bytes."""
        sender, where = Sender(connection), peer(connection)
        incoming = Incoming(connection, self._limits.idle, may_rest=self._connect)
        error = self._received(sender, incoming, where)
        sender.wait(self._closed.is_set)
        with suppress(OSError):  # a sender that is gone has had its last acknowledgement
            sender.finish(error)
            if (unread := incoming.drained()) and error is None:
                reason = f"{unread:,} bytes follow the end of the stream, expected none"
                self._report(sender, where, f"{reason}; send each Arrow stream over a connection of its own")

    def _received(self, sender: Sender, incoming: Incoming, where: str) -> str | None:
        """Read everything that a sender sends; return the error that ends its connection, if any."""
        try:
            if self._format == "arrow":
                self._receive_arrow(sender, incoming)
            else:
                self._receive_lines(sender, incoming)
        except TimedOutError as late:
            reason = f"{late}; send one, or raise idle"
            if incoming.begun:
                return self._report(sender, where, f"the connection ended in mid-stream: {reason}")
            _log.info("the connection of %s was closed: %s", where, reason)
            return reason
        except RefusedError as error:
            return self._report(sender, where, str(error))
        except Exception as error:  # noqa: BLE001 - untrusted bytes must not end the feed
            _log.exception("reading from %s failed", where)
            return self._report(sender, where, f"{type(error).__name__}: {error}; report this as a bug")
        return None

    def _report(self, sender: Sender, where: str, reason: str) -> str:
        """Add a dead letter without text for a stream that could not be read to its end."""
        described = f"{where}, after {sender.sent:,} lines or rows: {reason}"
        self._waiting.put(Arrived(sender, 0, self._schema.empty_table(), [DeadLetter("", described)]))
        return reason

    def _receive_lines(self, sender: Sender, incoming: Incoming) -> None:
        rest: list[bytes] = []
        length, most = 0, self._limits.line_bytes
        while data := incoming.receive(READ_BYTES):
            *lines, after = data.split(b"\n")
            if lines:
                lines[0] = b"".join([*rest, lines[0]])
                self._put_lines(sender, lines)
                incoming.restart(len(after))
                rest, length = [], 0
            rest.append(after)
            length += len(after)
            if length > most:
                raise RefusedError(
                    f"a line has more than {most:,} bytes and begins with {shown(b''.join(rest)[:100])!r}; send "
                    "shorter lines, or raise lineBytes"
                )
        if length:
            self._put_lines(sender, [b"".join(rest)])

    def _put_lines(self, sender: Sender, lines: list[bytes]) -> None:
        for start in range(0, len(lines), CHUNK_ROWS):
            some = lines[start : start + CHUNK_ROWS]
            self._put(sender, len(some), *parse_lines(some, self._schema))

    def _receive_arrow(self, sender: Sender, incoming: Incoming) -> None:
        bounds = Bounds(self._limits.message_rows, self._limits.message_bytes)
        rows = ArrowRows(incoming.exactly, incoming.restart, self._schema, bounds)
        for batch in rows.batches():
            for count, table, dead_letters in rows.fitted(batch):
                self._put(sender, count, table, dead_letters)
            incoming.restart()

    def _put(self, sender: Sender, count: int, table: pa.Table, dead_letters: list[DeadLetter]) -> None:
        if table.num_rows or dead_letters:
            self._waiting.put(Arrived(sender, sender.queue(count), table, dead_letters))
        else:
            sender.skip(count)  # blank lines would fill the memory without counting as bytes
