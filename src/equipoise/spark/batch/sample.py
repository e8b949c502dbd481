"""Look at some rows of every input partition, in one job, to learn how the load of a key is spread.

Every row has a known chance of being taken, and a row that is taken counts with the inverse of its chance. Loads are
therefore unbiased in any order of the rows, also where the input is sorted by the key.

- Without a weight, one job: the chance of a row falls with its number in its input partition. The first rows of every
  partition are all taken, and each doubling of a partition adds as many rows as the doubling before, so that the
  number of rows taken grows with the logarithm of the data, whose size is not known beforehand. If the loads are then
  not known as exactly as the plan needs, which happens with fewer input partitions than slots, or with very unequal
  ones, a second job takes as many rows as it needs, at one rate, from the size that the first one estimated.
- With a weight, two jobs: the first adds up the weights, and a row of weight w is then taken with the chance
  ``min(1, T w / W)``, where W is the weight of all rows and T the wanted number of rows. Heavy rows are never missed.
- ``sample="full"``, one job: the rows of each key are counted.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf, log, sqrt
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import NumericType

from equipoise.errors import EquipoiseError, InvalidArgumentError
from equipoise.plan import Plan
from equipoise.sketch import Histogram
from equipoise.spark.batch.key_loads import LISTED, KeyLoads
from equipoise.spark.batch.options import BatchOptions
from equipoise.spark.rows.analysis import analysed
from equipoise.spark.rows.columns import CHANCE, ROW_ID
from equipoise.spark.rows.keys import Key, as_column
from equipoise.spark.rows.thinning import falling_chance

_T = TypeVar("_T")
_SOURCE = "source"
_STANDARD_ERRORS = 3  # the error of a share exceeds its stated bound in about 3 of 1000 cases
_SECOND_LOOK = 1.1  # rows of a second look over the wanted ones, so that chance does not leave it short of them


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows that were looked at: fingerprint, load and Spark's hash of each.

    Parameters
    ----------
    fingerprints, loads, chances, hashes, nulls
        One entry for each row that was taken; of ``sample="full"``, one for each key. ``loads`` is the weight of a row
        over its chance of being taken. ``hashes`` is the hash that Spark's own partitioning uses, ``nulls`` whether a
        column of the key is NULL.
    rows
        Number of rows of the data; an estimate unless the sample is complete or rows are weighted.
    load
        Weight of all rows of the data.
    """

    fingerprints: NDArray[np.int64]
    loads: NDArray[np.float64]
    chances: NDArray[np.float64]
    hashes: NDArray[np.int32]
    nulls: NDArray[np.bool_]
    rows: int
    load: float

    @property
    def is_complete(self) -> bool:
        """Whether every row with a load was taken, so that the loads are exact."""
        return bool(np.all(self.chances >= 1))

    @property
    def _variances(self) -> NDArray[np.float64]:
        """What each row taken adds to the variance of the load of its key (Horvitz and Thompson's estimate)."""
        return np.asarray(self.loads**2 * (1 - self.chances), dtype=np.float64)

    @property
    def effective_rows(self) -> float:
        """Number of rows taken at one rate that would tell as much; infinite if the sample is complete."""
        variance = float(self._variances.sum())
        return float(self.loads.sum()) ** 2 / variance if variance > 0 else inf

    def load_error(self, partitions: int) -> float:
        """Return the expected error of the load of the fullest partition of N, as a share of an even load.

        It is ``sqrt(2 N ln N / n)``, the expected largest of N normal errors, for n effective rows.
        """
        return sqrt(2 * partitions * log(partitions) / self.effective_rows)

    def without_nulls(self) -> tuple["Sample", int]:
        """Return the rows whose key has no NULL in it, and an estimate of how many others there are."""
        known = ~self.nulls
        load = float(self.loads[self.nulls].sum())
        rows = round(self.rows * load / self.load) if self.load else 0
        kept = Sample(
            self.fingerprints[known],
            self.loads[known],
            self.chances[known],
            self.hashes[known],
            self.nulls[known],
            self.rows - rows,
            self.load - load,
        )
        return kept, rows

    def histogram(self, listed: int | None = None) -> Histogram:
        """Return the keys that were seen with their shares and the sampling error.

        Parameters
        ----------
        listed
            Number of hottest keys to list; ``None`` for all.
        """
        total = float(self.loads.sum())
        if not total > 0:
            return Histogram([], [], total=0.0)
        places, keys = pd.factorize(self.fingerprints)
        shares = np.bincount(places, self.loads, len(keys)) / total
        error = unlisted = 0.0
        if not self.is_complete:
            variances = np.bincount(places, self._variances, len(keys))
            # a key of which no row was taken has less load than a few rows with the least chance
            unlisted = _STANDARD_ERRORS**2 * float(self.loads[self.chances < 1].max()) / total
            error = max(unlisted, _STANDARD_ERRORS * float(np.sqrt(variances.max())) / total)
        if listed is not None and listed < len(keys):
            is_candidate = shares >= np.partition(shares, -listed - 1)[-listed - 1]
            keys, shares = keys[is_candidate], shares[is_candidate]
        found = Histogram(keys, shares, error=min(1.0, error), unlisted=min(1.0, unlisted), total=self.load)
        return found if listed is None else found.top(listed)

    def key_loads(self) -> KeyLoads:
        """Return the loads in the form that planners and records use."""
        return KeyLoads.of(self.histogram(LISTED), self.fingerprints, self.loads, self.rows, self.load)

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


