"""Schemas of state that change between two starts of a query. Spark allows it with the avro encoding."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from equipoise_lab.conformance.case import Case, Step
from equipoise_lab.conformance.processors import BothForms, text


class Versioned(BothForms):
    """Shows and renews a value of any schema.

    Parameters
    ----------
    schema
        Schema of the value.
    value
        The value that is stored.
    """

    def __init__(self, frames: bool, schema: str, value: tuple[Any, ...]) -> None:
        super().__init__(frames)
        self.schema, self.value = schema, value

    def declare(self, handle: Any) -> None:
        self.state = handle.getValueState("state", self.schema)

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        found = self.state.get()
        yield key[0], text(None if found is None else dict(zip(_names(self.schema), found, strict=True)))
        self.state.update(self.value)


class Variables(BothForms):
    """Has some of the variables ``old`` and ``new``, and deletes ``old`` if it has only the other.

    Parameters
    ----------
    names
        The variables it has.
    """

    def __init__(self, frames: bool, names: tuple[str, ...]) -> None:
        super().__init__(frames)
        self.names = names

    def declare(self, handle: Any) -> None:
        self.kept = {name: handle.getValueState(name, "n int") for name in self.names}
        if self.names == ("new",):
            handle.deleteIfExists("old")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        found = {name: (kept.get() or (0,))[0] for name, kept in self.kept.items()}
        for name, kept in self.kept.items():
            kept.update((found[name] + 1,))
        yield key[0], text(found)


def _names(schema: str) -> list[str]:
    return [field.split()[0].rstrip(":") for field in schema.split(", ")]


def _version(schema: str, *value: Any) -> Callable[[bool], Versioned]:
    return partial(Versioned, schema=schema, value=value)


_AVRO = {"spark.sql.streaming.stateStore.encodingFormat": "avro"}
_ROWS = ((("a", 1), ("b", 1)),)
_PLAIN = _version("n int, word string", 1, "one")
_WIDE = _version("n int, word string, count int, active boolean, score float", 2, "two", 3, True, 4.5)
_REORDERED = _version("word string, n int, score float, count int, active boolean", "five", 6, 7.5, 8, False)
_LONG = _version("n bigint, word string", 2**40, "nine")
_DOUBLE = _version("word string, score double", "ten", 1.5)
_FLOAT = _version("word string, score float", "ten", 1.5)

CASES = {
    "evolution": Case("Fields of state are added, removed, reordered and widened", _PLAIN,
                      (Step(_ROWS), Step(_ROWS, _WIDE), Step(_ROWS, _PLAIN), Step(_ROWS, _REORDERED),
                       Step(_ROWS, _LONG)), settings=_AVRO),
    "evolution-float-to-double": Case("A float becomes a double", _FLOAT, (Step(_ROWS), Step(_ROWS, _DOUBLE)),
                                      settings=_AVRO),
    "evolution-narrowed": Case("A long does not become an int again", _LONG,
                               (Step(_ROWS), Step(_ROWS, _PLAIN)), refusal="SCHEMA_EVOLUTION", settings=_AVRO),
    "state-not-nullable": Case("A field that may not be NULL is refused", _version("n int not null", 1), (Step(_ROWS),),
                               refusal="NULLABLE", settings=_AVRO),
    "variable-added": Case("A variable that is new at a restart", partial(Variables, names=("old",)),
                           (Step(_ROWS), Step(_ROWS, partial(Variables, names=("old", "new"))))),
    "variable-removed": Case("A variable that is deleted at a restart, and has no state when it comes back",
                             partial(Variables, names=("old",)),
                             (Step(_ROWS), Step(_ROWS, partial(Variables, names=("new",))),
                              Step(_ROWS, partial(Variables, names=("old", "new"))))),
}  # fmt: skip
