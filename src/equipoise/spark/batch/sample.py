"""Sample the load of a key, in proportion to the weight of the rows, so that heavy rows are never missed.

A row of weight w is taken with probability ``min(1, T w / W)``, where W is the weight of all rows and T the wanted size
of the sample, and then counts with weight ``max(w, W / T)`` (Poisson sampling in proportion to size). The sample has
about T rows whatever the data, its loads are unbiased, and rows heavier than W / T are all in it.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import NumericType

from equipoise.errors import EquipoiseError, InvalidArgumentError
from equipoise.plan import Plan
from equipoise.sketch import Histogram
from equipoise.spark.batch.key_loads import KeyLoads
from equipoise.spark.batch.options import BatchOptions
from equipoise.spark.rows.analysis import analysed
from equipoise.spark.rows.keys import Key, as_column

_T = TypeVar("_T")
_SOURCE = "source"
_STANDARD_ERRORS = 3  # the error of a share exceeds its stated bound in about 3 of 1000 cases


@dataclass(frozen=True, eq=False)
class Sample:
    """Sampled rows: fingerprint, load and Spark's hash of each.

    Parameters
    ----------
    fingerprints, loads, hashes, nulls
        One entry for each sampled row. ``hashes`` is the hash that Spark's own partitioning uses, ``nulls`` whether a
        column of the key is NULL.
    rows
        Number of rows of the data.
    load
        Weight of all rows of the data.
    """

    fingerprints: NDArray[np.int64]
    loads: NDArray[np.float64]
    hashes: NDArray[np.int32]
    nulls: NDArray[np.bool_]
    rows: int
    load: float

    @property
    def is_complete(self) -> bool:
        """Whether every row was taken, so that the loads are exact."""
        return len(self.fingerprints) == self.rows

    def without_nulls(self) -> tuple["Sample", int]:
        """Return the rows whose key has no NULL in it, and an estimate of how many others there are."""
        known = ~self.nulls
        load = float(self.loads[self.nulls].sum())
        rows = round(self.rows * load / self.load) if self.load else 0
        kept = Sample(
            self.fingerprints[known],
            self.loads[known],
            self.hashes[known],
            self.nulls[known],
            self.rows - rows,
            self.load - load,
        )
        return kept, rows

    def histogram(self) -> Histogram:
        """Return all sampled keys with their shares and the sampling error."""
        keys, inverse = np.unique(self.fingerprints, return_inverse=True)
        total = self.loads.sum()
        if not total > 0:
            return Histogram([], [], total=0.0)
        shares = np.bincount(inverse, self.loads, len(keys)) / total
        if self.is_complete:
            return Histogram(keys, shares, unlisted=0.0, total=self.load)
        error = _STANDARD_ERRORS * float(np.sqrt(shares.max() / len(self.fingerprints)))
        # a key that is not in the sample has less load than a few sampled rows
        unlisted = _STANDARD_ERRORS**2 / len(self.fingerprints)
        return Histogram(keys, shares, error=min(1.0, error), unlisted=min(1.0, unlisted), total=self.load)

    def key_loads(self) -> KeyLoads:
        """Return the loads in the form that planners and records use."""
        return KeyLoads.of(self.histogram(), self.fingerprints, self.loads, self.rows, self.load)

    def plain_loads(self, partitions: int) -> NDArray[np.float64]:
        """Return the share of the load in each partition under Spark's own hash partitioning."""
        return self._shares(np.mod(self.hashes.astype(np.int64), partitions), partitions)

    def planned_loads(self, plan: Plan) -> NDArray[np.float64]:
        """Return the share of the load in each partition under a plan."""
        return self._shares(plan.assign(self.fingerprints), plan.partitions)

    def _shares(self, partition: NDArray[Any], partitions: int) -> NDArray[np.float64]:
        loads = np.bincount(partition, self.loads, partitions)
        return np.asarray(loads / max(loads.sum(), np.finfo(float).tiny), dtype=np.float64)


@dataclass(frozen=True)
class Weight:
    """The load of a row: 1, or a column.

    Parameters
    ----------
    column
        The load as a DOUBLE of at least 0.
    text
        Name of the column; empty if every row counts 1.
    """

    column: Column
    text: str = ""


