r"""Layout of the plain entries of one state variable in an LMDB environment: sorted blocks of about a page.

Stored keys and values; other entries are stored beside them, as ``cached_entries`` has it::

    \x03 | fingerprint 8, big-endian, unsigned -> block with the entries from this fingerprint to that of the next block

The first block begins at fingerprint 0. Entries of one fingerprint are in one block. Layout of a block, little-endian,
with a length that is a multiple of 8::

    4   number of entries n
    4   0
    8n  fingerprints, ascending, unsigned; entries of one fingerprint ascend by length and bytes of the grouping key
    4n  end of each grouping key
    4n  end of each value
    .   grouping keys | values | padding

A block of up to 4,080 bytes takes one page of LMDB besides its reference. So a batch that changes few keys writes as
much as if each key had an entry of its own, and a batch that changes many reads and writes whole pages.
"""

import struct
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import takewhile

import lmdb
import numpy as np

from equipoise.state.block_kernels import are_blocks, find_in_blocks, list_entries, merge_blocks
from equipoise.state.byte_columns import ByteColumn, Bytes, Integers, joined
from equipoise.state.cached_entries import CacheReader, Record, write_entries
from equipoise.state.entry_columns import HEAD_BYTES, EntryColumns, Flags, Frame, Pair, Unsigned, plain_key

MOST_BYTES = 4_072
"""Bytes of entries in a block, unless one fingerprint has more."""

_SPLIT_BYTES = 3_000  # of each block when a larger one is split
_HEAD, _PER_ENTRY = 8, 16
_AT_ONCE = 2_048  # blocks; bounds the memory for a change of any size
_SPACE = b"\x03"
_KEY = struct.Struct(">BQ")
_FIRST = _KEY.pack(3, 0)


def write_frames(
    transaction: "lmdb.Transaction[bytes]", record: Record, frames: Iterable[Frame], *, to_empty: bool
) -> None:
    """Put and delete the entries of ``frames``, and update the counts in ``record``; see ``write_entries``."""
    for frame in frames:
        if frame.others:
            write_entries(transaction, record, frame.others, to_empty=to_empty)
        if len(frame.columns):
            _merge(transaction, record, frame.columns.in_order())


class BlockReader(CacheReader):
    """The entries of a group whose plain entries are stored in blocks, valid during the transaction.

    Parameters
    ----------
    transaction
        Read transaction in the environment of the group.
    tag
        Tag of the plain entries.
    """

    def __init__(self, transaction: "lmdb.Transaction[bytes]", tag: int) -> None:
        super().__init__(transaction)
        self.tag = tag

    def get(self, key: bytes) -> bytes | None:
        """Value of ``key``, or None."""
        plain = plain_key(key, self.tag)
        if plain is None:
            return super().get(key)
        values, exists = self.find(np.array(plain[:1], np.int64).view(np.uint64), ByteColumn.of([plain[1]]))
        return values.strings()[0] if exists[0] else None

    def find(self, fingerprints: Unsigned, keys: ByteColumn) -> tuple[ByteColumn, Flags]:
        """Values of grouping keys, and which of them exist.

        Parameters
        ----------
        fingerprints, keys
            Fingerprints and grouping keys; quickest with ascending fingerprints.
        """
        if (fingerprints[1:] < fingerprints[:-1]).any():
            order = np.argsort(fingerprints, kind="stable")
            back = np.argsort(order)
            values, exists = self.find(fingerprints[order], keys.taken(order))
            return values.taken(back), exists[back]
        exists = np.zeros(len(fingerprints), np.bool_)
        found: list[ByteColumn] = []
        for touched in _covering(self._transaction.cursor(), fingerprints):
            first, last = touched.cuts[0], touched.cuts[-1]
            starts, lengths = np.zeros((2, last - first), np.int64)
            part = keys.taken(slice(first, last))
            find_in_blocks(
                touched.pool,
                touched.offsets,
                touched.cuts - first,
                fingerprints[first:last],
                *part,
                starts,
                lengths,
                exists[first:last],
            )
            found.append(ByteColumn(touched.pool, starts, lengths))
        return (joined(found) if found else ByteColumn.of([])), exists

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose key starts with ``prefix``, in ascending order of the key."""
        others = takewhile(lambda pair: pair[0][:1] < _SPACE, super().scan(prefix))
        return merge(others, self._scan_blocks(prefix))

    def frames(self) -> Iterator[Frame]:
        """All entries, in ascending order of the plain entries."""
        others: list[Pair] = list(takewhile(lambda pair: pair[0][:1] < _SPACE, super().scan(b"")))
        cursor = self._transaction.cursor()
        blocks: list[bytes] = []
        if cursor.set_range(_SPACE):
            for stored, block in cursor.iternext():
                if stored[:1] != _SPACE:
                    break
                blocks.append(block)
                if len(blocks) == _AT_ONCE:
                    yield Frame(_entries(blocks, self.tag), others)
                    blocks, others = [], []
        yield Frame(_entries(blocks, self.tag), others)

    def _scan_blocks(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Plain entries whose key starts with ``prefix``."""
        if prefix[:1] not in {b"", b"\x00"}:
            return
        fingerprint = prefix[1:9]
        low = _KEY.pack(3, int.from_bytes(fingerprint.ljust(8, b"\x00"), "big"))
        cursor = self._transaction.cursor()
        if not _seek(cursor, low):
            return
        for stored, block in cursor.iternext():
            if stored[:1] != _SPACE or stored[1 : 1 + len(fingerprint)] > fingerprint:
                return
            for key, value in _entries([block], self.tag):
                if key.startswith(prefix) and value is not None:
                    yield key, value


