"""Look at the load of a key: hot keys, predicted loads under every strategy, and the bound no plan can beat."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.errors import InvalidArgumentError
from equipoise.metrics import load_imbalance, lower_bound, makespan
from equipoise.pictures import partition_bars
from equipoise.plan import KIP, PLANNERS, Plan, Planner, make_planner
from equipoise.spark.batch.sample import SAMPLE_ROWS, Sample, resolve_weight, take_sample
from equipoise.spark.rows.cluster import partition_count, slot_count
from equipoise.spark.rows.keys import Key, KeyLike, resolve_key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVERPARTITIONING = (2, 4, 8, 16)
"""Multiples of the number of partitions that people try first."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """Predicted loads of one way to partition.

    Parameters
    ----------
    name
        ``hash``, ``hash x4``, or a planner.
    loads
        Share of the load in each partition.
    makespan
        Predicted time on the cluster's slots, as a part of the time of all work on one slot.
    plan
        The plan behind it; ``None`` for Spark's own hash partitioning.
    """

    name: str
    loads: NDArray[np.float64]
    makespan: float
    plan: Plan | None = None

    @property
    def imbalance(self) -> float:
        """Largest load over the mean."""
        return load_imbalance(self.loads)


@dataclass(frozen=True, eq=False)
class Report:
    """What ``profile`` found; print it, plot it, or take its tables.

    Parameters
    ----------
    df, key
        What was looked at.
    partitions
        N, number of partitions.
    slots
        Tasks that run at a time.
    sample
        The rows that were looked at.
    strategies
        Predicted loads by name of the strategy.
    """

    df: DataFrame = field(repr=False)
    key: Key
    partitions: int
    slots: int
    sample: Sample = field(repr=False)
    strategies: Mapping[str, Strategy] = field(repr=False)

    @property
    def hottest_share(self) -> float:
        """Share of the hottest key."""
        histogram = self.sample.histogram()
        return float(histogram.shares[0]) if len(histogram) else 0.0

    @property
    def bound(self) -> float:
        """The imbalance that no plan can beat while keys stay whole."""
        return lower_bound(self.partitions, min(1.0, self.hottest_share))

    @property
    def ideal_makespan(self) -> float:
        """The makespan that no plan can beat while keys stay whole."""
        return max(1 / self.slots, self.hottest_share)

    def hot_keys(self, count: int = 20, *, literal: bool = False) -> DataFrame:
        """The hottest keys as a DataFrame: fingerprint, share, error; with ``literal`` the key columns too.

        Literal keys are looked up in the data, in one more pass; a key column that is called as one of ours is, comes
        as ``key_share``.
        """
        histogram = self.sample.histogram().top(count)
        rows = [(key, share, histogram.error) for key, share in histogram]
        table = self.df.sparkSession.createDataFrame(rows, "fingerprint long, share double, error double")
        if not literal:
            return table.orderBy(F.desc("share"))
        wanted = [key for key, _ in histogram]
        shown = [f"key_{name}" if name in table.columns else name for name in self.key.names]
        names = [column.alias(name) for column, name in zip(self.key.columns, shown, strict=True)]
        found = self.df.select(self.key.fingerprint.alias("fingerprint"), *names)
        found = found.where(F.col("fingerprint").isin(wanted)).dropDuplicates(["fingerprint"])
        return table.join(found, "fingerprint", "left").orderBy(F.desc("share"))

    def loads(self) -> DataFrame:
        """Predicted loads as a DataFrame: strategy, partition, share."""
        rows = [
            (name, partition, float(share))
            for name, strategy in self.strategies.items()
            for partition, share in enumerate(strategy.loads.tolist())
        ]
        return self.df.sparkSession.createDataFrame(rows, "strategy string, partition int, share double")

    def plot(self, strategy: str = "kip") -> "Figure":
        """One bar for each partition, plain hash beside a strategy."""
        if strategy not in self.strategies:
            raise InvalidArgumentError(f"no strategy {strategy!r} was profiled; there are {', '.join(self.strategies)}")
        pair = {name: self.strategies[name].loads for name in ("hash", strategy)}
        return partition_bars(pair, title=f"Load by {self.key} on {self.partitions} partitions")

    def overview(self) -> str:
        """The strategies and the bound as text, without the keys."""
        taken = "all rows" if self.sample.is_complete else f"a sample of {len(self.sample.fingerprints):,} rows"
        size = f"{self.sample.rows:,} rows, {self.partitions} partitions on {self.slots} slots"
        rows = [
            (
                strategy.name,
                str(len(strategy.loads)),
                f"{strategy.imbalance:.2f}",
                f"{strategy.makespan / self.ideal_makespan:.2f}",
            )
            for strategy in self.strategies.values()
        ]
        headings = "strategy", "partitions", "fullest over mean", "time over ideal"
        return "\n".join(
            [
                f"Key {self.key}: {size}; from {taken}.",
                text_table("Predicted", headings, rows),
                f"No plan that keeps keys whole gets the fullest partition below {self.bound:.2f} of the mean.",
            ]
        )

    def __str__(self) -> str:
        histogram = self.sample.histogram()
        error = f"{histogram.error:.2%}"
        rows = [(format(key % 2**64, "016x"), f"{share:.2%}", error) for key, share in histogram.top(10)]
        return f"{self.overview()}\n{text_table('Hottest keys', ('fingerprint', 'share', '+/-'), rows)}"


def text_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows as lines of text below a title: the first column left-aligned, the others right-aligned.

    Examples
    --------
    >>> print(text_table("Loads", ["strategy", "load"], [["hash", "1.5"]]))
    Loads
      strategy  load
      --------  ----
      hash       1.5
    """
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    first, *others = widths
    return "\n".join(
        [
            title,
            *("  ".join(["", line[0].ljust(first), *map(str.rjust, line[1:], others)]).rstrip() for line in lines),
        ]
    )


