# ruff: noqa: ARG002, DTZ001, N802, N803 - the names belong to Spark's protocol, and its rows have no zones
"""A processor of Rows gives the same answers on our engine as with Spark's ``transformWithState``."""

import datetime as dt
import sys
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType

from equipoise import InvalidArgumentError, UserFunctionError
from equipoise.spark import Aggregator, LocalQuery, read_state

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules


def at(seconds):
    return dt.datetime(2024, 3, 30, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


class AllKinds(StatefulProcessor):
    """Value, list and map state; yields Rows with fields in another order, fields that lack and fields too many."""

    def init(self, handle):
        self.totals = handle.getValueState("totals", "n long, word string, price decimal(10,2), t timestamp")
        self.words = handle.getListState("words", "word string, v int")
        self.counts = handle.getMapState("counts", "word string", "n int")

    def handleInputRows(self, key, rows, timerValues):
        n, word, price, t = self.totals.get() or (0, None, None, None)
        for row in rows:
            n, word, price, t = n + 1, row.word, row["price"], row.t
            known = self.counts.getValue((row.word,))
            self.counts.updateValue((row.word,), ((known[0] if known else 0) + 1,))
            self.words.appendValue((row.word, row.v))
            if key[0] == "part":
                break
        self.totals.update((n, word, price, t))
        words, counts = list(self.words.get()), sorted(map(repr, self.counts.iterator()))
        text = f"{key!r} {tuple(self.totals.get())[:3]} {[tuple(w) for w in words]} {counts}"
        if key[0] == "nothing":
            return
        yield Row(text=text, n=n, t=t, k=key[0], unknown=1)
        if key[0] == "several":
            yield Row(k=key[0])
            yield Row(k=key[0], t=dt.datetime(2024, 1, 1, 12))

    def close(self):
        pass


ROWS = "k string, v int, word string, price decimal(10,2), t timestamp"
OUT = "k string, n long, text string, t timestamp"


def some_rows(batch):
    keys = ["a", "part", "nothing", "several", ""]
    for place in range(16):
        word = ["x", "a", "b"][place % 3]
        price = None if place % 4 == 0 else Decimal(place * 100 + batch).scaleb(-2)
        yield keys[(place * 3 + batch) % 5], None if place % 7 == 0 else place, word, price, at(place + batch)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_state_of_all_kinds(feed, ours, sparks, conf, spark, zone):
    source = feed(ROWS, *(some_rows(batch) for batch in range(2)))
    with conf(spark__sql__session__timeZone=zone):
        mine = ours(source.stream(), "k", AllKinds(), OUT, form="rows")
        theirs = sparks(source.stream(), "k", AllKinds(), OUT, form="rows")
    assert mine.batches == theirs.batches
    assert len(mine.rows) > 10
    assert read_state(ours.checkpoint, spark=spark).count() == 5


class Teller(StatefulProcessor):
    """Says what keys and rows look like."""

    def init(self, handle):
        self.times = handle.getValueState("times", "n int")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.times.get() or (0,))[0] + 1
        self.times.update((n,))
        for row in rows:
            yield Row(text=f"{key!r} {type(key).__name__} {n} {row!r} {type(row).__name__}", made=row[0])

    def close(self):
        pass


def test_keys_and_values_of_many_types(feed, ours, sparks, conf):
    types = (
        "k struct<a: int, t: timestamp>, d date, i int, s short, b byte, l long, f float, x binary, t timestamp, "
        "n timestamp_ntz, c decimal(8,2), yes boolean, m map<string, int>, xs array<timestamp>, "
        "st struct<a: int, m: map<string, struct<t: timestamp>>>, span interval day to second"
    )
    wall = dt.datetime(2024, 1, 1, 5, 6, 7, 8)
    full = (
        *(dt.date(1960, 2, 29), 1, 2, 3, 2**60, 0.5, b"ab", at(1), wall, Decimal("1.50"), True, {"a": 1, "b": None}),
        *([at(2), None], (1, {"c": (at(3),)}), dt.timedelta(days=1, seconds=3)),
    )
    rows = [((1, at(0)), *full), ((None, None), dt.date(2024, 1, 1), *[None] * 14), (None, None, *[None] * 14)]
    source = feed(types, rows, rows[:2] + rows[:1])
    with conf(spark__sql__session__timeZone="Asia/Kathmandu"):
        schema = "text string, made struct<a: int, t: timestamp>"
        mine = ours(source.stream(), ["k", "d"], Teller(), schema, form="rows")
        theirs = sparks(source.stream(), ["k", "d"], Teller(), schema, form="rows")
    assert len(mine.rows) == 6
    assert mine.batches == theirs.batches


