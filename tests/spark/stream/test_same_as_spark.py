# ruff: noqa: ARG002, DTZ001, N802, N803 - the names belong to Spark's protocol, and its rows have no zones
"""A processor gives the same answers on our engine as with Spark's ``transformWithStateInPandas``."""

import datetime as dt
import sys
from decimal import Decimal

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor

from equipoise.spark import read_state

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules


def at(seconds):
    return dt.datetime(2024, 3, 30, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


class AllKinds(StatefulProcessor):
    """Value, list and map state with NULLs; reads and yields in every way that is allowed."""

    def init(self, handle):
        self.totals = handle.getValueState(
            "totals", "n long, total double, word string, price decimal(10,2), t timestamp"
        )
        self.words = handle.getListState("words", "word string, v long")
        self.counts = handle.getMapState("counts", "word string, odd boolean", "n int")

    def handleInputRows(self, key, rows, timerValues):
        n, total, word, price, t = self.totals.get() or (0, 0.0, None, None, None)
        seen = []
        for frame in rows:
            seen.append(self.look(frame))
            for row in frame.itertuples(index=False):
                n += 1
                total += 0.0 if pd.isna(row.v) else row.v
                word, price, t = row.word, row.price, row.t
                odd = None if pd.isna(row.v) else bool(row.v % 2)
                known = self.counts.getValue((row.word, odd))
                self.counts.updateValue((row.word, odd), ((known[0] if known else 0) + 1,))
                self.words.appendValue((row.word, None if pd.isna(row.v) else int(row.v)))
            if key[0] == "part":
                break
        self.totals.update((n, total, word, price, t))
        if n % 5 == 0:
            self.counts.removeKey(("a", True))
        if n > 9:
            self.words.put([("many", n), (None, None)])
        if key[0] == "nothing":
            return
        words = [f"{w}{v}" for w, v in self.words.get()]
        counts = sorted(f"{k[0]}/{k[1]}={v[0]}" for k, v in self.counts.iterator())
        state = self.totals.get()
        text = f"{key!r} {tuple(state)[:4]} {words} {counts} {self.words.exists()} {seen if key[0] == 'look' else ''}"
        made = pd.DataFrame({"k": [key[0]], "n": [n], "text": [text], "price": [state[3]], "t": [state[4]]})
        if key[0] == "several":
            yield made
            yield made.iloc[:0]
            yield made[["t", "price", "text", "n", "k"]]
        elif key[0] == "numbered":
            yield made.set_axis(range(5), axis=1)
        else:
            yield made

    def look(self, frame):
        types = {name: str(frame[name].dtype) for name in ("k", "v", "word", "price", "t", "yes")}
        return f"{list(frame.columns)} {list(frame.index)} {types} {list(map(str, frame['t']))}"

    def close(self):
        pass


KEYS = ["look", "part", "nothing", "several", "numbered", None, ""]
ROWS = "k string, v long, word string, price decimal(10,2), t timestamp, yes boolean"
OUT = "k string, n long, text string, price decimal(10,2), t timestamp"


def some_rows(batch):
    for place in range(21):
        key = KEYS[(place * 5 + batch) % 7]
        word = [None, "a", "b"][place % 3]
        price = None if place % 4 == 0 else Decimal(place * 100 + batch).scaleb(-2)
        yield key, place + batch, word, price, at(place * 1000.5 + batch), place % 2 == 0


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_state_of_all_kinds(feed, ours, sparks, conf, zone):
    source = feed(ROWS, *(some_rows(batch) for batch in range(3 if zone == "UTC" else 1)))
    with conf(spark__sql__session__timeZone=zone):
        mine = ours(source.stream(), "k", AllKinds(), OUT)
        theirs = sparks(source.stream(), "k", AllKinds(), OUT)
    for batch in theirs.batches:
        assert mine.batches[batch] == theirs.batches[batch]
    assert len(mine.batches) == len(theirs.batches)


def test_final_state_is_what_spark_keeps(feed, ours, sparks, spark, tmp_path):
    source = feed(ROWS, *(some_rows(batch) for batch in range(2)))
    ours(source.stream(), "k", AllKinds(), OUT)
    sparks(source.stream(), "k", AllKinds(), OUT)

    def kept(variable, value, **options):
        reader = spark.read.format("statestore").option("stateVarName", variable).options(**options)
        return {row[0].k: row[1] for row in reader.load(str(tmp_path / "sparks")).select("key", value).collect()}

    mine = {row.k: row for row in read_state(ours.checkpoint, spark=spark).collect()}
    assert {key: row.totals for key, row in mine.items()} == kept("totals", "value")
    assert {key: row.words for key, row in mine.items()} == kept("words", "list_value", flattenCollectionTypes="false")
    assert {key: row.counts for key, row in mine.items()} == kept("counts", "map_value", flattenCollectionTypes="false")


class FrameTeller(StatefulProcessor):
    """Says what rows look like, column by column."""

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        for frame in rows:
            reported = [
                (name, str(frame[name].dtype), [self.reported(value) for value in frame[name]]) for name in frame
            ]
            yield pd.DataFrame({"k": [key[0]], "reported": [repr(reported)]})

    def reported(self, value):
        return type(value).__name__, repr(value)

    def close(self):
        pass


def test_rows_with_values_in_values(feed, ours, sparks, conf):
    wall = dt.datetime(2024, 1, 1, 5, 6, 7, 8)
    types = (
        "k string, n timestamp_ntz, t timestamp, day date, l array<long>, m map<string, int>, "
        "s struct<a: int, b: string>, moments array<timestamp>, "
        "deep struct<t: timestamp, n: timestamp_ntz, m: map<string, struct<t: timestamp>>>"
    )
    full = (
        *(wall, at(1), dt.date(1960, 2, 29), [1, 2], {"a": 1, "b": None}, (1, "x"), [at(2), None]),
        (at(3), wall, {"c": (at(4),)}),
    )
    sparse = (wall, at(5), dt.date(2024, 1, 1), [None, 1], {}, (None, None), [at(6)], (None, None, None))
    source = feed(types, [("a", *full), ("b", *sparse), ("c", *[None] * 8)])
    with conf(spark__sql__session__timeZone="Asia/Kathmandu"):
        mine = ours(source.stream(), "k", FrameTeller(), "k string, reported string")
        theirs = sparks(source.stream(), "k", FrameTeller(), "k string, reported string")
    assert [row.k for row in mine.rows] == ["a", "b", "c"]
    assert mine.batches == theirs.batches


class KeyTeller(StatefulProcessor):
    """Says what a key looks like, and how often it came."""

    def init(self, handle):
        self.times = handle.getValueState("times", "n int")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.times.get() or (0,))[0] + sum(len(frame) for frame in rows)
        self.times.update((n,))
        yield pd.DataFrame({"key": [repr(key)], "n": [n]})

    def close(self):
        pass


