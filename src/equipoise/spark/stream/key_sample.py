"""See some keys of a micro-batch before it is placed."""

import time

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.adapt import Look
from equipoise.spark.rows.columns import CHANCE, FINGERPRINT, ROW_ID
from equipoise.spark.rows.keys import Key
from equipoise.spark.rows.task_rows import task_number
from equipoise.spark.rows.thinning import falling_chance
from equipoise.spark.stream.placement import late_filter
from equipoise.spark.stream.settings import Settings

_TASK = "__equipoise_task"
_SPARE = 1.1  # rows of a second pass over the wanted ones, so that chance does not leave it short of them
_TOLERATED = 0.5  # effective rows over the wanted ones at which one pass is enough: the error is 1.4 times the wanted


def sampled_keys(rows: DataFrame, settings: Settings, wanted: int, slots: int, late_ms: int) -> Look:
    """Return the keys of a random sample of a batch, from all of its input partitions.

    One job in the JVM, without an exchange: it reads the key columns, and takes rows with falling chances. If that has
    not seen all rows of a batch with no more than wanted, or tells too little because the input partitions are very
    unequal, a second such job takes as many rows as wanted at one rate, by the size that the first one has estimated.

    Parameters
    ----------
    rows
        The batch.
    settings
        The open query.
    wanted
        Rows whose counts, if taken at one rate, would be as exact as needed; all rows of a smaller batch are seen.
    slots
        Number of input partitions expected.
    late_ms
        Rows with an event time up to this do not count if late rows are dropped.
    """
    start = time.perf_counter()
    numbered = numbered_keys(rows, settings, late_ms)
    found = _seen(taken(numbered, falling_chance(F.col(ROW_ID), wanted, slots)), start)
    is_small = found.rows <= _SPARE * wanted
    if not found.is_exact and (is_small or found.effective_rows < _TOLERATED * wanted):
        rate = 1.0 if is_small else _SPARE * wanted / found.rows
        found = _seen(taken(numbered, F.lit(rate)), start)
    return found


def numbered_keys(rows: DataFrame, settings: Settings, late_ms: int) -> DataFrame:
    """Return the fingerprints of the keys of a batch, and the number of each row."""
    fingerprint = Key.of(rows, settings.identity.key).fingerprint
    on_time = late_filter(rows, settings)(rows, late_ms)
    return on_time.select(fingerprint.alias(FINGERPRINT), F.monotonically_increasing_id().alias(ROW_ID))


def taken(numbered: DataFrame, chance: Column) -> DataFrame:
    """Return the rows that are taken: fingerprint, chance and input partition of each."""
    task = task_number(F.col(ROW_ID)).cast("int").alias(_TASK)
    return numbered.withColumn(CHANCE, chance).where(F.rand() < F.col(CHANCE)).select(FINGERPRINT, CHANCE, task)


def _seen(chosen: DataFrame, start: float) -> Look:
    table = chosen.toArrow()
    fingerprints, chances, tasks = (table.column(name).to_numpy() for name in (FINGERPRINT, CHANCE, _TASK))
    return Look.of(fingerprints, chances=chances, tasks=tasks, seconds=time.perf_counter() - start)
