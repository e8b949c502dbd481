r"""Layout of the entries of a key group in its LMDB environment.

Stored keys and values, distinguished by the length of the stored key::

    1 to 495 bytes   an entry: key -> value
    511 bytes        an entry with a longer key: its first 495 bytes, 16 bytes of BLAKE2b of the whole key
                     -> length of the key (4 bytes, little-endian) | key | value
    496 bytes \xff   the record of the group
                     -> version, number of entries, bytes of all keys and values, bytes read past the cache
                        (8 bytes each, little-endian)

LMDB keys have at most 511 bytes. Long keys with a common head are neighbours, right behind the head itself, but among
themselves ordered by their digests: a scan sorts them, so it holds the keys of one head in memory.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import lmdb

HEAD_BYTES = 495
"""Keys up to this length are stored as they are."""

EMPTY = -1
"""Version of a group without any change."""

_DIGEST_BYTES = 16
_STORED_LONG = HEAD_BYTES + _DIGEST_BYTES
_RECORD_KEY = b"\xff" * (HEAD_BYTES + 1)
_RECORD = struct.Struct("<qQQQ")


@dataclass(slots=True)
class Record:
    """Version and extent of a group, stored beside its entries.

    Parameters
    ----------
    version
        Version of the last change, -1 for none.
    count, size_bytes
        Number of entries, and bytes of all keys and values.
    spent
        Bytes of the checkpoint that were read to look up keys while the cache did not have this group.
    """

    version: int = EMPTY
    count: int = 0
    size_bytes: int = 0
    spent: int = 0

    @classmethod
    def load(cls, transaction: "lmdb.Transaction[bytes]") -> "Record":
        """The record in the environment, or that of an empty group."""
        stored = transaction.get(_RECORD_KEY)
        if stored is None:
            return cls()
        if len(stored) != _RECORD.size:
            raise lmdb.CorruptedError(f"the record of the group has {len(stored)} bytes instead of {_RECORD.size}")
        return cls(*_RECORD.unpack(stored))

    def store(self, transaction: "lmdb.Transaction[bytes]") -> None:
        """Write the record."""
        transaction.put(_RECORD_KEY, _RECORD.pack(self.version, self.count, self.size_bytes, self.spent))


def write_entries(
    transaction: "lmdb.Transaction[bytes]",
    record: Record,
    entries: Iterable[tuple[bytes, bytes | None]],
    *,
    to_empty: bool,
) -> None:
    """Put or, for the value None, delete ``entries``, and update the counts in ``record``.

    With ``to_empty`` the group must be empty: entries in ascending order are then appended, which is faster.
    """
    count, size = record.count, record.size_bytes
    append = transaction.cursor().put
    for key, value in entries:
        is_long = len(key) > HEAD_BYTES
        stored = _stored(key) if is_long else key
        if value is None:
            old = transaction.pop(stored)
        else:
            content = len(key).to_bytes(4, "little") + key + value if is_long else value
            count += 1
            size += len(key) + len(value)
            if to_empty and append(stored, content, append=True):
                continue
            old = transaction.replace(stored, content)
        if old is not None:
            count -= 1
            size -= len(old) - 4 if is_long else len(key) + len(old)
    record.count, record.size_bytes = count, size


class CacheReader:
    """The entries of a group at one version, valid during the transaction.

    Parameters
    ----------
    transaction
        Read transaction in the environment of the group.
    """

    def __init__(self, transaction: "lmdb.Transaction[bytes]") -> None:
        self._transaction = transaction
        self.record = record = Record.load(transaction)
        """Version and extent of the group."""
        self.version = record.version
        """Version of the last change, -1 for none."""
        self.count = record.count
        """Number of entries."""
        self.size_bytes = record.size_bytes
        """Bytes of all keys and values."""

    def get(self, key: bytes) -> bytes | None:
        """Value of ``key``, or None."""
        if len(key) <= HEAD_BYTES:
            return self._transaction.get(key)
        content = self._transaction.get(_stored(key))
        return None if content is None else _value(content)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values of ``keys``, in their order, None where there is none."""
        get = self.get
        return [get(key) for key in keys]  # half the time of LMDB's getmulti, which returns the keys as well

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose key starts with ``prefix``, in ascending order of the key."""
        head, only_long = prefix[:HEAD_BYTES], len(prefix) > HEAD_BYTES
        cursor = self._transaction.cursor()
        if not (cursor.set_range(head) if head else cursor.first()):
            return
        long_keys: list[tuple[bytes, bytes]] = []  # whole and stored, of one head
        for stored, value in cursor.iternext():
            if not stored.startswith(head):
                break
            if long_keys and not stored.startswith(long_keys[0][0][:HEAD_BYTES]):
                yield from self._in_order(long_keys)
                long_keys.clear()
            if len(stored) <= HEAD_BYTES:
                if not only_long:
                    yield stored, value
            elif len(stored) == _STORED_LONG:
                key = _key(value)
                if key.startswith(prefix):
                    long_keys.append((key, stored))
        yield from self._in_order(long_keys)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries, in ascending order of the key."""
        return self.scan(b"")

    def _in_order(self, long_keys: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for key, stored in sorted(long_keys):
            content = self._transaction.get(stored)
            if content is not None:  # always: a transaction sees one version
                yield key, _value(content)


def _stored(key: bytes) -> bytes:
    return key[:HEAD_BYTES] + blake2b(key, digest_size=_DIGEST_BYTES).digest()


def _key(content: bytes) -> bytes:
    return content[4 : _key_end(content)]


def _value(content: bytes) -> bytes:
    return content[_key_end(content) :]


def _key_end(content: bytes) -> int:
    end = 4 + int.from_bytes(content[:4], "little")
    if not HEAD_BYTES + 4 < end <= len(content):
        raise lmdb.CorruptedError(f"an entry of {len(content)} bytes says that its key ends at byte {end}")
    return end