def test_keys_of_many_types(feed, ours, sparks, conf):
    key = ["s", "i", "d", "c", "t", "n", "b", "f", "x"]
    types = (
        "s string, i long, d date, c decimal(8,2), t timestamp, n timestamp_ntz, b boolean, f double, x binary, v int"
    )
    rows = [
        (s, i, d, Decimal(c), at(t), dt.datetime(2024, 1, 1, 5, 6, 7, n), b, f, x, 1)
        for s, x in (("a", b"a"), ("", b""))
        for i, d, c in ((2**60, dt.date(1960, 2, 29), "1.50"), (-1, dt.date(2024, 12, 31), "-1.50"))
        for t, b, f, n in ((0, True, 0.5, 0), (86400.25, False, -1e300, 123456))
    ]
    source = feed(types, rows, rows[::3] + rows[::3])
    with conf(spark__sql__session__timeZone="Asia/Kathmandu"):
        mine = ours(source.stream(), key, KeyTeller(), "key string, n int")
        theirs = sparks(source.stream(), key, KeyTeller(), "key string, n int")
    assert mine.batches == theirs.batches


def test_struct_as_key(feed, ours, sparks):
    rows = [((a, b, at(7)), 1) for a in (1, None) for b in ("x", None) for _ in range(2)]
    source = feed("p struct<a: int, b: string, t: timestamp>, v int", [*rows, (None, 1)], rows[::3])
    mine = ours(source.stream(), "p", KeyTeller(), "key string, n int")
    theirs = sparks(source.stream(), "p", KeyTeller(), "key string, n int")
    assert mine.batches == theirs.batches


