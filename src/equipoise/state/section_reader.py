"""Fetches the sections of key groups from the files that hold them."""

from collections.abc import Iterator

from equipoise.state.sections import Section, read_section
from equipoise.storage import Storage

_WHOLE = 4 << 20  # sections up to 4 MiB are cut from the first 16 MiB of their file, read at once


class SectionReader:
    """Fetches sections; the last file is kept, since the groups of a partition are neighbours in one file."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._path = ""
        self._data = b""

    def entries(self, section: Section) -> Iterator[tuple[bytes, bytes | None]]:
        """Entries of a section, checked."""
        if section.length > _WHOLE:
            return read_section(self._storage.read_range(section.path, section.offset, section.length), section)
        if section.path != self._path:
            self._data, self._path = self._storage.read_range(section.path, 0, _WHOLE * 4), section.path
        end = section.offset + section.length
        if end > len(self._data):
            return read_section(self._storage.read_range(section.path, section.offset, section.length), section)
        return read_section(self._data[section.offset : end], section)
