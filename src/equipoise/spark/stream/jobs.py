"""Runs the tasks of a micro-batch on Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.plan import Plan
from equipoise.spark.stream.aggregator import STATE as BUFFER
from equipoise.spark.stream.batch_spec import BatchSpec, Manifest
from equipoise.spark.stream.partial_buffers import partial_reducer
from equipoise.spark.stream.placement import PartialReducer, Placement
from equipoise.spark.stream.settings import Settings
from equipoise.spark.stream.task import MANIFEST_SCHEMA, task

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

    def read(self, rows: Rows) -> None:
        """Read rows that are not processed, so that Spark sees their event times."""

    def outputs(self, rows: Rows, files: Sequence[str]) -> Rows:
        """Return the rows of output files."""


class Reduction(Protocol):
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

    def __init__(self, settings: Settings, reduction: Reduction | None = None) -> None:
        self._settings = settings
        self._reduction = reduction
        self._placement: tuple[tuple[object, ...], Placement] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_placement": None}

    def columns(self, rows: DataFrame) -> Sequence[str]:
        """Return the names of the columns that tasks receive."""
        return rows.columns if self._reduction is None else self._reduction.columns(self._settings.identity.key)

    def run(self, rows: DataFrame, plan: Plan, batch_spec: BatchSpec, *, late_ms: int) -> list[Manifest]:
        """Route, place, sort and work, in one job; one exchange for each row, and one more for rows of split keys."""
        if self._reduction is not None:
            rows, batch_spec = self._reduction.reduced(rows, self._settings.identity.key, batch_spec)
        placement = self._placed_by(rows, plan, initial=batch_spec.initial)
        work = task(batch_spec, self._settings.query.code.runner)
        with _read_once(rows) if placement.splits else nullcontext(rows) as read:
            reduce_rows = self._partial_reducer(batch_spec)
            with nullcontext() if batch_spec.initial else _as_planned(rows.sparkSession):
                sent = placement.placed(read, late_ms, reduce_rows).mapInArrow(work, MANIFEST_SCHEMA)
                answers = sent.collect()
        return [msgspec.msgpack.decode(answer.manifest, type=Manifest) for answer in answers]

    def _partial_reducer(self, batch_spec: BatchSpec) -> PartialReducer | None:
        aggregator = self._settings.aggregator
        if aggregator is None:
            return None
        return partial_reducer(batch_spec, aggregator, batch_spec.variables[BUFFER].schema)

    def _placed_by(self, rows: DataFrame, plan: Plan, *, initial: bool) -> Placement:
        """Return the placement of a plan; it is kept while the plan and the columns stay the same.

        All batches of a query belong to one session, though Spark may wrap it anew for each batch.
        """
        what = (plan.version, tuple(rows.columns), initial)
        if self._placement is None or self._placement[0] != what:
            self._placement = (what, Placement(rows, self._settings, plan, initial=initial))
        return self._placement[1]

    def read(self, rows: DataFrame) -> None:
        """Read rows that are not processed; Spark notes event times where the rows pass its watermark operator."""
        rows.agg(F.count(F.lit(1))).collect()

    def outputs(self, rows: DataFrame, files: Sequence[str]) -> DataFrame:
        """Return the output files as a DataFrame; a missing or damaged file is always an error."""
        spark, schema = rows.sparkSession, self._settings.query.output_schema
        reader = spark.read.schema(schema).options(**_WHOLE)
        return reader.parquet(*files) if files else spark.createDataFrame([], schema)


@contextmanager
def _as_planned(spark: SparkSession) -> Iterator[None]:
    """Set Spark's options for the job of a batch; they are restored before the sink is called.

    Adaptive execution takes a third of the time of a small batch and cannot change the placement. Spark must notice
    when a repeated task deals rows to other shards than before, which it does not by default in every version.
    """
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            if known is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, known)


@contextmanager
def _read_once(rows: DataFrame) -> Iterator[DataFrame]:
    """Persist the rows for a block: rows of split keys take another path, and both paths must read the same rows."""
    rows.persist()
    try:
        yield rows
    finally:
        rows.unpersist()
