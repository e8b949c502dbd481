"""Read and write the key groups of one task, and move keys between groups if the plan has changed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import Self

from equipoise.failpoints import failpoint
from equipoise.names import unique_name
from equipoise.spark.stream.batch_spec import BatchSpec, Manifest
from equipoise.spark.stream.load_meter import LoadMeter
from equipoise.state.cache import GroupCache
from equipoise.state.cached_blocks import BlockReader
from equipoise.state.cached_entries import CacheReader
from equipoise.state.catch_up import Recent, reading, reading_some
from equipoise.state.commit import GroupSnapshot
from equipoise.state.entries import companions, fingerprint_prefix, parse_entry
from equipoise.state.entry_columns import EntryColumns, Pair
from equipoise.state.group_table import Chain, GroupTable
from equipoise.state.log import CommitLog
from equipoise.state.ownership import fingerprint_of
from equipoise.state.section_reader import SectionReader
from equipoise.state.sections import CHANGES, SNAPSHOT, SectionWriter
from equipoise.state.sparse_reader import SparseReader
from equipoise.state.timers import purge_expired
from equipoise.state.transaction import EmptyReader, GroupTransaction
from equipoise.storage import Storage, Written

_PURGED_AT_A_TIME = 100_000  # expired entries that a group deletes in one batch; user code does not see the others
_ENTRIES = b"\x00"


@dataclass
class OpenGroup:
    """A key group while a task works on it."""

    number: int
    name: str
    view: GroupTransaction
    reader: CacheReader | SparseReader | EmptyReader
    starts_anew: bool
    open: ExitStack


class OwnedGroups:
    """Opens, hands over and writes the key groups of one partition, each once and in the order of their numbers.

    Parameters
    ----------
    batch_spec
        What the tasks of the batch need to know.
    partition
        Number of the partition.
    storage
        The checkpoint.
    cache
        Caches of key groups on this machine.
    meter
        Measures of the task.
    expire
        Runs the user's code for the due timers of a group.
    """

    def __init__(
        self,
        batch_spec: BatchSpec,
        partition: int,
        storage: Storage,
        cache: GroupCache,
        meter: LoadMeter,
        expire: Callable[[GroupTransaction], None],
    ) -> None:
        self._batch_spec = batch_spec
        self._storage = storage
        self._meter = meter
        self._expire = expire
        self._cache = cache
        self._sections = SectionReader(storage)
        self._table: GroupTable | None = None
        owned = [number for number, owner in enumerate(batch_spec.owners) if owner == partition]
        self._owned = frozenset(owned)
        self._waiting = owned[::-1]
        self._open: dict[int, OpenGroup] = {}
        self._moved_bytes, self._moved_seconds = 0, 0.0
        self._files = ExitStack()
        self._written: dict[str, Written] = {}
        self._changes: SectionWriter | None = None
        self._snapshots: SectionWriter | None = None

    def __enter__(self) -> Self:
        for name in set(self._batch_spec.dropped).difference(self._batch_spec.groups):
            self._cache.forget(name)
        return self

    def __exit__(self, *failure: object) -> None:
        for group in self._open.values():
            group.open.close()
        self._files.__exit__(*failure)  # type: ignore[arg-type]  # the usual three

    def view(self, number: int) -> GroupTransaction:
        """Return the state of a group as of the last commit, with the changes of this task."""
        if number not in self._open:
            if number not in self._owned:
                raise AssertionError(
                    f"key group {self._batch_spec.groups[number]} was sent to a task that does not own it"
                )
            self._open[number] = self._received(number)
        return self._open[number].view

    def finish_before(self, number: int, manifest: Manifest) -> None:
        """Write all groups below ``number``, whose rows have been processed."""
        while self._waiting and self._waiting[-1] < number:
            self._finish(self._waiting.pop(), manifest)

    def finish(self, manifest: Manifest) -> None:
        """Write all groups that are left, and complete the files."""
        self.finish_before(len(self._batch_spec.groups), manifest)
        failpoint("task.before-files")
        self._files.close()
        manifest.files = [each.stored_as(path) for path, each in self._written.items()]
        manifest.moved_bytes, manifest.moved_seconds = self._moved_bytes, self._moved_seconds
        failpoint("task.after-files")

    def _finish(self, number: int, manifest: Manifest) -> None:
        name = self._batch_spec.groups[number]
        if number not in self._open:
            if not self._must_run(name):
                return
            self._open[number] = self._received(number)
        group = self._open.pop(number)
        with group.open:
            if self._batch_spec.has_clock and not self._batch_spec.initial:  # due timers fire with the first batch
                start = perf_counter()
                self._expire(group.view)
                purge_expired(group.view, self._batch_spec.time_ms, _PURGED_AT_A_TIME)
                self._meter.add_seconds(number, perf_counter() - start)
            if self._batch_spec.removed_tags:
                self._delete_removed(group.view)
            self._write(group, manifest)
        size = None if self._changes_hands(name) else group.reader.size_bytes  # as of the previous version
        manifest.loads[name] = self._meter.load(number, size)

    def _must_run(self, name: str) -> bool:
        batch_spec = self._batch_spec
        if self._changes_hands(name):
            return True
        return name in batch_spec.recent and (
            batch_spec.has_clock or bool(batch_spec.removed_tags) or name in batch_spec.snapshots
        )

    def _changes_hands(self, name: str) -> bool:
        """Whether entries come to the group or leave it in this batch."""
        handover = self._batch_spec.handover
        return name in handover.isolated or name in handover.leaving or name in handover.folded

    def _write(self, group: OpenGroup, manifest: Manifest) -> None:
        changes = group.view.changes()
        if changes or group.starts_anew:
            if self._changes is None:
                self._changes = self._writer("changes", CHANGES)
            manifest.sections[group.name] = self._changes.add(group.name, changes, reset=group.starts_anew)
        if group.name in self._batch_spec.snapshots and not isinstance(group.reader, EmptyReader):
            if self._snapshots is None:
                self._snapshots = self._writer("snapshots", SNAPSHOT)
            section = self._snapshots.add(group.name, _content(_whole(group.reader)))
            failpoint("task.in-snapshot")
            manifest.snapshots[group.name] = GroupSnapshot(group.reader.version, section)

    def _writer(self, folder: str, kind: int) -> SectionWriter:
        path = f"{folder}/{self._batch_spec.version:020d}/{unique_name()}"
        self._written[path] = self._files.enter_context(self._storage.writing(path))
        return SectionWriter(self._written[path], kind, path)

    def _received(self, number: int) -> OpenGroup:
        """Open a group, and measure what it takes to receive state."""
        if number not in self._batch_spec.arrivals:
            return self._opened(number)
        start = perf_counter()
        group = self._opened(number)
        self._moved_seconds += perf_counter() - start
        self._moved_bytes += group.reader.size_bytes or 0  # known, as arriving state is read whole
        return group

    def _opened(self, number: int) -> OpenGroup:
        batch_spec, name = self._batch_spec, self._batch_spec.groups[number]
        source = batch_spec.handover.isolated.get(name)
        if source is not None:
            view, fingerprint = GroupTransaction(EmptyReader()), fingerprint_of(name)
            assert fingerprint is not None  # noqa: S101 - this tells the type checker
            with ExitStack() as reading_source:
                self._moved_bytes += _copy(self._some(source, reading_source), fingerprint_prefix(fingerprint), view)
            failpoint("task.in-migration")
            return OpenGroup(number, name, view, EmptyReader(), True, ExitStack())
        with ExitStack() as stack:
            reader = (self._reader if number in batch_spec.arrivals else self._some)(name, stack)
            view = GroupTransaction(reader)
            for fingerprint in batch_spec.handover.leaving.get(name, ()):
                for key, value in list(view.scan(fingerprint_prefix(fingerprint))):
                    for each in (key, *companions(key, value)):
                        view.delete(each)
            for folded in batch_spec.handover.folded.get(name, ()):
                with ExitStack() as reading_folded:
                    self._moved_bytes += _copy(self._reader(folded, reading_folded), _ENTRIES, view)
                failpoint("task.in-migration")
            return OpenGroup(number, name, view, reader, False, stack.pop_all())

    def _reader(self, name: str, stack: ExitStack) -> CacheReader:
        return reading(self._cache.group(name), self._recent(name), self._sections, lambda: self._chain(name), stack)

    def _some(self, name: str, stack: ExitStack) -> CacheReader | SparseReader:
        """Open a group of which some keys are read."""
        cached = self._cache.group(name)
        return reading_some(cached, self._recent(name), self._sections, lambda: self._chain(name), stack)

    def _recent(self, name: str) -> Recent | None:
        data = self._batch_spec.recent.get(name)
        return None if data is None else Recent.from_bytes(data)

    def _chain(self, name: str) -> Chain:
        if self._table is None:
            self._table = CommitLog(self._storage).table(self._batch_spec.version - 1)
        return self._table.chains[name]

    def _delete_removed(self, view: GroupTransaction) -> None:
        for key, value in view.scan(_ENTRIES):
            if parse_entry(key).tag in self._batch_spec.removed_tags:
                for each in (key, *companions(key, value)):
                    view.delete(each)


def _whole(reader: CacheReader | SparseReader) -> CacheReader:
    return reader.whole() if isinstance(reader, SparseReader) else reader


def _content(reader: CacheReader) -> Iterator[Pair | EntryColumns]:
    """Yield all entries, in columns where the reader has them."""
    if not isinstance(reader, BlockReader):
        yield from reader.entries()
        return
    for frame in reader.frames():
        yield from frame.others
        yield frame.columns


def _copy(reader: CacheReader | SparseReader, prefix: bytes, view: GroupTransaction) -> int:
    """Copy entries, and return their bytes."""
    size = 0
    for key, value in reader.scan(prefix):
        size += len(key) + len(value)
        view.put(key, value)
        for index in companions(key, value):
            view.put(index, b"")
    return size
