"""One snapshot of a query: the document that the page draws and ``/data`` returns."""

from typing import Literal

import msgspec

Status = Literal["empty", "running", "finished", "stopped", "elsewhere", "damaged", "incompatible"]
"""Status of a query: no batch yet; running in a process of this machine; ended; its process is gone and did not end it
(killed, or the machine was restarted); started on another machine, so its process cannot be checked; a file is damaged
or missing; a file was written by a version of equipoise with another format."""


class BatchFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one batch; the names are those of the columns of ``equipoise.spark.batch_log``."""

    batch: int
    time_ms: int
    rows: int
    output_rows: int
    combined_rows: int
    seconds: float
    work_seconds: float
    target_seconds: float | None
    since_previous: float | None
    """Seconds since the batch before began."""
    imbalance_rows: float
    imbalance_seconds: float
    imbalance_rows_hash: float | None
    imbalance_seconds_hash: float | None
    bound_rows: float | None
    bound_seconds: float | None
    applied: bool
    """Whether the plan is new in this batch."""
    unchanged_rows: float | None
    """``imbalance_rows`` as predicted for the plan before."""
    promised_rows: float | None
    """``imbalance_rows`` as predicted for the plan of the batch."""
    imbalance_rows_unchanged: float | None
    """``imbalance_rows`` under the plan before, as measured."""
    promised_seconds: float
    """Time that a new plan saves in this batch, as predicted."""
    got_seconds: float
    """The same as measured; below 0 if it lost time."""
    trust: float | None
    """Part of its promises that the planner has kept, by which the decision was made."""
    look: str | None
    """Why the driver looked at the batch or did not."""
    look_rows: int | None
    look_seconds: float | None
    moved_seconds: float
    busy: float | None
    """Fraction of the time of all partitions that the work took."""
    state_bytes: int
    partitions: int
    plan: int


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One partition in the last batch."""

    partition: int
    rows: int
    seconds: float
    state_bytes: int | None


class HotKey(msgspec.Struct, frozen=True, kw_only=True):
    """One of the keys with most load."""

    key: str
    """Its fingerprint, 16 hexadecimal digits; with ``literal_keys`` the key itself."""
    fingerprint: str
    share: float
    partition: int
    isolated: bool
    since: int
    """First batch of the unbroken run in which it was isolated, or, if it is not, among the hottest keys."""
    earlier: bool
    """Whether the run may have begun before, in batches whose records were deleted."""
    age: int
    """Batches since."""


class IsolatedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that the plan places by itself."""

    key: str
    partition: int


class PlanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of the last batch."""

    version: int
    parent: int | None
    planner: str
    partitions: int
    tail_groups: int
    isolated_keys: int
    reason: str
    overrides: str | None
    """Overrides in force, in words; ``None`` if the load decides."""
    isolated: list[IsolatedKey]


class DecisionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, or a run of decisions to keep the plan."""

    first: int
    last: int
    action: str
    applied: bool
    reason: str
    plan: int
    bound: float | None
    imbalance_before: float | None
    imbalance_after: float | None
    seen_before: float | None
    """Imbalance of rows measured in the batch before; ``None`` where that is not known."""
    seen_after: float
    """Imbalance of rows measured in its batch, the first that its plan placed."""
    gain_seconds: float | None
    move_seconds: float | None
    move_bytes: float | None
    keys_moved: int | None
    groups_moved: int | None


class SourceBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of a source of planned micro-batches."""

    batch: int
    rows: int
    blocks: int
    buckets: int
    load: float | None
    action: str
    reason: str


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the batches read since the watcher was started; they never decrease."""

    rows: int = 0
    moved_bytes: float = 0.0
    plan_changes: int = 0
    promised_seconds: float = 0.0
    """Time that new plans were predicted to save."""
    got_seconds: float = 0.0
    """Time that they saved, as measured; below 0 if they lost time."""
    spent_seconds: float = 0.0
    """Time that looking at batches and moving state took."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A query as seen in its checkpoint."""

    location: str
    """The checkpoint."""
    query: str | None
    """Unique name of the query; ``None`` if no query was started yet."""
    key: list[str]
    """Its key columns."""
    status: Status
    """Status of the query, in one word."""
    message: str
    """The same in a sentence."""
    undelivered: int | None = None
    """Batch that is committed and not delivered; while the query runs, its delivery may be under way."""
    batches: list[BatchFigures]
    """The latest batches, oldest first."""
    tasks: list[Task]
    """Rows, seconds and state of each partition in the last batch."""
    hot_keys: list[HotKey]
    """Keys with most load, hottest first."""
    plan: PlanFacts | None
    """The plan of the last batch."""
    decisions: list[DecisionEntry]
    """The latest decisions, newest first."""
    source: list[SourceBatch]
    """The latest batches of the source, if its spool was given."""
    totals: Totals
    """Sums over all batches that were read."""

    def to_json(self) -> bytes:
        """Encode the snapshot as JSON."""
        return msgspec.json.encode(self)
