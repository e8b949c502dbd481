"""Rows grouped by key, with the load spread over partitions as evenly as the keys allow."""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from pyspark.sql import Column, DataFrame, GroupedData, Window, WindowSpec
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.plan import Plan
from equipoise.readable import count_text, key_text
from equipoise.spark.batch.aggregate import Aggregation, aggregation
from equipoise.spark.batch.cogroups import BalancedCogroups, without_partition
from equipoise.spark.batch.key_loads import KeyLoads
from equipoise.spark.batch.look import KeyMeasurement
from equipoise.spark.batch.options import BatchOptions
from equipoise.spark.batch.reduction import PartialFunction
from equipoise.spark.batch.sample import warn_caller
from equipoise.spark.batch.split_plan import Split
from equipoise.spark.rows.advice import Advice, number_facts
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.analysis import physical_plan
from equipoise.spark.rows.columns import PARTITION
from equipoise.spark.rows.explained import Explained, Facts
from equipoise.spark.rows.keys import Key, resolve_key
from equipoise.spark.rows.routing import SplitPlan, partition_column
from equipoise.split import Splitter
from equipoise.split.shards import shards_text

_SECOND_EXCHANGE = "spark.sql.requireAllClusterKeysForDistribution"
_AGGREGATE = re.compile(r"\b(?:(?:Hash|ObjectHash|Sort)Aggregate|(ArrowAggregatePython|AggregateInPandas))\b")
_SHOWN = 5  # hot keys
_log = logging.getLogger(__name__)


