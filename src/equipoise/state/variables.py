"""State variables of the current grouping key, with the methods and the semantics of Spark's.

A variable with a time to live stores each value with its expiry: the processing time of the batch plus that time.
From the expiry on, the value is not returned, and ``purge_expired`` deletes it. Writing resets the expiry: of the
value, of the entry of a map, of the part of a list that is written.

As in Spark, values and keys are tuples, nested structs and the result of ``MapState.getValue`` are made by the
``RowFactory`` of the handle.

Differs from Spark
------------------
- Iterators return the values at the time of the call; writing while iterating is safe.
- A wrong value is refused in Python when it is written, not by the JVM.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from equipoise.errors import InvalidArgumentError
from equipoise.state.codec import KeyCodec, array_of
from equipoise.state.entries import companions, due_expiry, split_value, value_head, with_expiry
from equipoise.state.evolution import ValueCodec
from equipoise.state.kinds import Row

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

    def __init__(self, scope: Scope, name: str, tag: int, ttl_ms: int | None, values: ValueCodec) -> None:
        self._scope = scope
        self._name = name
        self._tag = bytes((tag,))
        self._ttl_ms = ttl_ms
        self._values = values
        self._head = value_head(values.schema)
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
            view.put(key, self._head + payload)
            return
        expiry = self._scope.now_ms + self._ttl_ms
        old = view.get(key)
        if old is not None:
            before = split_value(old)[0]
            if before is not None and before != expiry:
                view.delete(due_expiry(before, key))
        view.put(key, with_expiry(payload, expiry, self._values.schema))
        view.put(due_expiry(expiry, key), b"")

    def _payload(self, value: bytes | None) -> tuple[bytes, int] | None:
        """The stored payload and the number of its schema; None if it is absent or expired."""
        if value is None:
            return None
        if value[0] == 0:
            return value[1:], 0
        expiry, payload, schema = split_value(value)
        return None if expiry is not None and expiry <= self._scope.now_ms else (payload, schema)

    def _live(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Keys, payloads and schemas of the entries of this variable that have not expired."""
        scope = self._scope
        prefix = scope.prefix + self._tag
        for key, value in scope.view.scan(prefix):
            found = self._payload(value)
            if found is not None:
                yield key, *found


