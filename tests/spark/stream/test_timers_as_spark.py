# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""Timers fire as in Spark, in either form: those that were due before the first handler ran, and no others."""

import datetime as dt
import sys
from decimal import Decimal

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

OUT = "k string, timer long, others string, calls int, key string"


def at(seconds):
    return dt.datetime(2024, 3, 30, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


class Meddles(StatefulProcessor):
    """Registers timers with every row; the handlers delete some and register others."""

    def __init__(self, form):
        self.form = form

    def init(self, handle):
        self.handle = handle
        self.calls = handle.getValueState("calls", "n int")

    def handleInputRows(self, key, rows, timerValues):
        for _ in rows:
            pass
        for time in (10, 20, 30, 40, 90_000_000):
            self.handle.registerTimer(time)
        self.handle.deleteTimer(40)
        yield self.shown(key, -1)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        time = expiredTimerInfo.getExpiryTimeInMs()
        self.calls.update(((self.calls.get() or (0,))[0] + 1,))
        if time == 10:
            self.handle.deleteTimer(20)  # fires all the same
            self.handle.deleteTimer(30)
            self.handle.registerTimer(30)
            self.handle.registerTimer(15)  # due at once, and waits for the next batch
        if time == 20 and key[0] == "a":
            self.handle.registerTimer(20)  # deleted after this call
        if time == 15:
            self.handle.deleteTimer(15)
        yield self.shown(key, time)
        yield self.shown(key, time + 1)

    def shown(self, key, time):
        calls = (self.calls.get() or (0,))[0]
        values = {
            "k": key[0],
            "timer": time,
            "others": str(list(self.handle.listTimers())),
            "calls": calls,
            "key": f"{type(key).__name__} {key!r}" if time >= 0 else "",
        }
        return Row(**values) if self.form == "rows" else pd.DataFrame({name: [each] for name, each in values.items()})

    def close(self):
        pass


@pytest.mark.parametrize("form", ["pandas", "rows"])
def test_timers_that_handlers_register_and_delete(feed, ours, sparks, conf, form):
    source = feed(
        "k string, t timestamp",
        [("a", at(0)), ("b", at(0)), ("a", at(1))],
        [("c", at(60))],
        [("c", at(90))],
        [("a", at(120))],
    )
    with conf(spark__sql__streaming__noDataMicroBatches__enabled="false"):
        stream = source.stream().withWatermark("t", "10 seconds")
        mine = ours(stream, "k", Meddles(form), OUT, timeMode="eventTime", form=form)
        theirs = sparks(stream, "k", Meddles(form), OUT, timeMode="eventTime", form=form)
    assert mine.batches == theirs.batches
    fired = [row.timer for row in mine.batches[1] if row.k == "a" and row.timer in {10, 15, 20, 30}]
    assert sorted(fired) == [10, 20, 30]
    assert {row.timer for row in mine.batches[2] if row.k == "a" and row.timer >= 0} == {15, 16}


KEYS = {
    "i int": 7,
    "d double": 0.5,
    "z boolean": True,
    "s string": "a",
    "x binary": b"a",
    "day date": dt.date(2024, 2, 29),
    "t timestamp": at(7),
    "wall timestamp_ntz": dt.datetime(2024, 2, 29, 1, 2, 3, 4),  # noqa: DTZ001 - a column without a zone
    "c decimal(20,3)": Decimal("1.5"),
    "p struct<a: int, t: timestamp>": (1, at(7)),
}


class ShowsKey(StatefulProcessor):
    """Yields what the keys of rows and of timers look like."""

    def __init__(self, form):
        self.form = form

    def init(self, handle):
        self.handle = handle

    def handleInputRows(self, key, rows, timerValues):
        self.handle.registerTimer(1)
        yield self.shown(key)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield self.shown(key)

    def shown(self, key):
        text = f"{type(key).__name__} {key!r}"
        return Row(text=text) if self.form == "rows" else pd.DataFrame({"text": [text]})

    def close(self):
        pass


@pytest.mark.parametrize("form", ["pandas", "rows"])
def test_keys_of_rows_and_of_timers(feed, ours, sparks, conf, form):
    source = feed(", ".join(KEYS) + ", e timestamp", [(*KEYS.values(), at(0))], [(*KEYS.values(), at(60))])
    with conf(
        spark__sql__streaming__noDataMicroBatches__enabled="false", spark__sql__session__timeZone="Asia/Kathmandu"
    ):
        stream, keys = source.stream().withWatermark("e", "10 seconds"), [name.split()[0] for name in KEYS]
        mine = ours(stream, keys, ShowsKey(form), "text string", timeMode="eventTime", form=form)
        theirs = sparks(stream, keys, ShowsKey(form), "text string", timeMode="eventTime", form=form)
    assert [len(rows) for rows in mine.batches.values()] == [1, 2]
    assert mine.batches == theirs.batches


@pytest.mark.parametrize("form", ["pandas", "rows"])
def test_null_keys_of_rows_and_of_timers(feed, ours, sparks, conf, form):
    names = [name for name in KEYS if form == "rows" or " timestamp" not in name.split("<")[0]]  # Spark takes no NaT
    source = feed(", ".join([*names, "e timestamp"]), [(*[None] * len(names), at(0))], [(*[None] * len(names), at(60))])
    with conf(spark__sql__streaming__noDataMicroBatches__enabled="false"):
        stream, keys = source.stream().withWatermark("e", "10 seconds"), [name.split()[0] for name in names]
        mine = ours(stream, keys, ShowsKey(form), "text string", timeMode="eventTime", form=form)
        theirs = sparks(stream, keys, ShowsKey(form), "text string", timeMode="eventTime", form=form)
    assert [len(rows) for rows in mine.batches.values()] == [1, 2]
    assert mine.batches == theirs.batches