class _Touched:
    """The blocks for some fingerprints: block i is for those from ``cuts[i]`` to ``cuts[i + 1]``.

    Parameters
    ----------
    keys
        Stored keys of the blocks.
    blocks
        Their contents.
    cuts
        First fingerprint of each block, and the number of fingerprints at the end.
    """

    def __init__(self, keys: list[bytes], blocks: list[bytes], cuts: list[int]) -> None:
        self.keys = keys
        self.cuts = np.array(cuts, np.int64)
        lengths = np.fromiter(map(len, blocks), np.int64, len(blocks))
        self.pool: Bytes = np.frombuffer(b"".join(blocks), np.uint8)
        self.offsets: Integers = np.append(0, np.cumsum(lengths))
        _require_blocks(self.pool, self.offsets)


def _require_blocks(pool: Bytes, offsets: Integers) -> None:
    if not are_blocks(pool, offsets):
        raise lmdb.CorruptedError("a block of entries does not fit its counts")


def _seek(cursor: "lmdb.Cursor[bytes]", key: bytes) -> bool:
    """Go to the last block whose key is not above ``key``; false if there is no block."""
    there = cursor.set_range(key)
    if there and cursor.key() == key:
        return True
    there = cursor.prev() if there else cursor.last()
    return bool(there) and cursor.key()[:1] == _SPACE


def _covering(cursor: "lmdb.Cursor[bytes]", fingerprints: Unsigned) -> Iterator[_Touched]:
    """Yield the blocks for ascending fingerprints; an empty one where there is none."""
    at, count = 0, len(fingerprints)
    keys: list[bytes] = []
    blocks: list[bytes] = []
    cuts = [0]
    is_next = False
    while at < count:
        wanted = _KEY.pack(3, int(fingerprints[at]))
        if not (is_next and cursor.key() <= wanted) and not _seek(cursor, wanted):
            yield _Touched([_FIRST], [bytes(_HEAD)], [at, count])
            return
        key, block = cursor.key(), cursor.value()
        is_next = cursor.next() and cursor.key()[:1] == _SPACE
        end = count
        if is_next:
            bound = np.uint64(int.from_bytes(cursor.key()[1:], "big"))
            if fingerprints[at] >= bound:  # a later block
                is_next = False
                continue
            end = at + int(np.searchsorted(fingerprints[at:], bound))
        keys.append(key)
        blocks.append(block)
        at = end
        cuts.append(at)
        if len(blocks) == _AT_ONCE:
            yield _Touched(keys, blocks, cuts)
            keys, blocks, cuts, is_next = [], [], [at], False  # the caller may have changed the blocks
    if blocks:
        yield _Touched(keys, blocks, cuts)


