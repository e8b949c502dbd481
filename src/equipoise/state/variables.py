"""State variables of the current grouping key, with the methods and the semantics of Spark's.

A variable with a time to live stores each value with its expiry: the processing time of the batch plus that time.
From the expiry on, the value is not returned, and ``purge_expired`` deletes it. Writing resets the expiry: of the
value, of the entry of a map, of the part of a list that is written.

Differs from Spark
------------------
- Iterators return the values at the time of the call; writing while iterating is safe.
- Rows are returned as plain tuples, also where Spark's ``MapState.getValue`` returns a ``Row``.
- A wrong value is refused in Python when it is written, not by the JVM.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from equipoise.errors import InvalidArgumentError
from equipoise.state.codec import KeyCodec, Row, RowCodec, array_of
from equipoise.state.entries import companions, due_expiry, split_value, with_expiry

if TYPE_CHECKING:
    from equipoise.state.transaction import GroupView

_CHUNK_BYTES = 32 * 1024
"""Bytes of a chunk. Appending rewrites the chunk that it began in this batch: small chunks make that cheap (a
microsecond), large ones keep the number of entries low."""


class NoKey:
    """Placeholder for the prefix of the current key where there is none; building an entry's key from it raises."""

    def __add__(self, tag: bytes) -> NoReturn:
        raise InvalidArgumentError(
            "state and timers belong to a grouping key, and there is none here; use them in handleInputRows, "
            "handleExpiredTimer or handleInitialState, not in init or close"
        )


class Scope:
    """State that all variables of one handle share: the group, the current key, the time of the batch.

    Parameters
    ----------
    now_ms
        Processing time of the batch.
    batch
        Number of the batch, larger in every later batch of the query; orders the chunks of lists.
    """

    __slots__ = ("batch", "now_ms", "prefix", "view")

    def __init__(self, now_ms: int, batch: int) -> None:
        self.now_ms = now_ms
        self.batch = batch
        self.prefix: bytes | NoKey = NoKey()
        self.view: GroupView  # set together with the first key; not read before


