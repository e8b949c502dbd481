"""Typed rows of the batch log, and their figures for the document."""

import msgspec

from equipoise.dashboard.document import BatchFigures, Task
from equipoise.errors import DamagedError
from equipoise.state import batch_log


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the batch log; the names are those of the columns of ``equipoise.spark.batch_log``."""

    batch: int
    time: int
    plan: int
    action: str
    applied: bool
    reason: str
    rows: int
    output_rows: int
    seconds: float
    work_seconds: float
    imbalance_rows: float
    imbalance_seconds: float
    state_bytes: int
    partition_rows: list[int]
    partition_seconds: list[float]
    partition_state: list[int] | None = None
    combined_rows: int = 0
    target_seconds: float | None = None
    busy: float | None = None
    imbalance_rows_hash: float | None = None
    imbalance_seconds_hash: float | None = None
    bound_rows: float | None = None
    bound_seconds: float | None = None
    bound: float | None = None
    imbalance_before: float | None = None
    imbalance_after: float | None = None
    gain_seconds: float | None = None
    move_seconds: float | None = None
    move_bytes: float | None = None
    keys_moved: int | None = None
    groups_moved: int | None = None
    unchanged_rows: float | None = None
    promised_rows: float | None = None
    imbalance_rows_unchanged: float | None = None
    promised_seconds: float = 0.0
    got_seconds: float = 0.0
    trust: float | None = None
    look: str | None = None
    look_rows: int | None = None
    look_seconds: float | None = None
    moved_seconds: float = 0.0

    @classmethod
    def of(cls, kept: batch_log.Row, location: str) -> "Row":
        """Convert a stored row of the batch log."""
        try:
            return msgspec.convert(batch_log.flat_row(kept), cls)
        except (KeyError, msgspec.ValidationError) as error:
            raise DamagedError(
                f"the record of version {kept['version']} in {location} has an unexpected form: {error}; "
                "restore it from a copy"
            ) from error

    def figures(self, before: "Row | None") -> BatchFigures:
        """Figures of the batch, given the row before."""
        same = {name: getattr(self, name) for name in BatchFigures.__struct_fields__ if hasattr(self, name)}
        return BatchFigures(
            **same,
            time_ms=self.time,
            since_previous=None if before is None else max(0, self.time - before.time) / 1000,
            partitions=len(self.partition_rows),
        )

    def tasks(self) -> list[Task]:
        """Figures of its partitions."""
        states: list[int | None] = (
            [*self.partition_state] if self.partition_state else [None] * len(self.partition_rows)
        )
        measured = zip(self.partition_rows, self.partition_seconds, states, strict=True)
        return [
            Task(partition=number, rows=rows, seconds=seconds, state_bytes=state)
            for number, (rows, seconds, state) in enumerate(measured)
        ]
