"""Deletes files that neither a recovery nor a kept version needs."""

from collections import deque
from collections.abc import Iterable

from equipoise.failpoints import failpoint
from equipoise.state.fencing import Epoch
from equipoise.state.group_table import GroupTable
from equipoise.state.log import CommitLog

FOLDERS = ("changes", "snapshots")
KEPT = ("", "log", "epochs", "plans", "batch-log")
OUTPUTS = "outputs"


class GarbageCollector:
    """Deletes files some versions after they were last needed.

    Parameters
    ----------
    epoch
        Right of the query to the checkpoint.
    retain
        Versions before the last that stay readable.
    """

    def __init__(self, epoch: Epoch, retain: int) -> None:
        self._epoch = epoch
        self._storage = epoch.storage
        self._retain = retain
        self._idle: deque[tuple[int, set[str]]] = deque()

    def retire(self, version: int, files: set[str]) -> None:
        """Register files that versions from ``version`` on do not need."""
        if files:
            self._idle.append((version, files))

    def collect(self, table: GroupTable) -> None:
        """Delete the files that are due after the commit of the version of ``table``."""
        head = table.version
        while self._idle and self._idle[0][0] <= head - self._retain:
            files = sorted(self._idle.popleft()[1])
            for path in files:
                self._storage.delete(path)
                failpoint("driver.in-garbage")
            for folder in sorted({path.rpartition("/")[0] for path in files}):
                if not self._storage.names(folder):
                    self._storage.delete_folder(folder)
        old = head - self._retain
        if old >= 0:
            self._sweep([f"{old:020d}"], self._needed(table))
        if head >= 2:
            self._delete_outputs([f"{head - 2:020d}"])

    def sweep(self, log: CommitLog, table: GroupTable) -> None:
        """Search all folders, as a query does when it starts, and delete files that killed tasks have left too."""
        failpoint("driver.in-sweep")
        self._idle.clear()
        past, commits = log.since(table.version - self._retain, table.version)
        for commit in commits:
            self.retire(commit.version, past.advance(commit))
        needed = self._needed(table)
        if self._storage.abilities.atomic_rename:  # other stores have no temporary names
            for folder in KEPT:
                self._storage.clean(folder, self._epoch.check)
        self._sweep(sorted({name for folder in FOLDERS for name in self._versions(folder, table.version)}), needed)
        self._delete_outputs(self._versions(OUTPUTS, table.version - 1))

    def _versions(self, folder: str, last: int) -> list[str]:
        """Folders of versions up to ``last``; folders with other names are ignored."""
        return [name for name in self._storage.names(folder) if name.isdigit() and int(name) <= last]

    def _needed(self, table: GroupTable) -> set[str]:
        needed = table.files()
        for _, files in self._idle:
            needed |= files
        return needed

    def _sweep(self, versions: Iterable[str], needed: set[str]) -> None:
        for version in versions:
            for folder in FOLDERS:
                where = f"{folder}/{version}"
                names = self._storage.names(where)
                if not names and not self._storage.exists(where):
                    continue
                if all(f"{where}/{name}" not in needed for name in names):
                    self._storage.delete_folder(where)
                    failpoint("driver.in-garbage")
                    continue
                for name in names:
                    if f"{where}/{name}" not in needed:
                        self._storage.delete(f"{where}/{name}")
                        failpoint("driver.in-garbage")
                if self._storage.abilities.atomic_rename:
                    self._storage.clean(where, self._epoch.check)

    def _delete_outputs(self, versions: Iterable[str]) -> None:
        for version in versions:
            self._storage.delete_folder(f"{OUTPUTS}/{version}")
