"""Records of the commit log: what one version of the state consists of."""

from typing import Any, Literal, TypedDict

import msgspec

from equipoise.adapt.combining import CombinedBatch
from equipoise.adapt.controller import DecisionRecord
from equipoise.adapt.looking import Experience
from equipoise.state.sections import Section
from equipoise.storage import StoredFile


class OutputFile(msgspec.Struct, frozen=True, array_like=True):
    """One file of rows for the sink: path below the checkpoint, bytes, SHA-256, rows."""

    path: str
    size: int
    sha256: str
    rows: int

    @property
    def stored(self) -> StoredFile:
        """The file without its number of rows."""
        return StoredFile(self.path, self.size, self.sha256)


class GroupSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """All entries of one key group at a version."""

    version: int
    section: Section


class Change(msgspec.Struct, frozen=True, array_like=True):
    """The entries of one key group that one version changed."""

    version: int
    section: Section


class PlanningMemory(TypedDict):
    """What the planning of a batch takes from the batches before, however long ago they ran.

    ``last_replan`` is the first batch of the plan, None if it never changed; ``rows`` and ``batch_seconds`` are those
    of the last batch with rows. ``trust`` is the part of their promises that earlier plans kept, those that follow from
    the past and those from a look; ``move_rate`` the bytes of state that a task receives in a second, None if that is
    not known.
    """

    last_replan: int | None
    rows: int
    batch_seconds: float
    trust: dict[Literal["past", "look"], float]
    move_rate: float | None
    look: Experience
    combine: list[CombinedBatch]


class Measures(TypedDict, total=False):
    """Measurements of one batch; the columns of the batch log describe them."""

    rows: int
    output_rows: int
    sent_rows: int
    combined_rows: int
    keys: int
    combine: str
    combine_scope: str
    hot_keys: list[int]
    hot_rows: list[int]
    seconds: float
    work_seconds: float
    target_seconds: float | None
    busy: float
    imbalance_rows: float
    imbalance_seconds: float
    imbalance_load: float
    imbalance_rows_unchanged: float
    imbalance_load_unchanged: float
    imbalance_rows_hash: float
    imbalance_seconds_hash: float
    bound_rows: float
    bound_seconds: float
    promised_rows: float | None
    unchanged_rows: float | None
    promised_seconds: float
    got_seconds: float
    moved_bytes: int
    moved_seconds: float
    caught_up_seconds: float
    move_rate: float | None
    look: str
    look_rows: int | None
    look_seconds: float | None
    look_cost: float | None
    look_gain: float | None
    look_stake: float
    look_chance: float
    state_bytes: int
    partition_rows: list[int]
    partition_seconds: list[float]
    partition_state: list[int]
    planning: PlanningMemory


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one micro-batch: everything it did, and everything the next batch needs.

    Parameters
    ----------
    version
        Version of the state that this record creates: the number of the batch plus 1.
    epoch
        Epoch of the query that wrote it.
    time_ms
        Processing time of the batch, milliseconds since 1970.
    watermark_ms, next_watermark_ms
        Watermark of this batch, and that of the next by the rows of this one. A batch that Spark has planned uses
        Spark's watermark instead of the latter.
    plan
        Name of the plan that placed this batch; it contains the plan's SHA-256.
    offsets
        SHA-256 of Spark's offsets of the batch; empty for the initial state.
    sections
        Changes, by key group.
    snapshots
        Snapshots of earlier versions that this batch wrote, by key group.
    dropped
        Key groups that no longer exist: their entries are in the changes of other groups.
    files
        Files that hold the changes and snapshots.
    outputs
        Files of rows for the sink.
    variables
        State variables by name: the fields of ``VariableSpec``.
    loads
        Stored form of the load record.
    decision
        The decision that led to the plan, its reason, and the numbers behind it.
    measures
        Measurements: rows, seconds, imbalance and so on.
    """

    version: int
    epoch: int
    time_ms: int
    watermark_ms: int
    next_watermark_ms: int
    plan: str
    offsets: str
    sections: dict[str, Section]
    snapshots: dict[str, GroupSnapshot]
    dropped: list[str]
    files: list[StoredFile]
    outputs: list[OutputFile]
    variables: dict[str, Any]
    loads: bytes
    decision: DecisionRecord
    measures: Measures

    @property
    def batch(self) -> int:
        """Number of the micro-batch; -1 for the initial state."""
        return self.version - 1
