"""Where the tasks of a micro-batch run: on Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession

from equipoise.plan import Plan
from equipoise.spark.stream.aggregator import STATE as BUFFER
from equipoise.spark.stream.batch_spec import BatchSpec, Manifest
from equipoise.spark.stream.partial_buffers import part_maker
from equipoise.spark.stream.placement import MakeBuffers, Placement
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
    """Runs the tasks of a micro-batch, whatever its rows are made of."""

    def columns(self, rows: Rows) -> Sequence[str]:
        """Names of the columns."""

    def run(self, rows: Rows, plan: Plan, batch_spec: BatchSpec, *, late_ms: int) -> list[Manifest]:
        """Place the rows by the plan, run a task for every partition, and gather what they say."""

    def outputs(self, rows: Rows, files: Sequence[str]) -> Rows:
        """What the sink is given: the rows of the output files."""


class SparkJobs:
    """Runs tasks as one job of Spark."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._placement: tuple[tuple[object, ...], Placement] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_placement": None}

    def columns(self, rows: DataFrame) -> Sequence[str]:
        """Names of the columns."""
        return rows.columns

    def run(self, rows: DataFrame, plan: Plan, batch_spec: BatchSpec, *, late_ms: int) -> list[Manifest]:
        """Route, place, sort and work, in one job; one exchange for each row, and one more for those of split keys."""
        placement = self._placed_by(rows, plan, initial=batch_spec.initial)
        work = task(batch_spec, self._settings.runner)
        with _read_once(rows) if placement.splits else nullcontext(rows) as read:
            partial_buffers = self._make_parts(batch_spec)
            with nullcontext() if batch_spec.initial else _as_planned(rows.sparkSession):
                sent = placement.placed(read, late_ms, partial_buffers).mapInArrow(work, MANIFEST_SCHEMA)
                answers = sent.collect()
        return [msgspec.msgpack.decode(answer.manifest, type=Manifest) for answer in answers]

    def _make_parts(self, batch_spec: BatchSpec) -> MakeBuffers | None:
        aggregator = self._settings.aggregator
        return None if aggregator is None else part_maker(batch_spec, aggregator, batch_spec.variables[BUFFER].schema)

    def _placed_by(self, rows: DataFrame, plan: Plan, *, initial: bool) -> Placement:
        """The placement of a plan; kept as long as the plan and the columns stay the same.

        All batches of a query are of one session, though Spark may wrap it anew for each of them.
        """
        what = (plan.version, tuple(rows.columns), initial)
        if self._placement is None or self._placement[0] != what:
            self._placement = (what, Placement(rows, self._settings, plan, initial=initial))
        return self._placement[1]

    def outputs(self, rows: DataFrame, files: Sequence[str]) -> DataFrame:
        """The output files as a DataFrame, all of them whatever the session is told to pass over."""
        spark, schema = rows.sparkSession, self._settings.output_schema
        reader = spark.read.schema(schema).options(**_WHOLE)
        return reader.parquet(*files) if files else spark.createDataFrame([], schema)


@contextmanager
def _as_planned(spark: SparkSession) -> Iterator[None]:
    """Settings for a batch's job, in the session of the query's own; they are back when the sink is called.

    Adaptive execution takes a third of a small batch's time and can change nothing that the plan says. Rows that a
    repeated task deals to other pieces than before must be noticed, which is not the default everywhere.
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
    """The rows, kept while they are used: where keys are split they go two ways, and must be the same rows on both."""
    rows.persist()
    try:
        yield rows
    finally:
        rows.unpersist()
