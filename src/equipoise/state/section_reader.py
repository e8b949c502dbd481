"""Fetches the sections of key groups from the files that hold them: whole, or the frames of some keys."""

import zlib
from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from equipoise.state.entry_columns import Frame, Pair
from equipoise.state.sections import (
    LEAST_SECTION_BYTES,
    Section,
    SectionIndex,
    damaged,
    decode_columns,
    decode_pairs,
    decoded,
    index_length,
    read_frames,
    read_index,
    read_section,
    verify,
)
from equipoise.storage import Storage

WHOLE_BYTES = 4 << 20
"""Sections up to 4 MiB are read whole, longer ones piece by piece."""

_FARTHEST = 1 << 40  # 1 TiB: for a section beyond this byte the size of the file is checked before it is read
_NEIGHBOURS = 4  # of a file with small sections, the first 16 MiB are read at once
_TAIL_BYTES = 32 << 10  # read for the index of a section; a longer index takes a second read
_SizedContent = TypeVar("_SizedContent", bound=Sized)


class SectionReader:
    """Fetches sections; keeps the last file in memory, because the groups of a partition are neighbours in one file.

    This helps a caller that reads one section of each group. A caller that reads several sections of a group goes from
    file to file and would read each file again for every group: such sections are fetched alone.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._path = ""
        self._data = b""

    def entries(self, section: Section, *, alone: bool = False) -> Iterator[Pair]:
        """Entries of a section, after the checksum of their bytes is verified.

        Parameters
        ----------
        section
            Location and checksum.
        alone
            Whether to fetch only this section.
        """
        self._require_there(section)
        if section.length > WHOLE_BYTES:
            return chain.from_iterable(self._streamed(section, decode_pairs))
        return read_section(self._bytes(section, alone=alone), section)

    def frames(self, section: Section, tag: int, *, alone: bool = False) -> Iterator[Frame]:
        """Entries of a section as columns, those of other tags than ``tag`` as pairs; see ``entries``."""
        self._require_there(section)
        if section.length > WHOLE_BYTES:
            return self._streamed(section, decode_columns(tag))
        return read_frames(self._bytes(section, alone=alone), section, tag)

    def open(self, section: Section) -> "OpenSection":
        """Open a section for reading some of its frames; this reads its index."""
        self._require_there(section)
        if section.length < LEAST_SECTION_BYTES:
            raise damaged(section, "it is too short")
        tail = self._range(section, section.length - min(section.length, _TAIL_BYTES), section.length)
        if len(tail) < min(section.length, _TAIL_BYTES):
            raise damaged(section, "its file ends before it")
        needed = index_length(tail)
        if len(tail) < needed <= section.length:
            tail = self._range(section, section.length - needed, section.length - len(tail)) + tail
        index = read_index(tail, section)
        if index is None:
            index = verify(self._bytes(section, alone=True), section)  # says what is wrong with it
            raise damaged(section, "its end was different when it was first read")
        return OpenSection(section, index, tail, lambda start, end: self._range(section, start, end))

    def each(self, sections: Sequence[Section]) -> Iterator[tuple[Section, Iterator[Pair]]]:
        """The sections of one group with their entries, in the order given."""
        for section in sections:
            yield section, self.entries(section, alone=len(sections) > 1)

    def _bytes(self, section: Section, *, alone: bool) -> bytes:
        end = section.offset + section.length
        if not alone and section.path != self._path:
            self._data, self._path = self._storage.read_range(section.path, 0, WHOLE_BYTES * _NEIGHBOURS), section.path
        if section.path == self._path and end <= len(self._data):
            return self._data[section.offset : end]
        return self._range(section, 0, section.length)

    def _range(self, section: Section, start: int, end: int) -> bytes:
        return self._storage.read_range(section.path, section.offset + start, end - start)

    def _streamed(
        self, section: Section, decode: Callable[[pa.Buffer | bytes], _SizedContent]
    ) -> Iterator[_SizedContent]:
        """Yield the contents of the frames, reading some MiB at a time; at the end, the whole section is verified."""
        index = self.open(section).index
        data = self._range(section, 0, index.start)
        checksum, at = zlib.crc32(data), 0
        while at < len(index.frames):
            until = at + 1
            while until < len(index.frames) and index.starts[until + 1] - index.starts[at] <= WHOLE_BYTES:
                until += 1
            start = index.starts[at]
            data = self._range(section, start, index.starts[until])
            checksum = zlib.crc32(data, checksum)
            for place in range(at, until):
                piece = memoryview(data)[index.starts[place] - start : index.starts[place + 1] - start]
                yield decoded(piece, index.frames[place], section, decode)
            at = until
        checksum = zlib.crc32(self._range(section, index.end, section.length - 4), checksum)
        if checksum != section.checksum:
            raise damaged(section, f"its bytes have the checksum {checksum:08x}")

    def _require_there(self, section: Section) -> None:
        """Compare a large section with its file before memory is allocated; a small one is read and checked then."""
        if section.offset < 0 or section.length < 0:
            raise damaged(section, "it begins before its file, or has a negative length")
        if section.length > WHOLE_BYTES or section.offset > _FARTHEST:
            size = self._storage.size(section.path)
            if section.offset + section.length > size:
                raise damaged(section, f"its file has {size} bytes")


class OpenSection:
    """A section of which some frames are read.

    Parameters
    ----------
    section
        Location and checksum.
    index
        Its frames.
    tail
        Its last bytes, which have been read; of a small section, all bytes.
    read
        Reads the bytes from one byte of the section to another.
    """

    def __init__(self, section: Section, index: SectionIndex, tail: bytes, read: Callable[[int, int], bytes]) -> None:
        self.section, self.index = section, index
        self.read_bytes = len(tail)
        """Bytes that were read."""
        self._all = tail if len(tail) == section.length else None
        self._read = read

    def frame(self, place: int) -> list[Pair]:
        """The entries of a frame, after its checksum is verified."""
        start, end = self.index.starts[place : place + 2]
        if self._all is not None:
            content = self._all[start:end]
        else:
            content = self._read(start, end)
            self.read_bytes += len(content)
        return decoded(content, self.index.frames[place], self.section, decode_pairs)