def profile(
    df: DataFrame,
    key: KeyLike,
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    *,
    weight: str | Column | None = None,
    sample: int = SAMPLE_ROWS,
    slots: int | None = None,
    seed: int = 0,
) -> Report:
    """Predict how the load of a key spreads over partitions, by Spark's hash and by each planner.

    Reads the key (and weight) columns twice: once to count, once to sample.

    Parameters
    ----------
    df
        A batch DataFrame.
    key
        Key column or columns, by name or as Columns.
    numPartitions
        N; default ``spark.sql.shuffle.partitions``.
    weight
        Numeric column: the load of a row, such as its bytes; default: every row counts 1.
    sample
        Number of rows to sample, about; smaller data are taken whole.
    slots
        Tasks that run at a time; default Spark's default parallelism.
    seed
        Seed of the sampling.
    """
    resolved = resolve_key(df, key)
    partitions = partition_count(df.sparkSession, numPartitions)
    taken = take_sample(df, resolved, resolve_weight(df, weight), rows=sample, seed=seed)
    return report_of(df, resolved, partitions, slot_count(df.sparkSession, slots), taken)


def report_of(df: DataFrame, key: Key, partitions: int, slots: int, sample: Sample) -> Report:
    """Predict every strategy from one sample."""
    strategies = {}
    for factor in (1, *OVERPARTITIONING):
        name = "hash" if factor == 1 else f"hash x{factor}"
        loads = sample.plain_loads(factor * partitions)
        strategies[name] = Strategy(name, loads, makespan(loads, slots))
    key_loads = sample.key_loads()
    for name in PLANNERS:
        plan = key_loads.plan(partitions, batch_planner(name, slots))
        loads = sample.planned_loads(plan)
        strategies[name] = Strategy(name, loads, makespan(loads, slots), plan)
    return Report(df, key, partitions, slots, sample, strategies)


def batch_planner(planner: str | Planner, slots: int) -> Planner:
    """A planner by name, with the settings for work without state; or one as given."""
    if isinstance(planner, Planner):
        return planner
    return KIP(repack=True, slots=slots) if planner == KIP.name else make_planner(planner)
