# ruff: noqa: ARG002, DTZ001, N802, N803, N815 - the names belong to Spark's protocol, and its rows have no zones
"""The frames of a processor have the dtypes and the values that they have in the running Spark."""

import datetime as dt
import sys
from decimal import Decimal

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

from equipoise.spark import Aggregator, LocalQuery

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

TYPES = {
    "y byte": (1, -128),
    "s short": (2, 32767),
    "i int": (3, 2**31 - 1),
    "l long": (4, 2**40),
    "f float": (0.1, float("nan")),
    "d double": (0.1, float("-inf")),
    "z boolean": (True, False),
    "t string": ("a", ""),
    "x binary": (b"\0", b""),
    "day date": (dt.date(2024, 2, 29), dt.date(1960, 1, 1)),
    "moment timestamp": (dt.datetime(2024, 7, 1, 12, 0, 0, 123456), dt.datetime(1969, 7, 20)),
    "wall timestamp_ntz": (dt.datetime(2024, 7, 1, 12, 0, 0, 123456), dt.datetime(1900, 1, 1)),
    "span interval day to second": (dt.timedelta(days=1, microseconds=5), dt.timedelta(0)),
    "c decimal(20,3)": (Decimal("12345678901234567.125"), Decimal(0)),
    "list array<int>": ([1, None, 3], []),
    "pairs map<string, short>": ({"a": 1, "b": None}, {}),
    "nested struct<a: int, f: float, b: boolean>": ((1, 0.5, True), (None, None, None)),
    "nothing void": (None, None),
}
SCHEMA = "k string, " + ", ".join(TYPES)
OUT = "seen string"
FIRST, SECOND = (tuple(values[which] for values in TYPES.values()) for which in (0, 1))
NULLS = (None,) * len(TYPES)


def described(key, frame):
    """Columns of a frame with their dtypes, the types of their values, and the values."""
    columns = [(key, f"{n} of {len(frame)}", name, str(frame[name].dtype)) for n, name in enumerate(frame.columns)]
    return [
        f"{column}: {[f'{type(value).__name__} {value!r}' for value in frame[column[2]]]} {list(frame.index)}"
        for column in columns
    ]


class Describes(StatefulProcessor):
    """Describes the frames of each key, after those of its initial state."""

    def init(self, handle):
        self.initial = handle.getListState("initial", "seen string")

    def handleInitialState(self, key, initialState, timerValues):
        self.initial.appendList([(f"initial {line}",) for line in described(key, initialState)])

    def handleInputRows(self, key, rows, timerValues):
        seen = [line for (line,) in self.initial.get()]
        for frame in rows:
            seen += described(key, frame)
        yield pd.DataFrame({"seen": seen})

    def close(self):
        pass


BATCHES = {
    "without NULLs": [("a", *FIRST), ("b", *SECOND), ("a", *SECOND)],
    "some NULLs": [("a", *FIRST), ("a", *NULLS), ("b", *FIRST), ("b", *SECOND), ("c", *NULLS)],
    "all NULL": [("a", *NULLS), ("b", *NULLS), ("b", *NULLS)],
}


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_frames_of_every_type_are_those_of_spark(feed, ours, sparks, conf, zone):
    source = feed(SCHEMA, *BATCHES.values())
    with conf(spark__sql__session__timeZone=zone):
        mine = ours(source.stream(), "k", Describes(), OUT, 1)
        theirs = sparks(source.stream(), "k", Describes(), OUT, partitions=1)
    for batch, name in enumerate(BATCHES):
        assert [(name, row.seen) for row in mine.batches[batch]] == [(name, row.seen) for row in theirs.batches[batch]]


@pytest.mark.parametrize("rows", BATCHES.values(), ids=BATCHES)
def test_frames_of_an_initial_state_are_those_of_spark(feed, ours, sparks, spark, rows):
    initial = spark.createDataFrame([row for row in rows if row[0] != "b"], SCHEMA)
    source = feed("k string, v short", [("a", 1), ("b", 2), ("c", 3)])
    mine = ours(source.stream(), "k", Describes(), OUT, 1, initialState=initial)
    theirs = sparks(source.stream(), "k", Describes(), OUT, partitions=1, initialState=initial)
    assert mine.batches == theirs.batches


class Multiplies(StatefulProcessor):
    """Multiplies a column of 32 bits beyond its range."""

    def init(self, handle):
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timerValues):
        total = (self.total.get() or (0,))[0] + sum(int((frame["x"] * 1_000_000).sum()) for frame in rows)
        self.total.update((total,))
        yield pd.DataFrame({"k": [key[0]], "total": [total]})

    def close(self):
        pass


class Totals(Aggregator):
    """The same as an aggregator."""

    bufferSchema = "total long"

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + int((rows["x"] * 1_000_000).sum()),)

    def merge(self, one, other):
        return (one[0] + other[0],)

    def finish(self, key, buffer):
        return (key[0], *buffer)


@pytest.mark.parametrize("processor", [Multiplies(), Totals()], ids=lambda each: type(each).__name__)
def test_a_column_of_32_bits_does_not_overflow(feed, ours, processor):
    source = feed("k string, x int", [("a", 5000), ("a", 7)])
    assert [tuple(row) for row in ours(source.stream(), "k", processor, "k string, total long").rows] == [
        ("a", 5_007_000_000)
    ]


def test_a_local_query_shows_the_same_frames(feed, sparks, spark):
    source = feed(SCHEMA, *BATCHES.values())
    theirs = sparks(source.stream(), "k", Describes(), OUT, partitions=1)
    schema, out = (StructType.fromDDL(each) for each in (SCHEMA, OUT))
    with LocalQuery(Describes(), "k", schema, out, numPartitions=1) as query:
        for batch, rows in enumerate(BATCHES.values()):
            found = query.process(spark.createDataFrame(rows, SCHEMA).toArrow())
            assert sorted(found["seen"]) == sorted(row.seen for row in theirs.batches[batch])
