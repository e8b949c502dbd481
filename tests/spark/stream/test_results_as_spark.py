# ruff: noqa: ARG002, DTZ001, N802, N803 - the names belong to Spark's protocol, and its rows have no zones
"""What a processor may yield is what Spark takes, and it becomes the same rows."""

import datetime as dt
import sys
from decimal import Decimal

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

from equipoise import UserFunctionError
from equipoise.spark import LocalQuery

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

NOON = dt.datetime(2024, 7, 1, 12)
NESTED = (
    "k string, st struct<a: int, t: timestamp>, m map<string, struct<a: int>>, l array<struct<a: int, b: string>>, "
    "ts array<timestamp>, deep struct<m: map<string, array<int>>>"
)


class Gives(StatefulProcessor):
    """Gives what a function makes of the key."""

    def __init__(self, make):
        self.make = make

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        return self.make(key[0])

    def close(self):
        pass


def nested_frame(key):
    dicts = [{"a": 1, "t": NOON}, {"m": {"x": {"a": 1}}, "l": [{"b": "b", "a": 1}], "deep": {"m": {"x": [1, None]}}}]
    tuples = [(2, NOON), {"m": {"x": (1,), "y": None}, "l": [(1, "b"), None], "deep": ({"y": []},)}]
    rows = [Row(a=3, t=None), {"m": {"x": Row(a=1)}, "l": [Row(a=1, b="b")], "deep": Row(m={"x": None})}]
    for struct, others in (dicts, tuples, rows):
        yield pd.DataFrame([{"k": key, "st": struct, "ts": [NOON, None], **others}])
    yield pd.DataFrame({name: [None] for name in ("k", "st", "m", "l", "ts", "deep")})


def nested_rows(key):
    yield Row(
        k=key, st=Row(a=1, t=NOON), m={"x": Row(a=1)}, l=[Row(a=1, b="b")], ts=[NOON, None], deep=Row(m={"x": [1]})
    )
    yield Row(k=key, st={"a": 2, "t": NOON}, m={"x": {"a": 1}}, l=[{"b": "b"}, None], ts=[], deep={"m": {"y": None}})
    yield Row(k=key, more="is left out", st=None)


@pytest.mark.parametrize(("form", "make"), [("pandas", nested_frame), ("rows", nested_rows)], ids=["pandas", "rows"])
def test_nested_columns(feed, ours, sparks, conf, form, make):
    source = feed("k string, v int", [("a", 1), ("b", 1)])
    with conf(spark__sql__session__timeZone="Asia/Kathmandu"):
        mine = ours(source.stream(), "k", Gives(make), NESTED, form=form)
        theirs = sparks(source.stream(), "k", Gives(make), NESTED, form=form)
    assert len(mine.rows) == (8 if form == "pandas" else 6)
    assert mine.batches == theirs.batches


FLAT = "k string, n long, x double, d decimal(10,2), word string"


def flat_frames(key):
    whole = {"k": [key], "n": [1], "x": [2], "d": [Decimal("1.5")], "word": ["w"]}
    return [
        pd.DataFrame({**whole, "more": ["is left out"]})[["more", "word", "d", "x", "n", "k"]],
        pd.DataFrame({**whole, "n": ["7"], "x": ["0.5"]}),
        pd.DataFrame({**whole, "n": [7.0], "word": pd.Categorical(["c"])}),
        pd.DataFrame({**whole, "n": [float("nan")]}),
        pd.DataFrame({**whole, "n": [2**60 + 1]}),
        pd.DataFrame(whole).set_axis(range(5), axis=1),
        pd.DataFrame([[key, 1, 2.0, None, "w", "is left out"]]),
        pd.DataFrame(index=range(2)),
        pd.DataFrame(),
    ]


def test_frames_of_flat_columns_in_a_list(feed, ours, sparks):
    source = feed("k string, v int", [("a", 1), ("b", 1)])
    mine = ours(source.stream(), "k", Gives(flat_frames), FLAT)
    assert sum(row.n == 2**60 + 1 for row in mine.rows) == 2
    assert mine.batches == sparks(source.stream(), "k", Gives(flat_frames), FLAT).batches


def reused(key):
    frame = pd.DataFrame({"k": [key], "n": [0]})
    for n in range(3):
        frame.loc[0, "n"] = n
        yield frame


def test_a_frame_may_change_after_it_was_yielded(feed, ours, sparks):
    source = feed("k string, v int", [("a", 1), ("b", 1)])
    mine = ours(source.stream(), "k", Gives(reused), "k string, n long")
    assert mine.batches == sparks(source.stream(), "k", Gives(reused), "k string, n long").batches


def by_position(key):
    yield pd.DataFrame({"n": [key], "k": [1]})


def whole_decimals(key):
    yield pd.DataFrame({"k": [key], "d": [7]})


def rounded(key):
    yield pd.DataFrame({"k": [key], "n": [1.5]})


SETTINGS = {
    "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled": ("true", whole_decimals, "d decimal(10,2)"),
    "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName": ("false", by_position, "n long"),
    "spark.sql.execution.pandas.convertToArrowArraySafely": ("false", rounded, "n long"),
}


@pytest.mark.parametrize("name", SETTINGS, ids=lambda name: name.rpartition(".")[2])
def test_settings_of_the_session(feed, ours, sparks, conf, name):
    value, make, column = SETTINGS[name]
    schema = f"k string, {column}"
    source = feed("k string, v int", [("a", 1), ("b", 1)])
    with conf(**{name.replace(".", "__"): value}):
        mine = ours(source.stream(), "k", Gives(make), schema)
        assert mine.batches == sparks(source.stream(), "k", Gives(make), schema).batches
    assert len(mine.rows) == 2


@pytest.mark.parametrize("name", SETTINGS, ids=lambda name: name.rpartition(".")[2])
def test_what_needs_a_setting_is_refused_without_it(name):
    _, make, column = SETTINGS[name]
    given = StructType().add("k", "string").add("v", "long")
    out = StructType().add("k", "string").add(*column.split())
    with (
        LocalQuery(Gives(make), "k", given, out, numPartitions=1) as query,
        pytest.raises(UserFunctionError, match=r"^Gives.handleInputRows gave a wrong result: column"),
    ):
        query.process(pd.DataFrame({"k": ["a"], "v": [1]}))
