"""Value state: schemas, deleted variables, rows of a state, restarts, large and nested values."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row
from pyspark.sql.types import IntegerType, StructField, StructType

from equipoise_lab.conformance.case import Case, Step, batches, once
from equipoise_lab.conformance.processors import BothForms, text

_FIRST = (("a", 120), ("a", 46), ("b", 146), ("b", None), ("b", 346))
_SECOND = (("a", 123), ("a", 223), ("b", 6))


class HighReadings(BothForms):
    """Counts high readings; a second variable is declared and deleted in ``init``."""

    def declare(self, handle: Any) -> None:
        self.high = handle.getValueState("high", "n int")
        self.gone = handle.getValueState("gone", StructType([StructField("n", IntegerType())]))
        handle.deleteIfExists("gone")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        try:
            gone = str(self.gone.exists())
        except PySparkRuntimeError as error:
            gone = str(error)[:33]
        high = (self.high.get()[0] if self.high.exists() else 0) + sum(1 for row in rows if row.n and row.n > 100)
        self.high.update((high,))
        yield key[0], f"{high}; {gone}"


class HighReadingsForAnHour(HighReadings):
    """The same with a TTL that does not end."""

    def declare(self, handle: Any) -> None:
        self.high = handle.getValueState("high", "n int", 3_600_000)
        self.gone = handle.getValueState("gone", "n int")
        handle.deleteIfExists("gone")


class Absent(BothForms):
    """Asks for a value that was never set, and clears it."""

    def declare(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n int")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        seen = self.value.exists(), self.value.get()
        self.value.clear()
        yield key[0], text(seen)


class Names(BothForms):
    """Reads values, elements and entries by position, by name and as a dict."""

    def declare(self, handle: Any) -> None:
        schema = "n int, inner struct<word: string, size: int>"
        self.value = handle.getValueState("value", schema)
        self.list = handle.getListState("list", schema)
        self.map = handle.getMapState("map", "word string", schema)

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        given = (7, Row(word="x", size=1))
        self.value.update(given)
        self.list.put([given, (8, Row(word="y", size=2))])
        self.map.updateValue(("k",), given)
        for found in (self.value.get(), *self.list.get(), self.map.getValue(("k",)), *self.map.values()):
            number, inner = found
            named = f"{inner.word} {inner['size']} {inner.asDict()}" if isinstance(inner, Row) else "not a Row"
            yield key[0], f"{number} {text(found)} {named}"
        yield key[0], text(list(self.map.keys()))
        yield key[0], text(list(self.map.iterator()))


class Place(NamedTuple):
    """A struct as a named tuple."""

    road: int
    town: str


class Nested(BothForms):
    """Keeps arrays, structs given as dicts, named tuples and Rows, and maps of maps."""

    def declare(self, handle: Any) -> None:
        struct = "ids array<int>, tags array<array<string>>, about array<struct<key: string, value: string>>"
        struct += ", places array<struct<road: int, town: string>>, at struct<road: int, town: string>"
        self.value = handle.getValueState("value", struct)
        self.list = handle.getListState("list", struct)
        self.map = handle.getMapState(
            "map", "word string", "n int, counts map<string, array<int>>, deep map<string, map<string, int>>"
        )

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        total = sum(int(row.n) for row in rows)
        place, tags, about = Place(1, "Ulm"), [["p", "q"], ["r"]], [{"key": "env", "value": "prod"}]
        if self.value.exists():
            ids, tags, found, places, at = self.value.get()
            yield key[0], f"value {text((ids, tags, found, places, at))}"
            self.value.update(([each + total for each in ids], tags, found, places, at))
            elements = [([*ids, total], *others) for ids, *others in self.list.get()]
            yield key[0], f"list {text(elements)}"
            self.list.put(elements)
            n, counts, deep = self.map.getValue(("w",))
            counts["again"] = [total]
            deep.setdefault("outer", {})["again"] = total
            self.map.updateValue(("w",), (n + 1, counts, deep))
        else:
            self.value.update(([0], tags, about, [place, Row(road=3, town="Bonn")], {"road": 5, "town": "Jena"}))
            self.list.put([([total], tags, about, [place], place)])
            self.map.updateValue(("w",), (0, {"x": [1]}, {"outer": {"inner": 5}}))
        yield key[0], f"map {text(self.map.getValue(('w',)))}"


class Large(BothForms):
    """Keeps values of half a megabyte in each kind of variable."""

    def declare(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "word string")
        self.list = handle.getListState("list", "word string")
        self.map = handle.getMapState("map", "word string", "word string")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        word = "a" * 524_288
        self.value.update((word,))
        self.list.put([(word,), (word + "b",), (word + "c",)])
        self.map.updateValue(("k",), (word,))
        words = [self.value.get()[0], *(each[0] for each in self.list.get()), self.map.getValue(("k",))[0]]
        yield key[0], f"{[len(each) for each in words]} {[each[-1] for each in words]}"


_FORMAT_2 = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
_REPARTITIONED = (Step((_FIRST,), partitions=3), Step((_SECOND,), partitions=6), Step((_FIRST,), partitions=2))

CASES = {
    "value": Case("A value that lasts from batch to batch; using a variable deleted in init raises", HighReadings,
                  batches(_FIRST, _SECOND)),
    "value-long-ttl": Case("The same with a TTL that does not end", HighReadingsForAnHour, batches(_FIRST, _SECOND),
                           time_mode="processingTime"),
    "restart": Case("A query that is stopped and started again", HighReadings, (Step((_FIRST,)), Step((_SECOND,))),
                    ),
    "append": Case("Output mode append", HighReadings, batches(_FIRST, _SECOND), output_mode="append"),
    "restart-with-table": Case("A table of Parquet files over two starts", HighReadings,
                               (Step((_FIRST,)), Step((_SECOND,))), output_mode="append", parquet=True),
    "process-all-available": Case("processAllAvailable without a clock", HighReadings,
                                  (Step((_FIRST, _SECOND)), Step((_SECOND,))), process_all=True),
    "checkpoint-format-2": Case("The second format of Spark's checkpoints", HighReadings,
                                (Step((_FIRST,)), Step((_SECOND,))), settings=_FORMAT_2),
    "repartitioned": Case("More and fewer partitions at the next starts", HighReadings, _REPARTITIONED),
    "value-absent": Case("A value that was never set", Absent, once(*_FIRST)),
    "row-values": Case("Values of state are Rows, also within structs", Names, once(("a", 1))),
    "nested-state": Case("Arrays, structs and maps in state, given as dicts, tuples and Rows", Nested,
                         batches((("a", 1), ("a", 2)), (("a", 4),))),
    "large-values": Case("Values of half a megabyte", Large, once(("a", 1), ("b", 2))),
}  # fmt: skip
