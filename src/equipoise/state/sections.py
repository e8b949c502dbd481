r"""Files of changes and of snapshots: a sequence of sections, one for each key group, each readable by its offset.

Byte layout, integers little-endian::

    file
    0   8  magic  b"EQPSTATE"
    8   2  format version
    10  1  kind: 1 changes, 2 snapshot
    11  .  sections, one after the other

    section
    0   4  magic  b"SECT"
    4   2  format version
    6   1  1 if the group is emptied before these entries, else 0
    7   1  g, length of the name of the group
    8   g  name of the group, ASCII
    .   .  frames: zstd of a MessagePack list of [key, value], both bytes; the value nil stands for a deletion
    .   x  index: MessagePack list of the frames, see ``IndexedFrame``
    .   8  x, length of the index
    .   8  number of entries
    .   4  CRC-32 of the index and the two numbers after it
    .   4  CRC-32 of all bytes of the section before it

A reader of a few keys reads the end of a section, and of the frames only those that may hold the keys. The index has
the range of keys, a filter of keys and a checksum for each frame. The last four bytes are also in the commit log, so
the index is known to be that of this section.

A section ends in its checksum in every format version, so damage is never mistaken for another format. The head of the
file identifies it to other tools; a section contains everything that is needed to read it.
"""

import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import accumulate, chain, pairwise
from typing import Protocol, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from equipoise.errors import DamagedError, UnknownFormatError
from equipoise.state.entry_columns import HEAD_BYTES, EntryColumns, Frame, Pair, frame_bytes, read_frame
from equipoise.state.key_filters import PREFIX_BYTES, filter_of, may_hold, numbers_of, probe_of

FORMAT_VERSION = 2
CHANGES, SNAPSHOT = 1, 2
"""Kinds of files."""

FRAME_BYTES = 128 * 1024
"""Bytes of keys and values after which a frame is closed: what is read for a single key."""

FILE_HEAD_BYTES = 11
"""Bytes of a file before its first section."""

MOST_FRAME_BYTES = 2**34
"""Largest length of a frame before compression: MessagePack bounds a key and a value to 4 GiB each."""

LEAST_SECTION_BYTES = 33
"""Length of a section without a name and without frames."""

TAIL_BYTES = 24
"""Bytes of a section after its index."""

_AT_ONCE = 64 << 20  # memory for a longer frame is allocated as it is read, not by the length in its head
_FILE_MAGIC, _SECTION_MAGIC = b"EQPSTATE", b"SECT"
_SECTION_HEAD, _COUNTS, _CHECKSUMS = struct.Struct("<4sHBB"), struct.Struct("<QQ"), struct.Struct("<II")
_CODEC = pa.Codec("zstd", 1)
_Entries = list[Pair]
_SizedContent = TypeVar("_SizedContent", bound=Sized)
_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Entries)
Decode = Callable[[pa.Buffer | bytes], _SizedContent]
"""Makes entries of the content of a frame."""


class Section(msgspec.Struct, frozen=True, array_like=True):
    """Location and checksum of a section; small, because the commit log holds many.

    Parameters
    ----------
    path
        Name of the file, as given to the writer.
    offset, length
        First byte and number of bytes in that file.
    checksum
        CRC-32, equal to the last four bytes of the section.
    count
        Number of entries, deletions included.
    reset
        Whether the group is emptied before these entries.
    """

    path: str
    offset: int
    length: int
    checksum: int
    count: int
    reset: bool


class IndexedFrame(msgspec.Struct, frozen=True, array_like=True):
    """A frame, as the index of its section has it.

    Parameters
    ----------
    first, last
        Least and greatest of the first nine bytes of its keys: the space of the entry and its fingerprint or time.
    length, raw_length
        Number of its bytes, and before compression.
    count
        Number of entries.
    checksum
        CRC-32 of its bytes.
    filter
        Bloom filter of the first nine bytes of its keys, see ``key_filters``.
    """

    first: bytes
    last: bytes
    length: int
    raw_length: int
    count: int
    checksum: int
    filter: bytes


