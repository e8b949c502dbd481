"""The specification of a micro-batch that the driver sends to its tasks, and the manifest that each task returns."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from equipoise.adapt import Combine
from equipoise.spark.rows.worker_options import WorkerOptions
from equipoise.state.commit import GroupSnapshot, OutputFile
from equipoise.state.handle import VariableSpec
from equipoise.state.ownership import Handover
from equipoise.state.sections import Section
from equipoise.storage import StoredFile


@dataclass(frozen=True, eq=False)
class BatchSpec:
    """Everything that the tasks of one micro-batch need to know; it is pickled with their function.

    Parameters
    ----------
    location, query, run, epoch
        The checkpoint, the names of the query and of this run of it, and the epoch of the run.
    version
        Version that the batch commits; tasks read the state of the previous one.
    time_ms
        Processing time of the batch.
    watermark_ms
        Watermark: event-time timers up to it fire.
    time_mode
        ``none``, ``processingTime`` or ``eventTime``.
    groups
        Names of the key groups, by number.
    owners
        Partition of each key group, by number.
    recent
        For each key group that has state: its ``Recent`` as bytes. Every task receives those of all groups and decodes
        those that it opens; as objects they would take tens of milliseconds of every task.
    handover
        Keys that change their key group in this batch.
    arrivals
        Numbers of the key groups whose owner receives state for them in this batch.
    snapshots
        Key groups to write a snapshot of.
    dropped
        Key groups that the previous version removed; their caches are deleted.
    variables
        State variables by name.
    removed_tags
        Numbers of state variables whose entries are to be deleted.
    key_fields, key_schema
        Positions of the key columns, and their types.
    event_time
        Position of the event-time column; ``None`` without one.
    output_schema, timezone, worker
        Schema of the outputs, the session's time zone, and its other settings for user functions.
    not_late
        Column of the outputs that has their event time, and the milliseconds since 1970 that it must exceed; ``None``
        without one.
    cache
        Folder for caches on the executors; ``None``: the machine's temporary folder.
    cache_bytes
        Bytes that the caches of a machine may take at the end of a task; ``None``: no bound.
    state_schema
        Arrow schema of the state of a vectorised processor.
    initial
        Whether the rows are initial state.
    visits_all
        Whether all keys are visited, not only those with rows.
    combine
        Keys whose rows the map tasks reduce.
    has_buffers
        Whether Spark has reduced the rows to buffers, which are columns; see ``column_buffers``.
    """

    location: str
    query: str
    run: str
    version: int
    time_ms: int
    watermark_ms: int
    time_mode: str
    groups: list[str]
    owners: list[int]
    recent: dict[str, bytes]
    handover: Handover
    snapshots: frozenset[str]
    dropped: list[str]
    variables: dict[str, VariableSpec]
    removed_tags: frozenset[int]
    key_fields: list[int]
    key_schema: dict[str, Any]
    event_time: int | None
    output_schema: pa.Schema
    timezone: str
    cache: str | None
    cache_bytes: int | None = None
    state_schema: pa.Schema | None = None
    initial: bool = False
    visits_all: bool = False
    combine: Combine = field(default_factory=Combine)
    has_buffers: bool = False
    epoch: int = 0
    arrivals: frozenset[int] = frozenset()
    not_late: tuple[str, int] | None = None
    worker: WorkerOptions = field(default_factory=WorkerOptions)

    @property
    def batch(self) -> int:
        """Number of the micro-batch."""
        return self.version - 1

    @property
    def has_clock(self) -> bool:
        """Whether state changes without rows: by timers, because it expires, or because every key is visited."""
        return self.visits_all or self.time_mode != "none" or any(spec.ttl_ms for spec in self.variables.values())


class GroupLoad(msgspec.Struct, array_like=True):
    """Load of a key group in one batch: rows, seconds, the bytes of its state if they are known, and rows received.

    A partial buffer is one row that the task receives and counts as many as were reduced to it.
    """

    rows: int = 0
    seconds: float = 0.0
    state: int | None = None
    received: int = 0


class Manifest(msgspec.Struct, kw_only=True):
    """Result of one task; it takes effect when the driver commits it.

    Parameters
    ----------
    partition
        Number of the partition.
    sections, snapshots
        Changes and snapshots that it wrote, by key group.
    files, outputs
        Files that hold them, and files of rows for the sink.
    loads
        Measures of its key groups, by name.
    hot_keys, hot_rows, hot_seconds, hot_received
        Its hottest keys that are not isolated: fingerprints, rows, seconds, rows received.
    rows, seconds
        Number of its rows, and the seconds that it took.
    combined_rows, buffers
        Rows among these that map tasks have reduced, and the partial buffers that they have become.
    keys
        Number of keys with rows.
    moved_bytes, moved_seconds
        State that it received because the plan has changed, and the time that receiving took.
    latest_event_ms
        Latest event time among its rows; ``None`` without rows or without event time.
    """

    partition: int
    sections: dict[str, Section] = {}
    snapshots: dict[str, GroupSnapshot] = {}
    files: list[StoredFile] = []
    outputs: list[OutputFile] = []
    loads: dict[str, GroupLoad] = {}
    hot_keys: list[int] = []
    hot_rows: list[int] = []
    hot_seconds: list[float] = []
    hot_received: list[int] = []
    rows: int = 0
    seconds: float = 0.0
    combined_rows: int = 0
    buffers: int = 0
    keys: int = 0
    moved_bytes: int = 0
    moved_seconds: float = 0.0
    latest_event_ms: int | None = None

    @property
    def received(self) -> int:
        """Number of rows that crossed the exchange, a partial buffer being one."""
        return self.rows - self.combined_rows + self.buffers
