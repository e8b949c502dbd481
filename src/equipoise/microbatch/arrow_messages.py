"""Messages of an Arrow stream, each checked before memory is allocated for it and before it is decoded.

Arrow trusts the header of a message: the length of its body, the numbers of rows and buffers, and the decompressed
length of buffers. A stream from the network may contain anything, so the header, a small flatbuffer, is parsed here
first. Every read here is within the header's bytes, or ``RefusedError`` is raised.

The numbers of fields below are those of ``Message.fbs`` and ``Schema.fbs`` in the Arrow format.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.microbatch.dead_letters import RefusedError

_CONTINUATION = b"\xff\xff\xff\xff"
_METADATA_BYTES = 1 << 20  # of one header; one of 10,000 columns with their buffers has 0.6 MiB
_PADDING = 64  # bytes to which the end of a body may be padded
_FIELDS = 10_000  # of a schema, with those of nested types
_VERSION = 4  # V5, of Arrow 1.0 and newer
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_KINDS = {_SCHEMA: "schema", _DICTIONARY: "dictionary", _BATCH: "record batch"}


@dataclass(frozen=True)
class Bounds:
    """Largest sizes of a message, as sent and as decoded."""

    rows: int
    bytes: int


class Messages:
    """A file of whole, checked messages, for ``pyarrow.ipc.open_stream``.

    Parameters
    ----------
    receive
        Returns the given number of bytes of the stream, fewer where it ends.
    completed
        Called when a message has arrived in full.
    bounds
        Largest sizes of a message.
    """

    closed = False

    def __init__(self, receive: Callable[[int], bytes], completed: Callable[[], None], bounds: Bounds) -> None:
        self._receive, self._completed, self._bounds = receive, completed, bounds
        self._parts: list[bytes] = []  # of the message that is handed out
        self._dictionaries: dict[int, int] = {}  # decoded bytes of each
        self._is_over = False
        self.count = 0
        self.is_empty = False

    def readable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int) -> bytes:
        """Bytes of the current message, or of the next one if it is at its end; none where the stream ends."""
        if not self._parts:
            self._parts = self._message()
        joined = self._parts.pop(0)
        while len(joined) < size and self._parts:
            joined += self._parts.pop(0)
        if len(joined) > size:
            self._parts.insert(0, joined[size:])
        return joined[:size]

    def _message(self) -> list[bytes]:
        if self._is_over:
            return [b""]
        prefix = self._receive(8)
        if prefix in {b"", _CONTINUATION + bytes(4)}:
            self._is_over = True
            self.is_empty = not prefix and not self.count
            return [prefix]
        self.count += 1
        try:
            parts = self._checked(prefix)
        except (struct.error, ValueError) as error:
            raise RefusedError(f"message {self.count} has an invalid Arrow header ({error}); send it again") from error
        self._completed()
        return parts

    def _checked(self, prefix: bytes) -> list[bytes]:
        if prefix[:4] != _CONTINUATION or len(prefix) < 8:
            raise RefusedError(
                f"message {self.count} begins with {prefix.hex()}, and ffffffff and a length were expected; send an "
                "Arrow IPC stream, of Arrow 0.15 or newer"
            )
        size = int.from_bytes(prefix[4:], "little", signed=True)
        if not 0 <= size <= _METADATA_BYTES:
            raise RefusedError(
                f"message {self.count} has {size:,} bytes of header, and at most {_METADATA_BYTES:,} were expected; "
                "send fewer columns, or shorter names and metadata"
            )
        metadata = self._whole(size, "header")
        message = _root(metadata)
        version, kind = message.number(0, "<h"), message.number(1, "<B")
        if version != _VERSION or kind not in _KINDS:
            raise RefusedError(
                f"message {self.count} has version {version + 1} and kind {kind}; version {_VERSION + 1} and a schema, "
                "dictionary or record batch were expected: send an Arrow IPC stream, of Arrow 1.0 or newer"
            )
        if (kind == _SCHEMA) != (self.count == 1):
            raise RefusedError(
                f"message {self.count} is a {_KINDS[kind]}; a stream begins with its schema and has no other: send "
                "each stream over a connection of its own"
            )
        header = message.table(2)
        if header is None:
            raise RefusedError(
                f"message {self.count} is a {_KINDS[kind]} without content; send a whole Arrow IPC stream"
            )
        size = message.number(3, "<q")
        self._require("bytes", size, self._bounds.bytes)
        if kind == _SCHEMA:
            self._check_schema(header)
            body = self._whole(size, "body")
        elif kind == _BATCH:
            self._check_counts(header, size)
            body = self._whole(size, "body")
            self._decoded(header, body)
        else:
            data = header.table(1)
            if data is None:
                raise RefusedError(
                    f"message {self.count} is a dictionary without values; send a whole Arrow IPC stream"
                )
            self._check_counts(data, size)
            body = self._whole(size, "body")
            self._add_dictionary(header.number(0, "<q"), bool(header.number(2, "<B")), self._decoded(data, body))
        return [prefix, metadata, body] if body else [prefix, metadata]

    def _whole(self, size: int, name: str) -> bytes:
        data = self._receive(size)
        if len(data) < size:
            raise RefusedError(
                f"message {self.count} is cut short: its {name} has {len(data):,} bytes, and {size:,} were expected; "
                "send it again"
            )
        return data

    def _require(self, name: str, found: int, most: int) -> None:
        if not 0 <= found <= most:
            raise RefusedError(
                f"message {self.count} has {found:,} {name}, and at most {most:,} were expected; send smaller record "
                "batches, or raise messageRows or messageBytes"
            )

    def _check_schema(self, schema: "_Table") -> None:
        if schema.number(0, "<h"):
            raise RefusedError("the stream is big-endian, expected little-endian; send little-endian data")
        found = [schema]  # tables may be shared, so that a short header has any number of fields
        count = 0
        while found:
            table = found.pop()
            field = 1 if table is schema else 5
            count += table.count(field)
            if count > _FIELDS:
                raise RefusedError(f"the schema has more than {_FIELDS:,} fields; send fewer columns")
            found += table.tables(field)

    def _check_counts(self, batch: "_Table", size: int) -> None:
        self._require("rows", batch.number(0, "<q"), self._bounds.rows)
        lengths = batch.pairs(1)
        for length in lengths.ravel().tolist():  # of arrays, also of nested ones, and of their NULLs
            self._require("values of one column", length, max(self._bounds.bytes, self._bounds.rows))
        buffers = batch.pairs(2)
        starts, counts = buffers[:, 0], buffers[:, 1]
        if len(buffers) and (
            buffers.min() < 0 or counts.max() > size or starts.max() > size or (starts + counts).max() > size
        ):
            raise RefusedError(f"message {self.count} has a buffer outside of its {size:,} bytes; send it again")
        if size - (starts + counts).max(initial=0) >= _PADDING:  # a wrong length would swallow the next message
            raise RefusedError(f"message {self.count} has bytes behind its last buffer; send it again")
        if (starts % 8).any():
            raise RefusedError(f"message {self.count} has a buffer that is not aligned to 8 bytes; send it again")
        if any(not 0 <= count <= len(buffers) for count in batch.longs(4).tolist()):
            raise RefusedError(f"message {self.count} has a column of more buffers than there are; send it again")

    def _decoded(self, batch: "_Table", body: bytes) -> int:
        """Bytes of all decompressed buffers of a message; refuse a message above the limit."""
        total, is_compressed = 0, batch.table(3) is not None
        for start, size in batch.pairs(2).tolist():
            if is_compressed and size:
                if size < 8:
                    raise RefusedError(f"message {self.count} has a compressed buffer of {size} bytes; send it again")
                length = struct.unpack_from("<q", body, start)[0]
                length = size - 8 if length == -1 else length  # this one was left as it is
                self._require("bytes in one buffer", length, self._bounds.bytes)
                total += length
            else:
                total += size
        self._require("bytes when decompressed", total, self._bounds.bytes)
        return total

    def _add_dictionary(self, number: int, is_more: bool, size: int) -> None:
        self._dictionaries[number] = size + (self._dictionaries.get(number, 0) if is_more else 0)
        self._require("bytes of dictionaries before it", sum(self._dictionaries.values()), self._bounds.bytes)


class _Table:
    """A table of a flatbuffer: an offset back to its vtable, which has the offset of each field."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - self._read("<i", at)
        self._size = self._read("<H", self._vtable)

    def number(self, field: int, kind: str) -> int:
        """A field that is a number, 0 where it is left out."""
        at = self._place(field)
        return self._read(kind, at) if at else 0

    def table(self, field: int) -> "_Table | None":
        """A field that is a table."""
        at = self._place(field)
        return _Table(self._data, at + self._read("<I", at)) if at else None

    def count(self, field: int) -> int:
        """Number of entries of a field that is a vector of tables."""
        return self._vector(field, 4)[1]

    def tables(self, field: int) -> "list[_Table]":
        """A field that is a vector of tables."""
        start, count = self._vector(field, 4)
        return [_Table(self._data, at + self._read("<I", at)) for at in range(start, start + 4 * count, 4)]

    def longs(self, field: int) -> NDArray[np.int64]:
        """A field that is a vector of longs."""
        start, count = self._vector(field, 8)
        return np.frombuffer(self._data, "<i8", count, start) if count else np.empty(0, np.int64)

    def pairs(self, field: int) -> NDArray[np.int64]:
        """A field that is a vector of structs of two longs."""
        start, count = self._vector(field, 16)
        found = np.frombuffer(self._data, "<i8", 2 * count, start) if count else np.empty(0, np.int64)
        return found.reshape(-1, 2)

    def _place(self, field: int) -> int:
        """Where a field is; 0 where it is left out."""
        if 4 + 2 * field >= self._size:
            return 0
        offset = self._read("<H", self._vtable + 4 + 2 * field)
        return self._at + offset if offset else 0

    def _vector(self, field: int, width: int) -> tuple[int, int]:
        at = self._place(field)
        if not at:
            return 0, 0
        start = at + self._read("<I", at)
        count = self._read("<I", start)
        if start + 4 + width * count > len(self._data):
            raise ValueError(f"a vector of {count} entries outside of it")
        return start + 4, count

    def _read(self, kind: str, at: int) -> int:
        if at < 0:
            raise ValueError("an offset before its beginning")
        return int(struct.unpack_from(kind, self._data, at)[0])


def _root(data: bytes) -> _Table:
    return _Table(data, int(struct.unpack_from("<I", data, 0)[0]))