class _Variable:
    """Base of the three kinds of variables."""

    def __init__(self, scope: Scope, name: str, tag: int, ttl_ms: int | None, values: RowCodec) -> None:
        self._scope = scope
        self._name = name
        self._tag = bytes((tag,))
        self._ttl_ms = ttl_ms
        self._values = values
        self._encode = values.encode
        self._decode = values.decode

    def clear(self) -> None:
        """Remove all entries of this variable for the current key."""
        scope = self._scope
        prefix = scope.prefix + self._tag
        for key, value in list(scope.view.scan(prefix)):
            self._drop(key, value)

    def _drop(self, key: bytes, value: bytes) -> None:
        view = self._scope.view
        for companion in companions(key, value):
            view.delete(companion)
        view.delete(key)

    def _put(self, key: bytes, payload: bytes) -> None:
        view = self._scope.view
        if self._ttl_ms is None:
            # An index entry from a time with TTL stays behind; purge_expired recognises and deletes it.
            view.put(key, b"\x00" + payload)
            return
        expiry = self._scope.now_ms + self._ttl_ms
        old = view.get(key)
        if old is not None:
            before, _ = split_value(old)
            if before is not None and before != expiry:
                view.delete(due_expiry(before, key))
        view.put(key, with_expiry(payload, expiry))
        view.put(due_expiry(expiry, key), b"")

    def _payload(self, value: bytes | None) -> bytes | None:
        """The stored payload; None if it is absent or expired."""
        if value is None:
            return None
        if value[0] == 0:
            return value[1:]
        expiry, payload = split_value(value)
        return None if expiry is not None and expiry <= self._scope.now_ms else payload

    def _live(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and payloads of this variable that have not expired."""
        scope = self._scope
        prefix = scope.prefix + self._tag
        for key, value in scope.view.scan(prefix):
            payload = self._payload(value)
            if payload is not None:
                yield key, payload


class ValueState(_Variable):
    """One row for each grouping key."""

    def exists(self) -> bool:
        """Whether there is a value."""
        scope = self._scope
        key = scope.prefix + self._tag
        return self._payload(scope.view.get(key)) is not None

    def get(self) -> Row | None:
        """The value, or None where there is none."""
        scope = self._scope
        key = scope.prefix + self._tag
        value = scope.view.get(key)
        if value is None:
            return None
        if value[0] == 0:
            return self._decode(value[1:])
        payload = self._payload(value)
        return None if payload is None else self._decode(payload)

    def update(self, newValue: Row) -> None:  # noqa: N803 - Spark's own name
        """Set the value."""
        scope = self._scope
        key = scope.prefix + self._tag
        if self._ttl_ms is None:
            scope.view.put(key, b"\x00" + self._encode(newValue))
        else:
            self._put(key, self._encode(newValue))

    def clear(self) -> None:
        """Remove the value."""
        scope = self._scope
        key = scope.prefix + self._tag
        value = scope.view.get(key)
        if value is not None:
            self._drop(key, value)


class ListState(_Variable):
    """A list of rows for each grouping key.

    The list is stored in chunks, numbered by the batch that began them. Appending extends the chunk that it began in
    this batch or begins another. It never reads or rewrites chunks of earlier batches, however long the list is.
    """

    def __init__(self, scope: Scope, name: str, tag: int, ttl_ms: int | None, values: RowCodec) -> None:
        super().__init__(scope, name, tag, ttl_ms, values)
        self._open_for: object = None  # prefix of the key whose last chunk is open; compared by identity
        self._chunk = b""
        self._count = 0
        self._body = bytearray()
        self._number = 0

    def exists(self) -> bool:
        """Whether the list has a value."""
        return any(True for _ in self._live())

    def get(self) -> Iterator[Row]:
        """The values, in the order they were appended."""
        return self._rows([payload for _, payload in self._live()])

    def put(self, newState: Sequence[Row]) -> None:  # noqa: N803 - Spark's own name
        """Replace the list."""
        encoded = self._encoded(newState, "put", "clear() empties the list")
        self.clear()
        self._append(encoded)

    def appendValue(self, newState: Row) -> None:  # noqa: N802, N803 - Spark's own name
        """Append one value."""
        self._append([self._encode(newState)])

    def appendList(self, newState: Sequence[Row]) -> None:  # noqa: N802, N803 - Spark's own name
        """Append some values."""
        self._append(self._encoded(newState, "appendList", "leave the call out"))

    def clear(self) -> None:
        """Remove the list."""
        self._open_for = None
        super().clear()

    def _rows(self, chunks: list[bytes]) -> Iterator[Row]:
        for chunk in chunks:
            yield from self._values.decode_list(chunk)

    def _encoded(self, rows: Any, call: str, instead: str) -> list[bytes]:
        if not isinstance(rows, Sequence) or isinstance(rows, str | bytes | bytearray):
            raise InvalidArgumentError(f"list state {self._name!r}: {call} needs a list of tuples, got {rows!r:.80}")
        if not rows:
            raise InvalidArgumentError(
                f"list state {self._name!r}: {call} needs at least one value, got none; {instead}"
            )
        return self._values.encode_many(rows)

    def _append(self, encoded: list[bytes]) -> None:
        scope = self._scope
        if self._open_for is not scope.prefix:
            self._begin(scope.batch << 32)
            self._open_for = scope.prefix
        for row in encoded:
            if self._count and len(self._body) + len(row) > _CHUNK_BYTES:
                self._write()
                self._begin(self._number + 1)
            self._count += 1
            self._body += row
        self._write()

    def _begin(self, number: int) -> None:
        """Begin the first unused chunk from ``number`` on: a key may occur twice in a batch."""
        scope = self._scope
        prefix = scope.prefix + self._tag
        self._chunk = prefix + number.to_bytes(8, "big")
        while scope.view.get(self._chunk) is not None:
            number += 1
            self._chunk = prefix + number.to_bytes(8, "big")
        self._number = number
        self._count = 0
        self._body = bytearray()

    def _write(self) -> None:
        self._put(self._chunk, array_of(self._count, bytes(self._body)))


class MapState(_Variable):
    """A map from rows to rows for each grouping key."""

    def __init__(self, scope: Scope, name: str, tag: int, ttl_ms: int | None, values: RowCodec, keys: KeyCodec) -> None:
        super().__init__(scope, name, tag, ttl_ms, values)
        self._encode_key = keys.encode_key
        self._decode_key = keys.decode_key

    def exists(self) -> bool:
        """Whether the map has an entry."""
        return any(True for _ in self._live())

    def getValue(self, key: Row) -> Row | None:  # noqa: N802 - Spark's own name
        """The value of a key, or None where there is none."""
        payload = self._find(key)
        return None if payload is None else self._decode(payload)

    def containsKey(self, key: Row) -> bool:  # noqa: N802 - Spark's own name
        """Whether the map has an entry for this key."""
        return self._find(key) is not None

    def updateValue(self, key: Row, value: Row) -> None:  # noqa: N802 - Spark's own name
        """Set the value of a key."""
        self._put(self._scope.prefix + self._tag + self._encode_key(key), self._encode(value))

    def iterator(self) -> Iterator[tuple[Row, Row]]:
        """The entries, as pairs of key and value."""
        start = len(self._scope.prefix + self._tag)
        entries = list(self._live())
        return ((self._decode_key(key[start:]), self._decode(payload)) for key, payload in entries)

    def keys(self) -> Iterator[Row]:
        """The keys."""
        start = len(self._scope.prefix + self._tag)
        return map(self._decode_key, [key[start:] for key, _ in self._live()])

    def values(self) -> Iterator[Row]:
        """The values."""
        return map(self._decode, [payload for _, payload in self._live()])

    def removeKey(self, key: Row) -> None:  # noqa: N802 - Spark's own name
        """Remove the entry of a key, if there is one."""
        scope = self._scope
        entry = scope.prefix + self._tag + self._encode_key(key)
        value = scope.view.get(entry)
        if value is not None:
            self._drop(entry, value)

    def _find(self, key: Row) -> bytes | None:
        scope = self._scope
        entry = scope.prefix + self._tag + self._encode_key(key)
        return self._payload(scope.view.get(entry))
