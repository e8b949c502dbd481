"""Profile the load of a key, and advise on it: hot keys, predicted loads, and the bound that no plan can beat."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.errors import InvalidArgumentError
from equipoise.metrics import load_imbalance, lower_bound, makespan
from equipoise.pictures import partition_bars
from equipoise.plan import KIP, PLANNERS, Plan
from equipoise.readable import count_text, fingerprint_text, key_text
from equipoise.spark.batch.advice import OVERPARTITIONING, Operation, ideal_time
from equipoise.spark.batch.look import KeyMeasurement
from equipoise.spark.batch.options import BatchOptions, Sampling, batch_planner
from equipoise.spark.batch.sample import Sample
from equipoise.spark.batch.skew_join import join
from equipoise.spark.rows.advice import Action, Advice
from equipoise.spark.rows.explained import Explained, Facts, text_table
from equipoise.spark.rows.keys import Key, KeyLike, grouping_columns, resolve_key

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Strategy:
    """Predicted loads of one way to place keys.

    Parameters
    ----------
    name
        ``hash``, ``hash x4``, or a planner.
    loads
        Share of the load in each partition.
    makespan
        Predicted time on the slots, as a share of the time of all work on one slot.
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
class Report(Explained):
    """Load of a key and predicted loads of partitions; made by ``profile``. Print it, plot it, or use its tables.

    Parameters
    ----------
    df, key
        The DataFrame and its key.
    partitions
        Number of partitions N.
    slots
        Number of tasks that run at the same time.
    sample
        The sampled rows.
    strategies
        Predicted loads by name of the strategy.
    advice
        The advice on ``applyInPandas``, from the same sample.
    """

    df: DataFrame = field(repr=False)
    key: Key
    partitions: int
    slots: int
    sample: Sample = field(repr=False)
    strategies: Mapping[str, Strategy] = field(repr=False)
    advice: Advice = field(repr=False)

    @property
    def plan(self) -> Plan | None:
        """The plan of KIP, the default planner."""
        return self.strategies[KIP.name].plan

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
        return ideal_time(self.slots, self.hottest_share)

    def hot_keys(self, count: int = 20, *, literal: bool = False) -> DataFrame:
        """Return the hottest keys as a DataFrame: fingerprint, share, error; with ``literal`` the key columns too.

        A fingerprint is 16 hexadecimal digits. Literal keys are looked up in the data, in one more pass. A key column
        with the name of one of the three is returned with the prefix ``key_``.
        """
        histogram = self.sample.histogram().top(count)
        rows = [(fingerprint_text(key), share, histogram.error) for key, share in histogram]
        table = self.df.sparkSession.createDataFrame(rows, "fingerprint string, share double, error double")
        if not literal:
            return table.orderBy(F.desc("share"))
        wanted = [text for text, *_ in rows]
        shown = [f"key_{name}" if name in table.columns else name for name in self.key.names]
        names = [column.alias(name) for column, name in zip(self.key.columns, shown, strict=True)]
        text = F.lower(F.lpad(F.hex(self.key.fingerprint), 16, "0"))
        found = self.df.select(text.alias("fingerprint"), *names)
        found = found.where(F.col("fingerprint").isin(wanted)).dropDuplicates(["fingerprint"])
        return table.join(found, "fingerprint", "left").orderBy(F.desc("share"))

    def loads(self) -> DataFrame:
        """Return the predicted loads as a DataFrame: strategy, partition, share."""
        rows = [
            (name, partition, float(share))
            for name, strategy in self.strategies.items()
            for partition, share in enumerate(strategy.loads.tolist())
        ]
        return self.df.sparkSession.createDataFrame(rows, "strategy string, partition int, share double")

    def plot(self, strategy: str = "kip") -> "Figure":
        """Draw one bar for each partition, Spark's hash beside a strategy."""
        if strategy not in self.strategies:
            raise InvalidArgumentError(f"no strategy {strategy!r} was profiled; there are {', '.join(self.strategies)}")
        pair = {name: self.strategies[name].loads for name in ("hash", strategy)}
        return partition_bars(pair, title=f"Load by {self.key} on {self.partitions} partitions")

    def overview(self) -> str:
        """Return the strategies and the bound as text, without the keys."""
        taken = "all rows"
        if not self.sample.is_complete:
            error = f"partition loads within {self.sample.load_error(self.partitions):.1%}"
            taken = f"a sample of {len(self.sample.fingerprints):,} rows, {error}"
        size = (
            f"{self.sample.rows:,} rows, {count_text(self.partitions, 'partition')} on {count_text(self.slots, 'slot')}"
        )
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
        rows = [(key_text(key), f"{share:.2%}", error) for key, share in histogram.top(10)]
        return f"{self.overview()}\n{text_table('Hottest keys', ('fingerprint', 'share', '+/-'), rows)}"

    def explain(self) -> None:
        """Print the strategies, the bound, the hottest keys and the advice."""
        print(f"{self}\nAdvice on applyInPandas: {self.advice}")  # noqa: T201 - as DataFrame.explain does

    @property
    def _title(self) -> str:
        return f"Load of {self.key}"

    def _facts(self, *, measure: bool) -> Facts:  # noqa: ARG002 - everything is known
        facts = [
            ("rows", f"{self.sample.rows:,}"),
            ("partitions", f"{self.partitions} on {count_text(self.slots, 'slot')}"),
        ]
        for fingerprint, share in self.sample.histogram().top(5):
            facts.append((key_text(fingerprint), f"{share:.2%} of the load"))
        facts += [
            (f"{name}: time over ideal", f"{strategy.makespan / self.ideal_makespan:.2f}")
            for name, strategy in self.strategies.items()
        ]
        return [*facts, ("advice", str(self.advice))]


