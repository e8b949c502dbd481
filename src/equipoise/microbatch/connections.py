"""Connections of a socket feed, and the queue of tuples that wait to be read."""

import json
import math
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from equipoise.microbatch.dead_letters import DeadLetter, TimedOutError

READ_BYTES = 1 << 18
"""Bytes that are received at once."""

_LAST_WORD = 10.0  # seconds that a sender may take to read its last acknowledgements
_DRAIN = 2.0  # seconds for which bytes after the end of the stream are discarded
_POLL = 3600.0  # seconds of one wait; the system counts milliseconds in 32 bits
_ENTRY_BYTES = 1500  # of memory for a queued entry, besides its columns and dead letters
_COLUMN_BYTES = 600  # of memory for a column, besides its values
_LETTER_BYTES = 300  # of memory for a dead letter, besides its text and reason


class Incoming:
    """Bytes of a connection whose sender must complete a line or a message within ``idle`` seconds.

    A sender of one byte a second gets no more time than a silent one.

    Parameters
    ----------
    connection
        The socket to read.
    idle
        Seconds in which a line or a message must be completed.
    may_rest
        Whether the seconds only count while a line or a message is incomplete.
    clock
        Returns seconds.
    """

    def __init__(
        self,
        connection: socket.socket,
        idle: float,
        *,
        may_rest: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection, self._idle, self._may_rest, self._clock = connection, idle, may_rest, clock
        self._readable = select.poll()
        self._readable.register(connection, select.POLLIN)
        self.restart()

    def restart(self, begun: int = 0) -> None:
        """Restart the sender's time: everything received is complete except for the last ``begun`` bytes."""
        self._until = self._clock() + self._idle
        self.begun = begun

    def receive(self, most: int) -> bytes:
        """Receive some bytes; none where the stream ends or the sender is gone."""
        while True:
            self._wait()
            try:
                found = self._connection.recv(most, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError:  # reset, timed out, unreachable: the sender is gone
                return b""
            if self._may_rest and not self.begun:
                self.restart()
            self.begun += len(found)
            return found

    def _wait(self) -> None:
        """Wait until there are bytes, or the stream ends."""
        while True:
            left = math.inf if self._may_rest and not self.begun else self._until - self._clock()
            if left <= 0:
                raise TimedOutError(f"no whole line or message for {self._idle:g} seconds")
            if self._readable.poll(1000 * min(left, _POLL)):
                return

    def exactly(self, count: int) -> bytes:
        """Receive ``count`` bytes, fewer where the stream ends; memory is allocated as bytes arrive."""
        parts, left = [], count
        while left and (part := self.receive(min(left, READ_BYTES))):
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drained(self) -> int:
        """Discard further bytes for a while, so that the sender can read its last line; return their number."""
        self._may_rest, self._until = False, self._clock() + min(_DRAIN, self._idle)
        count = 0
        try:
            while part := self.receive(READ_BYTES):
                count += len(part)
        except TimedOutError:
            return count
        return count


class Sender:
    """The other end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.sent = self.accepted = 0
        self._blank = 0  # blank lines sent last, not accepted yet because lines before them are not
        self._acknowledged = 0
        self._unsent = b""  # rest of an acknowledgement that was sent in part
        self._changed = threading.Condition()

    def queue(self, count: int) -> int:
        """Count lines or rows that will be accepted; return their number plus that of the blank lines before them."""
        with self._changed:
            self.sent += count
            count += self._blank
            self._blank = 0
            return count

    def skip(self, count: int) -> None:
        """Count blank lines, which are accepted with what was sent before them."""
        with self._changed:
            self.sent += count
            self._blank += count
            self._accept_blank()
            self._try_acknowledge()

    def accept(self, count: int) -> None:
        """Count lines or rows that are on disk and acknowledge them.

        Non-blocking: slow readers miss acknowledgements, but not the last one.
        """
        if not count:
            return  # the connection may be ending, and sending its last line may take a while
        with self._changed:
            self.accepted += count
            self._changed.notify_all()
            self._accept_blank()
            self._try_acknowledge()

    def wait(self, is_closed: Callable[[], bool]) -> None:
        """Wait until all that was sent is on disk, or the feed is closed."""
        with self._changed:
            while self.accepted < self.sent and not is_closed():
                self._changed.wait(0.5)

    def finish(self, error: str | None) -> None:
        """Send the last acknowledgement, and the error if there is one, and shut down this side."""
        with self._changed:
            self._connection.settimeout(_LAST_WORD)
            self._acknowledge(0)
            if error is not None:
                self._connection.sendall(json.dumps({"accepted": self.accepted, "error": error}).encode() + b"\n")
            self._connection.shutdown(socket.SHUT_WR)
            self._connection.settimeout(None)

    def _accept_blank(self) -> None:
        if self._blank and self.accepted + self._blank == self.sent:
            self.accepted, self._blank = self.sent, 0

    def _try_acknowledge(self) -> None:
        with suppress(OSError):
            self._acknowledge(socket.MSG_DONTWAIT)

    def _acknowledge(self, flags: int) -> None:
        while self._unsent or self._acknowledged < self.accepted:
            if not self._unsent:
                self._acknowledged = self.accepted
                self._unsent = json.dumps({"accepted": self._acknowledged}).encode() + b"\n"
            self._unsent = self._unsent[self._connection.send(self._unsent, flags) :]


@dataclass(frozen=True, eq=False)
class Arrived:
    """Tuples and dead letters of some lines or rows of a sender.

    Parameters
    ----------
    sender
        The sender.
    count
        Number of lines or rows.
    table, dead_letters
        Tuples, and lines or rows that could not be read.
    """

    sender: Sender
    count: int
    table: pa.Table
    dead_letters: Sequence[DeadLetter] = ()
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        letter_bytes = sum(_LETTER_BYTES + len(letter.text) + len(letter.reason) for letter in self.dead_letters)
        columns = _COLUMN_BYTES * self.table.num_columns
        object.__setattr__(self, "bytes", _ENTRY_BYTES + columns + int(self.table.nbytes) + letter_bytes)


class Waiting:
    """Queue bounded by the bytes in it; an entry of any size fits into an empty queue."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._entries: deque[Arrived] = deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, arrived: Arrived) -> None:
        """Append when there is room; do nothing if the queue is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or not self._entries or self._bytes + arrived.bytes <= self._most
            )
            if not self._is_closed:
                self._entries.append(arrived)
                self._bytes += arrived.bytes
                self._changed.notify_all()

    def get(self, seconds: float) -> Arrived | None:
        """Take the first entry, waiting at most ``seconds`` for it."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._entries), seconds):
                return None
            first = self._entries.popleft()
            self._bytes -= first.bytes
            self._changed.notify_all()
            return first

    def close(self) -> None:
        """Close the queue and wake up all waiting threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


def peer(connection: Any) -> str:
    """Address of the other end, for messages."""
    try:
        host, port = connection.getpeername()[:2]
    except OSError:
        return "a sender that is gone"
    return f"{host}:{port}"