def test_keys_with_null(feed, ours, sparks):
    days = [None, dt.date(2024, 1, 1)]
    rows = [(text, day, 1) for text in (None, "", "a", "\0") for day in days for _ in range(2)]
    source = feed("s string, d date, v int", rows, rows[::3])
    mine = ours(source.stream(), ["s", "d"], KeyTeller(), "key string, n int")
    theirs = sparks(source.stream(), ["s", "d"], KeyTeller(), "key string, n int")
    assert mine.batches == theirs.batches


class Sessions(StatefulProcessor):
    """Counts rows until nothing came for five seconds of event time."""

    def init(self, handle):
        self.handle = handle
        self.session = handle.getValueState("session", "n int, end long")

    def handleInputRows(self, key, rows, timerValues):
        n, end = self.session.get() or (0, 0)
        for frame in rows:
            n += len(frame)
            for t in frame["t"]:
                end = max(end, 0 if pd.isna(t) else int(t.timestamp() * 1000) + 5000)
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(end)
        self.session.update((n, end))
        yield pd.DataFrame({"k": [key[0]], "what": ["rows"], "n": [n], "t": [timerValues.getCurrentWatermarkInMs()]})

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        n, _ = self.session.get()
        self.session.clear()
        late = timerValues.getCurrentWatermarkInMs() - expiredTimerInfo.getExpiryTimeInMs()
        yield pd.DataFrame({"k": [key[0]], "what": ["end"], "n": [n], "t": [late]})

    def close(self):
        pass


def test_event_time(feed, ours, sparks, conf):
    source = feed(
        "k string, t timestamp",
        [("a", at(0)), ("a", at(20)), ("b", at(3)), ("old", dt.datetime(1969, 1, 1)), ("none", None)],
        [("a", at(9)), ("b", at(11)), ("c", at(10)), ("d", at(10.001)), ("e", at(1))],
        [("a", at(40)), ("late", at(2)), ("edge", at(10)), ("in time", at(10.001))],
        [("a", at(41)), ("late", at(29)), ("in time", at(10.5)), ("none", None)],
        [("z", at(100)), ("late", at(30)), ("in time", at(31))],
        [("z", at(200))],
        [("z", at(200.5))],
    )
    with conf(spark__sql__streaming__noDataMicroBatches__enabled="false"):
        stream = source.stream().withWatermark("t", "10 seconds")
        schema = "k string, what string, n int, t long"
        mine = ours(stream, "k", Sessions(), schema, timeMode="eventTime")
        theirs = sparks(stream, "k", Sessions(), schema, timeMode="eventTime")
    for batch in theirs.batches:
        assert mine.batches[batch] == theirs.batches[batch]
    assert len(mine.batches) == len(theirs.batches)


class Balance(StatefulProcessor):
    """Begins with what the initial state says."""

    def init(self, handle):
        self.sum = handle.getValueState("sum", "total long, reported string")

    def handleInitialState(self, key, initialState, timerValues):
        total, reported = self.sum.get() or (0, "")
        reported += f"{key} {list(initialState.columns)} {list(initialState.index)};"
        self.sum.update((total + int(initialState["start"].sum()), reported))

    def handleInputRows(self, key, rows, timerValues):
        total, reported = self.sum.get() or (0, "")
        total += sum(int(frame["v"].sum()) for frame in rows)
        self.sum.update((total, reported))
        yield pd.DataFrame({"k": [key[0]], "total": [total], "reported": [reported]})

    def close(self):
        pass


def test_initial_state(feed, ours, sparks, spark):
    initial = spark.createDataFrame([("a", 100), ("c", 7), ("a", 1), (None, 5)], "k string, start long")
    source = feed("k string, v long", [("a", 1), ("b", 2)], [("c", 3), (None, 1), ("a", 1)])
    mine = ours(source.stream(), "k", Balance(), "k string, total long, reported string", initialState=initial)
    theirs = sparks(source.stream(), "k", Balance(), "k string, total long, reported string", initialState=initial)
    assert mine.batches == theirs.batches
    assert read_state(ours.checkpoint, 0, spark=spark).count() == 3
