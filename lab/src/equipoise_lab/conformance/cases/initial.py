"""Initial state, key columns and batch DataFrames."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise_lab.conformance.case import Case, Initial, Step, batches, once
from equipoise_lab.conformance.cases.lists_and_maps import Lists, Maps, MapsForAYear
from equipoise_lab.conformance.cases.values import HighReadings
from equipoise_lab.conformance.processors import BothForms, text


class Sums(BothForms):
    """Sum of a key, from an initial one."""

    def declare(self, handle: Any) -> None:
        self.sum = handle.getValueState("sum", "n int")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        total = (self.sum.get() or (0,))[0] + sum(int(row.n) for row in rows)
        self.sum.update((total,))
        yield key[0], text((len(key), total))

    def initial(self, key: Any, rows: Iterator[Any], times: Any) -> None:
        self.sum.update((sum(int(row.start) for row in rows),))


class SumsByTwo(Sums):
    """The same by two key columns that do not stand together."""

    columns = ("id", "other", "seen")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        for _, seen in super().rows(key, rows, times):
            yield key[0], key[1], seen


class SumsWithTimers(Sums):
    """The same; each initial state registers a timer that has expired."""

    def initial(self, key: Any, rows: Iterator[Any], times: Any) -> None:
        super().initial(key, rows, times)
        self.handle.registerTimer(times.getCurrentProcessingTimeInMs() - 1)

    def expired(self, key: Any, times: Any, timer: Any) -> Iterator[tuple[Any, ...]]:
        self.handle.deleteTimer(timer.getExpiryTimeInMs())
        yield key[0], f"expired {(self.sum.get() or (None,))[0]}"


class SumsAndList(Sums):
    """The same, and a list of all initial rows of a key."""

    def declare(self, handle: Any) -> None:
        super().declare(handle)
        self.list = handle.getListState("list", "n int")

    def initial(self, key: Any, rows: Iterator[Any], times: Any) -> None:
        for row in rows:
            self.list.appendValue((int(row.n),))

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        kept = [each[0] for each in self.list.get()]
        for each, seen in super().rows(key, rows, times):
            yield each, f"{seen} {kept}"


_FIRST, _SECOND = (("a", 1), ("a", 2), ("b", 3)), (("a", 4), ("c", 5))
_READINGS = batches((("a", 120), ("a", 46), ("b", 146)), (("a", 123), ("c", 5)))
_START = Initial("id string, start int", (("a", 100), ("c", 200)))
_THREE = "n int, id string, m int, other string"
_APART = once((1, "a", 0, "x"), (2, "a", 0, "x"), (3, "b", 0, "y"), (4, "a", 0, "y"))
_KEPT = Initial("id string, n int", (("a", 7), ("a", 8), ("b", 9)), through_statestore=True)

CASES = {
    "initial-state": Case("Initial state arrives once, also for keys without rows", Sums, batches(_FIRST, _SECOND),
                          initial=_START),
    "initial-state-then-select": Case("A selection after the operator", Sums, batches(_FIRST, _SECOND),
                                      initial=_START, output="id string, seen string",
                                      then=lambda df: df.select(F.col("id").alias("key"),
                                                                F.to_json(F.struct(F.col("seen"))).alias("value"))),
    "initial-state-timers": Case("Timers of the initial state fire in the first batch", SumsWithTimers,
                                 batches(_FIRST, _SECOND), initial=_START, time_mode="processingTime"),
    "initial-state-timers-one-partition": Case("The same with one partition", SumsWithTimers,
                                               batches(_FIRST, _SECOND, partitions=1), initial=_START,
                                               time_mode="processingTime"),
    "initial-state-from-statestore": Case("Initial state of several rows, read from a checkpoint of Spark", SumsAndList,
                                          batches(_FIRST, _SECOND), initial=_KEPT),
    "initial-state-from-statestore-one-partition": Case("The same with one partition", SumsAndList,
                                                        batches(_FIRST, _SECOND, partitions=1), initial=_KEPT),
    "restart-with-initial-state": Case("A restart ignores the initial state", Sums, (Step((_FIRST,)), Step((_SECOND,))),
                                       initial=_START),
    "key-columns-apart": Case("Key columns that do not stand together", SumsByTwo, _APART, schema=_THREE,
                              key=("id", "other"), output="id string, other string, seen string"),
    "key-columns-apart-initial-state": Case("The same with initial state", SumsByTwo, _APART, schema=_THREE,
                                            key=("id", "other"), output="id string, other string, seen string",
                                            initial=Initial("start int, id string, other string",
                                                            ((100, "a", "x"), (200, "z", "z")))),
    "batch": Case("A batch DataFrame", Maps, once(*_FIRST), batch=True),
    "batch-initial-state": Case("A batch DataFrame with initial state", Sums, once(*_FIRST), batch=True,
                                initial=_START),
    "spark-reads-maps": Case("Spark's statestore and state-metadata: maps", MapsForAYear, batches(_FIRST, _SECOND),
                             time_mode="processingTime", spark_reads=True),
    "spark-reads-maps-initial-state": Case("The same with initial state", MapsForAYear, batches(_FIRST, _SECOND),
                                           time_mode="processingTime", spark_reads=True, initial=_START),
    "spark-reads-lists": Case("Spark's statestore and state-metadata: lists", Lists, batches(_FIRST, _SECOND),
                              time_mode="processingTime", spark_reads=True),
    "spark-reads-changes": Case("Spark's statestore: changes of values", HighReadings, _READINGS,
                                time_mode="processingTime", spark_reads=True),
}  # fmt: skip
