"""List and map state, and TTL of every kind of variable."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from equipoise_lab.conformance.case import Case, Step, batches, once
from equipoise_lab.conformance.processors import BothForms, text

_ROWS = (("a", 1), ("a", 2), ("b", 3))
_MORE = (("a", 4), ("c", 5), ("d", 6))


class Lists(BothForms):
    """Puts and appends to two lists, and reads them by iterators that take turns."""

    ttl: int | None = None

    def declare(self, handle: Any) -> None:
        self.first = handle.getListState("first", "n int", self.ttl)
        self.second = handle.getListState("second", "n int", self.ttl)
        self.moments = handle.getListState("moments", "at timestamp")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        for _ in rows:
            for kept, extra in ((self.first, 111), (self.second, 222)):
                kept.put([(9,), (3,)])
                kept.appendValue((extra,))
                kept.appendList([(9,), (3,)])
        self.moments.put([(datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC),)])
        one, two, third = self.first.get(), self.second.get(), self.first.get()
        found = [next(each)[0] for each in (one, two, one, third, two, one, third, two, third)]
        yield key[0], f"{found} {text(list(self.moments.get()))} {self.first.exists()}"


class ListsForAnHour(Lists):
    """The same with a TTL that does not end."""

    ttl = 3_600_000


class Long(BothForms):
    """A list of some hundred elements with NULLs, by ``put`` for one key and ``appendList`` for the other."""

    def declare(self, handle: Any) -> None:
        self.list = handle.getListState("list", "n int, nothing int")
        self.size = handle.getValueState("size", "n int")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        before = list(self.list.get())
        assert before == [(number, None) for number in range(len(before))], before  # noqa: S101 - the case's claim
        assert (self.size.get() or (0,))[0] == len(before)  # noqa: S101 - as above
        after = [(number, None) for number in range(len(before), len(before) + 120)]
        if key[0] == "a":
            self.list.put(before + after)
        else:
            self.list.appendList(after)
        self.size.update((len(before) + 120,))
        yield key[0], f"{len(before)} then {len(list(self.list.get()))}"


class Maps(BothForms):
    """Every method of a map."""

    ttl: int | None = None

    def declare(self, handle: Any) -> None:
        self.map = handle.getMapState("map", "word string", "n int", self.ttl)
        self.unused = handle.getListState("unused", "word string")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        count = sum(1 for _ in rows)
        seen: list[Any] = [self.map.exists(), self.map.containsKey(("x",)), self.map.getValue(("absent",))]
        for word in ("y", "x"):
            before = self.map.getValue((word,))[0] if self.map.containsKey((word,)) else 0
            self.map.updateValue((word,), (before + count,))
        seen += [list(self.map.keys()), list(self.map.values()), list(self.map.iterator())]
        self.map.removeKey(("y",))
        seen += [self.map.containsKey(("y",)), self.map.exists()]
        if key[0] == "b":
            self.map.clear()
            seen.append(self.map.exists())
        yield key[0], text(seen)


class MapsForAYear(Maps):
    """The same with a TTL that does not end."""

    ttl = 31_536_000_000


class Expiring(BothForms):
    """Variables that live for a millisecond, an hour and ever, beside each other."""

    def declare(self, handle: Any) -> None:
        for name, ttl in (("short", 1), ("long", 3_600_000), ("ever", None), ("zero", 0)):
            setattr(self, name, handle.getValueState(name, "n int", ttl))
        self.short_list = handle.getListState("short_list", "n int", 1)
        self.long_list = handle.getListState("long_list", "n int", 3_600_000)
        self.short_map = handle.getMapState("short_map", "n int", "n int", 1)
        self.long_map = handle.getMapState("long_map", "n int", "n int", 3_600_000)

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        values = [getattr(self, name) for name in ("short", "long", "ever", "zero")]
        lists, maps = (self.short_list, self.long_list), (self.short_map, self.long_map)
        seen: list[Any] = [(value.get() or (0,))[0] for value in values]
        seen += [[each[0] for each in kept.get()] for kept in lists]
        seen += [{each[0]: value[0] for each, value in kept.iterator()} for kept in maps]
        seen += [each.exists() for each in (*values, *lists, *maps)]
        yield key[0], text(seen)
        if key[0] == "a" and seen[2] == 2:
            return  # not renewed
        for value, before in zip(values, seen, strict=False):
            value.update((before + 1,))
        for kept in lists:
            kept.appendValue((seen[2],))
        for kept in maps:
            kept.updateValue((seen[2],), (seen[2] + 1,))


class AllKinds(BothForms):
    """A value, a list, a map and a value with a TTL that does not end."""

    def declare(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n int")
        self.list = handle.getListState("list", "n int")
        self.map = handle.getMapState("map", "n int", "n int")
        self.kept = handle.getValueState("kept", "n int", 3_600_000)

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        for row in rows:
            number = int(row.n)
            for value in (self.value, self.kept):
                value.update(((value.get() or (0,))[0] + number,))
            self.list.appendValue((number,))
            self.map.updateValue((number,), ((self.map.getValue((number,)) or (0,))[0] + 1,))
        numbers = sorted(each[0] for each in self.list.get())
        counts = sorted((each[0], count[0]) for each, count in self.map.iterator())
        yield key[0], f"{self.value.get()[0]} {self.kept.get()[0]} {numbers} {counts}"


class ZeroTtl(BothForms):
    """A TTL of 0, which stands for none, in a query without a clock."""

    def declare(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n int", 0)

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        before = (self.value.get() or (0,))[0]
        self.value.update((before + 1,))
        yield key[0], str(before)


CASES = {
    "list": Case("put, appendValue, appendList and several iterators of lists", Lists, once(*_ROWS)),
    "list-long-ttl": Case("The same with a TTL that does not end", ListsForAnHour, once(*_ROWS),
                          time_mode="processingTime"),
    "long-list": Case("A list of some hundred elements with NULLs", Long, batches(_ROWS, _ROWS)),
    "map": Case("Every method of a map", Maps, batches(_ROWS, _ROWS)),
    "map-long-ttl": Case("The same with a TTL that does not end", MapsForAYear, batches(_ROWS, _ROWS),
                         time_mode="processingTime"),
    "repartitioned-variables": Case("More and fewer partitions with value, list and map state", AllKinds,
                                    (Step((_ROWS,), partitions=3), Step((_ROWS, _MORE), partitions=6),
                                     Step((_ROWS,), partitions=2)), time_mode="processingTime"),
    "ttl-expires": Case("Values, lists and maps that expire, and others that do not", Expiring,
                        batches(_ROWS, _ROWS, _ROWS), time_mode="processingTime"),
    "ttl-zero": Case("A TTL of 0 means none", ZeroTtl, batches(_ROWS, _ROWS), time_mode="processingTime"),
    "ttl-zero-without-clock": Case("A TTL of 0 with the time mode none", ZeroTtl, batches(_ROWS, _ROWS)),
}  # fmt: skip
