"""The entries of one key group: protocols to read and change them, and a transaction that collects changes."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import numpy as np

from equipoise.state.byte_columns import ByteColumn, joined
from equipoise.state.cached_blocks import BlockReader
from equipoise.state.entry_columns import EntryColumns, Flags, Pair, Unsigned, concatenated
from equipoise.state.sparse_reader import SparseReader, found_one_by_one


class GroupReader(Protocol):
    """The entries of a key group at one version; it never changes."""

    def get(self, key: bytes) -> bytes | None:
        """Value of ``key``, or None."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values of ``keys``, in their order, None where there is none."""
        ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose key starts with ``prefix``, in ascending order of the key; lazy, so callers may stop early."""
        ...


class GroupView(GroupReader, Protocol):
    """The entries of a key group, to be read and changed."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of ``key``."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove ``key``; nothing happens if it is absent."""
        ...


class EmptyReader:
    """The reader of a group that has no entries yet."""

    version, count, size_bytes = -1, 0, 0

    def get(self, key: bytes) -> None:  # noqa: ARG002 - the name belongs to the protocol
        """None, whatever the key."""
        return

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """None for each key."""
        return [None] * len(keys)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:  # noqa: ARG002 - the name belongs to the protocol
        """No entries."""
        return iter(())

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """No entries."""
        return iter(())


class GroupTransaction:
    """A view of a group that keeps its changes in memory, over a reader that does not change.

    Guarantees
    ----------
    - Reads see the changes made before them.
    - A scan visits, in ascending order, the keys that existed when it began and still exist when it reaches them, with
      their values at that moment. It does not visit keys that are added during the scan.
    - Applying ``changes()`` to the reader's entries gives the entries of this view.

    Entries are read and changed one by one, or in columns with ``find`` and ``store``. As long as only these two are
    used, and the reader has blocks, no Python object is made for an entry.

    Parameters
    ----------
    reader
        The group at the last commit; it must stay open as long as the transaction is read.
    """

    def __init__(self, reader: GroupReader) -> None:
        self._reader = reader
        self._new: dict[bytes, bytes | None] = {}  # None: deleted
        self._read: dict[bytes, bytes | None] = {}  # values of the reader
        self._order = _KeyOrder()
        self._stored: list[EntryColumns] = []  # not in _new yet; later ones count

    def find(self, tag: int, fingerprints: Unsigned, keys: ByteColumn) -> tuple[ByteColumn, Flags]:
        """Values of grouping keys, and which of them exist.

        Parameters
        ----------
        tag
            Tag of the state variable.
        fingerprints, keys
            Fingerprints and grouping keys.
        """
        if self._new or not isinstance(self._reader, BlockReader | SparseReader) or self._reader.tag != tag:
            return found_one_by_one(self.get_many, tag, fingerprints, keys)
        values, exists = self._reader.find(fingerprints, keys)
        for stored in self._stored:
            places = stored.places_of(fingerprints, keys)
            known = places >= 0
            if known.any():
                values = joined([values, stored.values])
                here = values.taken(np.where(known, len(fingerprints) + places, np.arange(len(fingerprints))))
                values, exists = here, np.where(known, ~stored.deleted[places], exists)
        return values, exists

    def store(self, entries: EntryColumns) -> None:
        """Set or delete the values of grouping keys; entries with the values that ``find`` gave need not be stored."""
        if self._new or (self._stored and self._stored[0].tag != entries.tag):
            self._settle()
            self._new.update(iter(entries))
        elif len(entries):
            self._stored.append(entries.in_order())

    def get(self, key: bytes) -> bytes | None:
        """Value of ``key``, or None."""
        if self._stored:
            self._settle()
        if key in self._new:
            return self._new[key]
        if key not in self._read:
            self._read[key] = self._reader.get(key)
        return self._read[key]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values of ``keys``, in their order, None where there is none."""
        if self._stored:
            self._settle()
        unknown = [key for key in keys if key not in self._new and key not in self._read]
        if unknown:
            self._read.update(zip(unknown, self._reader.get_many(unknown), strict=True))
        return [self._new[key] if key in self._new else self._read[key] for key in keys]

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose key starts with ``prefix``, in ascending order of the key."""
        if self._stored:
            self._settle()
        self._order.add_after(self._new)
        changed = self._order.starting_with(prefix)
        deleted = frozenset(key for key in changed if self._new[key] is None)
        present = [key for key in changed if key not in deleted] if deleted else changed
        return self._merged(present, deleted, self._reader.scan(prefix))

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of ``key``."""
        if self._stored:
            self._settle()
        self._new[key] = value

    def put_many(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Set the values of many keys."""
        if self._stored:
            self._settle()
        self._new.update(entries)

    def delete(self, key: bytes) -> None:
        """Remove ``key``; nothing happens if it is absent."""
        if self._stored:
            self._settle()
        self._new[key] = None

    def changes(self) -> list[Pair] | list[EntryColumns]:
        """Changed keys in ascending order with their values, None for a deletion; all in columns, or one by one.

        A key that was read with ``get`` or ``get_many`` and has the same value again is left out.
        """
        if self._stored:
            return [concatenated(self._stored).in_order()]
        read, unread = self._read, object()
        return sorted((key, value) for key, value in self._new.items() if read.get(key, unread) != value)

    def _settle(self) -> None:
        """Go on one by one."""
        for entries in self._stored:
            self._new.update(iter(entries))
        self._stored = []

    def _merged(
        self, present: list[bytes], deleted: frozenset[bytes], stored: Iterator[tuple[bytes, bytes]]
    ) -> Iterator[tuple[bytes, bytes]]:
        new, at, end = self._new, 0, len(present)
        for key, old in stored:
            while at < end and present[at] < key:
                value = new[present[at]]
                if value is not None:
                    yield present[at], value
                at += 1
            if at < end and present[at] == key:
                at += 1
            value = new.get(key, old)
            if value is not None and key not in deleted:
                yield key, value
        for key in present[at:]:
            value = new[key]
            if value is not None:
                yield key, value


class _KeyOrder:
    """Sorted keys, in buckets chosen so that most scans need one bucket.

    Entries of state variables share a bucket with those of the same fingerprint (the first nine bytes of the key),
    entries of an index with the rest of that index. A bucket is sorted when it is scanned, not when a key arrives.
    Keys are only taken over from the transaction when a scan begins, so a task without scans pays nothing.
    """

    def __init__(self) -> None:
        self._sorted: dict[bytes, list[bytes]] = {}
        self._arrived: dict[bytes, list[bytes]] = {}
        self._taken = 0

    def add_after(self, keys: dict[bytes, bytes | None]) -> None:
        """Add the keys that are new in ``keys`` since the last call: the last ones, since keys are never removed."""
        new = len(keys) - self._taken
        for key in islice(reversed(keys), new):
            bucket = _bucket(key)
            self._arrived.setdefault(bucket, []).append(key)
            self._sorted.setdefault(bucket, [])
        self._taken += new

    def starting_with(self, prefix: bytes) -> list[bytes]:
        """Keys with ``prefix``, in ascending order; a new list."""
        if prefix and (prefix[0] or len(prefix) >= 9):
            return _range(self._in_order(_bucket(prefix)), prefix)
        names = sorted(name for name in self._sorted if name.startswith(prefix))
        return [key for name in names for key in self._in_order(name)]

    def _in_order(self, bucket: bytes) -> list[bytes]:
        keys, arrived = self._sorted.get(bucket, []), self._arrived.pop(bucket, [])
        if len(arrived) * 8 < len(keys):
            for key in arrived:
                insort(keys, key)
        elif arrived:
            keys.extend(arrived)
            keys.sort()
        return keys


def _bucket(key: bytes) -> bytes:
    return key[:1] if key[:1] > b"\x00" else key[:9]


def _range(keys: list[bytes], prefix: bytes) -> list[bytes]:
    start = bisect_left(keys, prefix)
    end = start
    while end < len(keys) and keys[end].startswith(prefix):
        end += 1
    return keys[start:end]