_INDEX = msgspec.msgpack.Decoder(list[IndexedFrame])


class SectionIndex:
    """The frames of a section.

    Parameters
    ----------
    frames
        Frames in the order of the file.
    end
        Byte of the section after the last frame.
    """

    def __init__(self, frames: list[IndexedFrame], end: int) -> None:
        self.frames, self.end = frames, end
        self.start = end - sum(frame.length for frame in frames)
        """Byte of the section at which the first frame begins."""
        self.starts = list(accumulate((frame.length for frame in frames), initial=self.start))
        """Byte of the section at which each frame begins, and ``end``."""
        self._order = sorted(range(len(frames)), key=lambda place: frames[place].first)
        self._firsts = [frames[place].first for place in self._order]
        self._lasts = list(accumulate((frames[place].last for place in self._order), max))

    def holding(self, prefix: bytes) -> Iterator[int]:
        """Numbers of the frames that may have keys with these first nine bytes; few others are among them."""
        probe = probe_of(prefix)
        for at in range(bisect_right(self._firsts, prefix) - 1, -1, -1):
            if self._lasts[at] < prefix:
                return
            frame = self.frames[self._order[at]]
            if frame.last >= prefix and may_hold(frame.filter, probe):
                yield self._order[at]

    def within(self, space: bytes) -> list[int]:
        """Numbers of the frames that have keys which begin with ``space``, one byte, in the order of their keys."""
        return [at for at in self._order if self.frames[at].first[:1] <= space <= self.frames[at].last[:1]]


class Writable(Protocol):
    """A binary stream that bytes can be written to."""

    def write(self, data: bytes, /) -> int:
        """Append bytes."""


class SectionWriter:
    """Writes the sections of one file, from its first byte on.

    Parameters
    ----------
    stream
        Binary file to write to; it is neither closed nor sought.
    kind
        ``CHANGES`` or ``SNAPSHOT``.
    path
        Name of the file in the sections that are returned.
    """

    def __init__(self, stream: Writable, kind: int, path: str) -> None:
        self._stream, self._path = stream, path
        self._offset = self._checksum = 0
        self._write(_FILE_MAGIC + struct.pack("<HB", FORMAT_VERSION, kind))

    @property
    def offset(self) -> int:
        """Bytes written so far."""
        return self._offset

    def add(self, group: str, entries: Iterable[Pair | EntryColumns], *, reset: bool = False) -> Section:
        """Append the section of ``group``.

        Parameters
        ----------
        group
            Name of the group.
        entries
            Keys with their values, None for a deletion, and columns of entries; may be an iterator over more entries
            than fit into memory.
        reset
            Whether the group is emptied before these entries.
        """
        name, start = group.encode("ascii"), self._offset
        self._checksum = 0
        self._write(_SECTION_HEAD.pack(_SECTION_MAGIC, FORMAT_VERSION, reset, len(name)) + name)
        frames: list[IndexedFrame] = []
        pairs: _Entries = []
        filled = 0
        for entry in entries:
            if isinstance(entry, EntryColumns):
                frames += map(self._write_columns, _frames_of(entry))
                continue
            key, value = entry
            pairs.append((key, value))
            filled += len(key) + (0 if value is None else len(value))
            if filled >= FRAME_BYTES:
                frames.append(self._write_pairs(pairs))
                pairs, filled = [], 0
        if pairs:
            frames.append(self._write_pairs(pairs))
        count, index = sum(frame.count for frame in frames), _ENCODER.encode(frames)
        index += _COUNTS.pack(len(index), count)
        self._write(index + struct.pack("<I", zlib.crc32(index)))
        checksum = self._checksum
        self._write(struct.pack("<I", checksum))
        return Section(self._path, start, self._offset - start, checksum, count, reset)

    def _write_pairs(self, pairs: _Entries) -> IndexedFrame:
        prefixes = {key[:PREFIX_BYTES] for key, _ in pairs}
        filtered = filter_of(numbers_of(prefixes))
        return self._write_frame(_ENCODER.encode(pairs), min(prefixes), max(prefixes), len(pairs), filtered)

    def _write_columns(self, columns: EntryColumns) -> IndexedFrame:
        marks = columns.fingerprints
        first, last = (b"\x00" + int(mark).to_bytes(8, "big") for mark in (marks.min(), marks.max()))
        return self._write_frame(frame_bytes(columns), first, last, len(columns), filter_of(marks))

    def _write_frame(
        self, raw: bytes | NDArray[np.uint8], first: bytes, last: bytes, count: int, filtered: bytes
    ) -> IndexedFrame:
        content = _CODEC.compress(raw, asbytes=True)
        self._write(content)
        return IndexedFrame(first, last, len(content), len(raw), count, zlib.crc32(content), filtered)

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._offset += len(data)
        self._checksum = zlib.crc32(data, self._checksum)


