"""Bring the local cache of a key group up to the version that a batch starts from, or read past it.

If the cache lacks a group from its beginning on, as after a restart, filling it means to read all its files. A batch
that needs few keys reads only these: see ``SparseReader``. The cache of a group is filled once as many bytes were read
for single keys as the files of the group have, or down to half as many: the share is drawn by the group's name, so
that groups with the same load are not filled in the same batch. In the end, at most about twice the bytes were read.
"""

import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import msgspec

from equipoise.errors import DamagedError
from equipoise.state.cache import CachedGroup
from equipoise.state.cached_entries import CacheReader
from equipoise.state.commit import Change, GroupSnapshot
from equipoise.state.group_table import Chain
from equipoise.state.section_reader import WHOLE_BYTES, SectionReader
from equipoise.state.sections import FRAME_BYTES, Section
from equipoise.state.sparse_reader import SparseReader

RECENT = 4
"""Latest changes of a group that are sent to a task; a task whose cache is further behind reads the log."""


class Recent(msgspec.Struct, frozen=True, array_like=True):
    """The end of a group's chain: its last changes and the version before them."""

    before: int
    changes: list[Change]

    @classmethod
    def of(cls, chain: Chain) -> "Recent":
        """The end of a chain."""
        cut = max(0, len(chain.changes) - RECENT)
        base = chain.snapshot.version if chain.snapshot else -1
        return cls(chain.changes[cut - 1].version if cut else base, chain.changes[cut:])

    @property
    def version(self) -> int:
        """Version of the group's state."""
        return self.changes[-1].version if self.changes else self.before

    def to_bytes(self) -> bytes:
        """Return the form in which it is sent to the tasks of a batch; it is not stored."""
        return _ENCODER.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Recent":
        """Read ``to_bytes``."""
        return _DECODER.decode(data)


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Recent)


SPARSE_BYTES = FRAME_BYTES
"""Bytes of the files of a group up to which it is read whole, in place of single keys."""

_TRIES = 10
_UNPACKED = 4  # expected bytes in the cache for each byte of a file, which is compressed


def reading_some(
    cached: CachedGroup, recent: Recent | None, sections: SectionReader, chain: Callable[[], Chain], stack: ExitStack
) -> CacheReader | SparseReader:
    """Open a group for reading single keys; where the cache has nothing to start from, read past it, see above."""
    missing = _missing(cached, recent, chain)
    budget = missing.size * _share(cached.group_id) - missing.spent
    if recent is None or not missing.is_all or missing.size <= SPARSE_BYTES or budget <= 0:
        return _filled(cached, recent, sections, chain, stack, missing)
    reader = SparseReader(
        recent.version,
        missing.sections,
        sections,
        cached.tag,
        budget=budget,
        fill=lambda inner: reading(cached, recent, sections, chain, inner),
        spent=cached.spend,
    )
    stack.callback(reader.close)
    return reader


def reading(
    cached: CachedGroup, recent: Recent | None, sections: SectionReader, chain: Callable[[], Chain], stack: ExitStack
) -> CacheReader:
    """Bring a group to the version of ``recent``, or empty it where it has no state, and open it for reading.

    Other tasks may change the same cache, and a damaged cache is deleted when the damage is found. So the version is
    checked after opening, and the attempt repeated until it is the right one.

    Parameters
    ----------
    cached
        The group in the local cache; afterwards it has the version of ``recent``.
    recent
        The end of its chain; ``None`` where it has no state.
    sections
        Fetches missing sections.
    chain
        Reads the whole chain from the log; called only where ``recent`` is not enough.
    stack
        Closes the reader.
    """
    return _filled(cached, recent, sections, chain, stack, _missing(cached, recent, chain))


