"""Balance a keyed batch job: the same result, with the load spread as evenly as its keys allow."""

import os
import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, GroupedData, Window, WindowSpec
from pyspark.sql.types import StructType

from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.plan import Plan, Planner, uniform_plan
from equipoise.spark.batch.advice import Advice, Operation, advice_for
from equipoise.spark.batch.fallback import measured_or
from equipoise.spark.batch.key_loads import KeyLoads
from equipoise.spark.batch.load_record import LoadRecord, Recorder
from equipoise.spark.batch.report import batch_planner
from equipoise.spark.batch.sample import SAMPLE_ROWS, resolve_weight, take_sample
from equipoise.spark.rows.cluster import partition_count, slot_count
from equipoise.spark.rows.columns import PARTITION
from equipoise.spark.rows.keys import Key, KeyLike, resolve_key
from equipoise.spark.rows.routing import partition_column
from equipoise.spark.rows.user_functions import argument_count

_SECOND_EXCHANGE = "spark.sql.requireAllClusterKeysForDistribution"


class BalancedFrame:
    """A DataFrame whose keys are placed by a plan; what ``balance`` gives.

    Every operation plans one exchange, the one that places the rows. The results are those of the same operation on the
    plain DataFrame, and no column of ours is seen by user functions or left in the result.

    Parameters
    ----------
    source
        The rows, not placed yet.
    key
        Their key.
    plan
        Where the keys go.
    slots
        Tasks that run at a time; needed only where loads are known.
    loads
        What the plan was made from; ``None`` if the plan was given or nothing could be measured.
    plain
        Share of the load in each partition under Spark's own hash; ``None`` where that was not sampled.
    """

    def __init__(
        self,
        source: DataFrame,
        key: Key,
        plan: Plan,
        *,
        slots: int = 1,
        loads: KeyLoads | None = None,
        plain: NDArray[np.float64] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.plan = plan
        self.slots = slots
        self.loads = loads
        self.source = recorder.watch(source) if recorder else source
        self.key = key
        self._plain = plain
        self._recorder = recorder

    @property
    def partition(self) -> Column:
        """Partition of each row by the plan, from 0."""
        return partition_column(self.plan, self.key.fingerprint)

    def dataframe(self) -> DataFrame:
        """The rows, placed by the plan: one partition for each of the plan's."""
        return self.source.repartitionById(self.plan.partitions, self.partition)

    def groupBy(self) -> "BalancedGroups":  # noqa: N802 - Spark's own name
        """Group by the key."""
        self._warn_of_a_second_exchange()
        return BalancedGroups(self)

    def window(self) -> WindowSpec:
        """Window partitioned by the key, to be ordered and used on ``dataframe()``.

        Examples
        --------
        ``b.dataframe().withColumn("n", F.row_number().over(b.window().orderBy("ts")))``
        """
        self._warn_of_a_second_exchange()
        return Window.partitionBy(self.partition, *self.key.columns)

    def cogroup(self, other: "DataFrame | BalancedFrame", key: KeyLike | None = None) -> "BalancedCogroups":
        """Group together with another DataFrame, whose rows are placed by the same plan.

        Parameters
        ----------
        other
            The other DataFrame. If it is balanced already, its own plan is set aside.
        key
            Its key; default: columns of the same names.
        """
        if isinstance(other, BalancedFrame):
            source, resolved = other.source, other.key
        else:
            source, resolved = other, resolve_key(other, list(self.key.names) if key is None else key)
        if resolved.types != self.key.types:  # values of different types hash differently and would not meet
            here, there = ", ".join(self.key.types), ", ".join(resolved.types)
            raise MismatchError(f"the key here is of type ({here}), there ({there}); cast one to the other's type")
        return BalancedCogroups(self, source, resolved)

    def _warn_of_a_second_exchange(self) -> None:
        if str(self.source.sparkSession.conf.get(_SECOND_EXCHANGE, "false")).lower() == "true":
            warnings.warn(
                f"{_SECOND_EXCHANGE} is on: Spark shuffles the placed rows once more, by hash, and the plan is lost; "
                "the result is right, but turn it off for this job",
                RuntimeWarning,
                stacklevel=3,
            )

    def wait_for_history(self, timeout: float | None = 30.0) -> bool:
        """Wait until the first action on the result is recorded in the history; False if it was not, or not in time.

        A script may end right after its action; this makes sure that the record is written. A run without rows is not
        recorded, and why one could not be is in the log.
        """
        return self._recorder.wait(timeout) if self._recorder else False

    def advice(self) -> Advice | None:
        """What was predicted for this plan; ``None`` where nothing was measured."""
        if self.loads is None:
            return None
        plain = self._plain
        if plain is None:  # a record of earlier runs knows fingerprints, not Spark's hash: one is as good as the other
            plain = self.loads.predicted(uniform_plan(self.plan.partitions, self.plan.tail_groups))
        return advice_for(
            Operation.APPLY_IN_PANDAS,
            hottest=self.loads.hottest,
            plain=plain,
            balanced=self.loads.predicted(self.plan),
            overpartitioned={},
            slots=self.slots,
        )

    def explain(self) -> None:
        """Print the plan in Spark's style, with the advice and its numbers."""
        print(self._explained())  # noqa: T201 - as DataFrame.explain does

    def _explained(self) -> str:
        plan = self.plan
        lines = [
            "== Partitioning Plan ==",
            f"{plan.planner} (version {plan.version}): {plan.reason}",
            f"+- Exchange repartitionById({plan.partitions}), key [{self.key}]",
            f"   :- {len(plan.isolated)} isolated keys",
            f"   +- {plan.tail_groups} tail groups",
        ]
        if self.loads is None:
            return "\n".join(lines)
        for fingerprint, share in self.loads.histogram.top(5):
            where = plan.isolated.get(fingerprint)
            place = f"partition {where}" if where is not None else "with its tail group"
            lines.insert(-1, f"   :  :- {format(fingerprint % 2**64, '016x')}  {share:.2%}  {place}")
        advice = self.advice()
        lines += ["", "== Advice ==", f"[1] {advice}"]
        lines += [f"    {name}: {value:.4g}" for name, value in (advice.numbers if advice else {}).items()]
        return "\n".join(lines)


class BalancedGroups:
    """Rows grouped by key, each group in the partition that the plan gives it."""

    def __init__(self, balanced: BalancedFrame) -> None:
        self._balanced = balanced

    def applyInPandas(self, func: Callable[..., Any], schema: StructType | str) -> DataFrame:  # noqa: N802 - Spark's own name
        """Spark's ``applyInPandas``: the same function, the same result."""
        return self._grouped().applyInPandas(_without_partition(func), schema)

    def applyInArrow(self, func: Callable[..., Any], schema: StructType | str) -> DataFrame:  # noqa: N802 - Spark's own name
        """Spark's ``applyInArrow``: the same function, the same result."""
        return self._grouped().applyInArrow(_without_partition(func), schema)

    def agg(self, *exprs: Column) -> DataFrame:
        """Spark's ``agg``. Built-in aggregates are faster without balancing: Spark combines before the shuffle."""
        return self._grouped().agg(*exprs).drop(PARTITION)

    def _grouped(self) -> GroupedData:
        balanced = self._balanced
        return balanced.dataframe().groupBy(balanced.partition.alias(PARTITION), *balanced.key.columns)


class BalancedCogroups:
    """Two DataFrames grouped by the same key, both placed by one plan."""

    def __init__(self, left: BalancedFrame, right: DataFrame, right_key: Key) -> None:
        self._plan = left.plan
        self._sides = ((left.source, left.key), (right, right_key))

    def applyInPandas(self, func: Callable[..., Any], schema: StructType | str) -> DataFrame:  # noqa: N802 - Spark's own name
        """Spark's cogrouped ``applyInPandas``: the same function, the same result."""
        left, right = self._grouped()
        bare = _without_partition_column(func, lambda frame, column: frame.drop(columns=column))
        return left.cogroup(right).applyInPandas(bare, schema)

    def applyInArrow(self, func: Callable[..., Any], schema: StructType | str) -> DataFrame:  # noqa: N802 - Spark's own name
        """Spark's cogrouped ``applyInArrow``: the same function, the same result."""
        left, right = self._grouped()
        bare = _without_partition_column(func, lambda table, column: table.drop_columns([column]))
        return left.cogroup(right).applyInArrow(bare, schema)

    def _grouped(self) -> Iterator[GroupedData]:
        """Both sides with the partition as a real column: only then does Spark see that they are placed alike."""
        for df, key in self._sides:
            placed = df.withColumn(PARTITION, partition_column(self._plan, key.fingerprint))
            yield placed.repartitionById(self._plan.partitions, PARTITION).groupBy(PARTITION, *key.columns)


def _without_partition(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function of (key, data) without our part of the key; one of the data alone is left as it is.

    A closure, which Spark ships by value: executors need not have equipoise installed.
    """
    if argument_count(func) != 2:
        return func

    @wraps(func)
    def keyed(key: Any, data: Any) -> Any:
        return func(key[1:], data)

    return _hinted_as(func, keyed)


def _without_partition_column(func: Callable[..., Any], drop: Callable[[Any, str], Any]) -> Callable[..., Any]:
    """A function of two frames, with or without the key, that does not see our column nor our part of the key."""
    column = PARTITION

    @wraps(func)
    def plain(left: Any, right: Any) -> Any:
        return func(drop(left, column), drop(right, column))

    @wraps(func)
    def keyed(key: Any, left: Any, right: Any) -> Any:
        return func(key[1:], drop(left, column), drop(right, column))

    return _hinted_as(func, keyed if argument_count(func) == 3 else plain)


def _hinted_as(func: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper with the type hints of the function and none of its own: Spark goes by them."""
    wrapper.__annotations__ = dict(getattr(func, "__annotations__", {}))
    return wrapper


def balance(
    df: DataFrame,
    key: KeyLike,
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    *,
    plan: Plan | None = None,
    planner: str | Planner = "kip",
    history: str | os.PathLike[str] | None = None,
    weight: str | Column | None = None,
    sample: int = SAMPLE_ROWS,
    slots: int | None = None,
    seed: int = 0,
) -> BalancedFrame:
    """Place the keys of a batch DataFrame so that its partitions carry even loads.

    Parameters
    ----------
    df
        A batch DataFrame.
    key
        Key column or columns, by name or as Columns; any type that Spark can group by; NULL is a key like any other.
        It is computed several times: one that is random, such as a salt, must be added with ``withColumn`` first.
    numPartitions
        N; default ``spark.sql.shuffle.partitions``.
    plan
        A plan made earlier; then nothing is measured.
    planner
        Name of a planner, or a planner.
    history
        File of the record of earlier runs of this job. The first run samples; each run observes itself and saves what
        it saw; later runs plan from that, with no pass of their own.
    weight
        Numeric column: the load of a row, such as its bytes; default: every row counts 1.
    sample
        Number of rows to sample, about; smaller data are taken whole.
    slots
        Tasks that run at a time; default Spark's default parallelism. Some partitions may be left empty so that all
        slots finish together.
    seed
        Seed of the sampling.

    Returns
    -------
    BalancedFrame
        Group, window or cogroup it, or take its DataFrame.
    """
    resolved = resolve_key(df, key)
    weight_of = resolve_weight(df, weight)
    if plan is not None:
        if numPartitions not in {None, plan.partitions}:
            raise MismatchError(
                f"the plan has {plan.partitions} partitions but numPartitions is {numPartitions}; drop one"
            )
        if history is not None:
            raise InvalidArgumentError("a plan was given, so a history would neither be read nor needed; drop one")
        return BalancedFrame(df, resolved, plan)
    count = partition_count(df.sparkSession, numPartitions)
    concurrent = slot_count(df.sparkSession, slots)
    chosen = batch_planner(planner, concurrent)
    record = LoadRecord.of(history, resolved, weight_of) if history is not None else None
    recorded = record.load() if record else None

    def measured() -> BalancedFrame:
        loads, plain = recorded, None
        if loads is None:
            taken = take_sample(df, resolved, weight_of, rows=sample, seed=seed)
            loads, plain = taken.key_loads(), taken.plain_loads(count)
        made = loads.plan(count, chosen)
        recorder = Recorder(record, resolved, weight_of, loads, seed=seed) if record and loads.load > 0 else None
        return BalancedFrame(df, resolved, made, slots=concurrent, loads=loads, plain=plain, recorder=recorder)

    return measured_or(
        measured,
        lambda _: BalancedFrame(df, resolved, uniform_plan(count)),
        f"the load of {resolved} could not be measured, so keys go by hash",
    )


def balanced(df: DataFrame, key: KeyLike, numPartitions: int | None = None, **options: Any) -> DataFrame:  # noqa: N803 - Spark's own name
    """The rows of ``df`` placed by a plan: ``balance(...).dataframe()``, for ``df.transform(balanced, "host", 16)``.

    Takes the options of ``balance``.
    """
    return balance(df, key, numPartitions, **options).dataframe()
