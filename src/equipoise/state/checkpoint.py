"""The folder of a query: what it is about, its plans, and what users wish of it while it runs.

Below the folder::

    query                 sealed "query", format 2: the fields of Identity
    wishes                sealed "overrides", format 2: the fields of Overrides
    delivered             sealed "delivered", format 3: version and offsets of the commit that was delivered after its
                          query had stopped
    plans/<version, 10 digits>-<SHA-256 of the file>.json    the plans, each as Plan.to_json writes it
    log/, epochs/         see equipoise.state.log and equipoise.state.fencing
    changes/<version>/, snapshots/<version>/              see equipoise.state.sections
    outputs/<version>/    Parquet files for the sink
    history/              see equipoise.state.batch_log
    spark/                Spark's own checkpoint, which equipoise never touches
"""

import hashlib
import re
from typing import Any

import msgspec

from equipoise.errors import (
    AlreadyExistsError,
    DamagedError,
    FormatError,
    InvalidArgumentError,
    LogBrokenError,
    MismatchError,
    StorageError,
    UnknownFormatError,
)
from equipoise.framing import seal, unseal
from equipoise.names import unique_name
from equipoise.plan import Plan
from equipoise.state.log import Commit, CommitLog
from equipoise.storage import Storage

_QUERY, _OVERRIDES, _PLANS, _DELIVERED = "query", "overrides", "plans", "delivered"
_FORMATS = {_QUERY: 2, _OVERRIDES: 2, _DELIVERED: 3}
_OR_ELSE = {
    _OVERRIDES: "; or delete it and wish again",
    _DELIVERED: "; or delete it: then the last batch may be delivered again",
}
_PLAN_NAME = re.compile(r"\d{10}-[0-9a-f]{64}")

