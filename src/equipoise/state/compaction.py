"""Make a checkpoint small: the changes of every key group become a snapshot, and what is not needed goes.

1. The epoch is claimed, as a query does that starts: nobody else commits from here on. A query that is seen to run is
   not disturbed; the claim is refused.
2. The last record is written once more under that epoch, so that no late record of another query takes its place.
3. Snapshots are written to ``snapshots/compacted``, a folder that no query sweeps. Whoever is killed before the next
   step leaves files that nothing refers to; the next compaction deletes them.
4. A summary of the last version is written, which refers to the snapshots. It stands for the same state as before, and
   both what it refers to and what the records say are there: whichever of the two a query reads, it goes on from the
   same state.
5. The epoch is checked. A query that claimed one before may have read the log before the summary was there, and needs
   the old files: then nothing is deleted. A query that claims one later reads the summary.
6. What the summary does not refer to is deleted, of files that compactions have written those of lower epochs: a
   compaction that was paused here must not delete what a later one has written. Whoever is killed in between leaves
   files that the next query or the next compaction deletes.

No record of the log is changed or deleted. Versions before the last lose their files and cannot be read any more.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from equipoise.failpoints import failpoint
from equipoise.names import unique_name
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.fencing import Epoch, claim
from equipoise.state.garbage import FOLDERS, OUTPUTS, GarbageCollector
from equipoise.state.log import FOLDER as LOG
from equipoise.state.log import Chain, CommitLog, GroupTable, Snapshot
from equipoise.state.section_reader import SectionReader
from equipoise.state.sections import FILE_HEAD_BYTES, SNAPSHOT, SectionWriter
from equipoise.state.state_dump import group_entries
from equipoise.storage import Storage, StoredFile, Written

COMPACTED = "snapshots/compacted"
"""Folder of the snapshots that a compaction writes."""

PARTS = (*FOLDERS, OUTPUTS, LOG)
"""Folders whose size is told."""

_FILE_BYTES = 16 << 20  # after so many a new file begins: a file goes only when all groups in it have moved on


@dataclass(frozen=True)
class Compacted:
    """What a compaction did.

    Parameters
    ----------
    version
        The version that stays.
    groups, folded
        Number of key groups, and of those that were written anew.
    before, after
        Bytes of each folder.
    """

    version: int
    groups: int
    folded: int
    before: dict[str, int]
    after: dict[str, int]


def compact(
    storage: Storage, *, take_over: bool = False, tell: Callable[[int, int], None] = lambda _done, _all: None
) -> Compacted:
    """Fold changes into snapshots and delete all that the last version does not need.

    Parameters
    ----------
    storage
        The checkpoint of a query that does not run.
    take_over
        Whether to go on where a query of another machine has not said that it ended; should it run, it stops with
        ``FencedError`` at its next commit.
    tell
        Called with the number of key groups that are folded, and of all that have to be.
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
            chains, files = _folded(epoch, table, wanted, tell)
            compacted = GroupTable(table.version, table.chains | chains, [*table.stored(), *files])
            _put_in_place(log, compacted, epoch, is_new=bool(chains))
            return Compacted(table.version, len(table.chains), len(chains), before, _sizes(storage))
    finally:
        epoch.release()


def _worth_folding(storage: Storage, table: GroupTable) -> Iterator[str]:
    """Groups with changes, and those whose snapshot lies in a file with parts that nobody needs."""
    live: Counter[str] = Counter()
    for chain in table.chains.values():
        if chain.snapshot and not chain.changes:
            live[chain.snapshot.section.path] += chain.snapshot.section.length
    full = {path for path, size in live.items() if size + FILE_HEAD_BYTES == storage.size(path)}
    for group, chain in sorted(table.chains.items()):
        if chain.changes or (chain.snapshot and chain.snapshot.section.path not in full):
            yield group


def _folded(
    epoch: Epoch, table: GroupTable, groups: list[str], tell: Callable[[int, int], None]
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
            chains[group] = Chain(Snapshot(chain.version, section))
            tell(len(chains), len(groups))
    return chains, [each.stored_as(path) for path, each in written.items()]


def _put_in_place(log: CommitLog, table: GroupTable, epoch: Epoch, *, is_new: bool) -> None:
    """Say where the state is now, unless that is where it was, and delete the rest."""
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
    return {folder: storage.usage(folder) for folder in PARTS}
