"""Reads some keys of a key group from the files of the checkpoint, without filling the local cache."""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from itertools import pairwise
from operator import itemgetter

import numpy as np

from equipoise.failpoints import failpoint
from equipoise.state.byte_columns import ByteColumn
from equipoise.state.cached_blocks import BlockReader
from equipoise.state.cached_entries import CacheReader
from equipoise.state.entries import DUE_EXPIRIES, DUE_TIMERS, entry_key, entry_prefix
from equipoise.state.entry_columns import Flags, Pair, Unsigned
from equipoise.state.key_filters import PREFIX_BYTES
from equipoise.state.section_reader import OpenSection, SectionReader
from equipoise.state.sections import Section

_FRAMES = 64  # decoded frames that are kept, about 8 MiB


class SparseReader:
    """The entries of a group at one version: its snapshot and all changes since, of which only some frames are read.

    A lookup reads the index of each section once, and then the frames that may hold the key. An index of timers or of
    expiring entries is read in the order of time, as far as it is scanned. Whoever wants all entries, or has read as
    many bytes as the budget, gets the whole group: the cache is filled, and answers from then on.

    Parameters
    ----------
    version
        Version of the state.
    sections
        All sections that hold it, oldest first. Only the first may empty the group.
    reader
        Fetches them.
    tag
        Number of the state variable in columns; ``None`` without one.
    budget
        Bytes after which the cache is filled.
    fill
        Fills the cache and opens it, until the stack is closed.
    spent
        Called at the end with the bytes that were read, if the cache was not filled.
    """

    size_bytes = None
    """Bytes of all keys and values: unknown."""

    def __init__(
        self,
        version: int,
        sections: Sequence[Section],
        reader: SectionReader,
        tag: int | None,
        *,
        budget: float,
        fill: Callable[[ExitStack], CacheReader],
        spent: Callable[[int], None],
    ) -> None:
        self.version, self.tag = version, tag
        self._sections, self._reader, self._budget, self._fill, self._spent = sections, reader, budget, fill, spent
        self._filled: CacheReader | None = None
        self._open = ExitStack()
        self._opened: list[OpenSection] = []
        self._frames: OrderedDict[tuple[int, int], list[Pair]] = OrderedDict()
        self._prefix: bytes | None = None
        self._found: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        """Value of ``key``, or None."""
        filled = self._enough(0)
        return self._under(key[:PREFIX_BYTES]).get(key) if filled is None else filled.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values of ``keys``, in their order, None where there is none."""
        filled = self._enough(len(keys))
        if filled is not None:
            return filled.get_many(keys)
        found = {key: self.get(key) for key in sorted(keys)}  # in this order each frame is read once
        return [found[key] for key in keys]

    def find(self, fingerprints: Unsigned, keys: ByteColumn) -> tuple[ByteColumn, Flags]:
        """Values of grouping keys of the variable in columns, and which of them exist; see ``BlockReader.find``."""
        filled = self._enough(len(fingerprints))
        if isinstance(filled, BlockReader):
            return filled.find(fingerprints, keys)
        assert self.tag is not None  # noqa: S101 - this tells the type checker
        return found_one_by_one(self.get_many, self.tag, fingerprints, keys)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose key starts with ``prefix``, in ascending order of the key."""
        filled = self._enough(0)
        if filled is None and len(prefix) >= PREFIX_BYTES:
            found = self._under(prefix[:PREFIX_BYTES])
            return iter(sorted((key, value) for key, value in found.items() if key.startswith(prefix)))
        if filled is None and prefix in {DUE_TIMERS, DUE_EXPIRIES} and self._is_ascending(prefix):
            return self._scan_index(prefix)
        return self.whole().scan(prefix)

    def whole(self) -> CacheReader:
        """Fill the cache, if that has not been done; return its reader."""
        if self._filled is None:
            self._filled = self._fill(self._open)
            self._frames.clear()
        return self._filled

    def close(self) -> None:
        """Close the cache, or report the bytes that were read without it."""
        self._open.close()
        if self._filled is None:
            self._spent(self._read_bytes)

    @property
    def _parts(self) -> list[OpenSection]:
        """The sections; their indexes are read with the first lookup."""
        if not self._opened:
            self._opened = [self._reader.open(section) for section in self._sections]
        return self._opened

    @property
    def _frame_bytes(self) -> float:
        frames = sum(len(part.index.frames) for part in self._parts)
        return sum(section.length for section in self._sections) / max(1, frames)

    @property
    def _read_bytes(self) -> int:
        return sum(part.read_bytes for part in self._opened)

    def _enough(self, lookups: int) -> CacheReader | None:
        """The whole group, if as many lookups would exceed the budget."""
        if self._filled is None:
            expected = lookups * self._frame_bytes if lookups else 0
            failpoint("task.in-lookup")
            if self._read_bytes + expected > self._budget:
                return self.whole()
        return self._filled

    def _under(self, prefix: bytes) -> dict[bytes, bytes]:
        """Entries whose keys have these first nine bytes; those of the last call are kept."""
        if self._prefix != prefix:
            found: dict[bytes, bytes] = {}
            for number, part in enumerate(self._parts):
                for place in part.index.holding(prefix):
                    _update(found, _starting_with(self._frame(number, place), prefix))
            self._prefix, self._found = prefix, found
        return self._found

    def _frame(self, number: int, place: int) -> list[Pair]:
        """The entries of a frame, by key."""
        known = self._frames.get((number, place))
        if known is not None:
            self._frames.move_to_end((number, place))
            return known
        found = sorted(self._parts[number].frame(place), key=itemgetter(0))
        self._frames[number, place] = found
        if len(self._frames) > _FRAMES:
            self._frames.popitem(last=False)
        return found

    def _is_ascending(self, space: bytes) -> bool:
        """Whether each frame of a space begins where the one before ends, so that they can be read one by one."""
        within = ([part.index.frames[place] for place in part.index.within(space)] for part in self._parts)
        return all(before.last <= after.first for frames in within for before, after in pairwise(frames))

    def _scan_index(self, space: bytes) -> Iterator[tuple[bytes, bytes]]:
        last = None
        for key, _, value in merge(*(self._ascending(number, space) for number in range(len(self._parts)))):
            if key != last and value is not None:
                yield key, value
            last = key

    def _ascending(self, number: int, space: bytes) -> Iterator[tuple[bytes, int, bytes | None]]:
        """Keys of a space in a section, with a number that is lower in later sections."""
        for place in self._parts[number].index.within(space):
            for key, value in _starting_with(self._frame(number, place), space):
                yield key, -number, value


def found_one_by_one(
    get_many: Callable[[list[bytes]], list[bytes | None]], tag: int, fingerprints: Unsigned, keys: ByteColumn
) -> tuple[ByteColumn, Flags]:
    """Values of grouping keys, and which of them exist, by the keys of their entries.

    Parameters
    ----------
    get_many
        Returns the value of each entry, None where there is none.
    tag
        Number of the state variable.
    fingerprints, keys
        Fingerprints and grouping keys.
    """
    entries = zip(fingerprints.view(np.int64).tolist(), keys.strings(), strict=True)
    found = get_many([entry_key(entry_prefix(*each), tag) for each in entries])
    exists = np.fromiter((value is not None for value in found), np.bool_, len(found))
    return ByteColumn.of([value or b"" for value in found]), exists


def _update(found: dict[bytes, bytes], entries: Iterator[Pair]) -> None:
    for key, value in entries:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value


def _starting_with(entries: list[Pair], prefix: bytes) -> Iterator[Pair]:
    for at in range(bisect_left(entries, prefix, key=itemgetter(0)), len(entries)):
        if not entries[at][0].startswith(prefix):
            return
        yield entries[at]