class ValueState(_Variable):
    """One row for each grouping key."""

    def __init__(self, scope: Scope, name: str, tag: int, ttl_ms: int | None, values: ValueCodec) -> None:
        super().__init__(scope, name, tag, ttl_ms, values)
        self._decode_first = values.decode_first

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
            return self._decode_first(value[1:])
        found = self._payload(value)
        return None if found is None else self._decode(*found)

    def update(self, newValue: Iterable[Any]) -> None:  # noqa: N803 - Spark's own name
        """Set the value."""
        scope = self._scope
        key = scope.prefix + self._tag
        if self._ttl_ms is None:
            scope.view.put(key, self._head + self._encode(newValue))
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

    def __init__(self, scope: Scope, name: str, tag: int, ttl_ms: int | None, values: ValueCodec) -> None:
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
        return self._rows([(payload, schema) for _, payload, schema in self._live()])

    def put(self, newState: Iterable[Iterable[Any]]) -> None:  # noqa: N803 - Spark's own name
        """Replace the list."""
        encoded = self._encoded(newState, "put", "clear() empties the list")
        self.clear()
        self._append(encoded)

    def appendValue(self, newState: Iterable[Any]) -> None:  # noqa: N802, N803 - Spark's own name
        """Append one value."""
        self._append([self._encode(newState)])

    def appendList(self, newState: Iterable[Iterable[Any]]) -> None:  # noqa: N802, N803 - Spark's own name
        """Append some values."""
        self._append(self._encoded(newState, "appendList", "leave the call out"))

    def clear(self) -> None:
        """Remove the list."""
        self._open_for = None
        super().clear()

    def _rows(self, chunks: list[tuple[bytes, int]]) -> Iterator[Row]:
        for chunk, schema in chunks:
            yield from self._values.decode_list(chunk, schema)

    def _encoded(self, rows: Any, call: str, instead: str) -> list[bytes]:
        if not isinstance(rows, Iterable) or isinstance(rows, str | bytes | bytearray | Mapping):
            raise InvalidArgumentError(
                f"list state {self._name!r}: {call} needs tuples, in a list or another iterable, got {rows!r:.80}"
            )
        encoded = self._values.encode_many(rows)
        if not encoded:
            raise InvalidArgumentError(
                f"list state {self._name!r}: {call} needs at least one value, got none; {instead}"
            )
        return encoded

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

    def __init__(
        self,
        scope: Scope,
        name: str,
        tag: int,
        ttl_ms: int | None,
        values: ValueCodec,
        keys: KeyCodec,
        make_row: Callable[[Row], Row] = tuple,
    ) -> None:
        super().__init__(scope, name, tag, ttl_ms, values)
        self._encode_key = keys.encode_key
        self._decode_key = keys.decode_key
        self._make_row = make_row

    def exists(self) -> bool:
        """Whether the map has an entry."""
        return any(True for _ in self._live())

    def getValue(self, key: Iterable[Any]) -> Row | None:  # noqa: N802 - Spark's own name
        """The value of a key, or None where there is none."""
        found = self._find(key)
        return None if found is None else self._make_row(self._decode(*found))

    def containsKey(self, key: Iterable[Any]) -> bool:  # noqa: N802 - Spark's own name
        """Whether the map has an entry for this key."""
        return self._find(key) is not None

    def updateValue(self, key: Iterable[Any], value: Iterable[Any]) -> None:  # noqa: N802 - Spark's own name
        """Set the value of a key."""
        self._put(self._scope.prefix + self._tag + self._encode_key(key), self._encode(value))

    def iterator(self) -> Iterator[tuple[Row, Row]]:
        """The entries, as pairs of key and value."""
        start = len(self._scope.prefix + self._tag)
        entries = list(self._live())
        return ((self._decode_key(key[start:]), self._decode(payload, schema)) for key, payload, schema in entries)

    def keys(self) -> Iterator[Row]:
        """The keys."""
        start = len(self._scope.prefix + self._tag)
        return map(self._decode_key, [key[start:] for key, _, _ in self._live()])

    def values(self) -> Iterator[Row]:
        """The values."""
        entries = list(self._live())
        return (self._decode(payload, schema) for _, payload, schema in entries)

    def removeKey(self, key: Iterable[Any]) -> None:  # noqa: N802 - Spark's own name
        """Remove the entry of a key, if there is one."""
        scope = self._scope
        entry = scope.prefix + self._tag + self._encode_key(key)
        value = scope.view.get(entry)
        if value is not None:
            self._drop(entry, value)

    def _find(self, key: Iterable[Any]) -> tuple[bytes, int] | None:
        scope = self._scope
        entry = scope.prefix + self._tag + self._encode_key(key)
        return self._payload(scope.view.get(entry))


_DELETED = {
    "value": {
        "exists": "checking value state exists",
        "get": "getting value state",
        "update": "updating value state",
        "clear": "clearing value state",
    },
    "list": {
        "exists": "checking value state exists",
        "get": "getting list state",
        "put": "updating value state",
        "appendValue": "updating value state",
        "appendList": "updating value state",
        "clear": "clearing value state",
    },
    "map": {
        "exists": "checking value state exists",
        "getValue": "getting value",
        "containsKey": "checking if map state contains key",
        "updateValue": "updating map state value",
        "iterator": "iterating map state",
        "keys": "iterating map state keys",
        "values": "iterating map state values",
        "removeKey": "removing key from map state",
        "clear": "clearing map state",
    },
}
"""Calls on each kind of variable, in the words of Spark's errors."""


class DeletedVariable:
    """A variable that ``init`` has declared and then deleted: every call is refused, beginning with Spark's text.

    Parameters
    ----------
    kind, name
        The variable.
    error
        Class of the error.
    """

    def __init__(self, kind: str, name: str, error: type[InvalidArgumentError]) -> None:
        self._kind = kind
        self._name = name
        self._error = error

    def __getattr__(self, call: str) -> Callable[..., NoReturn]:
        doing = None if call.startswith("_") else _DELETED[self._kind].get(call)
        if doing is None:
            raise AttributeError(f"a deleted state variable has no attribute {call!r}")

        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise self._error(
                f"Error {doing}: {self._kind} state {self._name!r} is not initialized, because init has deleted it "
                "with deleteIfExists after declaring it; leave out deleteIfExists, or do not use the variable"
            )

        return refuse