class Sessions(StatefulProcessor):
    """Counts rows until nothing came for five seconds of event time."""

    def init(self, handle):
        self.handle = handle
        self.session = handle.getValueState("session", "n int, end long")

    def handleInputRows(self, key, rows, timerValues):
        n, end = self.session.get() or (0, 0)
        for row in rows:
            n, end = n + 1, max(end, int(row.t.timestamp() * 1000) + 5000)
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(end)
        self.session.update((n, end))
        yield Row(key=repr(key), what="rows", n=n, t=timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        n, _ = self.session.get()
        self.session.clear()
        late = timerValues.getCurrentWatermarkInMs() - expiredTimerInfo.getExpiryTimeInMs()
        yield Row(key=repr(tuple(key)), what="end", n=n, t=late)

    def close(self):
        pass


def test_event_time(feed, ours, sparks, conf):
    source = feed(
        "k string, d date, t timestamp",
        [("a", dt.date(2024, 1, 1), at(0)), ("a", dt.date(2024, 1, 1), at(20)), ("b", None, at(3))],
        [("a", None, at(9)), ("b", None, at(11)), ("c", None, at(10)), ("e", None, at(1))],
        [("a", dt.date(2024, 1, 1), at(40)), ("late", None, at(2)), ("in time", None, at(10.001))],
        [("z", None, at(100))],
        [("z", None, at(200))],
    )
    with conf(spark__sql__streaming__noDataMicroBatches__enabled="false"):
        stream = source.stream().withWatermark("t", "10 seconds")
        schema = "key string, what string, n int, t long"
        mine = ours(stream, ["k", "d"], Sessions(), schema, timeMode="eventTime", form="rows")
        theirs = sparks(stream, ["k", "d"], Sessions(), schema, timeMode="eventTime", form="rows")
    assert "end" in {row.what for row in mine.rows}
    assert mine.batches == theirs.batches


class Balance(StatefulProcessor):
    """Begins with what the initial state says, row by row."""

    def init(self, handle):
        self.sum = handle.getValueState("sum", "total long, reported string")

    def handleInitialState(self, key, initialState, timerValues):
        total, reported = self.sum.get() or (0, "")
        self.sum.update((total + initialState.start, reported + f"{key} {initialState};"))

    def handleInputRows(self, key, rows, timerValues):
        total, reported = self.sum.get() or (0, "")
        total += sum(row.v for row in rows)
        self.sum.update((total, reported))
        yield Row(k=key[0], total=total, reported=reported)

    def close(self):
        pass


def test_initial_state(feed, ours, sparks, spark):
    initial = spark.createDataFrame([("a", 100), ("c", 7), ("a", 1), (None, 5)], "k string, start long").coalesce(1)
    source = feed("k string, v long", [("a", 1), ("b", 2)], [("c", 3), (None, 1), ("a", 1)])
    schema = "k string, total long, reported string"
    mine = ours(source.stream(), "k", Balance(), schema, initialState=initial, form="rows")
    theirs = sparks(source.stream(), "k", Balance(), schema, initialState=initial, form="rows")
    assert mine.batches == theirs.batches
    assert read_state(ours.checkpoint, 0, spark=spark).count() == 3


NUMBERS = pa.schema({"k": pa.string(), "v": pa.int64()})
TEXTS = pa.schema({"k": pa.string(), "text": pa.string()})


class Values(StatefulProcessor):
    """Yields the values of a key, or what the test asks for."""

    def __init__(self, make=None):
        self.make = make

    def init(self, handle):
        self.seen = handle.getValueState("seen", StructType([StructField("n", LongType())]))

    def handleInputRows(self, key, rows, timerValues):
        values = [row.v for row in rows]
        n = (self.seen.get() or (0,))[0] + len(values)
        self.seen.update((n,))
        yield Row(k=key[0], text=f"{values} {n}") if self.make is None else self.make(key)

    def close(self):
        pass


def local(processor, **options):
    return LocalQuery(processor, key="k", inputSchema=NUMBERS, outputStructType=TEXTS, form="rows", **options)


def test_a_key_that_spans_record_batches_is_one_iterator_of_rows():
    query = local(Values(), batchRows=2, orderBy="v")
    rows = pd.DataFrame({"k": ["a"] * 5 + ["b"], "v": [5, 4, 3, 2, 1, 9]})
    assert sorted(query.process(rows).to_numpy().tolist()) == [["a", "[1, 2, 3, 4, 5] 5"], ["b", "[9] 1"]]
    assert query.process(rows[:1]).to_numpy().tolist() == [["a", "[5] 6"]]
    assert query.state() == {("a",): {"seen": (6,)}, ("b",): {"seen": (1,)}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda key: (key[0], "x"), "must yield Rows with named fields.*got a tuple"),
        (lambda key: Row(key[0], "x"), "must yield Rows with named fields.*got a Row without names"),
        (lambda key: pd.DataFrame({"k": [key[0]]}), "must yield Rows with named fields.*got a DataFrame"),
    ],
    ids=["tuple", "row without names", "frame"],
)
def test_what_is_not_a_row_with_names_is_refused(make, message):
    with pytest.raises(UserFunctionError, match=message):
        local(Values(make)).process(pd.DataFrame({"k": ["a"], "v": [1]}))


def test_a_value_that_does_not_fit_is_refused_with_its_column():
    said = r"^Values.handleInputRows gave a wrong result: column 'text' that the function yielded does not fit the out"
    with pytest.raises(UserFunctionError, match=said):
        local(Values(lambda key: Row(k=key[0], text=7))).process(pd.DataFrame({"k": ["a"], "v": [1]}))


def test_only_a_stateful_processor_takes_rows():
    class Nothing(Aggregator):
        bufferSchema = StructType([StructField("n", LongType())])  # noqa: N815 - as Spark names schemas

        def zero(self):
            return (0,)

        def reduce(self, buffer, rows):
            return buffer

        def finish(self, key, buffer):
            return None

    with pytest.raises(InvalidArgumentError, match="transformWithState needs a StatefulProcessor, got a Nothing"):
        local(Nothing())
