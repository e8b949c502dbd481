"""Where the load of a key lies, from a small sample in which heavy rows are never missed.

A row of weight w is taken with probability ``min(1, T w / W)``, where W is the weight of all rows and T the wanted size
of the sample, and then stands for the weight ``max(w, W / T)`` (Poisson sampling in proportion to size). So the sample
has about T rows whatever the data, its loads are unbiased, and rows heavier than W / T are all in it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import NumericType

from equipoise.errors import InvalidArgument
from equipoise.plan import Plan
from equipoise.sketch import Histogram
from equipoise.spark.key_loads import KeyLoads
from equipoise.spark.keys import Key, analysed, as_column

SAMPLE_ROWS = 200_000
"""Wanted size of a sample: loads of 32 partitions come out within about 1 %."""

_STANDARD_ERRORS = 3  # a stated share is off by more in about 3 of 1000 cases


@dataclass(frozen=True, eq=False)
class Sample:
    """Sampled rows: fingerprint, the load each stands for, and its hash under plain Spark.

    Parameters
    ----------
    fingerprints, loads, hashes
        One entry for each sampled row. ``hashes`` is what Spark's own hash partitioning goes by.
    rows
        Number of rows of the data.
    load
        Weight of all rows of the data.
    """

    fingerprints: NDArray[np.int64]
    loads: NDArray[np.float64]
    hashes: NDArray[np.int32]
    rows: int
    load: float

    @property
    def is_complete(self) -> bool:
        """Whether every row was taken, so that nothing is estimated."""
        return len(self.fingerprints) == self.rows

    def histogram(self) -> Histogram:
        """All sampled keys with their shares and the error of sampling."""
        keys, inverse = np.unique(self.fingerprints, return_inverse=True)
        total = self.loads.sum()
        if not total > 0:
            return Histogram([], [], total=0.0)
        shares = np.bincount(inverse, self.loads, len(keys)) / total
        if self.is_complete:
            return Histogram(keys, shares, unlisted=0.0, total=self.load)
        error = _STANDARD_ERRORS * float(np.sqrt(shares.max() / len(self.fingerprints)))
        # a key that is not in the sample at all stands for less than a few of its rows
        unlisted = _STANDARD_ERRORS**2 / len(self.fingerprints)
        return Histogram(keys, shares, error=min(1.0, error), unlisted=min(1.0, unlisted), total=self.load)

    def key_loads(self) -> KeyLoads:
        """What planners need of the sample."""
        return KeyLoads.of(self.histogram(), self.fingerprints, self.loads, self.rows, self.load)

    def plain_loads(self, partitions: int) -> NDArray[np.float64]:
        """Share of the load in each partition under Spark's own hash partitioning."""
        return self._shares(np.mod(self.hashes.astype(np.int64), partitions), partitions)

    def planned_loads(self, plan: Plan) -> NDArray[np.float64]:
        """Share of the load in each partition under a plan."""
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
        What the user gave; empty where every row counts 1.
    """

    column: Column
    text: str = ""


def resolve_weight(df: DataFrame, weight: str | Column | None) -> Weight:
    """Check a weight; NULL, NaN and negative weights count as 0, so they never fail a job."""
    if weight is None:
        return Weight(F.lit(1.0))
    column = as_column(df, weight)
    field = analysed(df, [column], "weight").fields[0]
    if not isinstance(field.dataType, NumericType):
        raise InvalidArgument(
            f"weight column {field.name!r} holds {field.dataType.simpleString()}, not a number; "
            "use for example F.length(column) or F.octet_length(column)"
        )
    number = column.cast("double")
    return Weight(F.when((number > 0) & ~F.isnan(number), number).otherwise(F.lit(0.0)), field.name)


def take_sample(df: DataFrame, key: Key, weight: Weight, *, rows: int = SAMPLE_ROWS, seed: int = 0) -> Sample:
    """Count the data, then sample it: two passes that read the key and weight columns only.

    Parameters
    ----------
    df, key, weight
        The data, its key, and the weight of a row.
    rows
        Wanted size of the sample.
    seed
        Seed of the sampling.
    """
    if rows < 1:
        raise InvalidArgument(f"the sample must have at least 1 row, got {rows}")
    total, load = _totals(df, weight)
    chosen, threshold = df, 0.0
    if total > rows and load > 0:
        threshold = load / rows
        chosen = df.where(F.rand(seed) * F.lit(threshold) < weight.column)
    table = chosen.select(
        key.fingerprint.alias("fingerprint"),
        F.greatest(weight.column, F.lit(threshold)).alias("load"),
        F.hash(*key.columns).alias("hash"),
    ).toArrow()
    fingerprints, loads, hashes = (table[name].to_numpy() for name in ("fingerprint", "load", "hash"))
    return Sample(fingerprints, loads, hashes, total, load)


def _totals(df: DataFrame, weight: Weight) -> tuple[int, float]:
    """Number of rows and their load; without a weight a bare count, which many sources answer from their metadata."""
    if not weight.text:
        total = df.count()
        return total, float(total)
    counted = df.agg(F.count(F.lit(1)).alias("rows"), F.sum(weight.column).alias("load")).first()
    assert counted is not None  # noqa: S101 - an aggregate without groups has one row; this tells the type checker
    return int(counted["rows"]), float(counted["load"] or 0.0)
