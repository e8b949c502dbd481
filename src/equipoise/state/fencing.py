"""One query at a time on a checkpoint: epochs that fence off earlier queries.

A query that starts writes a claim ``epochs/<number, 10 digits>-<owner>``, with a number above all existing ones, and
lists the folder again. If another claim has the same number, it withdraws its own and starts over: the second writer
sees the first, so two queries never continue under one number, and the highest number is in force. The claim is
re-checked after each commit, and before and after each delivery. So a query that was taken over, even one that hung for
hours, finds out before it delivers anything. A query whose claim is missing stops as well: the checkpoint was replaced.
This needs a store whose listings contain every completed write (``Abilities.list_after_write``), but no lock and no
clock.

If the query in force runs on this machine and is alive, a second query is refused instead.

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
_CALLS_FOR_RESTORE = (LogBrokenError, FormatError, MismatchError)  # ask the user to restore or replace the checkpoint

Tenancy = Literal["free", "running", "ended", "gone", "elsewhere"]
"""Who holds a checkpoint: ``free``, no query so far; ``running``, a process of this machine; ``ended``, a query that
recorded its end; ``gone``, a process of this machine that died without recording it; ``elsewhere``, a process whose
liveness cannot be checked from this host."""

_TENANCIES: tuple[Tenancy, ...] = ("running", "elsewhere", "ended", "gone")


@dataclass(frozen=True)
class Epoch:
    """The right to commit to a checkpoint, until another query claims a higher epoch.

    Parameters
    ----------
    storage
        The checkpoint.
    number
        Counts the queries that were started on it, from 1.
    owner
        Unique name of this query.
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
        """Raise ``FencedError`` if another query has taken over.

        A claim of the same number is about to be withdrawn and does not count.
        """
        claims = _claims(self.storage)
        in_force = max(claims, default="")
        if in_force and _number(in_force) > self.number:
            raise FencedError(
                f"another query has taken over {self.storage.location} (epoch {in_force}, this one is {self.name}); "
                "this query stops; the other one continues from the last commit, and delivers it if that is still due"
            )
        if self.name not in claims:
            raise StorageError(
                f"{self.storage.at(FOLDER)} has lost the claim {self.name} of this query, which stops: the checkpoint "
                "was deleted or replaced while the query ran; restore it from a copy, or start with a new one"
            )

    @contextmanager
    def reported_first(self) -> Iterator[None]:
        """If the block fails and another query has taken over, raise ``FencedError`` instead of the failure.

        The other query deletes files and records that this one still needs, so it causes most failures. If this cannot
        be checked, an error that calls the checkpoint broken is not raised either: to a query that was taken over the
        checkpoint looks broken.
        """
        try:
            yield
        except Exception as error:
            try:
                self.check()
            except StorageError as unknown:
                if isinstance(error, _CALLS_FOR_RESTORE):
                    raise unknown from error
                error.add_note(f"Whether another query has taken over could not be checked: {unknown}")
            raise

    def release(self) -> None:
        """Record that this query has ended, so that the next one may start at once."""
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
    """Claim the next epoch of a checkpoint.

    Parameters
    ----------
    storage
        The checkpoint.
    is_active_here
        Whether the query of an owner, started by this process, still runs.
    exclusive
        The value in the checkpoint's ``Identity``; default: by the abilities of the store.
    above
        Highest epoch that is known from the log, in case its claim is lost.
    take_over
        Whether to fence off a query of another machine, whose liveness cannot be checked from this host.
    """
    if not storage.abilities.list_after_write:
        raise InvalidArgumentError(
            f"the store of {storage.location} does not guarantee that a listing has every file that was written before "
            "(Abilities.list_after_write); two queries could run on one checkpoint without noticing each other; keep "
            "the checkpoint on a local disk, HDFS, S3, GCS or Azure"
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
    """Who holds a checkpoint, as far as this host can check; read-only."""
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
    """Names of the claims; files with other names are ignored."""
    return [name for name in storage.names(FOLDER) if _NAME.fullmatch(name)]


def _number(name: str) -> int:
    return int(name[:10])


def _highest(claims: list[str]) -> list[str]:
    """Claims of the highest number: one, plus claims of queries that died before they could withdraw them."""
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
            return  # its liveness cannot be checked; it is fenced off
        raise CheckpointInUseError(
            f"a query of the machine {machine.split(' ')[0]} has not recorded its end, and this host cannot check "
            f"whether it still runs on {storage.location}; stop it first, or take over if it is gone"
        )
    alive = is_active_here(name[11:]) if process == os.getpid() else _runs(process, started)
    if alive:
        raise CheckpointInUseError(
            f"a query of process {process} is running on {storage.location}; stop it first, "
            "or give this query its own checkpoint"
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
    """The payload of a claim: machine, process id and start time."""
    return [_machine(), os.getpid(), _started(os.getpid())]


def _machine() -> str:
    """Name of the scope of process ids: a machine since its last boot, or one of its containers."""
    if not _PROCESSES.exists():
        return platform.node()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{platform.node()} {boot} {Path('/proc/self/ns/pid').readlink()}"


def _runs(process: int, started: int) -> bool:
    """Whether the process that made a claim still runs; without /proc, whether any process has its id."""
    if _PROCESSES.exists():
        return _started(process) == started != 0
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it exists and belongs to another user
        return True
    return True


def _started(process: int) -> int:
    """Start time of a process in clock ticks since boot; 0 if it does not run or is not visible."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    if fields.rpartition(")")[2].split()[0] == "Z":
        return 0
    return int(fields.rpartition(")")[2].split()[19])
