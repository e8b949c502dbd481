"""One query at a time on a checkpoint: epochs that fence off whoever came before.

A query that starts writes ``epochs/<number, 10 digits>-<owner>``, with a number above all that are there, and lists
the folder again. If another claim has the same number, it withdraws its own and begins anew: the second writer sees the
first, so no two queries ever go on under one number, and the highest number is in force. Every commit is followed by
such a look, and every delivery is preceded and followed by one, so a query that was taken over, even one that hung for
hours, finds out before it delivers anything. A query whose claim is gone stops, too: the checkpoint was replaced. This
needs a store that lists what was written (``Abilities.list_after_write``), and nothing else: no lock, no clock.

Where it can be seen that the query in force is alive, because it runs on this machine, a second one is refused instead.

Stored form, inside the envelope of ``equipoise.framing``, kind ``epoch``, format 1: machine, process id, start time of
the process in clock ticks since boot.
"""

import os
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from equipoise.errors import (
    CheckpointInUseError,
    DamagedError,
    FencedError,
    FormatError,
    InvalidArgumentError,
    LogBrokenError,
    MismatchError,
    StorageError,
    UnknownFormatError,
)
from equipoise.failpoints import failpoint
from equipoise.framing import seal, unseal
from equipoise.names import unique_name
from equipoise.storage import Storage

_PROCESSES = Path("/proc/self/stat")
FOLDER = "epochs"
_KIND, _FORMAT_VERSION = "epoch", 1
_RELEASED = ".released"
_NAME = re.compile(r"\d{10}-\w+")
_ACCUSING = (
    LogBrokenError,
    FormatError,
    MismatchError,
)  # they tell the user to restore a checkpoint, or to begin a new one

Tenancy = Literal["free", "running", "ended", "gone", "elsewhere"]
"""Who holds a checkpoint: nobody ever did; a process of this machine; a query that said it has ended; a process of this
machine that is gone without saying so; a process that cannot be seen from here."""

_TENANCIES: tuple[Tenancy, ...] = ("running", "elsewhere", "ended", "gone")


@dataclass(frozen=True)
class Epoch:
    """The right to commit, until somebody claims a higher one.

    Parameters
    ----------
    storage
        The checkpoint.
    number
        Counts the queries that were started on it, from 1.
    owner
        Name of this one among all.
    exclusive
        Whether a version of the log has one record, created only if it is absent; see ``equipoise.state.log``.
    """

    storage: Storage
    number: int
    owner: str
    exclusive: bool

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.number:010d}-{self.owner}"

    def check(self) -> None:
        """Refuse to go on where another query has taken over.

        A claim of the same number is being withdrawn and takes over nothing.
        """
        claims = _claims(self.storage)
        in_force = max(claims, default="")
        if in_force and _number(in_force) > self.number:
            raise FencedError(
                f"another query has taken over {self.storage.location} (epoch {in_force}, this one is {self.name}); "
                "this query stops; the other one goes on from the last commit, and delivers it if that is still due"
            )
        if self.name not in claims:
            raise StorageError(
                f"{self.storage.at(FOLDER)} has lost the claim {self.name} of this query, which stops: the "
                "checkpoint was deleted or replaced while the query ran; restore "
                "it from a copy, or begin a new one"
            )

    @contextmanager
    def reported_first(self) -> Iterator[None]:
        """Where the block fails and another query has taken over, report that.

        The other query deletes files and records that this one still wants, so most failures follow from it. Where that
        cannot be told, the checkpoint is not called broken: a query that was taken over would find it so.
        """
        try:
            yield
        except Exception as error:
            try:
                self.check()
            except StorageError as unknown:
                if isinstance(error, _ACCUSING):
                    raise unknown from error
                error.add_note(f"Whether another query has taken over could not be checked: {unknown}")
            raise

    def release(self) -> None:
        """Say that this query has ended, so that the next one may start at once."""
        if self.storage.exists(f"{FOLDER}/{self.name}"):
            self.storage.write(f"{FOLDER}/{self.name}{_RELEASED}", b"")