def _merge(transaction: "lmdb.Transaction[bytes]", record: Record, columns: EntryColumns) -> None:
    """Write the blocks that ``columns`` change."""
    put, delete, count, size = transaction.put, transaction.delete, record.count, record.size_bytes
    for touched in _covering(transaction.cursor(), columns.fingerprints):
        merged = _merged(touched, columns)
        old_at = 0
        made = merged.pool.tobytes()
        offsets, lows = merged.offsets.tolist(), merged.lows.tolist()
        for place, key in enumerate(touched.keys):
            until = int(merged.cuts[place])
            if until == old_at and key != _FIRST:
                delete(key)
            elif until == old_at:
                put(key, bytes(_HEAD))
            for number in range(old_at, until):
                name = key if number == old_at else _KEY.pack(3, lows[number])
                put(name, made[offsets[number] : offsets[number + 1]])
            old_at = until
        count += merged.count
        size += merged.size + merged.count * (HEAD_BYTES + 1)
    record.count, record.size_bytes = count, size


class _Merged:
    """Blocks that replace some others: those of old block i end before ``cuts[i]``.

    Parameters
    ----------
    pool, offsets
        The blocks, and where they begin and end.
    lows
        First fingerprint of each.
    cuts
        End of the new blocks for each old one.
    count, size
        Entries that have been added, and the bytes of their grouping keys and values.
    """

    def __init__(self, pool: Bytes, offsets: Integers, lows: Unsigned, cuts: Integers, count: int, size: int) -> None:
        self.pool, self.offsets, self.lows, self.cuts, self.count, self.size = pool, offsets, lows, cuts, count, size


def _merged(touched: _Touched, columns: EntryColumns) -> _Merged:
    first, last = int(touched.cuts[0]), int(touched.cuts[-1])
    part = columns.taken(slice(first, last))
    added = int(part.keys.lengths.sum() + part.values.lengths.sum()) + _PER_ENTRY * len(part)
    segments = len(touched.keys)
    most_blocks = segments + (len(touched.pool) + added) // _SPLIT_BYTES + 1
    out = np.zeros((len(touched.pool) + added + most_blocks * 16 + 7) // 8 * 8, np.uint8)
    offsets, lows = np.zeros(most_blocks + 1, np.int64), np.zeros(most_blocks, np.uint64)
    cuts, sums = np.zeros(segments, np.int64), np.zeros(2, np.int64)
    blocks = merge_blocks(
        touched.pool,
        touched.offsets,
        touched.cuts - first,
        MOST_BYTES,
        _SPLIT_BYTES,
        part.fingerprints,
        *part.keys,
        *part.values,
        part.deleted,
        out,
        offsets,
        lows,
        cuts,
        sums,
    )
    return _Merged(out[: offsets[blocks]], offsets[: blocks + 1], lows[:blocks], cuts, int(sums[0]), int(sums[1]))


def _entries(blocks: list[bytes], tag: int) -> EntryColumns:
    """Return the entries of some blocks."""
    pool = np.frombuffer(b"".join(blocks), np.uint8)
    lengths = np.fromiter(map(len, blocks), np.int64, len(blocks))
    offsets = np.append(0, np.cumsum(lengths))
    _require_blocks(pool, offsets)
    count = int(pool.view(np.uint32)[offsets[:-1] // 4].sum())
    fingerprints = np.empty(count, np.uint64)
    places = np.empty((4, count), np.int64)
    list_entries(pool, offsets[:-1], fingerprints, *places)
    keys, values = ByteColumn(pool, places[0], places[1]), ByteColumn(pool, places[2], places[3])
    return EntryColumns(tag, fingerprints, keys, values, np.zeros(count, np.bool_))
