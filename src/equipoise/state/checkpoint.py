"""The folder of a query: its identity, its plans, and the overrides that users set while it runs.

Below the folder::

    query                 sealed "query", format 2: the fields of Identity
    overrides             sealed "overrides", format 2: the fields of Overrides
    delivered             sealed "delivered", format 3: version and offsets of the commit that was delivered after its
                          query had stopped
    plans/<version, 10 digits>-<SHA-256 of the file>.json    the plans, each as Plan.to_json writes it
    log/, epochs/         see equipoise.state.log and equipoise.state.fencing
    changes/<version>/, snapshots/<version>/              see equipoise.state.sections
    outputs/<version>/    Parquet files for the sink
    batch-log/            see equipoise.state.batch_log
    stages/<number>/      folder of each stage after the first, with the same layout; see equipoise.state.stages
    spark/                Spark's own checkpoint, which equipoise never changes
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
)
from equipoise.framing import seal, unseal
from equipoise.names import unique_name
from equipoise.plan import Plan
from equipoise.state.commit import Commit
from equipoise.state.log import FOLDER as LOG
from equipoise.state.log import unreadable
from equipoise.storage import Storage

_QUERY, _OVERRIDES, _PLANS, _DELIVERED = "query", "overrides", "plans", "delivered"
_FORMATS = {_QUERY: 2, _OVERRIDES: 3, _DELIVERED: 3}
_OR_ELSE = {
    _OVERRIDES: "; or delete it and set the overrides again",
    _DELIVERED: "; or delete it: then the last batch may be delivered again",
}
_PLAN_NAME = re.compile(r"\d{10}-[0-9a-f]{64}")

KEPT_PLANS = 100
"""Latest plans that are kept for a rollback, whether or not the log still needs them."""

_NAMES_SHOWN = 5


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a query that are fixed when it is created.

    Parameters
    ----------
    name
        Unique name of the query.
    key, key_schema
        Names of the key columns, and their types.
    tail_groups
        H, the number of tail groups.
    time_mode
        ``none``, ``processingTime`` or ``eventTime``.
    exclusive
        Whether a version of the log has one record, created only if it is absent. This follows from the abilities of
        the store, and is fixed so that all queries of a checkpoint use one protocol.
    stage
        Number of the stage of the query that the folder belongs to, from 1.
    """

    name: str
    key: list[str]
    key_schema: dict[str, Any]
    tail_groups: int
    time_mode: str
    exclusive: bool
    stage: int = 1


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that users have set for a running query, which reads them before every batch.

    Parameters
    ----------
    pinned
        Name of a plan to return to and keep, ``"hash"`` for plain hash, ``None`` to plan by the load.
    partitions
        Number of partitions; ``None`` for the number the query was started with.
    """

    pinned: str | None = None
    partitions: int | None = None


class Checkpoint:
    """Reads and writes the files of a checkpoint beside the log: identity, plans, overrides, delivery mark."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def identify(self, wanted: Identity) -> Identity:
        """The identity of the query in this folder, which must match ``wanted``; a new folder stores ``wanted``."""
        known = self.identity()
        if known is None:
            if self.storage.names(LOG) and self.identity() is None:
                raise self._without_identity()
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
            ("stage", "the folder of a stage belongs to that stage"),
        ):
            if getattr(known, name) != getattr(wanted, name):
                raise MismatchError(
                    f"the query in {self.storage.location} has {name} {getattr(known, name)!r} but "
                    f"{getattr(wanted, name)!r} was given; {hint}: give the same value, or a new checkpoint"
                )
        if known.exclusive and not self.storage.abilities.create_if_absent:
            raise MismatchError(
                f"the query in {self.storage.location} was created on a store that can create a file only if it is "
                "absent, and this one cannot; access it in the same way as then (for object stores, install obstore)"
            )
        return known

    def _require_exclusive(self) -> None:
        """Try to create the file that was just created, and refuse a store on which that succeeds."""
        try:
            self.storage.create(_QUERY, b"written to test whether this store creates a file only if it is absent")
        except AlreadyExistsError:
            return
        self.storage.delete(_QUERY)  # so that the next start is refused as well
        raise InvalidArgumentError(
            f"the store of {self.storage.location} replaced a file that was to be created only if it is absent: it "
            "ignores the condition of an upload (If-None-Match), and two queries could overwrite each other's commits; "
            "give a new folder on a store that honours it, such as S3 itself or a current MinIO, or uninstall obstore, "
            "so that the store is accessed through pyarrow and the protocol does not need the condition"
        )

    def identity(self) -> Identity | None:
        """The identity of the query in this folder; ``None`` in a folder without a query."""
        return self._read(_QUERY, Identity) if self.storage.exists(_QUERY) else None

    def require(self) -> Identity:
        """The identity of the query in this folder; raise if the folder is not a checkpoint of equipoise."""
        known = self.identity()
        if known is not None:
            return known
        names = [name for name in self.storage.names("") if not name.startswith(".")]
        if LOG in names:
            raise self._without_identity()
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
        found = f"it contains {shown}, but no file {_QUERY!r}" if names else "the folder does not exist or is empty"
        raise InvalidArgumentError(
            f"there is no query in {self.storage.location}: {found}; expected the checkpointLocation of a query that "
            "equipoise has started: check the path"
        )

    def _without_identity(self) -> LogBrokenError:
        return LogBrokenError(
            f"{self.storage.at(_QUERY)} is missing, but {self.storage.at(LOG)} exists; restore the file from a copy, "
            "or give an empty folder for a new query"
        )

    def overrides(self) -> Overrides:
        """The overrides that are set."""
        return self._read(_OVERRIDES, Overrides) if self.storage.exists(_OVERRIDES) else Overrides()

    def override(self, overrides: Overrides) -> None:
        """Set overrides; the query reads them before its next batch."""
        self.storage.write(_OVERRIDES, seal(_OVERRIDES, _FORMATS[_OVERRIDES], msgspec.to_builtins(overrides)))

    def is_delivered(self, commit: Commit) -> bool:
        """Whether this commit was delivered after its query had stopped, which Spark does not record."""
        if not self.storage.exists(_DELIVERED):
            return False
        return bool(self._read(_DELIVERED, tuple[int, str]) == (commit.version, commit.offsets))

    def mark_delivered(self, commit: Commit) -> None:
        """Record that a commit was delivered after its query had stopped."""
        self.storage.write(_DELIVERED, seal(_DELIVERED, _FORMATS[_DELIVERED], [commit.version, commit.offsets]))

    def keep_plan(self, plan: Plan) -> str:
        """Store a plan; return its name, which contains the digest of its content.

        A stored plan is never replaced: a commit may name it, and not every store replaces a file in one step.
        """
        data = plan.to_json().encode()
        name = f"{plan.version:010d}-{hashlib.sha256(data).hexdigest()}"
        path = f"{_PLANS}/{name}.json"
        try:
            self.storage.create(path, data)
        except AlreadyExistsError:
            self.plan(name)  # refuse damage before a commit names it
            self.storage.sync(path)  # the query that stored it may have died before it had synced the name
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
                f"{self.storage.at(path)} has the SHA-256 {found}, but its name and the commit have {name[11:]}: it is "
                "damaged or another plan; restore it from a copy"
            )
        return Plan.from_json(data, source=self.storage.at(path))

    def plan_names(self) -> dict[int, str]:
        """Name of each stored plan, by its version.

        A batch that ran again, two queries, or a restored copy may have made several plans of one version: the last one
        that a batch was committed with is used.
        """
        from equipoise.state import batch_log  # noqa: PLC0415 - it reads checkpoints

        names = self._plans()
        found = {int(name[:10]): name for name in names}
        if len(found) < len(names):
            used = [row["plan"] for row in batch_log.rows(self.storage)]
            found |= {int(name[:10]): name for name in used if name in names}
        return found

    def plan_of_version(self, version: int) -> Plan:
        """A plan by its version."""
        name = self.plan_names().get(version)
        if name is None:
            raise StorageError(
                f"{self.storage.at(_PLANS)} has no plan of version {version}; it has versions "
                f"{', '.join(map(str, sorted(self.plan_names()))) or 'none'}: restore it from a copy, or name another"
            )
        return self.plan(name)

    def pinned_plan(self, name: str) -> Plan:
        """The plan that an override pins, by its name."""
        if not self.storage.exists(f"{_PLANS}/{name}.json"):
            raise StorageError(
                f"{self.storage.at(_PLANS)} has no plan {name}, which an override pins; restore it from a copy, or "
                "pin another plan, or none, by rollback, plain_hash or unpin"
            )
        return self.plan(name)

    def forget_plans(self, needed: set[str]) -> None:
        """Delete all plans except the latest ones, those named in ``needed``, and the one that an override pins."""
        spare = self._plans()[:-KEPT_PLANS]
        pinned = self.overrides().pinned if spare else None
        for name in spare:
            if name not in needed and name != pinned:
                self.storage.delete(f"{_PLANS}/{name}.json")

    def _plans(self) -> list[str]:
        """Names of the plans, sorted; files with other names are ignored."""
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
            raise unreadable(self.storage.at(path), error, or_else) from error


def new_name() -> str:
    """Return a unique name for a new query."""
    return unique_name()
