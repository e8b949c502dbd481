"""Compaction of a checkpoint: replace the changes of every key group by a snapshot, and delete unneeded files.

1. The epoch is claimed, as by a query that starts: no other query commits from here on. If a running query is found,
   the claim is refused and the query is not disturbed.
2. The last record is written again under that epoch, so that no late record of another query replaces it.
3. Snapshots are written to ``snapshots/compacted``, a folder that queries do not sweep. A compaction that is killed
   before the next step leaves files without references; the next compaction deletes them.
4. A summary of the last version is written, which refers to the snapshots. It describes the same state as before. The
   files of the summary and those of the records both exist, so a query that reads either continues from the same state.
5. The epoch is checked. A query that claimed one before may have read the log before the summary existed, and needs
   the old files: then nothing is deleted. A query that claims one later reads the summary.
6. Files without a reference in the summary are deleted. Of the files that compactions have written, only those of lower
   epochs are: a compaction that was paused here must not delete files of a later one. A compaction that is killed here
   leaves files that the next query or the next compaction deletes.

No record of the log is changed or deleted. Versions before the last lose their files and cannot be read any more.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from equipoise.failpoints import failpoint
from equipoise.names import unique_name
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.commit import GroupSnapshot
from equipoise.state.fencing import Epoch, claim
from equipoise.state.garbage import FOLDERS, OUTPUTS, GarbageCollector
from equipoise.state.group_table import Chain, GroupTable
from equipoise.state.log import FOLDER as LOG
from equipoise.state.log import CommitLog
from equipoise.state.section_reader import SectionReader
from equipoise.state.sections import FILE_HEAD_BYTES, SNAPSHOT, SectionWriter
from equipoise.state.state_dump import group_entries
from equipoise.storage import Storage, StoredFile, Written

COMPACTED = "snapshots/compacted"
"""Folder of the snapshots that a compaction writes."""

MEASURED_FOLDERS = (*FOLDERS, OUTPUTS, LOG)
"""Folders whose sizes are reported."""

_FILE_BYTES = 16 << 20  # start a new file after so many: a file is deleted only when no group in it needs it any more


@dataclass(frozen=True)
class Compacted:
    """Result of a compaction.

    Parameters
    ----------
    version
        The version that stays readable.
    groups, folded
        Number of key groups, and of those whose changes were folded into a new snapshot.
    before, after
        Bytes of each folder.
    """

    version: int
    groups: int
    folded: int
    before: dict[str, int]
    after: dict[str, int]


def compact(
    storage: Storage, *, take_over: bool = False, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Compacted:
    """Fold changes into snapshots and delete all files that the last version does not need.

    Parameters
    ----------
    storage
        The checkpoint of a query that is not running.
    take_over
        Whether to continue if a query of another machine has not recorded its end; if it still runs, it stops with
        ``FencedError`` at its next commit.
    progress
        Called with the number of folded key groups, and of all groups to fold.
    """
    identity = Checkpoint(storage).require()
    before = _sizes(storage)
    log = CommitLog(storage)
    epoch = claim(
        storage, lambda _owner: True, exclusive=identity.exclusive, above=log.last_epoch(), take_over=take_over
    )
    try:
        with epoch.reported_first():
            last = log.adopt(epoch)
            if last is None:
                return Compacted(-1, 0, 0, before, _sizes(storage))
            table = log.table(last.version)
            wanted = list(_worth_folding(storage, table))
            chains, files = _folded(epoch, table, wanted, progress)
            compacted = GroupTable(table.version, table.chains | chains, [*table.stored(), *files])
            _put_in_place(log, compacted, epoch, is_new=bool(chains))
            return Compacted(table.version, len(table.chains), len(chains), before, _sizes(storage))
    finally:
        epoch.release()


def _worth_folding(storage: Storage, table: GroupTable) -> Iterator[str]:
    """Groups with changes, and groups whose snapshot lies in a file with unused sections."""
    live: Counter[str] = Counter()
    for chain in table.chains.values():
        if chain.snapshot and not chain.changes:
            live[chain.snapshot.section.path] += chain.snapshot.section.length
    full = {path for path, size in live.items() if size + FILE_HEAD_BYTES == storage.size(path)}
    for group, chain in sorted(table.chains.items()):
        if chain.changes or (chain.snapshot and chain.snapshot.section.path not in full):
            yield group


def _folded(
    epoch: Epoch, table: GroupTable, groups: list[str], progress: Callable[[int, int], None]
) -> tuple[dict[str, Chain], list[StoredFile]]:
    """The new chain of each group, and the files that hold the snapshots."""
    storage = epoch.storage
    sections, chains = SectionReader(storage), {}
    written: dict[str, Written] = {}
    with ExitStack() as file:
        writer: SectionWriter | None = None
        for group in groups:
            if writer is None or writer.offset > _FILE_BYTES:
                file.pop_all().close()
                path = f"{COMPACTED}/{epoch.number:010d}-{unique_name()}"
                written[path] = file.enter_context(storage.writing(path))
                writer = SectionWriter(written[path], SNAPSHOT, path)
            chain = table.chains[group]
            section = writer.add(group, sorted(group_entries(chain, sections).items()))
            chains[group] = Chain(GroupSnapshot(chain.version, section))
            progress(len(chains), len(groups))
    return chains, [each.stored_as(path) for path, each in written.items()]


def _put_in_place(log: CommitLog, table: GroupTable, epoch: Epoch, *, is_new: bool) -> None:
    """Write the summary if there are new snapshots, and delete all other files."""
    storage = log.storage
    failpoint("compact.before-summary")
    epoch.check()
    if is_new:
        log.summarise(table, epoch)
        failpoint("compact.after-summary")
        epoch.check()
    GarbageCollector(epoch, retain=0).sweep(log, table)
    failpoint("compact.in-garbage")
    needed = table.files()
    for name in storage.names(COMPACTED):
        if f"{COMPACTED}/{name}" not in needed and name[:10] < f"{epoch.number:010d}":
            storage.delete(f"{COMPACTED}/{name}")
    storage.clean(COMPACTED, epoch.check)


def _sizes(storage: Storage) -> dict[str, int]:
    return {folder: storage.usage(folder) for folder in MEASURED_FOLDERS}
