"""Files in memory with an index of folders, and a model of what a power cut may undo."""

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class File:
    """A file, and its content on disk.

    Parameters
    ----------
    data
        Its bytes.
    is_written, is_named
        Whether its bytes, and its name, survive a power cut.
    step
        When it got its name.
    replaced
        The file whose name it took, for as long as its own is not synced.
    """

    data: bytes
    is_written: bool
    is_named: bool
    step: int
    replaced: "File | None" = None

    @property
    def survivor(self) -> "File | None":
        """Content under its name after a power cut in the worst case."""
        return self if self.is_written and self.is_named else self.replaced


class Files:
    """Files by path."""

    def __init__(self) -> None:
        self._files: dict[str, File] = {}
        self._names: dict[str, dict[str, None]] = {}  # by folder; not a set, whose order differs between processes
        self._deleted: dict[str, File] = {}  # for as long as a power cut may undo it

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def __getitem__(self, path: str) -> File:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]

    def get(self, path: str) -> File | None:
        """The file of a path, if there is one."""
        return self._files.get(path)

    def __setitem__(self, path: str, file: File) -> None:
        self._files[path] = file
        self._deleted.pop(path, None)
        below = path
        while below:
            folder, _, name = below.rpartition("/")
            names = self._names.setdefault(folder, {})
            if name in names:
                break
            names[name] = None
            below = folder

    def __delitem__(self, path: str) -> None:
        del self._files[path]
        below = path
        while below:
            folder, _, name = below.rpartition("/")
            del self._names[folder][name]
            if self._names[folder]:
                break
            del self._names[folder]
            below = folder

    def is_folder(self, path: str) -> bool:
        """Whether there are files below a path."""
        return path in self._names

    def names(self, folder: str) -> list[str]:
        """Names in a folder, of files and folders."""
        return list(self._names.get(folder, ()))

    def below(self, folder: str) -> Iterator[str]:
        """Paths of all files below a folder."""
        for name in self.names(folder):
            path = f"{folder}/{name}"
            if path in self._files:
                yield path
            else:
                yield from self.below(path)

    def delete(self, path: str, step: int) -> None:
        """Delete a file whose deletion is not synced."""
        survivor = self[path].survivor
        del self[path]
        if survivor is not None:
            self._deleted[path] = File(survivor.data, is_written=True, is_named=True, step=step)

    def sync_names(self, folder: str) -> None:
        """Let the names in a folder survive a power cut, and the deletions in it."""
        for name in self.names(folder):
            if file := self._files.get(f"{folder}/{name}"):
                file.is_named, file.replaced = True, None
        for path in [path for path in self._deleted if path.rpartition("/")[0] == folder]:
            del self._deleted[path]

    def lose_power(self, since: int, draw: random.Random) -> int:
        """Undo some unsynced operations after the step ``since``; return how many files changed."""
        undone = 0
        for path, file in list(self._files.items()):
            survivor = file.survivor
            if survivor is not file and file.step > since and draw.random() < 0.5:
                undone += 1
                if survivor is None:
                    del self[path]
                else:
                    self[path] = survivor
        for path, file in list(self._deleted.items()):
            if path not in self and file.step > since and draw.random() < 0.5:
                undone += 1
                self[path] = file
        self._deleted.clear()
        for file in self._files.values():
            file.is_written, file.is_named, file.replaced = True, True, None
        return undone

    def restore(self, folder: str, files: dict[str, bytes], step: int) -> None:
        """Replace all files below a folder by a copy."""
        for path in list(self.below(folder)):
            del self[path]
        self._deleted.clear()
        for path, data in files.items():
            self[path] = File(data, is_written=True, is_named=True, step=step)
