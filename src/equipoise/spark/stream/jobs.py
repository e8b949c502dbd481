"""Runs the tasks of a micro-batch on Spark."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.adapt import Look
from equipoise.plan import Plan
from equipoise.spark.stream.batch_spec import BatchSpec, Manifest
from equipoise.spark.stream.key_sample import sampled_keys
from equipoise.spark.stream.map_side import combined
from equipoise.spark.stream.placement import Aggregate, OnTime, RowPlacement, late_filter
from equipoise.spark.stream.settings import Settings
from equipoise.spark.stream.task import MANIFEST_SCHEMA, task
from equipoise.state.halves import SparkHalf

Rows = TypeVar("Rows")
_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
}
_WHOLE = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}


class Jobs(Protocol[Rows]):
    """Runs the tasks of a micro-batch, on Spark or without it."""

    def columns(self, rows: Rows) -> Sequence[str]:
        """Return the names of the columns that tasks receive."""

    def run(self, rows: Rows, plan: Plan, batch_spec: BatchSpec, *, late_ms: int) -> list[Manifest]:
        """Place the rows by the plan, run a task for every partition, and return the manifests of the tasks."""

    def look(self, rows: Rows, wanted: int, *, is_dear: bool, late_ms: int) -> Look | str:
        """Look at the keys of a batch that is not placed yet.

        Parameters
        ----------
        rows
            The batch.
        wanted
            Number of rows to see; all of a smaller batch.
        is_dear
            Whether reading the rows takes so long that they are kept from the look until ``release``.
        late_ms
            Late rows do not count, as in ``run``.

        Returns
        -------
        Look | str
            The look, or why there is none.
        """

    def release(self) -> None:
        """Let go of what a look has kept of the batch; called after each batch, however it ended."""

    def read(self, rows: Rows) -> None:
        """Read rows that are not processed, so that Spark sees their event times."""

    def outputs(self, rows: Rows, files: Sequence[str]) -> Rows:
        """Return the rows of output files."""


class BlockReduction(Protocol):
    """Reduces the rows of a batch to partial buffers before they go to the tasks that own the keys."""

    def columns(self, key: Sequence[str]) -> list[str]:
        """Return the names of the columns after the reduction."""

    def reduced(self, rows: DataFrame, key: Sequence[str], batch_spec: BatchSpec) -> tuple[DataFrame, BatchSpec]:
        """Return the reduced rows, and the specification under which they are merged into the state."""


class SparkJobs:
    """Runs the tasks of a batch as one Spark job.

    Parameters
    ----------
    settings
        The open query.
    reduction
        Reduces the rows of a batch before they are placed; ``None``: rows are placed as they are.
    """

    def __init__(self, settings: Settings, reduction: BlockReduction | None = None) -> None:
        self._settings = settings
        self._reduction = reduction
        self._placement: tuple[tuple[object, ...], RowPlacement] | None = None
        self._on_time: OnTime | None = None
        self._persisted: DataFrame | None = None
        self._empty: DataFrame | None = None
        self._tasks: int | None = None  # input partitions of the batch that was looked at last

    def __getstate__(self) -> dict[str, Any]:
        own = {"_placement": None, "_on_time": None, "_persisted": None, "_empty": None}
        return self.__dict__ | own

    def columns(self, rows: DataFrame) -> Sequence[str]:
        """Return the names of the columns that tasks receive."""
        return rows.columns if self._reduction is None else self._reduction.columns(self._settings.identity.key)

    def run(self, rows: DataFrame, plan: Plan, batch_spec: BatchSpec, *, late_ms: int) -> list[Manifest]:
        """Combine, route, place, sort and work, in one job."""
        aggregate: Aggregate | None = None
        if not batch_spec.initial:
            if self._on_time is None:
                self._on_time = late_filter(rows, self._settings)
            rows, batch_spec, aggregate = self._reduced(self._on_time(rows, late_ms), batch_spec)
        placement = self._placed_by(rows, plan, initial=batch_spec.initial)
        work = task(batch_spec, self._settings.query.code.runner)
        tasks = plan.partitions if batch_spec.has_buffers and aggregate is None else None
        with nullcontext() if batch_spec.initial else _as_planned(rows.sparkSession, tasks):
            answers = placement.placed(rows, aggregate).mapInArrow(work, MANIFEST_SCHEMA).collect()
        return [msgspec.msgpack.decode(answer.manifest, type=Manifest) for answer in answers]

    def _reduced(self, rows: DataFrame, batch_spec: BatchSpec) -> tuple[DataFrame, BatchSpec, Aggregate | None]:
        """Return the rows to place, the specification under which tasks read them, and what reduces them there."""
        if self._reduction is not None:
            return *self._reduction.reduced(rows, self._settings.identity.key, batch_spec), None
        return combined(rows, self._settings.query.code, batch_spec)

    def _placed_by(self, rows: DataFrame, plan: Plan, *, initial: bool) -> RowPlacement:
        """Return the placement of a plan; it is kept while routing and columns stay the same.

        All batches of a query belong to one session, though Spark may wrap it anew for each batch.
        """
        what = (tuple(rows.columns), initial)
        kept = self._placement
        if kept is None or kept[0] != what or not kept[1].plan.same_routing(plan):
            kept = self._placement = (what, RowPlacement(rows, self._settings, plan, initial=initial))
        return kept[1]

    def look(self, rows: DataFrame, wanted: int, *, is_dear: bool, late_ms: int) -> Look | str:
        """Look at a random sample of the rows of all input partitions, without an exchange.

        Rows are persisted if reading them is dear, or if an operator of Spark with state stands before the query.
        """
        if self._reduction is not None:
            return "the source has reduced the rows"
        if is_dear or SparkHalf(self._settings.epoch.storage).has_state:
            rows.persist()
            self._persisted = rows
        slots = min(self._settings.query.slots or 1, self._tasks or sys.maxsize)
        found = sampled_keys(rows, self._settings, wanted, slots, late_ms)
        self._tasks = found.tasks
        return found

    def release(self) -> None:
        """Release the rows that a look has persisted."""
        if self._persisted is not None:
            self._persisted.unpersist()
            self._persisted = None

    def read(self, rows: DataFrame) -> None:
        """Read rows that are not processed; Spark notes event times where the rows pass its watermark operator."""
        rows.agg(F.count(F.lit(1))).collect()

    def outputs(self, rows: DataFrame, files: Sequence[str]) -> DataFrame:
        """Return the output files as a DataFrame; a missing or damaged file is always an error."""
        spark, schema = rows.sparkSession, self._settings.query.output_schema
        if files:
            return spark.read.schema(schema).options(**_WHOLE).parquet(*files)
        if self._empty is None:  # kept: making it takes longer than reading files
            self._empty = spark.createDataFrame([], schema)
        return self._empty


@contextmanager
def _as_planned(spark: SparkSession, tasks: int | None) -> Iterator[None]:
    """Set Spark's options for the job of a batch; they are restored before the sink is called.

    Adaptive execution takes a third of the time of a small batch and cannot change the placement. Spark must notice
    when a repeated task sends other rows than before, which it does not by default in every version.

    Parameters
    ----------
    spark
        The session of the batch.
    tasks
        Number of tasks that merge what map tasks have combined, if Spark does that; else ``None``.
    """
    settings = _SETTINGS if tasks is None else _SETTINGS | {"spark.sql.shuffle.partitions": str(tasks)}
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            if known is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, known)