class BalancedGroups(Explained):
    """A batch DataFrame grouped by key, with the keys placed by a plan; made by ``balance``.

    It has the methods of ``pyspark.sql.GroupedData``, with the same results. Each operation plans one exchange, the one
    that places the rows. No column of equipoise is visible to user functions or left in the result. Nothing is read
    before an operation is called or a property is used. The loads are measured once for all operations.

    Parameters
    ----------
    df
        The rows.
    key
        Their key.
    options
        How to measure, plan and record.
    stateful
        Runs a ``StatefulProcessor`` over rows; see ``equipoise.spark.stream.once.run_once``.
    """

    def __init__(self, df: DataFrame, key: Key, options: BatchOptions, stateful: Callable[..., DataFrame]) -> None:
        self.key = key
        self._df = df
        self._options = options
        self._stateful = stateful
        self._look = KeyMeasurement(df, key, options)
        self._operations: list[tuple[str, str]] = []
        self._aggregation: Aggregation | None = None  # of the last operation that has a plan

    # ---- what pyspark's GroupedData has ----

    def applyInPandas(self, func: Callable[..., Any], schema: StructType | str) -> DataFrame:  # noqa: N802 - Spark's own name
        """Apply a function to the rows of each key as pandas, as Spark's ``applyInPandas``.

        Parameters
        ----------
        func
            Takes a ``pandas.DataFrame``, or a key and one, and returns a ``pandas.DataFrame``. With the type hints
            ``Iterator[pandas.DataFrame]`` it takes and yields batches, if the running Spark supports that.
        schema
            Schema of the result.
        """
        self._note_placed("applyInPandas")
        return self._grouped().applyInPandas(self._bare(func), schema)

    def applyInArrow(self, func: Callable[..., Any], schema: StructType | str) -> DataFrame:  # noqa: N802 - Spark's own name
        """Apply a function to the rows of each key as Arrow, as Spark's ``applyInArrow``.

        Parameters
        ----------
        func
            Takes a ``pyarrow.Table``, or a key and one, and returns a ``pyarrow.Table``. With the type hints
            ``Iterator[pyarrow.RecordBatch]`` it takes and yields batches, if the running Spark supports that.
        schema
            Schema of the result.
        """
        self._note_placed("applyInArrow")
        return self._grouped().applyInArrow(self._bare(func), schema)

    def agg(self, *exprs: Column | dict[str, str]) -> DataFrame:
        """Aggregate by key, as Spark's ``agg``.

        Spark combines built-in aggregates before the shuffle, so these are handed to it unchanged. Grouped-aggregate
        pandas and Arrow UDFs, which it does not combine, are placed by the plan. Which of both the expressions are is
        read from Spark's physical plan.
        """
        given: Any = exprs  # pyspark's overloads do not know the union
        plain = self._plain().agg(*given)
        if not _is_python_aggregate(plain):
            return self._handed("agg", plain)
        self._note_placed("agg")
        return self._grouped().agg(*given).drop(PARTITION)

    def count(self) -> DataFrame:
        """Count the rows of each key, as Spark's ``count``; handed to Spark, which combines before the shuffle."""
        return self._handed("count", self._plain().count())

    def sum(self, *cols: str) -> DataFrame:
        """Sum numeric columns by key, as Spark's ``sum``; handed to Spark, which combines before the shuffle."""
        return self._handed("sum", self._plain().sum(*cols))

    def avg(self, *cols: str) -> DataFrame:
        """Average numeric columns by key, as Spark's ``avg``; handed to Spark, which combines before the shuffle."""
        return self._handed("avg", self._plain().avg(*cols))

    def mean(self, *cols: str) -> DataFrame:
        """Average numeric columns by key, as Spark's ``mean``; handed to Spark, which combines before the shuffle."""
        return self._handed("mean", self._plain().mean(*cols))

    def min(self, *cols: str) -> DataFrame:
        """Return the minimum of numeric columns by key, as Spark's ``min``; handed to Spark, which combines first."""
        return self._handed("min", self._plain().min(*cols))

    def max(self, *cols: str) -> DataFrame:
        """Return the maximum of numeric columns by key, as Spark's ``max``; handed to Spark, which combines first."""
        return self._handed("max", self._plain().max(*cols))

    def pivot(self, pivot_col: str, values: list[Any] | None = None) -> GroupedData:
        """Pivot a column, as Spark's ``pivot``; the result is Spark's own ``GroupedData``."""
        self._note("pivot", "handed to Spark, which combines before the shuffle; the plan is not used")
        return self._plain().pivot(pivot_col, values)

    def cogroup(self, other: "BalancedGroups | GroupedData | DataFrame") -> BalancedCogroups:
        """Group together with another DataFrame, whose rows are placed by the same plan.

        Parameters
        ----------
        other
            Groups made by ``balance``, whose own plan is not used; Spark's ``groupBy``; or a DataFrame with key columns
            of the same names.
        """
        source, key = self._other_side(other)
        if key.types != self.key.types:  # values of different types hash differently and would not meet
            here, there = ", ".join(self.key.types), ", ".join(key.types)
            raise MismatchError(f"the key here is of type ({here}), there ({there}); cast one to the other's type")
        return BalancedCogroups(
            self, lambda: ((self._look.source, self.key), (source, key)), self._placing_plan, self._note_placed
        )

    # ---- what equipoise adds ----

    def aggregate(
        self,
        aggregator: Aggregator | PartialFunction,
        outputStructType: StructType | str,  # noqa: N803 - Spark's own name
        *,
        split: Split = "auto",
        splitter: str | Splitter | None = None,
        check: bool = False,
    ) -> DataFrame:
        """Aggregate by key in Python; a hot key is split over as many partitions as its load needs, and merged.

        Parameters
        ----------
        aggregator
            An ``Aggregator`` or a ``PartialFunction``.
        outputStructType
            Schema of the result.
        split
            ``"auto"``: hot keys are cut into as few shards as make the partitions even. A number: so many shards for
            each hot key. A function of (share, N): the number of shards of a hot key. ``None``: keys stay whole.
        splitter
            Name of a splitter, or a splitter of N workers, that routes row by row in the tasks that read the data, each
            task with its own loads, as the methods were published. Then nothing is sampled, and every key is merged.
        check
            Test on some rows whether ``merge`` is associative and commutative, and refuse one that is not.
        """
        made = aggregation(self._look, aggregator, outputStructType, split=split, splitter=splitter, check=check)
        self._note("aggregate", made.reason)
        self._aggregation = made
        return made.dataframe()

    def window(self) -> WindowSpec:
        """Return a window partitioned by the key, to be ordered and used on ``dataframe()``.

        Examples
        --------
        ``b.dataframe().withColumn("n", F.row_number().over(b.window().orderBy("ts")))``
        """
        self._note_placed("window")
        plan = self._placing_plan()
        if plan is None:
            return Window.partitionBy(*self.key.columns)
        self._warn_of_a_second_exchange()
        return Window.partitionBy(partition_column(plan, self.key.fingerprint), *self.key.columns)

    def dataframe(self) -> DataFrame:
        """Return the rows, placed by the plan into N partitions."""
        self._note_placed("dataframe")
        plan = self._placing_plan()
        if plan is None:
            return self._look.source.repartition(self._look.partitions, *self.key.columns)
        return self._placed(plan)

    @property
    def partition(self) -> Column:
        """Partition of each row by the plan, from 0."""
        plan = self._placing_plan()
        if plan is None:
            raise InvalidArgumentError(
                f"the rows are left to Spark's hash ({self._left_to_hash()}), so there is no plan to number partitions"
            )
        return partition_column(plan, self.key.fingerprint)

    @property
    def plan(self) -> Plan | SplitPlan | None:
        """The plan of the operation called last, or of ``applyInPandas`` before any; measures the loads first.

        After an ``aggregate`` that splits keys it is a ``SplitPlan``. ``None`` for ``placement="hash"``, the mode
        ``"observe"`` and an ``aggregate`` with a splitter.
        """
        if self._aggregation is None or not self._options.places_keys:
            return self._look.plan
        made = self._aggregation.plan
        return made.plan if made is not None and not made.widths else made

    @property
    def loads(self) -> KeyLoads | None:
        """The measured loads; measures them first. ``None`` if a plan was given or they could not be measured."""
        return self._look.loads

    @property
    def advice(self) -> Advice | None:
        """The advice on the operation called last, or on ``applyInPandas`` before any; measures the loads first.

        ``None`` if nothing was measured or planned.
        """
        return self._look.advice() if self._aggregation is None else self._aggregation.advice

    def wait_for_record(self, timeout: float | None = 30.0) -> bool:
        """Wait until the first action on the result is in the load record; False if it is not, or not in time.

        Call it before a script ends right after its action. A run without rows is not recorded. If a run could not be
        recorded, the log says why.
        """
        return self._look.wait_for_record(timeout)

    # ---- state ----

    def transformWithStateInPandas(  # noqa: N802 - Spark's own name
        self,
        statefulProcessor: StatefulProcessor,  # noqa: N803 - Spark's own name
        outputStructType: StructType | str,  # noqa: N803 - Spark's own name
        outputMode: str,  # noqa: N803 - Spark's own name
        timeMode: str,  # noqa: N803 - Spark's own name
        initialState: DataFrame | GroupedData | None = None,  # noqa: N803 - Spark's own name
        eventTimeColumnName: str = "",  # noqa: ARG002, N803 - Spark's own name
    ) -> DataFrame:
        """Run a ``StatefulProcessor`` once over all rows of each key, as Spark's method does on a batch DataFrame.

        The state starts with ``initialState`` and ends with the task. A batch has no watermark, so event-time timers do
        not fire. Processing-time timers fire after the rows of the key if they are due at the time of this call.

        Parameters
        ----------
        statefulProcessor
            Receives the rows of a key as pandas DataFrames.
        outputStructType
            Schema of the rows that it yields.
        outputMode
            ``"append"`` or ``"update"``, with the same result.
        timeMode
            ``"none"``, ``"processingTime"`` or ``"eventTime"``.
        initialState
            Rows for ``handleInitialState``: a batch DataFrame with the key columns, grouped or not.
        eventTimeColumnName
            Not used: a batch has no watermark to hand on.
        """
        return self._with_state("pandas", statefulProcessor, outputStructType, outputMode, timeMode, initialState)

    def transformWithState(  # noqa: N802 - Spark's own name
        self,
        statefulProcessor: StatefulProcessor,  # noqa: N803 - Spark's own name
        outputStructType: StructType | str,  # noqa: N803 - Spark's own name
        outputMode: str,  # noqa: N803 - Spark's own name
        timeMode: str,  # noqa: N803 - Spark's own name
        initialState: DataFrame | GroupedData | None = None,  # noqa: N803 - Spark's own name
        eventTimeColumnName: str = "",  # noqa: ARG002, N803 - Spark's own name
    ) -> DataFrame:
        """Run a ``StatefulProcessor`` that receives the rows of a key as ``Row`` objects.

        The parameters are those of ``transformWithStateInPandas``.
        """
        return self._with_state("rows", statefulProcessor, outputStructType, outputMode, timeMode, initialState)

    def applyInPandasWithState(self, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: ARG002, N802 - Spark's own name
        """Refuse: for streaming DataFrames only, as in Spark."""
        _refuse("applyInPandasWithState")

    def process(self, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: ARG002 - as above
        """Refuse: for streaming DataFrames only."""
        _refuse("process")

    def apply(self, udf: Any) -> NoReturn:  # noqa: ARG002 - as above
        """Refuse: Spark has deprecated it in favour of ``applyInPandas``."""
        raise InvalidArgumentError(
            "apply takes a grouped-map pandas UDF, which Spark has deprecated; pass its function and its schema to "
            "applyInPandas(func, schema)"
        )

    def __repr__(self) -> str:
        return f"BalancedGroups[key: {self.key}, numPartitions: {self._look.partitions}]"

    # ---- how it is done ----

    def _plain(self) -> GroupedData:
        return self._df.groupBy(*self.key.columns)

    def _handed(self, operation: str, result: DataFrame) -> DataFrame:
        self._note(operation, "handed to Spark, which combines before the shuffle; the plan is not used")
        return result

    def _grouped(self) -> GroupedData:
        """Group by partition and key; by key alone if the rows are left to Spark's hash."""
        plan = self._placing_plan()
        if plan is None:
            source = self._look.source
            if self._options.numPartitions is not None:
                source = source.repartition(self._options.numPartitions, *self.key.columns)
            return source.groupBy(*self.key.columns)
        self._warn_of_a_second_exchange()
        return self._placed(plan).groupBy(
            partition_column(plan, self.key.fingerprint).alias(PARTITION), *self.key.columns
        )

    def _with_state(self, form: str, *arguments: Any) -> DataFrame:
        """Run a processor over the rows, placed by the plan or by Spark's hash."""

        def place(rows: DataFrame, fingerprint: Column) -> DataFrame:
            plan = self._placing_plan()
            if plan is None:
                return rows.repartition(self._look.partitions, fingerprint)
            return rows.repartitionById(plan.partitions, partition_column(plan, fingerprint))

        self._note_placed("transformWithStateInPandas" if form == "pandas" else "transformWithState")
        return self._stateful(self._look.source, self.key, place, form, *arguments)

    def _bare(self, func: Callable[..., Any]) -> Callable[..., Any]:
        return without_partition(func) if self._options.places_keys else func

    def _placed(self, plan: Plan) -> DataFrame:
        partition = partition_column(plan, self.key.fingerprint)
        return self._look.source.repartitionById(plan.partitions, partition)

    def _placing_plan(self) -> Plan | None:
        """Return the plan that places the rows; ``None`` if they are left to Spark's hash."""
        return self._look.plan if self._options.places_keys else None

    def _left_to_hash(self) -> str:
        return "placement='hash'" if self._options.placement == "hash" else f"mode {self._options.policy.mode!r}"

    def _other_side(self, other: "BalancedGroups | GroupedData | DataFrame") -> tuple[DataFrame, Key]:
        if isinstance(other, BalancedGroups):
            return other._df, other.key  # noqa: SLF001 - of the same class
        if isinstance(other, DataFrame):
            return other, resolve_key(other, list(self.key.names))
        if not isinstance(getattr(other, "_df", None), DataFrame):
            raise InvalidArgumentError(
                f"cogroup takes balance(...), df.groupBy(...) or a DataFrame, got {type(other).__name__}"
            )
        counted, source = other.count(), other._df  # noqa: SLF001 - as pyspark's own cogroup reads it
        names = counted.columns[:-1]
        computed = next((name for name in names if name not in source.columns), None)
        key = resolve_key(source, names) if computed is None else None
        if key is None or not counted.sameSemantics(source.groupBy(*key.columns).count()):
            raise InvalidArgumentError(
                f"the other side is grouped by {computed or ', '.join(names)!r}, which is computed; use "
                "balance(df, ...) for that side"
            )
        return source, key

    def _warn_of_a_second_exchange(self) -> None:
        if str(self._df.sparkSession.conf.get(_SECOND_EXCHANGE, "false")).lower() == "true":
            warn_caller(
                f"{_SECOND_EXCHANGE} is on: Spark shuffles the placed rows once more, by hash, and the plan has no "
                "effect; the result is right, but turn it off for this job"
            )

    def _note_placed(self, operation: str) -> None:
        self._aggregation = None
        if not self._options.places_keys:
            self._note(operation, f"left to Spark's hash: {self._left_to_hash()}")
            return
        plan = self._look.plan
        assert plan is not None  # noqa: S101 - this tells the type checker
        how = "the given plan" if self._options.plan is not None else f"the plan of {plan.planner}"
        if self._look.failure:
            how = f"their hash, because they could not be measured: {self._look.failure}"
        self._note(operation, f"one exchange into {count_text(plan.partitions, 'partition')}, keys placed by {how}")

    def _note(self, operation: str, done: str) -> None:
        self._operations.append((operation, done))
        _log.info("%s by %s: %s", operation, self.key, done)

    # ---- how it is shown ----

    @property
    def _title(self) -> str:
        return "Balanced groups"

    def _facts(self, *, measure: bool) -> Facts:
        look, options = self._look, self._options
        facts = [("key", f"{self.key}; {count_text(look.partitions, 'partition')}")]
        if options.plan is None and not options.makes_plan:
            facts.append(("plan", f"none: {self._left_to_hash()} leaves the rows to Spark's hash"))
        elif options.plan is not None:
            facts.append(("plan", _described(options.plan) + "; given, so nothing was measured"))
        elif self._aggregation is not None and self._aggregation.plan is None:
            facts += [("plan", "none: the splitter routes row by row"), ("advice", str(self.advice))]
        elif not measure and not look.is_done:
            facts.append(("plan", "not made yet: the first operation, .plan or .explain() measures the loads"))
        else:
            facts += self._plan_facts()
        return [*facts, *((f"{operation}()", done) for operation, done in self._operations)]

    def _plan_facts(self) -> Facts:
        look, plan, advice = self._look, self._look.plan, self.advice
        widths: Mapping[int, int] = {}
        if self._aggregation is not None and self._aggregation.plan is not None:
            plan, widths = self._aggregation.plan.plan, self._aggregation.plan.widths
        assert plan is not None  # noqa: S101 - this tells the type checker
        described = f"{plan.planner}: {shards_text(widths)}, all others whole" if widths else _described(plan)
        if look.measured is None or advice is None:
            return [("loads", f"not measured: {look.failure}"), ("plan", described)]
        loads = f"{look.measured.described(look.partitions)}; {count_text(look.slots, 'slot')}"
        facts = [("loads", loads), ("plan", described)]
        for fingerprint, share in look.measured.loads.histogram.top(_SHOWN):
            where = plan.isolated.get(fingerprint)
            place = f"isolated in partition {where}" if where is not None else "in its tail group"
            if fingerprint in widths:
                place = f"in {widths[fingerprint]} shards"
            facts.append((f"  {key_text(fingerprint)}", f"{share:.2%} of the load, {place}"))
        facts += [*number_facts(advice.numbers), ("advice", str(advice))]
        if not self._options.places_keys:
            facts.append(("placement", f"left to Spark's hash: {self._left_to_hash()}"))
        return facts


def _described(plan: Plan) -> str:
    isolated, groups = count_text(len(plan.isolated), "isolated key"), count_text(plan.tail_groups, "tail group")
    return f"{plan.planner}, version {plan.version}: {isolated}, {groups}"


def _refuse(method: str) -> NoReturn:
    raise InvalidArgumentError(
        f"{method} keeps state between micro-batches and needs a streaming DataFrame, and this is a batch one; read it "
        "with spark.readStream, or use transformWithStateInPandas, applyInPandas or aggregate"
    )


def _is_python_aggregate(df: DataFrame) -> bool:
    """Whether the topmost aggregate of a query is a Python one, by its physical plan; runs no job."""
    found = _AGGREGATE.search(physical_plan(df))
    return found is not None and found[1] is not None
