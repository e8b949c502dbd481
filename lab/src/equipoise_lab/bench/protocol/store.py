"""Models of the four kinds of stores, in memory.

| model | stands for | spark's own files |
|---|---|---|
| local | a local disk: link, rename, fsync | not synced: a power cut may take them |
| hdfs | temporary name, look, rename, which may report false although it took effect | kept |
| conditional | an object store with a conditional PUT | kept |
| plain | an object store without: look, then PUT | kept |

On the local model a deletion, and a file that was not synced, may be undone by a power cut for as long as the system
has not written it back by itself.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from equipoise.storage import Abilities, Entry, Store, Upload
from equipoise.storage.file_systems import ArrowObjects, RenamingFiles
from equipoise.storage.local_disk import LocalDisk
from equipoise.storage.object_store import ConditionalObjects
from equipoise_lab.bench.protocol.actors import Actors

_T = TypeVar("_T")
_WRITTEN_BACK = 150  # steps after which the system has written to the disk by itself

ABILITIES: dict[str, Abilities] = {
    "local": LocalDisk.abilities,
    "hdfs": RenamingFiles.abilities,
    "conditional": ConditionalObjects.abilities,
    "plain": ArrowObjects.abilities,
}
"""Of each model: those of the store that it stands for."""


@dataclass
class _File:
    """A file, whether it would survive a power cut, and the step at which that was decided."""

    data: bytes
    is_synced: bool
    step: int


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
        self._files: dict[str, _File] = {}
        self._deleted: dict[str, _File] = {}  # not synced yet, so a power cut may undo it
        self._draw = random.Random(f"store {seed}")  # noqa: S311 - the same seed must give the same losses

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file."""
        return self._do(f"read {path}", lambda: self._slice(path, offset, length))

    def look(self, path: str) -> Entry | None:
        """The file or folder of that name, if there is one."""
        return self._do(f"look {path}", lambda: self._found(path))

    def entries(self, folder: str, *, recursive: bool = False) -> list[Entry]:
        """Files and folders in a folder."""
        return self._do(f"list {folder}", lambda: self._listed(folder, recursive=recursive))

    def upload(self, path: str, *, replace: bool) -> Upload:
        """Begin a file."""
        return _SimulatedUpload(self, path, replace=replace)

    def delete(self, path: str) -> None:
        """Delete a file."""
        self._do(f"delete {path}", lambda: self._gone(path))

    def delete_folder(self, folder: str) -> None:
        """Delete a folder, one file after the other."""
        for path in sorted(path for path in self._files if path.startswith(f"{folder}/")):
            self._do(f"delete {path}", partial(self._gone, path, missing_ok=True))

    def sync(self, path: str) -> None:
        """Make a file survive a power cut."""

        def sync() -> None:
            self._require(path).is_synced = True

        self._do(f"sync {path}", sync)

    def write_unsynced(self, path: str, data: bytes) -> None:
        """Write a file as Spark does: created atomically, not synced."""

        def create() -> None:
            if path in self._files:
                raise FileExistsError(path)
            self._files[path] = _File(data, not self.abilities.sync, self._actors.step)

        self._do(f"spark creates {path}", create)

    def put(self, path: str, data: bytes, *, replace: bool) -> None:
        """Make a file appear, in one step where the model has one."""
        if replace or self.abilities.create_if_absent:
            self._do(f"{'put' if replace else 'create'} {path}", lambda: self._appear(path, data, replace=replace))
            return
        if self.look(path) is not None:
            raise FileExistsError(path)
        self._do(f"put {path}", lambda: self._appear(path, data, replace=True))

    def lose_power(self) -> int:
        """Undo some of what was not synced; gives how many files changed."""
        undone = 0
        for path, file in list(self._files.items()):
            if not file.is_synced and self._is_recent(file) and self._draw.random() < 0.5:
                del self._files[path]
                undone += 1
        for path, file in self._deleted.items():
            if path not in self._files and self._is_recent(file) and self._draw.random() < 0.5:
                self._files[path] = file
                undone += 1
        self._deleted.clear()
        for file in self._files.values():
            file.is_synced = True
        return undone

    def copied(self, below: str) -> dict[str, bytes]:
        """All files below a folder, as an operator copies them."""
        return {path: file.data for path, file in self._files.items() if path.startswith(f"{below}/")}

    def restore(self, below: str, files: dict[str, bytes]) -> None:
        """Put a copy in place of all files below a folder."""
        for path in self.copied(below):
            del self._files[path]
        self._files |= {path: _File(data, is_synced=True, step=self._actors.step) for path, data in files.items()}
        self._deleted.clear()

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
        data = self._require(path).data
        return data[offset:] if length is None else data[offset : offset + length]

    def _require(self, path: str) -> _File:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]

    def _found(self, path: str) -> Entry | None:
        name = path.rpartition("/")[2]
        if path in self._files:
            return Entry(name, is_file=True, size=len(self._files[path].data))
        is_folder = any(other.startswith(f"{path}/") for other in self._files)
        return Entry(name, is_file=False, size=0) if is_folder else None

    def _listed(self, folder: str, *, recursive: bool) -> list[Entry]:
        start = f"{folder}/"
        found: dict[str, Entry] = {}
        for path, file in self._files.items():
            if path.startswith(start):
                below = path[len(start) :]
                name = below if recursive else below.partition("/")[0]
                is_file = name == below
                found[name] = Entry(name, is_file, len(file.data) if is_file else 0)
        return list(found.values())

    def _appear(self, path: str, data: bytes, *, replace: bool) -> None:
        if not replace and path in self._files:
            raise FileExistsError(path)
        self._files[path] = _File(data, is_synced=True, step=self._actors.step)
        self._deleted.pop(path, None)

    def _gone(self, path: str, *, missing_ok: bool = False) -> None:
        if path not in self._files and missing_ok:
            return
        file = self._require(path)
        del self._files[path]
        if self.abilities.sync:
            self._deleted[path] = _File(file.data, is_synced=False, step=self._actors.step)

    def _is_recent(self, file: _File) -> bool:
        return self._actors.step - file.step < _WRITTEN_BACK


class _SimulatedUpload(Upload):
    """A file on its way; a process that dies leaves nothing that anybody would look at."""

    def __init__(self, store: SimulatedStore, path: str, *, replace: bool) -> None:
        self._store, self._path, self._replace, self._data = store, path, replace, bytearray()

    def write(self, data: bytes) -> None:
        self._data += data

    def complete(self) -> None:
        self._store.put(self._path, bytes(self._data), replace=self._replace)

    def abandon(self) -> None:
        self._data.clear()