def resolve_weight(df: DataFrame, weight: str | Column | None) -> Weight:
    """Check a weight column; NULL, NaN, infinite and negative weights count as 0, so they never fail a job."""
    if weight is None:
        return Weight(F.lit(1.0))
    column = as_column(df, weight)
    field = analysed(df, [column], "weight").fields[0]
    if not isinstance(field.dataType, NumericType):
        raise InvalidArgumentError(
            f"weight column {field.name!r} holds {field.dataType.simpleString()}, not a number; "
            "use for example F.length(column) or F.octet_length(column)"
        )
    number = column.cast("double")
    usable = (number > 0) & (number < F.lit(float("inf")))  # to Spark, NaN is above infinity
    return Weight(F.when(usable, number).otherwise(F.lit(0.0)), field.name)


class Rows(NamedTuple):
    """A DataFrame to sample, its key, and the weight of a row."""

    df: DataFrame
    key: Key
    weight: Weight


def take_sample(data: Rows, options: BatchOptions) -> Sample:
    """Sample one DataFrame, as ``take_samples`` does."""
    return take_samples([data], options)[0]


def take_samples(
    data: Sequence[Rows], options: BatchOptions, totals: Sequence[tuple[int, float]] | None = None
) -> list[Sample]:
    """Count the data, then sample it: two passes that read the key and weight columns only.

    However many DataFrames there are, each pass is one job.

    Parameters
    ----------
    data
        DataFrames of one session.
    options
        Size of each sample, and the seed.
    totals
        Result of ``count``, if they are counted already.
    """
    if totals is None:
        totals = count(data)
    chosen = [
        _chosen(each, *total, options).withColumn(_SOURCE, F.lit(number))
        for number, (each, total) in enumerate(zip(data, totals, strict=True))
    ]
    table = reduce(DataFrame.unionAll, chosen).toArrow()
    return [_sample(table.filter(pc.field(_SOURCE) == number), *total) for number, total in enumerate(totals)]


def _sample(table: pa.Table, rows: int, load: float) -> Sample:
    fingerprints, loads, hashes, nulls = (table[name].to_numpy() for name in ("fingerprint", "load", "hash", "null"))
    return Sample(fingerprints, loads, hashes, nulls, rows, load)


def _chosen(data: Rows, number: int, load: float, options: BatchOptions) -> DataFrame:
    """Return the sampled rows of one DataFrame: none if there are many and all have weight 0."""
    df, key, weight = data
    is_large = number > options.sample
    threshold = load / options.sample if is_large else 0.0
    if is_large:
        df = df.where(F.rand(options.seed) * F.lit(threshold) < weight.column)
    return df.select(
        key.fingerprint.alias("fingerprint"),
        F.greatest(weight.column, F.lit(threshold)).alias("load"),
        key.spark_hash.alias("hash"),
        key.has_null.alias("null"),
    )


def count(data: Sequence[Rows]) -> list[tuple[int, float]]:
    """Return the number of rows and their load, in one job.

    Without a weight this is a plain count, which many sources answer from their metadata.
    """
    counted = [
        df.agg(
            F.lit(number).alias(_SOURCE),
            F.count(F.lit(1)).alias("rows"),
            (F.sum(weight.column) if weight.text else F.count(F.lit(1)).cast("double")).alias("load"),
        )
        for number, (df, _, weight) in enumerate(data)
    ]
    found = sorted(reduce(DataFrame.unionAll, counted).collect())
    return [(int(row["rows"]), float(row["load"] or 0.0)) for row in found]


def measured_or(measure: Callable[[], _T], otherwise: Callable[[str], _T], what: str) -> _T:
    """Return ``measure()``; if it fails, warn and return ``otherwise(reason)``, so that measuring never fails a job.

    Our own errors, which are about wrong arguments, are raised.

    Parameters
    ----------
    measure
        Measures and decides.
    otherwise
        Decides without a measurement, from the reason of the failure.
    what
        What could not be measured and what happens instead, for the warning.
    """
    try:
        return measure()
    except EquipoiseError:
        raise
    except Exception as error:  # noqa: BLE001 - a failed measurement must not fail the user's job
        warn_caller(f"{what}: {error}")
        return otherwise(str(error))


def warn_caller(message: str) -> None:
    """Warn at the line outside of equipoise that led here: measuring starts at whichever method is called first."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - the only way to look at the callers
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("equipoise."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)
