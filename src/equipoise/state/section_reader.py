"""Fetches the sections of key groups from the files that hold them."""

from collections.abc import Iterator, Sequence

from equipoise.state.sections import Section, read_section
from equipoise.storage import Storage

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
        end = section.offset + section.length
        if not alone and section.length <= _WHOLE and section.path != self._path:
            self._data, self._path = self._storage.read_range(section.path, 0, _WHOLE * 4), section.path
        if section.path == self._path and end <= len(self._data):
            return read_section(self._data[section.offset : end], section)
        return read_section(self._storage.read_range(section.path, section.offset, section.length), section)

    def each(self, sections: Sequence[Section]) -> Iterator[tuple[Section, Iterator[tuple[bytes, bytes | None]]]]:
        """The sections of one group with their entries, in the order given."""
        for section in sections:
            yield section, self.entries(section, alone=len(sections) > 1)
