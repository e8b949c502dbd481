"""Fetches the sections of key groups from the files that hold them."""

from collections.abc import Iterator, Sequence

from equipoise.state.entry_columns import Frame, Pair
from equipoise.state.sections import Section, damaged, read_frames, read_section
from equipoise.storage import Storage

_FARTHEST = 1 << 40  # 1 TiB: for a section beyond this byte the size of the file is checked before it is read
_WHOLE = 4 << 20  # sections up to 4 MiB are taken from the first 16 MiB of their file, read at once


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
        """Entries of a section, after its checksum is verified.

        Parameters
        ----------
        section
            Location and checksum.
        alone
            Whether to fetch only this section.
        """
        return read_section(self._bytes(section, alone=alone), section)

    def frames(self, section: Section, tag: int, *, alone: bool = False) -> Iterator[Frame]:
        """Entries of a section as columns, those of other tags than ``tag`` as pairs; see ``entries``."""
        return read_frames(self._bytes(section, alone=alone), section, tag)

    def _bytes(self, section: Section, *, alone: bool) -> bytes:
        self._require_there(section)
        end = section.offset + section.length
        if not alone and section.length <= _WHOLE and section.path != self._path:
            self._data, self._path = self._storage.read_range(section.path, 0, _WHOLE * 4), section.path
        if section.path == self._path and end <= len(self._data):
            return self._data[section.offset : end]
        return self._storage.read_range(section.path, section.offset, section.length)

    def _require_there(self, section: Section) -> None:
        """Compare a large section with its file before memory is allocated; a small one is read and checked then."""
        if section.offset < 0 or section.length < 0:
            raise damaged(section, "it begins before its file, or has a negative length")
        if section.length > _WHOLE or section.offset > _FARTHEST:
            size = self._storage.size(section.path)
            if section.offset + section.length > size:
                raise damaged(section, f"its file has {size} bytes")

    def each(self, sections: Sequence[Section]) -> Iterator[tuple[Section, Iterator[Pair]]]:
        """The sections of one group with their entries, in the order given."""
        for section in sections:
            yield section, self.entries(section, alone=len(sections) > 1)
