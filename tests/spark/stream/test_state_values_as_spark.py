# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""State takes and returns values in the forms that Spark takes and returns."""

import math
import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StringType, StructType

from equipoise import InvalidArgumentError
from equipoise.spark import LocalQuery

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

PLACE = StructType().add("n", LongType()).add("city", StringType())
NESTED = "place struct<n: long, city: string>, places array<struct<n: long, city: string>>, m map<string, string>"


class Place(NamedTuple):
    n: int
    city: str


@dataclass
class Spot:
    city: str


FORMS = [
    ({"city": "x", "n": 1}, [Row(n=2, city="y"), None], {"k": "v"}),
    [Place(1, "x"), [{"n": 2}, Place(3, "z")], {}],
    Row(place=[1, "x"], places=((4, "u"),), m={"k": None}),
    np.array([(5, "x"), [], {"k": 5}], dtype=object),
    pd.Series([Spot("x"), [{}], {"k": math.nan}]),
]
NUMBERS = [7, -7, True, 7.0, 1.5, 1e7, -1.25e-5, 9999999.5, 0.001, math.nan, math.inf, np.int64(3), np.float64(2.5)]


def described(value):
    """Types, field names and values."""
    if isinstance(value, Row):
        return f"Row({', '.join(f'{name}={described(value[name])}' for name in value.__fields__)})"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(described, value))})"
    if isinstance(value, dict):
        return repr({key: described(each) for key, each in sorted(value.items())})
    return f"{type(value).__name__} {value!r}"


class Forms(StatefulProcessor):
    """Writes each form of a row to each kind of variable, and says what comes back."""

    def init(self, handle):
        self.value = handle.getValueState("value", NESTED, 0)
        self.items = handle.getListState("items", NESTED)
        self.table = handle.getMapState("table", "place struct<n: long, city: string>", NESTED)
        self.letters = handle.getMapState("letters", "letter string", PLACE)
        self.text = handle.getListState("text", "text string")
        self.gone = handle.getValueState("gone", "n int")
        handle.deleteIfExists("gone")

    def handleInputRows(self, key, rows, timerValues):
        reported = []
        self.value.update(each for each in ((np.int64(6), 7), None, None))
        reported.append(self.value.get())
        for number, form in enumerate(FORMS):
            self.value.update(form)
            reported.append(self.value.get())
            self.items.appendValue(form)
            self.table.updateValue(({"n": number},), form)
            reported.append(self.table.getValue(({"n": number},)))
        self.items.appendList(form for form in FORMS[:2])
        reported += [list(self.items.get()), list(self.table.keys()), list(self.table.values()), *self.table.iterator()]
        self.items.put(iter(FORMS[:1]))
        self.letters.updateValue("k", (1, "x"))
        reported += [self.letters.containsKey("k"), self.letters.getValue(("k",)), list(self.letters.keys())]
        self.text.put((number,) for number in NUMBERS)
        reported += list(self.text.get())
        try:
            reported.append(self.gone.exists())
        except PySparkRuntimeError as error:
            reported.append(str(error).partition(":")[0])
        yield pd.DataFrame({"k": [key[0]] * len(reported), "reported": [described(each) for each in reported]})

    def close(self):
        pass


FORMS_HERE = pa.schema({"k": pa.string(), "reported": pa.string()})


def test_rows_go_in_and_come_out_as_with_spark(feed, ours, sparks):
    source = feed("k string, v long", [("a", 1)])
    mine = ours(source.stream(), "k", Forms(), "k string, reported string")
    theirs = sparks(source.stream(), "k", Forms(), "k string, reported string")
    assert sorted(mine.rows) == sorted(theirs.rows)
    assert len(mine.rows) > 2 * len(FORMS) + len(NUMBERS)


class Deleting(StatefulProcessor):
    """Deletes a variable while it is in use."""

    def init(self, handle):
        self.handle = handle
        self.kept = handle.getValueState("kept", PLACE)
        self.gone = handle.getMapState("gone", PLACE, PLACE)
        handle.deleteIfExists("gone")

    def handleInputRows(self, key, rows, timerValues):
        reported = []
        for call in (lambda: self.handle.deleteIfExists("kept"), lambda: self.gone.getValue((1, "x"))):
            with pytest.raises(PySparkRuntimeError) as refused:
                call()
            assert isinstance(refused.value, InvalidArgumentError)
            reported.append(str(refused.value))
        yield pd.DataFrame({"k": key[0], "reported": reported})

    def close(self):
        pass


def test_the_use_of_a_deleted_variable_is_an_error_of_spark_and_of_this_library():
    query = LocalQuery(Deleting(), "k", pa.schema({"k": pa.string()}), FORMS_HERE)
    first, second = query.process(pd.DataFrame({"k": ["a"]}))["reported"]
    assert first.startswith("Error deleting state: deleteIfExists('kept') was called after init")
    assert second.startswith("Error getting value: map state 'gone' is not initialized, because init has deleted it")
    assert query.state() == {}
