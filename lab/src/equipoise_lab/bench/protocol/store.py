"""Models of the four kinds of stores, in memory.

| model | stands for | a file appears in these steps | Spark's own files |
|---|---|---|---|
| local | a local disk | temporary name; link or rename; sync of the folder | not synced: a power cut may take them |
| hdfs | HDFS through pyarrow | temporary name; (deletion of the file that is replaced); rename | kept |
| conditional | an object store with a conditional PUT | PUT | kept |
| plain | an object store without | look, if it must be new; PUT | kept |

Others see a file of the local model before its name is synced. A power cut may take such a file, and undo a deletion,
for as long as the system has not written it back by itself. A rename of the hdfs model whose answer is lost has
reported false: the writer looks whether it took effect. HDFS never renames over a file; pyarrow deletes the target
first where it may be replaced, so a process that dies in between leaves no file.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from equipoise.names import unique_name
from equipoise.storage import Abilities, FolderEntry, Store, Upload
from equipoise.storage.file_systems import ArrowObjects, RenamingFiles
from equipoise.storage.local_disk import LocalDisk
from equipoise.storage.object_store import ConditionalObjects
from equipoise.storage.store import TEMPORARY
from equipoise_lab.bench.protocol.actors import Actors
from equipoise_lab.bench.protocol.files import File, Files

_T = TypeVar("_T")
_IN_TEMPORARY = f"{TEMPORARY}/"  # part of the path of a file in a temporary folder
_WRITTEN_BACK = 300  # steps after which the system has written to the disk by itself

ABILITIES: dict[str, Abilities] = {
    "local": LocalDisk.abilities,
    "hdfs": RenamingFiles.abilities,
    "conditional": ConditionalObjects.abilities,
    "plain": ArrowObjects.abilities,
}
"""Of each model: those of the store that it stands for."""


class SimulatedStore(Store):
    """Files in memory; every operation is a step of the schedule.

    Parameters
    ----------
    model
        Kind of the store.
    actors
        Whose steps the operations are.
    seed
        Of what a power cut takes.
    """

    def __init__(self, model: str, actors: Actors, seed: int) -> None:
        self.model, self.abilities = model, ABILITIES[model]
        self._actors = actors
        self._files = Files()
        self._draw = random.Random(f"store {seed}")  # noqa: S311 - the same seed must give the same losses

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file."""
        return self._do(f"read {path}", lambda: self._slice(path, offset, length))

    def look(self, path: str) -> FolderEntry | None:
        """The file or folder of that name, if there is one."""
        return self._do(f"look {path}", lambda: self._found(path))

    def entries(self, folder: str, *, recursive: bool = False) -> list[FolderEntry]:
        """Files and folders in a folder."""
        return self._do(f"list {folder}", lambda: self._listed(folder, recursive=recursive))

    def upload(self, path: str, *, replace: bool) -> Upload:
        """Begin a file."""
        kind = _RenamedUpload if self.abilities.atomic_rename else _WholeUpload
        return kind(self, path, replace=replace)

    def delete(self, path: str) -> None:
        """Delete a file."""
        self._do(f"delete {path}", lambda: self._gone(path))

    def delete_folder(self, folder: str) -> None:
        """Delete a folder, one file after the other."""
        for path in sorted(self._files.below(folder)):
            self._do(f"delete {path}", partial(self._gone, path, missing_ok=True))

    def sync(self, path: str) -> None:
        """Make a file survive a power cut, and the names beside it, or the names in a folder."""

        def sync() -> None:
            if self._files.is_folder(path):
                self._files.sync_names(path)
            else:
                self._files[path].is_written = True
            self._files.sync_names(path.rpartition("/")[0])

        self._do(f"sync {path}", sync)

    def write_unsynced(self, path: str, data: bytes) -> None:
        """Write a file as Spark does: created atomically, not synced."""

        def create() -> None:
            if path in self._files:
                raise FileExistsError(path)
            is_kept = not self.abilities.sync
            self._files[path] = File(data, is_written=is_kept, is_named=is_kept, step=self._actors.step)

        self._do(f"spark creates {path}", create)

    def put(self, path: str, data: bytes, *, replace: bool) -> None:
        """Make a file appear under its own name."""
        if not replace and not self.abilities.create_if_absent:
            self._require_absent(path)
            replace = True
        self._do(f"{'put' if replace else 'create'} {path}", lambda: self._appear(path, data, replace=replace))

    def put_temporary(self, path: str, data: bytes) -> None:
        """Write a temporary file."""
        self._do(f"write {path}", lambda: self._appear(path, data, replace=True))

    def rename(self, temporary: str, path: str, *, replace: bool) -> None:
        """Give a temporary file its name; ``replace``: whether in place of another."""

        def rename(*, over: bool = False) -> None:
            self._appear(path, self._files[temporary].data, replace=over)
            del self._files[temporary]

        if self.abilities.atomic_replace:
            self._do(f"{'rename to' if replace else 'link'} {path}", partial(rename, over=replace))
        else:
            self._move(temporary, path, rename, replace=replace)
        if self.abilities.sync:
            self._do(f"sync the name {path}", lambda: self._files.sync_names(path.rpartition("/")[0]))

    def _move(self, temporary: str, path: str, rename: Callable[[], None], *, replace: bool) -> None:
        """Rename as ``RenamingFiles`` does through pyarrow."""
        written = self._files[temporary].data
        try:
            self._do(f"rename to {path}", rename)
        except OSError as error:
            if self._took_effect(temporary, path, written):
                return
            if path not in self._files:
                raise
            if not replace:
                raise FileExistsError(path) from error
            if temporary not in self._files:
                raise
            self._do(f"delete {path}", lambda: self._gone(path))
            self._actors.count("deleted to be replaced")
            try:
                self._do(f"rename to {path}", rename)
            except OSError:
                if not self._took_effect(temporary, path, written):
                    raise

    def _took_effect(self, temporary: str, path: str, written: bytes) -> bool:
        """Whether a rename that reported a failure took effect nevertheless."""
        found = self._files.get(path)
        if temporary in self._files or found is None or found.data != written:
            return False
        self._actors.count("rename reports false")
        return True

    def abandon(self, temporary: str) -> None:
        """Delete a temporary file, unless its writer has died."""
        actor = self._actors.current
        if temporary in self._files and not (actor and actor.is_dead):
            self._files.delete(temporary, self._actors.step)

    def lose_power(self) -> int:
        """Undo some unsynced operations; return how many files changed."""
        return self._files.lose_power(self._actors.step - _WRITTEN_BACK, self._draw)

    def copied(self, below: str) -> dict[str, bytes]:
        """All complete files below a folder, as an operator copies them."""
        paths = (path for path in self._files.below(below) if not (path.endswith(TEMPORARY) or _IN_TEMPORARY in path))
        return {path: self._files[path].data for path in paths}

    def restore(self, below: str, files: dict[str, bytes]) -> None:
        """Replace all files below a folder by a copy."""
        self._files.restore(below, files, self._actors.step)

    def _do(self, what: str, act: Callable[[], _T]) -> _T:
        """One step: the operation, and the fault that it has to play."""
        fault = self._actors.take_step(what)
        if fault == "fail":
            raise OSError(f"simulated failure: {what}")
        result = act()
        verb = what.partition(" ")[0]
        self._actors.note(what)
        if fault == "crash after":
            self._actors.die()
        if fault == "lost":
            self._actors.count(f"lost answer of {verb}")
            raise OSError(f"simulated loss of the answer: {what}")
        return result

    def _slice(self, path: str, offset: int, length: int | None) -> bytes:
        data = self._files[path].data
        return data[offset:] if length is None else data[offset : offset + length]

    def _found(self, path: str) -> FolderEntry | None:
        name = path.rpartition("/")[2]
        if path in self._files:
            return FolderEntry(name, is_file=True, size=len(self._files[path].data))
        return FolderEntry(name, is_file=False, size=0) if self._files.is_folder(path) else None

    def _listed(self, folder: str, *, recursive: bool) -> list[FolderEntry]:
        if recursive:
            return [
                FolderEntry(path[len(folder) + 1 :], True, len(self._files[path].data))
                for path in self._files.below(folder)
            ]
        return [entry for name in self._files.names(folder) if (entry := self._found(f"{folder}/{name}"))]

    def _require_absent(self, path: str) -> None:
        if self.look(path) is not None:
            raise FileExistsError(path)

    def _appear(self, path: str, data: bytes, *, replace: bool) -> None:
        before = self._files.get(path)
        if before is not None and not replace:
            raise FileExistsError(path)
        replaced = before.survivor if before else None
        is_named = not self.abilities.sync
        self._files[path] = File(data, is_written=True, is_named=is_named, step=self._actors.step, replaced=replaced)

    def _gone(self, path: str, *, missing_ok: bool = False) -> None:
        if path not in self._files and missing_ok:
            return
        self._files.delete(path, self._actors.step)


class _WholeUpload(Upload):
    """A file on its way to an object store; a process that dies leaves nothing."""

    def __init__(self, store: SimulatedStore, path: str, *, replace: bool) -> None:
        self._store, self._path, self._replace, self._data = store, path, replace, bytearray()

    def write(self, data: bytes) -> None:
        self._data += data

    def complete(self) -> None:
        self._store.put(self._path, bytes(self._data), replace=self._replace)

    def abandon(self) -> None:
        self._data.clear()


class _RenamedUpload(_WholeUpload):
    """A file that is written under a temporary name; a process that dies may leave that."""

    def __init__(self, store: SimulatedStore, path: str, *, replace: bool) -> None:
        super().__init__(store, path, replace=replace)
        folder, _, name = path.rpartition("/")
        self._temporary = f"{folder}/.{name}.{unique_name()}{TEMPORARY}"
        if not (replace or store.abilities.atomic_replace):
            self._temporary += f"/{name}"

    def complete(self) -> None:
        self._store.put_temporary(self._temporary, bytes(self._data))
        self._store.rename(self._temporary, self._path, replace=self._replace)

    def abandon(self) -> None:
        self._store.abandon(self._temporary)
