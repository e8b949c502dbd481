# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""State and batch log of a query, as DataFrames, while it runs and after."""

import datetime as dt
import shutil
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.errors import PythonException
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from equipoise import InvalidArgumentError, MismatchError
from equipoise.spark import batch_log, read_state

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules


class Kinds(StatefulProcessor):
    """All kinds of state, and a timer far away."""

    def init(self, handle):
        self.handle = handle
        self.value = handle.getValueState("value", "n int, word string")
        self.items = handle.getListState("items", "v int")
        self.map = handle.getMapState("map", "v int", "twice long, t timestamp")
        self.short = handle.getValueState("short", "n int", 1)

    def handleInputRows(self, key, rows, timerValues):
        for frame in rows:
            for v in frame["v"]:
                if pd.isna(v):
                    self.value.clear()
                    self.items.clear()
                    self.map.clear()
                    return
                n = (self.value.get() or (0,))[0]
                self.value.update((n + 1, None if v == 3 else f"w{v}"))
                self.items.appendValue((v,))
                self.map.updateValue((v,), (2 * v, pd.Timestamp(v, unit="s")))
                if v == 5:
                    self.handle.registerTimer(4_000_000_000_000)
        self.short.update((1,))
        yield pd.DataFrame({"k": [key[0]]})

    def handleInitialState(self, key, initialState, timerValues):
        for row in initialState.itertuples(index=False):
            self.value.update(tuple(row.value.values()))
            self.items.put([tuple(item.values()) for item in row.items])
            for item, value in row.map.items():
                self.map.updateValue(item, tuple(value.values()))
            for timer in () if row.timers is None else row.timers:
                self.handle.registerTimer(int(timer))

    def close(self):
        pass


