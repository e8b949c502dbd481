"""Fetches the sections of key groups from the files that hold them."""

from collections.abc import Iterator, Sequence

from equipoise.state.sections import Section, damaged, read_section
from equipoise.storage import Storage

_FARTHEST = 1 << 40  # 1 TiB: a section is not looked for beyond this byte unless its file reaches as far
_WHOLE = 4 << 20  # sections up to 4 MiB are cut from the first 16 MiB of their file, read at once


class SectionReader:
    """Fetches sections; the last file is kept, since the groups of a partition are neighbours in one file.

    That helps whoever reads one section of each group. Whoever reads several goes from file to file, and would read
    each of them anew for every group: such sections are fetched alone.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._path = ""
        self._data = b""

    def entries(self, section: Section, *, alone: bool = False) -> Iterator[tuple[bytes, bytes | None]]:
        """Entries of a section, checked.

        Parameters
        ----------
        section
            Where they are.
        alone
            Whether to fetch nothing but this section.
        """
        self._require_there(section)
        end = section.offset + section.length
        if not alone and section.length <= _WHOLE and section.path != self._path:
            self._data, self._path = self._storage.read_range(section.path, 0, _WHOLE * 4), section.path
        if section.path == self._path and end <= len(self._data):
            return read_section(self._data[section.offset : end], section)
        return read_section(self._storage.read_range(section.path, section.offset, section.length), section)

    def _require_there(self, section: Section) -> None:
        """Compare a section with its file before memory is taken for it; a short one is read and found too short."""
        if section.offset < 0 or section.length < 0:
            raise damaged(section, "it would begin or end before its file")
        if section.length > _WHOLE or section.offset > _FARTHEST:
            size = self._storage.size(section.path)
            if section.offset + section.length > size:
                raise damaged(section, f"its file has {size} bytes")

    def each(self, sections: Sequence[Section]) -> Iterator[tuple[Section, Iterator[tuple[bytes, bytes | None]]]]:
        """The sections of one group with their entries, in the order given."""
        for section in sections:
            yield section, self.entries(section, alone=len(sections) > 1)
