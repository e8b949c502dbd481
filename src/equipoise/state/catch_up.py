"""Bring the local cache of a key group up to the version that a batch starts from."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec

from equipoise.errors import DamagedError
from equipoise.state.cache import CachedGroup
from equipoise.state.cached_entries import CacheReader
from equipoise.state.commit import Change
from equipoise.state.group_table import Chain
from equipoise.state.section_reader import SectionReader
from equipoise.state.sections import Section

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


_TRIES = 10


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
    wanted = -1 if recent is None else recent.version
    for _ in range(_TRIES):
        _catch_up(cached, recent, sections, chain)
        with ExitStack() as attempt:
            try:
                reader = attempt.enter_context(cached.read())
            except DamagedError:
                continue  # the cache was deleted, and is rebuilt from the checkpoint
            if reader.version == wanted:
                stack.push(attempt.pop_all())
                return reader
    raise DamagedError(
        f"the cache of key group {cached.group_id} does not reach version {wanted} in {_TRIES} attempts: another "
        "process changes it; give the query its own cache folder (cache=)"
    )


def _catch_up(cached: CachedGroup, recent: Recent | None, sections: SectionReader, chain: Callable[[], Chain]) -> None:
    have = cached.version
    if recent is None or have > recent.version:
        if have >= 0:
            cached.replace(-1, ())
        have = -1
    if recent is None or have == recent.version:
        return
    if recent.before <= have or (recent.changes and recent.changes[0].section.reset):
        changes = recent.changes
    else:
        whole = chain()
        if whole.snapshot is not None and have < whole.snapshot.version:
            cached.replace(whole.snapshot.version, _Entries(sections, whole.snapshot.section, cached.tag, alone=True))
            have = whole.snapshot.version
        changes = whole.changes
    missing = [change for change in changes if change.version > have]
    alone = len(missing) > 1
    fetched = [list(_Entries(sections, change.section, cached.tag, alone=alone)) for change in missing]
    cached.apply(
        [(change.version, change.section.reset, read) for change, read in zip(missing, fetched, strict=True)],
        expected=have,
    )


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