def test_state_of_all_kinds_at_every_version(feed, ours, spark):
    source = feed("k string, v int", [("a", 5), ("b", 3)], [("b", 4), ("c", 1)], [("a", None)])
    ours(source.stream(), "k", Kinds(), "k string", timeMode="processingTime")
    state = read_state(ours.checkpoint, spark=spark)
    assert state.schema.simpleString() == (
        "struct<k:string,value:struct<n:int,word:string>,items:array<struct<v:int>>,"
        "map:map<struct<v:int>,struct<twice:bigint,t:timestamp>>,short:struct<n:int>,timers:array<bigint>>"
    )
    rows = {row.k: row.asDict(recursive=True) for row in state.drop("map").collect()}
    assert rows["a"] == {"k": "a", "value": None, "items": None, "short": None, "timers": [4_000_000_000_000]}
    assert rows["b"]["value"] == {"n": 2, "word": "w4"}
    assert rows["b"]["items"] == [{"v": 3}, {"v": 4}]
    assert rows["b"]["timers"] is None
    reported = state.select("k", F.explode("map").alias("u", "w")).selectExpr(
        "k", "u.v", "w.twice", "unix_seconds(w.t) AS s"
    )
    assert sorted(map(tuple, reported.collect())) == [("b", 3, 6, 3), ("b", 4, 8, 4), ("c", 1, 2, 1)]
    versions = [
        sorted(row.k for row in read_state(ours.checkpoint, version, spark=spark).collect()) for version in range(4)
    ]
    assert versions == [[], ["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
    first = {row.k: row.value.n for row in read_state(ours.checkpoint, 1, spark=spark).collect()}
    assert first == {"a": 1, "b": 1}
    for version in (-1, 99):
        with pytest.raises(InvalidArgumentError, match=f"version {version} of .* is not kept; versions 0 to"):
            read_state(ours.checkpoint, version, spark=spark)
    shutil.rmtree(min(Path(ours.checkpoint, "changes").iterdir()))
    with pytest.raises(
        InvalidArgumentError, match=r"version 1 of .* is not kept any more: .*changes/.* is gone; .*retain"
    ):
        read_state(ours.checkpoint, 1, spark=spark)


class Renewed(Kinds):
    """The same without a clock: the state of one query can begin another."""

    def init(self, handle):
        self.value = handle.getValueState("value", "n int, word string")
        self.items = handle.getListState("items", "v int")
        self.sums = handle.getMapState("sums", "v int", "twice long")

    def handleInputRows(self, key, rows, timerValues):
        n, word = self.value.get() or (0, None)
        self.value.update((n + sum(map(len, rows)), word))
        listed = [item[0] for item in self.items.get()]
        yield pd.DataFrame({"k": [key[0]], "n": [self.value.get()[0]], "items": [repr(listed)]})

    def handleInitialState(self, key, initialState, timerValues):
        for row in initialState.itertuples(index=False):
            self.value.update((row.n, row.word))
            self.items.put([(int(item),) for item in row.listed])
            self.sums.updateValue((1,), (row.n,))


def test_a_version_that_a_running_query_has_left_behind_is_reported(feed, ours, spark):
    source = feed("k string, v int", [("a", 5)])
    ours(source.stream(), "k", Renewed(), "k string, n int, items string")
    lost, state = (read_state(ours.checkpoint, spark=spark) for _ in range(2))  # Spark keeps the failure of each
    changes = min(Path(ours.checkpoint, "changes").iterdir())
    aside = changes.rename(changes.with_name("aside"))
    with pytest.raises(PythonException, match=r"changes/.* is not there; restore it from a copy"):
        lost.collect()
    aside.rename(changes)
    source.add([("a", 6)])
    ours(source.stream(), "k", Renewed(), "k string, n int, items string")
    shutil.rmtree(changes)  # as it goes when snapshots are made and `retain` batches have passed
    left_behind = r"version \d+ of .* is no longer kept: the query has gone on to version \d+ .*; read again"
    with pytest.raises(PythonException, match=left_behind):
        state.collect()


def test_the_state_of_one_query_begins_another(feed, ours, spark, tmp_path):
    source = feed("k string, v int", [("a", 5), ("b", 3)], [("b", 4), ("c", 1)])
    ours(source.stream(), "k", Kinds(), "k string", timeMode="processingTime")
    saved = str(tmp_path / "saved")
    read_state(ours.checkpoint, spark=spark).write.parquet(saved)
    given = spark.read.parquet(saved).selectExpr("k", "value.*", "transform(items, x -> x.v) AS listed")
    again = ours(source.stream(), "k", Renewed(), "k string, n int, items string", checkpoint="new", initialState=given)
    assert [tuple(row) for row in again.batches[0]] == [("a", 2, "[5]"), ("b", 3, "[3, 4]")]
    assert {row.k: row.value.n for row in read_state(str(tmp_path / "new"), 0, spark=spark).collect()} == {
        "a": 1,
        "b": 2,
        "c": 1,
    }


def test_all_that_read_state_gives_begins_another_query(feed, ours, spark, tmp_path, conf):
    source = feed("k string, v int", [("a", 5), ("b", 3)], [("b", 4), ("c", 1)])
    with conf(spark__sql__session__timeZone="UTC"):
        ours(source.stream(), "k", Kinds(), "k string", timeMode="processingTime")
        state = read_state(ours.checkpoint, spark=spark).drop("short")  # which has expired
        options = {"timeMode": "processingTime", "initialState": state}
        ours(feed("k string, v int", name="none").stream(), "k", Kinds(), "k string", checkpoint="new", **options)
        again = read_state(str(tmp_path / "new"), 0, spark=spark).drop("short")
        reported = [sorted(map(repr, df.withColumn("map", F.map_entries("map")).collect())) for df in (state, again)]
    assert len(reported[0]) == 3
    assert reported[0] == reported[1]


def test_state_and_batch_log_of_a_query_without_batches_are_empty(feed, ours, spark, tmp_path):
    ours(feed("k string, v int").stream(), "k", Kinds(), "k string", timeMode="processingTime")
    assert read_state(ours.checkpoint, spark=spark).columns == ["k", "value", "items", "map", "short", "timers"]
    assert read_state(ours.checkpoint, spark=spark).count() == 0
    with pytest.raises(InvalidArgumentError, match=r"there is no query in .*nowhere: the folder does not exist"):
        read_state(str(tmp_path / "nowhere"), spark=spark)
    with pytest.raises(InvalidArgumentError, match=r"there is no query in .*nowhere: the folder does not exist"):
        batch_log(str(tmp_path / "nowhere"), spark=spark)


def test_the_batch_log_tells_of_every_batch(feed, ours, spark):
    first, second = (dt.datetime.fromtimestamp(seconds, dt.UTC) for seconds in (100, 200))
    source = feed("k string, v int, t timestamp", [("a", 1, first)], [("b", 2, second)])
    stream = source.stream().withWatermark("t", "10 seconds")
    ours(stream, "k", Renewed(), "k string, n int, items string")
    reported = batch_log(ours.checkpoint, spark=spark).dataframe().orderBy("batch")
    first, second = reported.collect()
    assert (first.batch, first.rows, first.output_rows, first.watermark) == (0, 1, 1, None)
    assert second.watermark.timestamp() == 90
    assert abs(second.time.timestamp() - time.time()) < 600
    assert 0 < first.work_seconds < first.seconds < 600
    assert sorted(first.partition_rows) == [0, 1]
    assert len(first.partition_seconds) == 2
    assert first.action == "keep"
    assert first.reason
    assert (first.combined_rows, first.target_seconds, first.move_bytes) == (0, None, None)
    assert first.imbalance_rows_hash == first.imbalance_rows == 2.0  # plain hash is what placed it
    assert 1 <= first.imbalance_seconds_hash <= 2
    assert sum(second.partition_state) == second.state_bytes
    assert len(second.partition_state) == 2
    kept = batch_log(ours.checkpoint)
    assert [row["batch"] for row in kept.rows] == [0, 1]
    assert [row.rows for row in kept.orderBy(kept["batch"]).collect()] == [row["rows"] for row in kept.rows]
    assert len(kept.plot().axes) == 3


class Bell(StatefulProcessor):
    """Rings two seconds after the first row of a key."""

    def init(self, handle):
        self.handle = handle
        self.since = handle.getValueState("since", "ms long")
        self.brief = handle.getValueState("brief", "ms long", 500)

    def handleInputRows(self, key, rows, timerValues):
        now = timerValues.getCurrentProcessingTimeInMs()
        self.since.update((now,))
        self.brief.update((now,))
        self.handle.registerTimer(now + 2000)
        yield pd.DataFrame({"k": [key[0]], "what": ["row"], "ms": [now]})

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        left = list(self.handle.listTimers()) == [expiredTimerInfo.getExpiryTimeInMs()]
        what = f"bell {left} {self.brief.get()}"
        yield pd.DataFrame(
            {"k": [key[0]], "what": [what], "ms": [expiredTimerInfo.getExpiryTimeInMs() - self.since.get()[0]]}
        )
        self.since.clear()

    def close(self):
        pass


def test_a_timer_of_the_wall_clock_fires_without_new_rows(feed, keyed, begin, tmp_path, collected):
    source = feed("k string, v int", [("a", 1), ("b", 2)])
    made = keyed(source.stream(), "k", Bell(), "k string, what string, ms long", 2, timeMode="processingTime")
    query = begin(made, collected, tmp_path / "checkpoint", {"processingTime": "1 second"}, "bells")
    try:
        assert query.name == "bells"
        end = time.monotonic() + 120
        while time.monotonic() < end and len(collected.rows) < 4:
            time.sleep(0.2)
        state = query.state()  # while it runs
        assert state.columns == ["k", "since", "brief", "timers"]
        assert state.count() == 0
        assert {row.target_seconds for row in query.batch_log().dataframe().collect()} == {1.0}
    finally:
        query.stop()
    bells = [tuple(row) for row in collected.rows[2:]]
    assert bells == [("a", "bell True None", 2000), ("b", "bell True None", 2000)]
    assert len(collected.calls) > 1


class SameName(Renewed):
    def init(self, handle):
        super().init(handle)
        self.k = handle.getValueState("k", "n int")


def test_a_variable_with_the_name_of_a_key_column_cannot_be_shown_beside_it(feed, ours, spark):
    ours(feed("k string, v int").stream(), "k", SameName(), "k string, n int, items string")
    with pytest.raises(MismatchError, match="state variable 'k' has the name of another column"):
        read_state(ours.checkpoint, spark=spark)
