"""The document that the page is drawn from, and ``/data`` gives: one snapshot of a query."""

from typing import Literal

import msgspec

Status = Literal["empty", "running", "finished", "stopped", "elsewhere", "damaged", "incompatible"]
"""How it stands with a query: no batch yet; a process of this machine runs it; it has ended; its process is gone
without a word; it was started on another machine, from where its end cannot be seen; a file is damaged or missing; a
file was written by a version of equipoise with another format, older or newer."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch, in figures; a name means what it means in ``equipoise.spark.history``."""

    batch: int
    time_ms: int
    rows: int
    output_rows: int
    split_rows: int
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
    busy: float | None
    """Part of the time of all partitions that the work took."""
    state_bytes: int
    partitions: int
    plan: int
    next_plan: int


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One partition in the last batch."""

    partition: int
    rows: int
    seconds: float
    state_bytes: int | None


class HotKey(msgspec.Struct, frozen=True, kw_only=True):
    """One of the keys with most load."""

    key: str
    """Its fingerprint in hexadecimal, or the key itself where the user asked for that."""
    fingerprint: str
    share: float
    partition: int
    isolated: bool
    pieces: int
    since: int
    """First batch of the unbroken run in which it was isolated; of other keys, in which it was among the hottest."""
    earlier: bool
    """Whether the run may have begun before, in batches that are not remembered."""
    age: int
    """Batches since."""


class IsolatedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key with a partition of its own choosing."""

    key: str
    partition: int
    pieces: int


class PlanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of the next batch."""

    version: int
    parent: int | None
    planner: str
    partitions: int
    tail_groups: int
    isolated_keys: int
    split_keys: int
    reason: str
    held: str | None
    """What users asked for, in words; ``None`` where the load decides."""
    isolated: list[IsolatedKey]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
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
    seen_before: float
    """Imbalance of rows that was measured in its batch."""
    seen_after: float | None
    """The same in the batch after, the first that a new plan placed."""
    gain_seconds: float | None
    move_seconds: float | None
    move_bytes: float | None
    keys_moved: int | None
    groups_moved: int | None


class SourceBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What the source of planned micro-batches did with one of them."""

    batch: int
    rows: int
    blocks: int
    buckets: int
    load: float | None
    action: str
    reason: str


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the batches that were read since the watcher began; they never fall."""

    rows: int = 0
    moved_bytes: float = 0.0
    plan_changes: int = 0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A query as its checkpoint shows it."""

    location: str
    """The checkpoint."""
    query: str | None
    """Name of the query among all; ``None`` where there is none yet."""
    key: list[str]
    """Its key columns."""
    status: Status
    """How it stands with the query, in one word."""
    message: str
    """The same in a sentence."""
    undelivered: int | None = None
    """The batch that is committed, not delivered; while the query runs it may be on its way to the sink."""
    batches: list[Batch]
    """The latest batches, oldest first."""
    tasks: list[Task]
    """Rows, seconds and state of each partition in the last batch."""
    hot_keys: list[HotKey]
    """Keys with most load, hottest first."""
    plan: PlanFacts | None
    """The plan of the next batch."""
    decisions: list[Decision]
    """The latest decisions, newest first."""
    source: list[SourceBatch]
    """The latest batches of the source, where its spool was named."""
    totals: Totals
    """Sums."""

    def to_json(self) -> bytes:
        """The document."""
        return msgspec.json.encode(self)
