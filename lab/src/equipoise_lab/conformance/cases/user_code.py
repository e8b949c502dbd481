"""User code beyond the protocol: keys that are NULL, values of other types, objects made in ``init``."""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd

from equipoise_lab.conformance.case import BOTH, PANDAS, ROW, Case, Step, batches, once
from equipoise_lab.conformance.processors import BothForms, text


class ShowsKey(BothForms):
    """Shows the key with its types, and keeps it in the state."""

    columns = ("seen",)

    def declare(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n int")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        count = (self.count.get() or (0,))[0] + sum(1 for _ in rows)
        self.count.update((count,))
        yield (f"{type(key).__name__} {type(key[0]).__name__} {text(key)} {count}",)


class FillsInInit(BothForms):
    """A list of the class's own that ``init`` fills, and a lock that ``init`` makes."""

    def __init__(self, frames: bool) -> None:
        super().__init__(frames)
        self.filled: list[str] = []

    def declare(self, handle: Any) -> None:
        self.filled.append("once")
        self.lock = threading.Lock()
        self.count = handle.getValueState("count", "n int")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        with self.lock:
            self.count.update((1,))
        yield key[0], text(self.filled)


class Stores(BothForms):
    """Stores a given value in a variable of a given type and reads it again.

    Parameters
    ----------
    kind
        SQL type of the variable.
    value
        The value.
    """

    def __init__(self, frames: bool, kind: str, value: Any) -> None:
        super().__init__(frames)
        self.kind, self.value = kind, value

    def declare(self, handle: Any) -> None:
        self.state = handle.getValueState("state", f"v {self.kind}")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        self.state.update((self.value,))
        yield key[0], text(self.state.get())


class PutsGenerator(BothForms):
    """Gives generators where lists are meant."""

    def declare(self, handle: Any) -> None:
        self.list = handle.getListState("list", "n int")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        self.list.put((n,) for n in range(2))
        self.list.appendList((n,) for n in range(2, 4))
        yield key[0], text([each[0] for each in self.list.get()])


class StoresSeries(BothForms):
    """Gives a row of a frame, a pandas Series, as a value."""

    def declare(self, handle: Any) -> None:
        self.state = handle.getValueState("state", "x double, y double")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        self.state.update(pd.Series([1.5, 2.5], index=["x", "y"]))
        yield key[0], text(self.state.get())


class StoresDict(BothForms):
    """Gives a dict where a row is meant, whose only field is text."""

    def declare(self, handle: Any) -> None:
        self.state = handle.getValueState("state", "v string")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        self.state.update({"v": "x"})
        yield key[0], text(self.state.get())


class Raises(BothForms):
    """An error in the user's code."""

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        raise ValueError("poison")


class WrongType(BothForms):
    """Text for a number in the output."""

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        yield key[0], "not a number"


def _key(kind: str, value: Any) -> Case:
    # With pandas, Spark fails on a timestamp that is NULL. It stores an int of a frame that also has NULL under the key
    # NULL, and gives each row of a NULL number to the processor alone, since nan is not equal to itself.
    return Case(
        f"A key of type {kind} that is NULL in some batches",
        ShowsKey,
        batches(((value, 1), (value, 2)), ((None, 3),), ((value, 4),), ((None, 5),)),
        schema=f"id {kind}, n int",
        output="seen string",
        forms=ROW if kind == "timestamp" else BOTH,
        apart={"count": {"1.5": "Row(n=3)", "None": "Row(n=2)"}} if kind == "double" else None,
        differs="NULL and NaN under one key" if kind == "double" else None,
    )


def _stored(kind: str, value: Any, **options: Any) -> Case:
    about = f"{value!r} for state of type {kind}"
    return Case(about, partial(Stores, kind=kind, value=value), once(("a", 1)), **options)


_ROWS = (("a", 1), ("b", 2))
_DICT = "Spark stores the names of the fields"
_INT = "Spark stores NULL or another int"

CASES = {
    **{f"null-key-{kind}": _key(kind, value) for kind, value in (
        ("string", "a"), ("int", 1), ("bigint", 1), ("double", 1.5), ("boolean", True), ("date", "2020-01-02"),
        ("timestamp", "2020-01-02T03:04:05Z"), ("decimal(5,2)", 1.25))},
    "null-key-twice": Case("Two NULL keys of type int in one batch", ShowsKey, once((None, 1), (1, 2), (None, 3)),
                           schema="id int, n int", output="seen string",
                           meant=("'tuple float (nan) 2'", "'tuple int (1) 1'"),
                           differs="a call for each row, and the state of the other keys under NULL",
                           apart={"count": {"1": "Row(n=1)", "None": "Row(n=2)"}}),
    "filled-in-init": Case("A list that init fills and a lock that it makes", FillsInInit,
                           (Step((_ROWS, _ROWS)), Step((_ROWS,)))),
    "generator-in-put": Case("Generators in put and appendList", PutsGenerator, once(*_ROWS)),
    "series-as-value": Case("A pandas Series as a value", StoresSeries, once(*_ROWS), forms=PANDAS),
    "int-for-string": _stored("string", 7),
    "nan-for-string": _stored("string", float("nan")),
    "none-for-int": _stored("int", None),
    "int-for-double": _stored("double", 7, stricter="Spark stores NULL", meant=("'a', '(7.0)'",)),
    "int-for-bigint": _stored("bigint", 2**40),
    "error-in-processor": Case("An error of the user's code ends the query", Raises, once(*_ROWS), refusal="poison"),
    "text-for-number": Case("Text for a number in the output is an error", WrongType, once(*_ROWS),
                            refusal="Failed to convert|exception was thrown", output="id string, seen int"),
    "float-for-int": _stored("int", 7.0, stricter=_INT),
    "text-for-int": _stored("int", "7", stricter=_INT),
    "bool-for-int": _stored("int", True, stricter=_INT),
    "dict-for-row": Case("A dict as a row of type `v string`", StoresDict, once(("a", 1)), stricter=_DICT),
    "float-for-bigint": _stored("bigint", 7.0, stricter=_INT),
    "large-for-int": _stored("int", 2**40, stricter=_INT),
}  # fmt: skip