def claim(
    storage: Storage,
    is_active_here: Callable[[str], bool],
    *,
    exclusive: bool | None = None,
    above: int = 0,
    take_over: bool = True,
) -> Epoch:
    """Take over a checkpoint.

    Parameters
    ----------
    storage
        The checkpoint.
    is_active_here
        Whether the query of an owner, started by this process, still runs.
    exclusive
        As the checkpoint's ``Identity`` says; default: as the abilities of the store allow.
    above
        An epoch that is known to have been in force, should its claim be lost.
    take_over
        Whether to fence off a query of another machine, whose liveness cannot be checked from here.
    """
    if not storage.abilities.list_after_write:
        raise InvalidArgumentError(
            f"the store of {storage.location} does not state that a listing has every file that was written before "
            "(Abilities.list_after_write), and without that two queries could run on one checkpoint and not see each "
            "other; keep the checkpoint on a local disk, HDFS, S3, GCS or Azure"
        )
    exclusive = storage.abilities.create_if_absent if exclusive is None else exclusive
    process = _this_process()
    while True:
        claims = _claims(storage)
        for name in _highest(claims):
            _refuse_if_alive(storage, name, is_active_here, take_over=take_over)
        epoch = Epoch(storage, max([above, *map(_number, claims)]) + 1, unique_name(), exclusive)
        storage.write(f"{FOLDER}/{epoch.name}", seal(_KIND, _FORMAT_VERSION, process))
        failpoint("driver.in-claim")
        if not any(_number(name) == epoch.number and name != epoch.name for name in _claims(storage)):
            break
        storage.delete(f"{FOLDER}/{epoch.name}")
    epoch.check()
    for name in claims:  # they are fenced off by the new claim alone
        storage.delete(f"{FOLDER}/{name}")
        storage.delete(f"{FOLDER}/{name}{_RELEASED}")
    return epoch


def tenancy(storage: Storage) -> Tenancy:
    """Who holds a checkpoint, as far as it can be seen from here; claims nothing."""
    found = {_tenant(storage, name) for name in _highest(_claims(storage))}
    return next((each for each in _TENANCIES if each in found), "free")


def _tenant(storage: Storage, name: str) -> Tenancy:
    if storage.exists(f"{FOLDER}/{name}{_RELEASED}"):
        return "ended"
    machine, process, started = _read(storage, f"{FOLDER}/{name}")
    if machine != _machine():
        return "elsewhere"
    return "running" if _runs(process, started) else "gone"


def _claims(storage: Storage) -> list[str]:
    """Names of the claims; files of other names are somebody else's and stay."""
    return [name for name in storage.names(FOLDER) if _NAME.fullmatch(name)]


def _number(name: str) -> int:
    return int(name[:10])


def _highest(claims: list[str]) -> list[str]:
    """Claims of the highest number: one, and any whose query died before it could withdraw it."""
    number = max(map(_number, claims), default=0)
    return [name for name in claims if _number(name) == number]


def _refuse_if_alive(storage: Storage, name: str, is_active_here: Callable[[str], bool], *, take_over: bool) -> None:
    if storage.exists(f"{FOLDER}/{name}{_RELEASED}"):
        return
    try:
        machine, process, started = _read(storage, f"{FOLDER}/{name}")
    except StorageError:
        if storage.exists(f"{FOLDER}/{name}"):
            raise
        return  # another query is taking over at this moment; the check after the claim decides
    if machine != _machine():
        if take_over:
            return  # cannot be seen from here; it is fenced off
        raise CheckpointInUseError(
            f"a query of the machine {machine.split(' ')[0]} has not said that it ended, and from here it cannot be "
            f"seen whether it runs on {storage.location}; stop it first, or take it over if it is gone"
        )
    alive = is_active_here(name[11:]) if process == os.getpid() else _runs(process, started)
    if alive:
        raise CheckpointInUseError(
            f"a query of process {process} is running on {storage.location}; stop it first, "
            "or give this query a checkpoint of its own"
        )


def _read(storage: Storage, path: str) -> tuple[str, int, int]:
    way_out = "if no query runs on this checkpoint, delete the file"
    try:
        claimed: tuple[str, int, int] = msgspec.convert(
            unseal(_KIND, _FORMAT_VERSION, storage.read(path)), tuple[str, int, int]
        )
    except msgspec.ValidationError as error:
        raise DamagedError(f"{storage.at(path)} is not a claim: {error}; {way_out}") from error
    except UnknownFormatError as error:
        raise UnknownFormatError(f"{storage.at(path)}: {error}; {way_out}") from error
    except FormatError as error:
        raise DamagedError(f"{storage.at(path)}: {error}; {way_out}") from error
    return claimed


def _this_process() -> list[str | int]:
    """What a claim says of its process."""
    return [_machine(), os.getpid(), _started(os.getpid())]


def _machine() -> str:
    """Where process numbers mean the same: a machine since its start, or one of its containers."""
    if not _PROCESSES.exists():
        return platform.node()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{platform.node()} {boot} {Path('/proc/self/ns/pid').readlink()}"


def _runs(process: int, started: int) -> bool:
    """Whether the process that made a claim still runs; without /proc, whether one of its number does."""
    if _PROCESSES.exists():
        return _started(process) == started != 0
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's, and there
        return True
    return True


def _started(process: int) -> int:
    """When a process started, in clock ticks since boot; 0 where it does not run or cannot be seen."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    if fields.rpartition(")")[2].split()[0] == "Z":
        return 0
    return int(fields.rpartition(")")[2].split()[19])
