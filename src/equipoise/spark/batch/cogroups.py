"""Two DataFrames grouped by the same key, both placed by one plan; and user functions that do not see our columns."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.types import StructType

from equipoise.plan import Plan
from equipoise.spark.rows.advice import Advice
from equipoise.spark.rows.columns import PARTITION
from equipoise.spark.rows.explained import Explained, Facts
from equipoise.spark.rows.keys import Key
from equipoise.spark.rows.routing import SplitPlan, partition_column
from equipoise.spark.rows.user_functions import argument_count

if TYPE_CHECKING:
    from equipoise.spark.batch.groups import BalancedGroups

Sides = tuple[tuple[DataFrame, Key], tuple[DataFrame, Key]]


class BalancedCogroups(Explained):
    """Two DataFrames grouped by the same key and placed by one plan; made by ``BalancedGroups.cogroup``.

    Parameters
    ----------
    groups
        The groups whose plan places both sides.
    sides
        Returns the DataFrames and their keys; called with the first operation, like ``placing``.
    placing
        Returns the plan that places the rows, or ``None`` for Spark's hash.
    note
        Called with the name of the operation.
    """

    def __init__(
        self,
        groups: "BalancedGroups",
        sides: Callable[[], Sides],
        placing: Callable[[], Plan | None],
        note: Callable[[str], None],
    ) -> None:
        self._groups = groups
        self._sides = sides
        self._placing = placing
        self._note = note

    @property
    def plan(self) -> Plan | SplitPlan | None:
        """The plan of both sides; measures the loads first. See ``BalancedGroups.plan``."""
        return self._groups.plan

    @property
    def advice(self) -> Advice | None:
        """The advice on the groups; measures the loads first. See ``BalancedGroups.advice``."""
        return self._groups.advice

    def applyInPandas(self, func: Callable[..., Any], schema: StructType | str) -> DataFrame:  # noqa: N802 - Spark's own name
        """Apply a function to the two pandas DataFrames of each key, as Spark's cogrouped ``applyInPandas``."""
        self._note("cogroup.applyInPandas")
        plan = self._placing()
        if plan is not None:
            func = without_partition_column(func, lambda frame, column: frame.drop(columns=column))
        left, right = self._grouped(plan)
        return left.cogroup(right).applyInPandas(func, schema)

    def applyInArrow(self, func: Callable[..., Any], schema: StructType | str) -> DataFrame:  # noqa: N802 - Spark's own name
        """Apply a function to the two Arrow tables of each key, as Spark's cogrouped ``applyInArrow``."""
        self._note("cogroup.applyInArrow")
        plan = self._placing()
        if plan is not None:
            func = without_partition_column(func, lambda table, column: table.drop_columns([column]))
        left, right = self._grouped(plan)
        return left.cogroup(right).applyInArrow(func, schema)

    @property
    def _title(self) -> str:
        return "Balanced cogroups"

    def _facts(self, *, measure: bool) -> Facts:
        return self._groups._facts(measure=measure)  # noqa: SLF001 - they describe both sides

    def _grouped(self, plan: Plan | None) -> Iterator[GroupedData]:
        """Yield both sides with the partition as a real column: only then does Spark see that they are placed alike."""
        for df, key in self._sides():
            if plan is None:
                yield df.groupBy(*key.columns)
                continue
            placed = df.withColumn(PARTITION, partition_column(plan, key.fingerprint))
            yield placed.repartitionById(plan.partitions, PARTITION).groupBy(PARTITION, *key.columns)


def without_partition(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of (key, data) whose key lacks our partition; a function of the data alone is returned as is.

    The result is a closure, which Spark ships by value: executors need not have equipoise installed.
    """
    if argument_count(func) != 2:
        return func

    @wraps(func)
    def keyed(key: Any, data: Any) -> Any:
        return func(key[1:], data)

    return _hinted_as(func, keyed)


def without_partition_column(func: Callable[..., Any], drop: Callable[[Any, str], Any]) -> Callable[..., Any]:
    """Return a function of two frames, with or without the key, that sees neither our column nor our partition."""
    column = PARTITION

    @wraps(func)
    def plain(left: Any, right: Any) -> Any:
        return func(drop(left, column), drop(right, column))

    @wraps(func)
    def keyed(key: Any, left: Any, right: Any) -> Any:
        return func(key[1:], drop(left, column), drop(right, column))

    return _hinted_as(func, keyed if argument_count(func) == 3 else plain)


def _hinted_as(func: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Give the wrapper the type hints of the function and no others: Spark chooses the iterator forms by them."""
    wrapper.__annotations__ = dict(getattr(func, "__annotations__", {}))
    return wrapper