def read_section(data: bytes, section: Section) -> Iterator[Pair]:
    """Entries of ``section``, given its bytes; the checksum is verified first, the frames are decoded one by one.

    Parameters
    ----------
    data
        ``section.length`` bytes from ``section.offset`` on.
    section
        Location and checksum, from the writer.
    """
    return chain.from_iterable(_frames(data, section, decode_pairs))


def read_frames(data: bytes, section: Section, tag: int) -> Iterator[Frame]:
    """Entries of ``section`` as columns, those of other tags than ``tag`` as pairs; see ``read_section``."""
    return _frames(data, section, decode_columns(tag))


def decode_pairs(raw: pa.Buffer | bytes) -> _Entries:
    """Entries of the content of a frame."""
    return _DECODER.decode(raw)


def decode_columns(tag: int) -> Callable[[pa.Buffer | bytes], Frame]:
    """Return the function that makes columns of the entries of ``tag`` in a frame."""

    def decode(raw: pa.Buffer | bytes) -> Frame:
        frame = read_frame(raw, tag)
        return Frame.of(_DECODER.decode(raw), tag) if frame is None else frame

    return decode


def index_length(data: bytes) -> int:
    """Length of the index of a section that ends with ``data``, and of what follows the index."""
    return int(_COUNTS.unpack_from(data, len(data) - TAIL_BYTES)[0]) + TAIL_BYTES


def read_index(data: bytes, section: Section) -> SectionIndex | None:
    """Return the index of ``section``, given its last bytes; ``None`` if they do not fit the section.

    Parameters
    ----------
    data
        At least as many of the last bytes as ``index_length`` says.
    section
        Location and checksum.
    """
    at = len(data) - TAIL_BYTES
    length, count = _COUNTS.unpack_from(data, at)
    index_checksum, checksum = _CHECKSUMS.unpack_from(data, at + _COUNTS.size)
    known = memoryview(data)[max(0, at - length) : at + _COUNTS.size]
    if (checksum, count) != (section.checksum, section.count) or zlib.crc32(known) != index_checksum:
        return None
    try:
        index = SectionIndex(_INDEX.decode(known[: -_COUNTS.size]), section.length - TAIL_BYTES - length)
    except ValueError:  # from msgspec
        return None
    frames = index.frames
    is_sound = all(frame.length >= 0 and 0 <= frame.raw_length <= MOST_FRAME_BYTES for frame in frames)
    is_sound = is_sound and index.start >= _SECTION_HEAD.size and sum(frame.count for frame in frames) == count
    return index if is_sound else None