def profile(
    df: DataFrame,
    *key: KeyLike,
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    weight: str | Column | None = None,
    sample: Sampling = None,
    slots: int | None = None,
    seed: int = 0,
) -> Report:
    """Predict how the load of a key spreads over partitions, by Spark's hash and by each planner.

    Reads the key column once or, with a weight, the key and weight columns twice.

    Parameters
    ----------
    df
        A batch DataFrame.
    *key
        Key column or columns, by name or as Columns, as for ``df.groupBy``.
    numPartitions
        Number of partitions N; default ``spark.sql.shuffle.partitions``.
    weight
        Numeric column with the load of a row, such as its bytes; default: every row counts 1.
    sample
        Number of rows to look at; smaller data are read whole. Default: as many as N partitions need, see ``balance``.
        ``"full"``: the rows of every key are counted.
    slots
        Number of tasks that run at the same time; default Spark's default parallelism.
    seed
        Seed of the sampling.
    """
    options = BatchOptions(numPartitions=numPartitions, weight=weight, sample=sample, slots=slots, seed=seed)
    look = KeyMeasurement(df, resolve_key(df, grouping_columns(key)), options)
    taken, partitions, slots = look.sampled(), look.partitions, look.slots
    strategies = {}
    for factor in (1, *OVERPARTITIONING):
        name = "hash" if factor == 1 else f"hash x{factor}"
        loads = taken.plain_loads(factor * partitions)
        strategies[name] = Strategy(name, loads, makespan(loads, slots))
    key_loads = taken.key_loads()
    for name in PLANNERS:
        plan = key_loads.plan(partitions, batch_planner(name, slots))
        loads = key_loads.predicted(plan)
        strategies[name] = Strategy(name, loads, makespan(loads, slots), plan)
    return Report(df, look.key, partitions, slots, taken, strategies, look.advised(Operation.APPLY_IN_PANDAS))


def advise(
    df: DataFrame,
    *key: KeyLike,
    operation: str | Operation = Operation.APPLY_IN_PANDAS,
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    other: DataFrame | None = None,
    how: str = "inner",
    weight: str | Column | None = None,
    sample: Sampling = None,
    slots: int | None = None,
    seed: int = 0,
) -> Advice:
    """Say what would speed up a keyed operation, or why nothing would.

    The numbers are those that ``balance`` and ``join`` decide by.

    Parameters
    ----------
    df
        A batch DataFrame; for a join, the left side.
    *key
        Key column or columns, by name or as Columns, as for ``df.groupBy``.
    operation
        ``applyInPandas``, ``applyInArrow``, ``cogroup``, ``window``: keys must stay whole. ``agg``: Spark's built-in
        aggregates. ``aggregate``: a Python aggregate whose partial buffers can be merged. ``join``.
    numPartitions
        Number of partitions N; default ``spark.sql.shuffle.partitions``.
    other, how
        The right side of a join, and its type.
    weight
        Numeric column with the load of a row; default: every row counts 1. Not for joins.
    sample
        Number of rows to look at, or ``"full"``, as for ``profile``.
    slots
        Number of tasks that run at the same time; default Spark's default parallelism.
    seed
        Seed of the sampling.
    """
    columns = grouping_columns(key)
    names = {each.value for each in Operation}
    confused = next((each for each in columns if isinstance(each, str) and each in names - set(df.columns)), None)
    if confused is not None:
        raise InvalidArgumentError(f"{confused!r} is not a column but an operation; write operation={confused!r}")
    wanted = Operation.of(operation)
    options = BatchOptions(numPartitions=numPartitions, weight=weight, sample=sample, slots=slots, seed=seed)
    if wanted is Operation.JOIN:
        if other is None:
            raise InvalidArgumentError("advice on a join needs its right side; pass other=")
        if weight is not None:
            raise InvalidArgumentError("the load of a join is its rows; drop weight=")
        return join(df, other, columns, how, numPartitions, sample=sample, slots=slots, seed=seed).advice
    look = KeyMeasurement(df, resolve_key(df, columns), options)
    if wanted is Operation.AGG:
        return Advice(
            Action.NOTHING,
            "Spark combines built-in aggregates before the shuffle, so a hot key sends one row from each task; "
            "placing rows first would prevent that",
        )
    look.sampled()
    return look.advised(wanted)