KEPT_PLANS = 100
"""Latest plans that stay for a rollback, whether or not the log still needs them."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a query is about; fixed when it is created.

    Parameters
    ----------
    name
        Name of the query among all.
    key, key_schema
        Names of the key columns, and their types.
    tail_groups
        H, the number of tail groups.
    time_mode
        ``none``, ``processingTime`` or ``eventTime``.
    exclusive
        Whether a version of the log has one record, created only if it is absent. It follows from the abilities of
        the store, and is fixed so that all queries of a checkpoint keep to one protocol.
    """

    name: str
    key: list[str]
    key_schema: dict[str, Any]
    tail_groups: int
    time_mode: str
    exclusive: bool


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What users ask of a running query; it looks after every batch.

    Parameters
    ----------
    hold
        Name of a plan to go back to and keep, ``"hash"`` for plain hash, ``None``: plan by the load.
    partitions
        Number of partitions; ``None``: as the query was started.
    """

    hold: str | None = None
    partitions: int | None = None


class Checkpoint:
    """Reads and writes what is kept beside the log."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def identify(self, wanted: Identity) -> Identity:
        """The identity of the query that lives here, which must fit ``wanted``; the first time, ``wanted`` is kept."""
        known = self.identity()
        if known is None:
            if self.storage.names("log") and self.identity() is None:
                raise LogBrokenError(
                    f"{self.storage.at(_QUERY)} is not there, but {self.storage.at('log')} is; restore it from a copy, "
                    "or give an empty folder"
                )
            try:
                self.storage.create(_QUERY, seal(_QUERY, _FORMATS[_QUERY], msgspec.to_builtins(wanted)))
            except AlreadyExistsError:
                return self.identify(wanted)
            if wanted.exclusive:
                self._require_exclusive()
            return wanted
        self.storage.sync(_QUERY)  # the query that created it may have died before it had synced the name
        for name, hint in (
            ("key", "a query keeps its key"),
            ("key_schema", "a query keeps the types of its key"),
            ("tail_groups", "tailGroups is fixed when a query is created"),
            ("time_mode", "timeMode is fixed when a query is created"),
        ):
            if getattr(known, name) != getattr(wanted, name):
                raise MismatchError(
                    f"the query in {self.storage.location} has {name} {getattr(known, name)!r} but "
                    f"{getattr(wanted, name)!r} was given; {hint}: give what it has, or a new checkpoint"
                )
        if known.exclusive and not self.storage.abilities.create_if_absent:
            raise MismatchError(
                f"the query in {self.storage.location} was created on a store that can create a file only if it is "
                "absent, and this one cannot; reach it as it was reached then (for object stores, install obstore)"
            )
        return known

    def _require_exclusive(self) -> None:
        """Try to create the file that was just created, and refuse a store on which that succeeds."""
        try:
            self.storage.create(_QUERY, b"written to see whether this store creates a file only if it is absent")
        except AlreadyExistsError:
            return
        self.storage.delete(_QUERY)  # so that the next start is refused, too
        raise InvalidArgumentError(
            f"the store of {self.storage.location} replaced a file that was to be created only if it is absent: it "
            "ignores the condition of an upload (If-None-Match), and two queries could overwrite each other's commits; "
            "give a new folder on a store that honours it, such as S3 itself or a current MinIO, or uninstall obstore, "
            "so that the store is reached through pyarrow and the protocol does without the condition"
        )

    def identity(self) -> Identity | None:
        """The query that lives here; ``None`` in a folder without one."""
        return self._read(_QUERY, Identity) if self.storage.exists(_QUERY) else None

    def require(self) -> Identity:
        """The query that lives here; says so where there is none."""
        known = self.identity()
        if known is None:
            raise LogBrokenError(
                f"there is no query in {self.storage.location}: {self.storage.at(_QUERY)} is not there; give the "
                "checkpointLocation of one, or restore the file from a copy"
            )
        return known

    def overrides(self) -> Overrides:
        """What users ask for at present."""
        return self._read(_OVERRIDES, Overrides) if self.storage.exists(_OVERRIDES) else Overrides()

    def override(self, overrides: Overrides) -> None:
        """Ask for something; the query looks after its next batch."""
        self.storage.write(_OVERRIDES, seal(_OVERRIDES, _FORMATS[_OVERRIDES], msgspec.to_builtins(overrides)))

    def is_delivered(self, commit: Commit) -> bool:
        """Whether this very commit was delivered after its query had stopped, which Spark does not know."""
        if not self.storage.exists(_DELIVERED):
            return False
        return bool(self._read(_DELIVERED, tuple[int, str]) == (commit.version, commit.offsets))

    def mark_delivered(self, commit: Commit) -> None:
        """Remember that a commit was delivered after its query had stopped."""
        self.storage.write(_DELIVERED, seal(_DELIVERED, _FORMATS[_DELIVERED], [commit.version, commit.offsets]))

    def keep_plan(self, plan: Plan) -> str:
        """Write a plan down; gives its name, which follows from its content."""
        data = plan.to_json().encode()
        name = f"{plan.version:010d}-{hashlib.sha256(data).hexdigest()}"
        self.storage.write(f"{_PLANS}/{name}.json", data)
        return name

    def plan(self, name: str) -> Plan:
        """A plan by its name."""
        path = f"{_PLANS}/{name}.json"
        if _PLAN_NAME.fullmatch(name) is None:
            raise DamagedError(f"{name!r} does not name a plan of {self.storage.location}; restore the log from a copy")
        data = self.storage.read(path)
        found = hashlib.sha256(data).hexdigest()
        if found != name[11:]:
            raise DamagedError(
                f"{self.storage.at(path)} has the SHA-256 {found}, but its name and the commit say {name[11:]}: it is "
                "damaged or another plan; restore it from a copy"
            )
        return Plan.from_json(data, source=self.storage.at(path))

    def plan_names(self) -> dict[int, str]:
        """Name of each plan that was written, by its version.

        Two queries, or going back in time, may have made several plans of one version: the log says which one counts.
        """
        names = self._plans()
        found = {int(name[:10]): name for name in names}
        if len(found) < len(names):
            used = [name for commit in CommitLog(self.storage).kept() for name in (commit.plan, commit.next_plan)]
            found |= {int(name[:10]): name for name in used if name in names}
        return found

    def plan_of_version(self, version: int) -> Plan:
        """A plan by its version."""
        name = self.plan_names().get(version)
        if name is None:
            raise StorageError(
                f"{self.storage.at(_PLANS)} has no plan {version}; it has those of versions "
                f"{', '.join(map(str, sorted(self.plan_names()))) or 'none'}: restore it from a copy, or name another"
            )
        return self.plan(name)

    def held_plan(self, name: str) -> Plan:
        """The plan that users ask to hold, by its name."""
        if not self.storage.exists(f"{_PLANS}/{name}.json"):
            raise StorageError(
                f"{self.storage.at(_PLANS)} has no plan {name}, which is to be held; restore it from a copy, or hold "
                "another plan, or none, by rollback, plain_hash or unpin"
            )
        return self.plan(name)

    def forget_plans(self, needed: set[str]) -> None:
        """Delete all but the latest plans, those that are needed by their name, and the one that is to be held."""
        spare = self._plans()[:-KEPT_PLANS]
        hold = self.overrides().hold if spare else None
        for name in spare:
            if name not in needed and name != hold:
                self.storage.delete(f"{_PLANS}/{name}.json")

    def _plans(self) -> list[str]:
        """Names of the plans, sorted; files of other names are somebody else's and stay."""
        names = (name.removesuffix(".json") for name in self.storage.names(_PLANS))
        return sorted(name for name in names if _PLAN_NAME.fullmatch(name))

    def _read(self, path: str, shape: Any) -> Any:
        or_else = _OR_ELSE.get(path, "")
        try:
            return msgspec.convert(unseal(path, _FORMATS[path], self.storage.read(path)), shape)
        except msgspec.ValidationError as error:
            raise DamagedError(
                f"{self.storage.at(path)} is damaged: {error}; restore it from a copy{or_else}"
            ) from error
        except FormatError as error:
            if not isinstance(error, UnknownFormatError):
                raise DamagedError(f"{self.storage.at(path)}: {error}{or_else}") from error
            raise UnknownFormatError(
                f"{self.storage.at(path)}: {error}. To go on with this release, read the state with that one "
                "(read_state), begin a new checkpoint with it as initialState, and let the source begin after the last "
                f"batch{or_else}"
            ) from error


def new_name() -> str:
    """A name for a new query."""
    return unique_name()