def decoded(
    content: bytes | memoryview, frame: IndexedFrame, section: Section, decode: Decode[_SizedContent]
) -> _SizedContent:
    """Entries of a frame, after its checksum is verified.

    Parameters
    ----------
    content
        Bytes of the frame.
    frame, section
        Where they are from.
    decode
        Makes the entries.
    """
    found = zlib.crc32(content)
    if len(content) != frame.length or found != frame.checksum:
        raise damaged(
            section,
            f"a frame has {len(content)} bytes with the checksum {found:08x}, its index has {frame.length} bytes with "
            f"{frame.checksum:08x}",
        )
    try:
        entries = decode(_decompressed(memoryview(content), frame.raw_length))
    except (OSError, ValueError) as error:  # from zstd, Arrow and msgspec
        raise damaged(section, f"a frame cannot be read ({error})") from error
    if len(entries) != frame.count:
        raise damaged(section, f"a frame has {len(entries)} entries, its index has {frame.count}")
    return entries


def _frames_of(columns: EntryColumns) -> Iterator[EntryColumns]:
    """Cut columns into parts of about the bytes of a frame."""
    if not len(columns):
        return
    ends = np.cumsum(columns.keys.lengths + columns.values.lengths + (HEAD_BYTES + 1))
    cuts = np.flatnonzero(np.diff(ends // FRAME_BYTES)) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(columns)]):
        yield columns.taken(slice(first, last))


def verify(data: bytes, section: Section) -> SectionIndex:
    """Verify all bytes of a section; return its index."""
    if len(data) != section.length or len(data) < LEAST_SECTION_BYTES:
        raise damaged(section, f"it has {len(data)} bytes")
    _, checksum = _CHECKSUMS.unpack_from(data, len(data) - _CHECKSUMS.size)
    found = zlib.crc32(memoryview(data)[:-4])
    if not found == checksum == section.checksum:
        raise damaged(section, f"its bytes have the checksum {found:08x}, its tail has {checksum:08x}")
    magic, version, reset, name_length = _SECTION_HEAD.unpack_from(data)
    if magic != _SECTION_MAGIC:
        raise damaged(section, f"it starts with {magic!r} instead of {_SECTION_MAGIC!r}")
    if version != FORMAT_VERSION:
        raise UnknownFormatError(
            f"the section at byte {section.offset} of {section.path} has format {version}, this release reads format "
            f"{FORMAT_VERSION}; run the query with the release that wrote it"
        )
    _, count = _COUNTS.unpack_from(data, len(data) - TAIL_BYTES)
    if (count, reset) != (section.count, section.reset):
        raise damaged(section, f"its head and tail have {count} entries, reset {reset}")
    index = read_index(data, section)
    if index is None or index.start != _SECTION_HEAD.size + name_length:
        raise damaged(section, "its index does not fit it")
    return index


def _frames(data: bytes, section: Section, decode: Decode[_SizedContent]) -> Iterator[_SizedContent]:
    index, view = verify(data, section), memoryview(data)
    pieces = (view[start:end] for start, end in pairwise(index.starts))
    return (decoded(piece, frame, section, decode) for piece, frame in zip(pieces, index.frames, strict=True))


def _decompressed(content: memoryview, raw_length: int) -> pa.Buffer | bytes:
    if raw_length <= _AT_ONCE:
        return _CODEC.decompress(content, raw_length)
    chunks, found = [], 0
    with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
        while found <= raw_length and (chunk := stream.read(_AT_ONCE)):
            chunks.append(chunk)
            found += len(chunk)
    if found != raw_length:
        raise ValueError(f"its content has {found} bytes instead of {raw_length}")
    return b"".join(chunks)


def damaged(section: Section, found: str) -> DamagedError:
    """Return the error for a section that does not match its record."""
    return DamagedError(
        f"the section at byte {section.offset} of {section.path} is damaged: {found}; expected {section.length} bytes "
        f"with {section.count} entries, reset {section.reset:d}, and the checksum {section.checksum:08x}. Restore the "
        "file from a copy of the checkpoint, or go back to a commit whose files are undamaged"
    )
