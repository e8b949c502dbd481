"""Entries of one state variable as columns, without a Python object for each.

A plain entry is the value of a key: an entry of space 00 without a suffix, see ``entries``. Columns hold plain entries
of one tag. Other entries are kept beside them as pairs of key and value.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from equipoise.kernels import kernel
from equipoise.state.byte_columns import ByteColumn, Bytes, Integers, compare_strings, joined, starts_of
from equipoise.state.entries import entry_key, entry_prefix

Pair = tuple[bytes, bytes | None]
Unsigned = NDArray[np.uint64]
Flags = NDArray[np.bool_]

HEAD_BYTES = 13
"""Bytes of the key of an entry before its grouping key."""


@dataclass(frozen=True, eq=False)
class EntryColumns:
    """Plain entries of one tag.

    Parameters
    ----------
    tag
        Number of the state variable.
    fingerprints
        Fingerprints as unsigned numbers, which is the order of the entries.
    keys, values
        Grouping keys, and stored values.
    deleted
        Whether the entry is deleted; its value is then of no meaning.
    """

    tag: int
    fingerprints: Unsigned
    keys: ByteColumn
    values: ByteColumn
    deleted: Flags

    @classmethod
    def of(
        cls, tag: int, fingerprints: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> "EntryColumns":
        """The entries of some keys; the value None stands for a deletion."""
        numbers = np.array(fingerprints, np.int64).view(np.uint64)
        deleted = np.fromiter((value is None for value in values), np.bool_, len(values))
        return cls(tag, numbers, ByteColumn.of(keys), ByteColumn.of([value or b"" for value in values]), deleted)

    def __len__(self) -> int:
        return len(self.fingerprints)

    def __iter__(self) -> Iterator[Pair]:
        for key, value, deleted in zip(self.entry_keys(), self.values.strings(), self.deleted.tolist(), strict=True):
            yield key, None if deleted else value

    def entry_keys(self) -> list[bytes]:
        """The key of each entry, as ``entries`` has it."""
        pairs = zip(self.fingerprints.view(np.int64).tolist(), self.keys.strings(), strict=True)
        return [entry_key(entry_prefix(fingerprint, key), self.tag) for fingerprint, key in pairs]

    @property
    def size_bytes(self) -> int:
        """Bytes of all keys and values."""
        return len(self) * (HEAD_BYTES + 1) + int(self.keys.lengths.sum() + self.values.lengths[~self.deleted].sum())

    def taken(self, which: NDArray[np.int64] | Flags | slice) -> "EntryColumns":
        """Some of the entries."""
        return EntryColumns(
            self.tag,
            self.fingerprints[which],
            self.keys.taken(which),
            self.values.taken(which),
            self.deleted[which],
        )

    def in_order(self) -> "EntryColumns":
        """The entries in the order of their keys; of several with one key, the last."""
        if _is_ascending(self.fingerprints, *self.keys):
            return self
        order = np.argsort(self.fingerprints, kind="stable")
        kept = np.empty(len(self), np.bool_)
        _order_within_fingerprints(order, self.fingerprints, *self.keys, kept)
        return self.taken(order[kept])

    def places_of(self, fingerprints: Unsigned, keys: ByteColumn) -> Integers:
        """The place of each grouping key among these entries, which are in order; -1 where it is missing."""
        places = np.full(len(fingerprints), -1, np.int64)
        _find_places(self.fingerprints, *self.keys, fingerprints, *keys, places)
        return places


def concatenated(columns: Sequence[EntryColumns]) -> EntryColumns:
    """Return the entries of some columns of the same tag, one after the other."""
    if len(columns) == 1:
        return columns[0]
    return EntryColumns(
        columns[0].tag,
        np.concatenate([each.fingerprints for each in columns]),
        joined([each.keys for each in columns]),
        joined([each.values for each in columns]),
        np.concatenate([each.deleted for each in columns]),
    )


@dataclass(frozen=True, eq=False)
class Frame:
    """Entries that are stored or written together.

    Parameters
    ----------
    columns
        The plain entries of one tag.
    others
        The other entries.
    """

    columns: EntryColumns
    others: list[Pair]

    @classmethod
    def of(cls, pairs: Iterable[Pair], tag: int) -> "Frame":
        """The frame of some entries."""
        known = [(key, value is None, value or b"") for key, value in pairs]
        keys, values = ByteColumn.of([each[0] for each in known]), ByteColumn.of([each[2] for each in known])
        return _frame(tag, keys, values, np.array([each[1] for each in known], np.bool_))

    def __len__(self) -> int:
        return len(self.columns) + len(self.others)


def plain_key(key: bytes, tag: int) -> tuple[int, bytes] | None:
    """Fingerprint and grouping key of the key of a plain entry; ``None`` for other keys."""
    if len(key) <= HEAD_BYTES or key[0] or key[-1] != tag:
        return None
    length = int.from_bytes(key[9:13], "big")
    if length != len(key) - HEAD_BYTES - 1:
        return None
    return int.from_bytes(key[1:9], "big", signed=True), key[HEAD_BYTES:-1]


def read_frame(content: pa.Buffer | bytes, tag: int) -> Frame | None:
    """Return the entries of a frame of a section; ``None`` if it is not written as ``frame_bytes`` does it.

    Parameters
    ----------
    content
        MessagePack list of [key, value].
    tag
        Tag of the plain entries.
    """
    raw = memoryview(content).cast("B")  # Arrow's are of signed bytes
    if raw.nbytes == 0:
        return None
    wide = {0xDC: 2, 0xDD: 4}.get(raw[0], 0)
    if not wide and raw[0] & 0xF0 != 0x90:
        return None
    count = int.from_bytes(raw[1 : 1 + wide], "big") if wide else raw[0] & 0x0F
    if count > len(raw) // 3:  # an entry has at least three bytes
        return None
    data = np.frombuffer(raw, np.uint8)
    key_starts, key_lengths, value_starts, value_lengths = np.empty((4, count), np.int64)
    if not _find_entries(data, 1 + wide, key_starts, key_lengths, value_starts, value_lengths):
        return None
    deleted = value_lengths < 0
    value_lengths[deleted] = 0
    return _frame(
        tag, ByteColumn(data, key_starts, key_lengths), ByteColumn(data, value_starts, value_lengths), deleted
    )


def frame_bytes(columns: EntryColumns) -> Bytes:
    """Return the MessagePack list of [key, value], value nil for a deletion."""
    count = len(columns)
    head = b"\xdd" + count.to_bytes(4, "big")
    if count < 65_536:
        head = bytes([0x90 | count]) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
    sizes = np.empty(count, np.int64)
    _measure_entries(columns.keys.lengths, columns.values.lengths, columns.deleted, sizes)
    out = np.empty(len(head) + int(sizes.sum()), np.uint8)
    out[: len(head)] = np.frombuffer(head, np.uint8)
    at = starts_of(sizes) + len(head)
    _write_entries(columns.fingerprints, *columns.keys, *columns.values, columns.deleted, columns.tag, out, at)
    return out


def _frame(tag: int, keys: ByteColumn, values: ByteColumn, deleted: Flags) -> Frame:
    """Tell plain entries from others, by their keys."""
    fingerprints, plain = np.empty(keys.size, np.uint64), np.empty(keys.size, np.bool_)
    _take_apart(*keys, tag, fingerprints, plain)
    inner = ByteColumn(keys.data, keys.starts + HEAD_BYTES, keys.lengths - HEAD_BYTES - 1)
    columns = EntryColumns(tag, fingerprints, inner, values, deleted)
    if plain.all():
        return Frame(columns, [])
    loose = zip(keys.taken(~plain).strings(), values.taken(~plain).strings(), deleted[~plain].tolist(), strict=True)
    return Frame(columns.taken(plain), [(key, None if gone else value) for key, value, gone in loose])


@kernel(nogil=True)
def _is_ascending(fingerprints: Unsigned, data: Bytes, starts: Integers, lengths: Integers) -> bool:
    for i in range(1, len(fingerprints)):
        if fingerprints[i] < fingerprints[i - 1]:
            return False
        is_same = fingerprints[i] == fingerprints[i - 1]
        if is_same and compare_strings(data, starts[i], lengths[i], data, starts[i - 1], lengths[i - 1]) <= 0:
            return False
    return True


@kernel(nogil=True)
def _find_places(
    known: Unsigned,
    data: Bytes,
    starts: Integers,
    lengths: Integers,
    asked: Unsigned,
    keys: Bytes,
    key_starts: Integers,
    key_lengths: Integers,
    places: Integers,
) -> None:
    for i in range(len(asked)):
        low, high = 0, len(known)
        while low < high:
            middle = (low + high) // 2
            if known[middle] < asked[i]:
                low = middle + 1
            else:
                high = middle
        while low < len(known) and known[low] == asked[i]:
            if compare_strings(data, starts[low], lengths[low], keys, key_starts[i], key_lengths[i]) == 0:
                places[i] = low
                break
            low += 1


@kernel(nogil=True)
def _order_within_fingerprints(
    order: Integers, fingerprints: Unsigned, data: Bytes, starts: Integers, lengths: Integers, kept: Flags
) -> None:
    """Order entries of equal fingerprints by key, stably, and mark the last one of each key."""
    for i in range(1, len(order)):
        entry, place = order[i], i
        while place > 0 and fingerprints[order[place - 1]] == fingerprints[entry]:
            other = order[place - 1]
            if compare_strings(data, starts[other], lengths[other], data, starts[entry], lengths[entry]) <= 0:
                break
            order[place] = other
            place -= 1
        order[place] = entry
    for i in range(len(order)):
        kept[i] = True
        if i + 1 < len(order) and fingerprints[order[i]] == fingerprints[order[i + 1]]:
            one, other = order[i], order[i + 1]
            kept[i] = compare_strings(data, starts[one], lengths[one], data, starts[other], lengths[other]) != 0


@kernel(nogil=True)
def _take_apart(
    data: Bytes, starts: Integers, lengths: Integers, tag: int, fingerprints: Unsigned, plain: Flags
) -> None:
    for i in range(len(starts)):
        at, length = starts[i], lengths[i]
        plain[i] = length > 13 and data[at] == 0 and data[at + length - 1] == tag
        if plain[i]:
            inner = np.int64(0)
            for k in range(4):
                inner = (inner << 8) | np.int64(data[at + 9 + k])
            plain[i] = inner == length - 14
            number = np.uint64(0)
            for k in range(8):
                number = (number << np.uint64(8)) | np.uint64(data[at + 1 + k])
            fingerprints[i] = number


@kernel(nogil=True)
def _bytes_at(data: Bytes, at: int, found: Integers) -> None:
    """Write to ``found`` the first byte and the length of a MessagePack byte string; -1 if there is none."""
    found[0], found[1] = -1, -1
    if at >= len(data) or data[at] < 0xC4 or data[at] > 0xC6:
        return
    size = 1 << (np.int64(data[at]) - 0xC4)
    if at + 1 + size > len(data):
        return
    length = np.int64(0)
    for k in range(size):
        length = (length << 8) | np.int64(data[at + 1 + k])
    if at + 1 + size + length <= len(data):
        found[0], found[1] = at + 1 + size, length


@kernel(nogil=True)
def _find_entries(
    data: Bytes, at: int, key_starts: Integers, key_lengths: Integers, value_starts: Integers, value_lengths: Integers
) -> bool:
    found = np.empty(2, np.int64)
    for i in range(len(key_starts)):
        if at >= len(data) or data[at] != 0x92:
            return False
        _bytes_at(data, at + 1, found)
        if found[0] < 0:
            return False
        key_starts[i], key_lengths[i] = found[0], found[1]
        at = found[0] + found[1]
        if at < len(data) and data[at] == 0xC0:
            value_starts[i], value_lengths[i] = at, -1
            at += 1
            continue
        _bytes_at(data, at, found)
        if found[0] < 0:
            return False
        value_starts[i], value_lengths[i] = found[0], found[1]
        at = found[0] + found[1]
    return at == len(data)


@kernel(nogil=True)
def _head_bytes(length: int) -> int:
    return 2 if length < 256 else 3 if length < 65_536 else 5


@kernel(nogil=True)
def _measure_entries(key_lengths: Integers, value_lengths: Integers, deleted: Flags, sizes: Integers) -> None:
    for i in range(len(sizes)):
        key = key_lengths[i] + 14
        value = 1 if deleted[i] else _head_bytes(value_lengths[i]) + value_lengths[i]
        sizes[i] = 1 + _head_bytes(key) + key + value


@kernel(nogil=True)
def _write_number(number: int, size: int, out: Bytes, at: int) -> None:
    for k in range(size):
        out[at + k] = (number >> (8 * (size - 1 - k))) & 0xFF


@kernel(nogil=True)
def _write_length(length: int, out: Bytes, at: int) -> int:
    head = _head_bytes(length)
    out[at] = 0xC4 + (0 if head == 2 else 1 if head == 3 else 2)
    _write_number(length, head - 1, out, at + 1)
    return at + head


@kernel(nogil=True)
def _write_entries(
    fingerprints: Unsigned,
    keys: Bytes,
    key_starts: Integers,
    key_lengths: Integers,
    values: Bytes,
    value_starts: Integers,
    value_lengths: Integers,
    deleted: Flags,
    tag: int,
    out: Bytes,
    places: Integers,
) -> None:
    for i in range(len(fingerprints)):
        at = places[i]
        out[at] = 0x92
        at = _write_length(key_lengths[i] + 14, out, at + 1)
        out[at] = 0
        for k in range(8):
            out[at + 1 + k] = (fingerprints[i] >> np.uint64(8 * (7 - k))) & np.uint64(0xFF)
        _write_number(key_lengths[i], 4, out, at + 9)
        at += 13
        for k in range(key_lengths[i]):
            out[at + k] = keys[key_starts[i] + k]
        at += key_lengths[i]
        out[at] = tag
        at += 1
        if deleted[i]:
            out[at] = 0xC0
            continue
        at = _write_length(value_lengths[i], out, at)
        for k in range(value_lengths[i]):
            out[at + k] = values[value_starts[i] + k]
