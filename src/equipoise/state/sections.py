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
    .   .  frames
    .   8  0: no more frames
    .   8  number of entries
    .   4  CRC-32 of all bytes of the section before it

    frame
    0   8  n, length of its content
    8   8  length of its content before compression
    16  n  content: zstd of a MessagePack list of [key, value], both bytes; the value nil stands for a deletion

A section ends in its checksum in every format version, so damage is never mistaken for a newer format. The head of the
file identifies it to other tools; a section contains everything that is needed to read it.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import chain, pairwise
from typing import Protocol, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from equipoise.errors import DamagedError, UnknownFormatError
from equipoise.state.entry_columns import HEAD_BYTES, EntryColumns, Frame, Pair, frame_bytes, read_frame

FORMAT_VERSION = 1
CHANGES, SNAPSHOT = 1, 2
"""Kinds of files."""

FRAME_BYTES = 4 * 1024 * 1024
"""Bytes of keys and values after which a frame is closed; bounds the memory for a group of any size."""

FILE_HEAD_BYTES = 11
"""Bytes of a file before its first section."""

MOST_FRAME_BYTES = 2**34
"""Largest length of a frame before compression: MessagePack bounds a key and a value to 4 GiB each."""

LEAST_SECTION_BYTES = 28
"""Length of a section without a name and without frames."""

_AT_ONCE = 16 * FRAME_BYTES  # memory for a longer frame is allocated as it is read, not by the length in its head
_FILE_MAGIC, _SECTION_MAGIC = b"EQPSTATE", b"SECT"
_SECTION_HEAD, _FRAME_HEAD, _SECTION_TAIL = struct.Struct("<4sHBB"), struct.Struct("<QQ"), struct.Struct("<QQI")
_CODEC = pa.Codec("zstd", 1)
_Entries = list[Pair]
_SizedContent = TypeVar("_SizedContent", bound=Sized)
_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Entries)


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
        name, start, count = group.encode("ascii"), self._offset, 0
        self._checksum = 0
        self._write(_SECTION_HEAD.pack(_SECTION_MAGIC, FORMAT_VERSION, reset, len(name)) + name)
        frame: _Entries = []
        filled = 0
        for entry in entries:
            if isinstance(entry, EntryColumns):
                count += len(entry)
                for part in _frames_of(entry):
                    self._write_frame(frame_bytes(part))
                continue
            key, value = entry
            frame.append((key, value))
            filled += len(key) + (0 if value is None else len(value))
            if filled >= FRAME_BYTES:
                self._write_frame(_ENCODER.encode(frame))
                count += len(frame)
                frame, filled = [], 0
        if frame:
            self._write_frame(_ENCODER.encode(frame))
            count += len(frame)
        self._write(_SECTION_TAIL.pack(0, count, 0)[:-4])
        checksum = self._checksum
        self._write(struct.pack("<I", checksum))
        return Section(self._path, start, self._offset - start, checksum, count, reset)

    def _write_frame(self, raw: bytes | NDArray[np.uint8]) -> None:
        content = _CODEC.compress(raw, asbytes=True)
        self._write(_FRAME_HEAD.pack(len(content), len(raw)))
        self._write(content)

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
    return chain.from_iterable(_frames(data, section, _checked_head(data, section), _DECODER.decode))


def read_frames(data: bytes, section: Section, tag: int) -> Iterator[Frame]:
    """Entries of ``section`` as columns, those of other tags than ``tag`` as pairs; see ``read_section``."""

    def decoded(raw: pa.Buffer | bytes) -> Frame:
        frame = read_frame(raw, tag)
        return Frame.of(_DECODER.decode(raw), tag) if frame is None else frame

    return _frames(data, section, _checked_head(data, section), decoded)


def _frames_of(columns: EntryColumns) -> Iterator[EntryColumns]:
    """Cut columns into parts of about the bytes of a frame."""
    if not len(columns):
        return
    ends = np.cumsum(columns.keys.lengths + columns.values.lengths + (HEAD_BYTES + 1))
    cuts = np.flatnonzero(np.diff(ends // FRAME_BYTES)) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(columns)]):
        yield columns.taken(slice(first, last))


def _checked_head(data: bytes, section: Section) -> int:
    """Verify the bytes of a section; return where its frames begin."""
    if len(data) != section.length or len(data) < LEAST_SECTION_BYTES:
        raise damaged(section, f"it has {len(data)} bytes")
    _, count, checksum = _SECTION_TAIL.unpack_from(data, len(data) - _SECTION_TAIL.size)
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
    if (count, reset) != (section.count, section.reset):
        raise damaged(section, f"its head and tail have {count} entries, reset {reset}")
    return int(_SECTION_HEAD.size + name_length)


def _frames(
    data: bytes, section: Section, at: int, decode: Callable[[pa.Buffer | bytes], _SizedContent]
) -> Iterator[_SizedContent]:
    view, end, count = memoryview(data), len(data) - _SECTION_TAIL.size, 0
    while at < end:
        length, raw_length = _FRAME_HEAD.unpack_from(data, at)
        at += _FRAME_HEAD.size + length
        if at > end:
            raise damaged(section, f"a frame of {length} bytes does not fit")
        if raw_length > MOST_FRAME_BYTES:
            raise damaged(section, f"a frame of {raw_length} bytes before compression, above {MOST_FRAME_BYTES}")
        try:
            entries = decode(_decompressed(view[at - length : at], raw_length))
        except (OSError, ValueError) as error:  # from zstd, Arrow and msgspec
            raise damaged(section, f"a frame cannot be read ({error})") from error
        count += len(entries)
        yield entries
    if at != end or count != section.count:
        raise damaged(section, f"its frames have {count} entries")


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