def _filled(
    cached: CachedGroup,
    recent: Recent | None,
    sections: SectionReader,
    chain: Callable[[], Chain],
    stack: ExitStack,
    missing: "_Missing",
) -> CacheReader:
    wanted = -1 if recent is None else recent.version
    for _ in range(_TRIES):
        _fill(cached, missing, sections)
        with ExitStack() as attempt:
            try:
                reader = attempt.enter_context(cached.read())
                if reader.version == wanted:
                    stack.push(attempt.pop_all())
                    return reader
            except DamagedError:
                pass  # the cache was deleted, and is rebuilt from the checkpoint
        missing = _missing(cached, recent, chain)
    raise DamagedError(
        f"the cache of key group {cached.group_id} does not reach version {wanted} in {_TRIES} attempts: another "
        "process changes it; give the query its own cache folder (cache=)"
    )


class _Missing(NamedTuple):
    """The sections that a cache lacks.

    Parameters
    ----------
    have
        Version of the cache.
    spent
        Bytes that were read past it.
    snapshot, changes
        What follows; a snapshot replaces what the cache has.
    """

    have: int
    spent: int = 0
    snapshot: GroupSnapshot | None = None
    changes: list[Change] = []  # noqa: RUF012 - never changed

    @property
    def sections(self) -> list[Section]:
        """The sections, oldest first."""
        return list(Chain(self.snapshot, self.changes).sections())

    @property
    def size(self) -> int:
        """Bytes of the sections."""
        return sum(section.length for section in self.sections)

    @property
    def is_all(self) -> bool:
        """Whether the sections are the whole state, so that the cache does not help."""
        return self.have < 0 or self.snapshot is not None or (bool(self.changes) and self.changes[0].section.reset)


def _missing(cached: CachedGroup, recent: Recent | None, chain: Callable[[], Chain]) -> _Missing:
    """Find what the cache lacks; one that is ahead is emptied."""
    record = cached.record
    have = record.version
    if recent is None or have > recent.version:
        if have >= 0:
            cached.replace(-1, ())
        have = -1
    if recent is None or have == recent.version:
        return _Missing(have)
    snapshot = None
    if recent.before <= have or (recent.changes and recent.changes[0].section.reset):
        changes = recent.changes
    else:
        whole = chain()
        changes = whole.changes
        if whole.snapshot is not None and have < whole.snapshot.version:
            snapshot = whole.snapshot
    since = snapshot.version if snapshot else have
    return _Missing(have, record.spent, snapshot, [change for change in changes if change.version > since])


def _fill(cached: CachedGroup, missing: _Missing, sections: SectionReader) -> None:
    """Apply what the cache lacks. Up to some MiB are read before the cache is locked, more while it is."""
    have, tag = missing.have, cached.tag
    if missing.size > WHOLE_BYTES:
        cached.reserve(missing.size * _UNPACKED)
    if missing.snapshot is not None:
        cached.replace(missing.snapshot.version, _Entries(sections, missing.snapshot.section, tag, alone=True))
        have = missing.snapshot.version
    found = [_Entries(sections, change.section, tag, alone=len(missing.changes) > 1) for change in missing.changes]
    if not found:
        return
    at_once = sum(change.section.length for change in missing.changes) <= WHOLE_BYTES
    cached.apply(
        [
            (change.version, change.section.reset, list(entries) if at_once else entries)
            for change, entries in zip(missing.changes, found, strict=True)
        ],
        expected=have,
    )


def _share(group: str) -> float:
    """Share of the bytes of a group, from a half to all, after which its cache is filled."""
    return (1 + zlib.crc32(group.encode()) / 2**32) / 2


class _Entries:
    """Entries of a section in the form that a cache takes; they can be iterated again."""

    def __init__(self, sections: SectionReader, section: Section, tag: int | None, *, alone: bool) -> None:
        self._sections = sections
        self._section = section
        self._tag = tag
        self._alone = alone

    def __iter__(self) -> Iterator[Any]:
        if self._tag is None:
            return self._sections.entries(self._section, alone=self._alone)
        return self._sections.frames(self._section, self._tag, alone=self._alone)