class WeightedRows(NamedTuple):
    """A DataFrame to look at, its key, and the weight of a row."""

    df: DataFrame
    key: Key
    weight: Weight


def take_sample(data: WeightedRows, options: BatchOptions, partitions: int, slots: int) -> Sample:
    """Look at one DataFrame, as ``take_samples`` does."""
    return take_samples([data], options, partitions, slots)[0]


def take_samples(data: Sequence[WeightedRows], options: BatchOptions, partitions: int, slots: int) -> list[Sample]:
    """Look at DataFrames; only key and weight columns are read. However many there are, each pass is one job.

    Parameters
    ----------
    data
        DataFrames of one session, all with weights or none.
    options
        How many rows to look at, and the seed.
    partitions
        Number of partitions to plan for.
    slots
        Number of tasks that run at the same time.
    """
    wanted = options.sample_rows(partitions)
    if wanted is None:
        return _collected([_counted(each) for each in data])
    if any(each.weight.text for each in data):
        return _in_proportion(data, wanted, options.seed)
    found = _collected([_thinned(each, wanted, slots, options.seed) for each in data])
    if all(sample.effective_rows >= wanted for sample in found):
        return found
    return _collected(
        [_at_one_rate(each, wanted, first, options.seed) for each, first in zip(data, found, strict=True)]
    )


def _thinned(data: WeightedRows, wanted: int, slots: int, seed: int) -> DataFrame:
    """Return the first rows of every input partition, and ever fewer of those that follow."""
    numbered = data.df.withColumn(ROW_ID, F.monotonically_increasing_id())
    chance = falling_chance(F.col(ROW_ID), wanted, slots)
    return _taken(WeightedRows(numbered, data.key, data.weight), F.lit(1.0), chance, seed)


def _at_one_rate(data: WeightedRows, wanted: int, first: Sample, seed: int) -> DataFrame:
    """Return as many rows as wanted, by the number of rows that a first look estimated; all rows of small data."""
    rate = 1.0 if first.rows <= _SECOND_LOOK * wanted else _SECOND_LOOK * wanted / first.rows
    return _taken(data, F.lit(1.0), F.lit(rate), seed)


def _in_proportion(data: Sequence[WeightedRows], wanted: int, seed: int) -> list[Sample]:
    """Add up the weights, then take rows in proportion to them: none if there are many and all have weight 0."""
    counted = [
        df.agg(F.lit(number).alias(_SOURCE), F.count(F.lit(1)).alias("rows"), F.sum(weight.column).alias("load"))
        for number, (df, _, weight) in enumerate(data)
    ]
    totals = sorted(reduce(DataFrame.unionAll, counted).collect())

    def chosen(each: WeightedRows, total: Any) -> DataFrame:
        threshold = float(total["load"] or 0.0) / wanted
        if total["rows"] <= wanted:
            return _taken(each, each.weight.column, F.lit(1.0), seed)
        if threshold == 0:
            return _taken(WeightedRows(each.df.where(F.lit(False)), *each[1:]), each.weight.column, F.lit(1.0), seed)
        return _taken(each, each.weight.column, F.least(F.lit(1.0), each.weight.column / F.lit(threshold)), seed)

    found = _collected([chosen(each, total) for each, total in zip(data, totals, strict=True)])
    return [
        replace(sample, rows=int(total["rows"]), load=float(total["load"] or 0.0))
        for sample, total in zip(found, totals, strict=True)
    ]


def _taken(data: WeightedRows, weight: Column, chance: Column, seed: int) -> DataFrame:
    """Return what a sample needs of the rows that are taken, each with its chance."""
    df, key, _ = data
    df = df.withColumn(CHANCE, chance).where(F.rand(seed) < F.col(CHANCE))
    load = weight / F.col(CHANCE)
    return df.select(
        key.fingerprint.alias("fingerprint"),
        load.alias("load"),
        F.col(CHANCE).alias("chance"),
        key.spark_hash.alias("hash"),
        key.has_null.alias("null"),
    )


def _counted(data: WeightedRows) -> DataFrame:
    """Return the load and number of rows of each key."""
    df, key, weight = data
    columns = key.fingerprint.alias("fingerprint"), key.spark_hash.alias("hash"), key.has_null.alias("null")
    loads = df.select(*columns, weight.column.alias("load")).groupBy("fingerprint", "hash", "null")
    summed = loads.agg(F.sum("load").alias("load"), F.count(F.lit(1)).alias("rows"))
    return summed.select("fingerprint", "load", F.lit(1.0).alias("chance"), "hash", "null", "rows")


def _collected(chosen: Sequence[DataFrame]) -> list[Sample]:
    """Fetch what was chosen of each DataFrame, in one job."""
    numbered = [df.withColumn(_SOURCE, F.lit(number)) for number, df in enumerate(chosen)]
    table = reduce(DataFrame.unionAll, numbered).toArrow()
    return [_sample(table.filter(pc.field(_SOURCE) == number)) for number in range(len(chosen))]


def _sample(table: pa.Table) -> Sample:
    names = "fingerprint", "load", "chance", "hash", "null"
    fingerprints, loads, chances, hashes, nulls = (table[name].to_numpy() for name in names)
    load = float(loads.sum())
    rows = pc.sum(table["rows"]).as_py() or 0 if "rows" in table.column_names else round(load)
    return Sample(fingerprints, loads, chances, hashes, nulls, rows, load)


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
