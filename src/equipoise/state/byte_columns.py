"""Many byte strings as one buffer with positions, so that no Python object is made for each of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.kernels import kernel

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]


class ByteColumn(NamedTuple):
    """Byte strings in a common buffer, in any order and with gaps.

    Parameters
    ----------
    data
        The buffer; read-only, because numba compiles a kernel again for arrays that are not.
    starts, lengths
        First byte and number of bytes of each string.

    Examples
    --------
    >>> column = ByteColumn.of([b"a", b"", b"bc"])
    >>> column.taken(np.array([2, 0])).strings()
    [b'bc', b'a']
    """

    data: Bytes
    starts: Integers
    lengths: Integers

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> "ByteColumn":
        """The column of some strings."""
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        return cls(np.frombuffer(b"".join(strings), np.uint8), starts_of(lengths), lengths)

    @property
    def size(self) -> int:
        """Number of strings."""
        return len(self.starts)

    def taken(self, which: NDArray[np.int64] | NDArray[np.bool_] | slice) -> "ByteColumn":
        """Some of the strings, in the same buffer."""
        return ByteColumn(self.data, self.starts[which], self.lengths[which])

    def after(self, head: bytes) -> "ByteColumn | None":
        """What follows ``head`` in each string; ``None`` if one begins otherwise."""
        if not _begin_with(*self, np.frombuffer(head, np.uint8)):
            return None
        return ByteColumn(self.data, self.starts + len(head), self.lengths - len(head))

    def packed(self) -> "ByteColumn":
        """The same strings one after the other, in a buffer of their own."""
        starts = starts_of(self.lengths)
        data = np.empty(int(self.lengths.sum()), np.uint8)
        copy_strings(self.data, self.starts, self.lengths, data, starts)
        return ByteColumn(frozen(data), starts, self.lengths)

    def strings(self) -> list[bytes]:
        """The strings as Python objects."""
        data = self.data.tobytes()
        pairs = zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return [data[start:end] for start, end in pairs]


def frozen(data: Bytes) -> Bytes:
    """Make a new buffer read-only, and return it."""
    data.flags.writeable = False
    return data


def starts_of(lengths: Integers) -> Integers:
    """Return the first byte of each string where all follow each other.

    Examples
    --------
    >>> starts_of(np.array([3, 0, 2])).tolist()
    [0, 3, 3]
    """
    return np.cumsum(lengths) - lengths


def joined(columns: Sequence[ByteColumn]) -> ByteColumn:
    """Return the strings of some columns as one column."""
    if len(columns) == 1:
        return columns[0]
    packed = [column.packed() for column in columns]
    shifts = starts_of(np.array([len(column.data) for column in packed], np.int64)).tolist()
    return ByteColumn(
        frozen(np.concatenate([column.data for column in packed])),
        np.concatenate([column.starts + shift for column, shift in zip(packed, shifts, strict=True)]),
        np.concatenate([column.lengths for column in packed]),
    )


def same_strings(one: ByteColumn, other: ByteColumn) -> NDArray[np.bool_]:
    """Return whether the strings of two columns are equal, place by place."""
    same = np.empty(one.size, np.bool_)
    _compare(*one, *other, same)
    return same


@kernel(nogil=True)
def copy_strings(data: Bytes, starts: Integers, lengths: Integers, out: Bytes, out_starts: Integers) -> None:
    """Copy each string to its place in ``out``."""
    for i in range(len(starts)):
        at, to = starts[i], out_starts[i]
        for k in range(lengths[i]):
            out[to + k] = data[at + k]


@kernel(nogil=True)
def compare_strings(a: Bytes, a_at: int, a_length: int, b: Bytes, b_at: int, b_length: int) -> int:
    """Return -1, 0 or 1: by length, strings of equal length byte by byte."""
    if a_length != b_length:
        return -1 if a_length < b_length else 1
    for k in range(a_length):
        one, other = a[a_at + k], b[b_at + k]
        if one != other:
            return -1 if one < other else 1
    return 0


@kernel(nogil=True)
def _compare(
    a: Bytes,
    a_starts: Integers,
    a_lengths: Integers,
    b: Bytes,
    b_starts: Integers,
    b_lengths: Integers,
    same: NDArray[np.bool_],
) -> None:
    for i in range(len(same)):
        same[i] = compare_strings(a, a_starts[i], a_lengths[i], b, b_starts[i], b_lengths[i]) == 0


@kernel(nogil=True)
def _begin_with(data: Bytes, starts: Integers, lengths: Integers, head: Bytes) -> bool:
    for i in range(len(starts)):
        if lengths[i] < len(head):
            return False
        for k in range(len(head)):
            if data[starts[i] + k] != head[k]:
                return False
    return True
