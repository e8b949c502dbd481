"""Where the tasks of a micro-batch run: on Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession

from equipoise.plan import Plan
from equipoise.spark.stream.aggregator import STATE as BUFFER
from equipoise.spark.stream.make_parts import part_maker
from equipoise.spark.stream.order import Manifest, Order
from equipoise.spark.stream.placement import Placement
from equipoise.spark.stream.settings import Settings
from equipoise.spark.stream.task import MANIFEST_SCHEMA, task

Rows = TypeVar("Rows")
_ADAPTIVE = "spark.sql.adaptive.enabled"


class Jobs(Protocol[Rows]):
    """Runs the tasks of a micro-batch, whatever its rows are made of."""

    def columns(self, rows: Rows) -> Sequence[str]:
        """Names of the columns."""

    def run(self, rows: Rows, plan: Plan, order: Order, *, late_ms: int) -> list[Manifest]:
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

    def run(self, rows: DataFrame, plan: Plan, order: Order, *, late_ms: int) -> list[Manifest]:
        """Route, place, sort and work, in one job; one exchange for each row, and one more for those of split keys."""
        aggregator = self._settings.aggregator
        make_parts = None if aggregator is None else part_maker(order, aggregator, BUFFER)
        sent = self._placed_by(rows, plan, initial=order.initial).placed(rows, late_ms, make_parts)
        with _as_planned(rows.sparkSession):
            answers = sent.mapInArrow(task(order, self._settings.runner), MANIFEST_SCHEMA).collect()
        return [msgspec.msgpack.decode(answer.manifest, type=Manifest) for answer in answers]

    def _placed_by(self, rows: DataFrame, plan: Plan, *, initial: bool) -> Placement:
        """The placement of a plan; kept as long as the plan, the columns and the session stay the same."""
        what = (plan.version, tuple(rows.columns), initial, id(rows.sparkSession))
        if self._placement is None or self._placement[0] != what:
            self._placement = (what, Placement(rows, self._settings, plan, initial=initial))
        return self._placement[1]

    def outputs(self, rows: DataFrame, files: Sequence[str]) -> DataFrame:
        """The output files as a DataFrame."""
        spark, schema = rows.sparkSession, self._settings.output_schema
        return spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)


@contextmanager
def _as_planned(spark: SparkSession) -> Iterator[None]:
    """Without adaptive execution: it takes a third of a small batch's time and can change nothing that the plan says.

    The session is the query's own, and its setting is back when the sink is called.
    """
    before = spark.conf.get(_ADAPTIVE, None)
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_ADAPTIVE)
        else:
            spark.conf.set(_ADAPTIVE, before)
