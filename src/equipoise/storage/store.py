"""Interface of a store: operations that every store has, and abilities that differ between stores.

| store | module | create if absent | rename | rename may report false | replace | list after write | sync |
|---|---|---|---|---|---|---|---|
| local disk | ``local_disk`` | yes, by a hard link | atomic | no | atomic | yes | yes |
| HDFS and similar, through pyarrow | ``file_systems`` | not relied on | atomic | yes | deletes first | yes | no |
| S3, GCS, Azure, through obstore | ``object_store`` | yes, by a conditional PUT | none | | atomic | yes | no |
| any object store, through pyarrow | ``file_systems`` | no | none | | atomic | yes | no |
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

TEMPORARY = ".tmp"
"""Ending of the name of a file that is still being written; such names begin with a dot, so that Spark ignores them."""


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Guarantees of a store.

    Parameters
    ----------
    create_if_absent
        An upload that may not replace a file completes in one atomic step: of several writers of one name exactly one
        succeeds.
    atomic_rename
        A file is written under a temporary name and renamed; the rename to a name that is free is one atomic step.
        Without it a file appears under its own name when its upload is complete.
    rename_may_report_false
        A rename may report a failure although it took effect, for example because a client repeated a request whose
        answer was lost.
    list_after_write
        A listing has every file that was complete before it began.
    atomic_replace
        A file is replaced in one atomic step. Without it the old file is deleted first, and a process that dies in
        between leaves neither; so only files that may be missing are replaced.
    sync
        The store keeps a file through a power cut only after ``sync``. Other stores keep what they have acknowledged.
    """

    create_if_absent: bool
    atomic_rename: bool
    rename_may_report_false: bool
    list_after_write: bool
    sync: bool
    atomic_replace: bool = True


class FolderEntry(NamedTuple):
    """A file or folder: its name (below the listed folder where listed recursively), kind, and bytes."""

    name: str
    is_file: bool
    size: int


class Upload(ABC):
    """A file that is being written."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Append bytes."""

    @abstractmethod
    def complete(self) -> None:
        """Make the file appear under its name; raise ``FileExistsError`` if it exists and may not be replaced."""

    @abstractmethod
    def abandon(self) -> None:
        """Leave nothing behind, as far as possible; never raises."""


class Store(ABC):
    """Primitive operations on files.

    Paths are text with ``/`` between names. Operations raise ``FileNotFoundError`` for a missing file,
    ``FileExistsError`` for one that must be new, and any other ``OSError`` for a store that fails.
    """

    abilities: Abilities

    @abstractmethod
    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file; fewer than ``length`` if the file ends earlier."""

    @abstractmethod
    def look(self, path: str) -> FolderEntry | None:
        """The file or folder of that name, if there is one."""

    @abstractmethod
    def entries(self, folder: str, *, recursive: bool = False) -> list[FolderEntry]:
        """Files and folders in a folder; none where it does not exist."""

    @abstractmethod
    def upload(self, path: str, *, replace: bool) -> Upload:
        """Begin a file, which appears when the upload is complete; ``replace``: whether it may replace another."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file."""

    @abstractmethod
    def delete_folder(self, folder: str) -> None:
        """Delete a folder and everything in it, if it exists."""

    def sync(self, path: str) -> None:  # noqa: B027 - most stores keep what they have acknowledged
        """Make a file or folder of another writer survive a power cut, and all names beside it."""
