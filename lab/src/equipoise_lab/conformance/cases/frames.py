# ruff: noqa: N802, N803 - the names belong to Spark's protocol
"""Frames of the pandas form, and the types of output rows."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from equipoise_lab.conformance.case import PANDAS, Case, Initial, batches, once
from equipoise_lab.conformance.cases.initial import Sums
from equipoise_lab.conformance.processors import BothForms


class FrameProcessor(StatefulProcessor):
    """A processor of the pandas form without state."""

    def __init__(self, frames: bool) -> None:
        assert frames  # noqa: S101 - these cases have no Row form

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n int")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.count.update((len(initialState),))

    def close(self) -> None:
        pass


class Chunks(FrameProcessor):
    """Length and index of each frame of a key."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        found = [(len(frame), [int(each) for each in frame.index]) for frame in rows]
        yield pd.DataFrame({"id": [key[0]], "seen": [str(found)]})


class Dtypes(FrameProcessor):
    """Dtypes and values of a frame."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for frame in rows:
            for name in frame.columns:
                seen = f"{name} {frame[name].dtype} {[repr(each) for each in frame[name]]}"
                yield pd.DataFrame({"id": [key[0]], "seen": [seen]})


class WholeNumber(FrameProcessor):
    """Yields a whole number for a decimal column."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        yield pd.DataFrame({"id": [key[0]], "seen": [12345]})


class ExtraColumn(FrameProcessor):
    """Yields a column that the output schema does not have."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        yield pd.DataFrame({"extra": [1], "seen": ["x"], "id": [key[0]]})


class MissingColumn(FrameProcessor):
    """Lacks a column of the output schema."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        yield pd.DataFrame({"id": [key[0]]})


class NullOutput(FrameProcessor):
    """Yields NULL in every column."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        yield pd.DataFrame({"id": [key[0], None], "seen": ["x", None]})


class NestedOutput(BothForms):
    """Yields arrays, maps and structs within each other."""

    columns = ("id", "words", "counts", "inner", "by_word")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        count = sum(1 for _ in rows)
        inner = [{"n": n, "x": n * 1.5, "words": [f"w{n}"] * n, "sizes": {f"k{n}": f"v{n}"}} for n in range(count)]
        structs = inner if self.frames else [Row(**each) for each in inner]
        words = [f"item {n}" for n in range(count)]
        yield key[0], words, {word: word * 2 for word in words}, structs, {f"at {each['n']}": each for each in structs}


_ROWS = (("a", 1), ("a", 2), ("a", 3), ("b", 4))
_START = Initial("id string, n int", (("a", 1), ("c", 2)))
_FEW_BYTES = {"spark.sql.execution.arrow.maxBytesPerBatch": "2"}
_MANY_BYTES = {"spark.sql.execution.arrow.maxBytesPerBatch": "100000"}
_ONE_ROW = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
_ANY_ROWS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "-1"}
_SEVEN_ROWS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "7"}
_TWO_ROWS = {"spark.sql.execution.arrow.transformWithStateInPandas.maxRecordsPerBatch": "2"}
_DECIMAL = "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"
_INNER = "struct<n: int, x: double, words: array<string>, sizes: map<string, string>>"
_TYPES = (
    "id string, b boolean, y tinyint, s smallint, i int, l bigint, f float, d double, t string, at timestamp, day date,"
    " exact decimal(10, 2), raw binary, list array<int>, inner struct<n: int>, pairs map<string, int>"
)
_FULL = ("a", True, 1, 2, 3, 4, 1.5, 2.5, "x", "2020-01-02T03:04:05Z", "2020-01-02", 1.25, "eA==", [1], {"n": 1},
         {"k": 1})  # fmt: skip


def _frames(about: str, make: Any, **options: Any) -> Case:
    return Case(about, make, options.pop("steps", batches(_ROWS, _ROWS)), forms=PANDAS, **options)


CASES = {
    "chunks-few-bytes": _frames("Frames of few bytes", Chunks, settings=_FEW_BYTES),
    "chunks-few-bytes-initial-state": _frames("The same with initial state", Chunks, settings=_FEW_BYTES,
                                              initial=_START),
    "chunks-many-bytes": _frames("Frames of many bytes", Chunks, settings=_MANY_BYTES),
    "chunks-many-bytes-initial-state": _frames("The same with initial state", Chunks, settings=_MANY_BYTES,
                                               initial=_START),
    "chunks-one-row": _frames("Frames of one row", Chunks, settings=_ONE_ROW),
    "chunks-one-row-initial-state": _frames("The same with initial state", Chunks, settings=_ONE_ROW, initial=_START),
    "chunks-any-rows": _frames("Frames of any number of rows", Chunks, settings=_ANY_ROWS),
    "chunks-any-rows-initial-state": _frames("The same with initial state", Chunks, settings=_ANY_ROWS,
                                             initial=_START),
    "chunks-two-rows": _frames("A setting of the operator for frames of two rows, which Spark does not use", Chunks,
                               settings=_TWO_ROWS),
    "dtypes": _frames("Dtypes of frames", Dtypes, schema=_TYPES, steps=once(_FULL)),
    "dtypes-with-null": _frames("Dtypes of frames with NULLs", Dtypes, schema=_TYPES,
                                steps=once(_FULL, ("a", *[None] * (len(_FULL) - 1)))),
    "int-to-decimal": _frames("A whole number for a decimal column, with Spark's coercion", WholeNumber,
                              output="id string, seen decimal(10, 2)", batch=True, settings={_DECIMAL: "true"},
                              steps=once(*_ROWS)),
    "int-to-decimal-off": Case("The same without the coercion is an error", WholeNumber, once(*_ROWS), forms=PANDAS,
                               output="id string, seen decimal(10, 2)", batch=True, settings={_DECIMAL: "false"},
                               refusal="Failed to convert"),
    "extra-column": _frames("An output column that the schema does not have is left out", ExtraColumn,
                            steps=once(*_ROWS)),
    "missing-column": Case("A missing output column is an error", MissingColumn, once(*_ROWS), forms=PANDAS,
                           refusal="KeyError"),
    "null-output": _frames("NULL in the output", NullOutput, steps=once(*_ROWS)),
    "column-names": _frames("Frames of columns whose names are not identifiers", Dtypes, steps=once(("a", 1, 2, 3)),
                            schema="id string, `a b` int, `class` int, `_x` int"),
    "nested-output": Case("Arrays, maps and structs in the output", NestedOutput, batches(_ROWS, _ROWS),
                          output=f"id string, words array<string>, counts map<string, string>, inner array<{_INNER}>, "
                                 f"by_word map<string, {_INNER}>"),
    "long-group": Case("A group of many rows", Sums, once(*(("a", n) for n in range(300)), ("b", 1)),
                       settings=_SEVEN_ROWS),
}  # fmt: skip
