"""A query with timers runs the batches that Spark runs, those without rows included."""

import subprocess
import sys

import pandas as pd
import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from equipoise import InvalidArgumentError, LogBrokenError
from equipoise.spark import balance
from equipoise.spark.stream.ticks import LastBatch, TickReader, with_ticks

SCHEMA = "k string, s long"
OUT = "k string, what string, at long, watermark long"
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


class Alarms(StatefulProcessor):
    """Registers a timer for each row, at its event time or already due, and gives rows, timers and the watermark."""

    def init(self, handle):
        self.handle = handle
        self.rows = handle.getValueState("rows", "n long")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's own names
        seconds = sorted(int(each) for frame in rows for each in frame["s"])
        self.rows.update((len(seconds),))
        for each in seconds:
            self.handle.registerTimer(each * 1000)
        yield self.row(key, " ".join(map(str, seconds)), -1, timerValues)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803 - Spark's own names
        yield self.row(key, "timer", expiredTimerInfo.getExpiryTimeInMs(), timerValues)

    def row(self, key, what, at, times):
        return pd.DataFrame([{"k": key[0], "what": what, "at": at, "watermark": times.getCurrentWatermarkInMs()}])


def timed(source, name="t", delay="10 seconds"):
    return source.stream().withColumn(name, F.timestamp_seconds("s")).withWatermark(name, delay)


def test_the_last_batch_in_which_the_watermark_moves_runs_as_in_spark(feed, ours, sparks):
    stream = timed(feed(SCHEMA, [("a", 100), ("b", 105)], [("a", 90), ("c", 130)]))
    mine = ours(stream, "k", Alarms(), OUT, timeMode="eventTime")
    theirs = sparks(stream, "k", Alarms(), OUT, timeMode="eventTime")
    assert mine.calls == [0, 1, 2]
    assert [row.at for row in mine.batches[2]] == [100_000, 105_000]
    assert mine.batches == theirs.batches


def test_batches_without_rows_can_be_turned_off_as_in_spark(feed, ours, sparks, conf):
    stream = timed(feed(SCHEMA, [("a", 100), ("b", 105)], [("a", 90), ("c", 130)]))
    with conf(**{NO_DATA: "false"}):
        mine = ours(stream, "k", Alarms(), OUT, timeMode="eventTime")
        theirs = sparks(stream, "k", Alarms(), OUT, timeMode="eventTime")
    assert mine.calls == [0, 1]
    assert mine.batches == theirs.batches


def test_process_all_available_returns_after_the_batch_in_which_timers_fire(feed, keyed, begin, collected, tmp_path):
    source = feed(SCHEMA, [("a", 100)])
    query = begin(keyed(timed(source), "k", Alarms(), OUT, 2, timeMode="eventTime"), collected, tmp_path / "cp")
    query.processAllAvailable()
    assert collected.calls == [0, 1]
    source.add([("b", 200)])
    query.processAllAvailable()
    assert collected.calls == [0, 1, 2, 3]
    assert [row.at for row in collected.batches[3]] == [100_000]
    query.stop()
    assert not LastBatch(f"equipoise-{query._epochs[0].owner}").get(), "the file is deleted with the query"


@pytest.mark.parametrize("trigger", [None, {"processingTime": "200 milliseconds"}])
def test_process_all_available_returns_with_processing_time_timers(feed, keyed, begin, collected, tmp_path, trigger):
    source = feed(SCHEMA, [("a", 100)], [("a", 101), ("b", 4_000_000_000)])
    made = keyed(source.stream(), "k", Alarms(), OUT, 2, timeMode="processingTime")
    query = begin(made, collected, tmp_path / "cp", trigger)
    query.processAllAvailable()
    fired = [(row.k, row.at) for row in collected.rows if row.what == "timer"]
    assert fired == [("a", 100_000), ("a", 101_000)]
    batches = len(collected.calls)
    while len(collected.calls) < batches + 2:  # batches without rows go on
        assert query.isActive
    query.stop()


def test_without_batches_without_rows_processing_time_runs_as_in_spark(feed, keyed, begin, collected, tmp_path, conf):
    source = feed(SCHEMA, [("a", 100)], [("a", 101)])
    made = keyed(source.stream(), "k", Alarms(), OUT, 2, timeMode="processingTime")
    with conf(**{NO_DATA: "false"}):
        query = begin(made, collected, tmp_path / "cp")
        query.processAllAvailable()
        query.stop()
    assert collected.calls == [0, 1]
    query = begin(made, collected, tmp_path / "cp", {"availableNow": True})  # the setting may change
    query.awaitTermination()
    assert collected.calls == [0, 1]


@pytest.mark.parametrize("policy", ["min", "max"])
def test_the_watermark_of_a_union_follows_the_policy_of_spark(feed, ours, sparks, conf, policy):
    fast = feed(SCHEMA, [("a", 100)], [("a", 300)], [("a", 150)], name="fast")
    slow = feed(SCHEMA, [("b", 50)], [("b", 120)], [("b", 130)], name="slow")
    stream = timed(fast).union(timed(slow, delay="30 seconds"))
    with conf(**{POLICY: policy}):
        mine = ours(stream, "k", Alarms(), OUT, timeMode="eventTime")
        theirs = sparks(stream, "k", Alarms(), OUT, timeMode="eventTime")
    assert {row.watermark for row in mine.rows} == (
        {0, 20_000, 90_000, 100_000} if policy == "min" else {0, 90_000, 290_000}
    )
    assert mine.batches == theirs.batches


def test_rows_that_are_filtered_after_with_watermark_move_it_as_in_spark(feed, ours, sparks):
    stream = timed(feed(SCHEMA, [("a", 100), ("x", 500)], [("a", 120)])).where("k <> 'x'")
    mine = ours(stream, "k", Alarms(), OUT, timeMode="eventTime")
    assert mine.batches == sparks(stream, "k", Alarms(), OUT, timeMode="eventTime").batches


def test_event_time_without_a_watermark_has_a_watermark_of_zero_as_in_spark(feed, ours, sparks):
    stream = feed(SCHEMA, [("a", 100), ("b", 0)], [("a", 90)]).stream()
    mine = ours(stream, "k", Alarms(), OUT, timeMode="eventTime")
    assert mine.batches == sparks(stream, "k", Alarms(), OUT, timeMode="eventTime").batches


def test_the_watermark_survives_a_failed_delivery(feed, ours, collected):
    stream = timed(feed(SCHEMA, [("a", 100)], [("a", 200)]))

    def failing(df, batch):
        collected(df, batch)
        if collected.calls == [0, 1]:
            raise ConnectionError("no sink")

    with pytest.raises(Exception, match="no sink"):
        ours(stream, "k", Alarms(), OUT, timeMode="eventTime", sink=failing)
    ours(stream, "k", Alarms(), OUT, timeMode="eventTime", sink=failing)
    assert collected.calls == [0, 1, 1, 2]
    assert [row.watermark for row in collected.batches[2]] == [190_000]


def test_two_event_time_columns_are_refused_as_in_spark(feed):
    both = timed(feed(SCHEMA, name="left")).join(timed(feed(SCHEMA, name="right"), "u").drop("s"), "k")
    with pytest.raises(InvalidArgumentError, match="a watermark on each of t, u"):
        balance(both, "k").transformWithStateInPandas(Alarms(), OUT, "update", "eventTime")


def test_a_tick_is_due_after_the_watermark_has_moved_and_only_once(tmp_path):
    last = LastBatch("last", str(tmp_path))
    reader = TickReader(str(tmp_path), last, ["eventTime"], 0.0)
    start = reader.initialOffset()
    assert reader.latestOffset(start, None) == {"ticks": 0}, "no batch has run"

    def ran(batch, watermark, following):
        for folder, line in (
            ("offsets", f'{{"batchWatermarkMs":{watermark},"batchTimestampMs":5}}'),
            ("commits", f'{{"nextBatchWatermarkMs":{following}}}'),
        ):
            (tmp_path / "spark" / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / "spark" / folder / str(batch)).write_text(f"v1\n{line}\n")
        last.set(batch)

    ran(0, 0, 90_000)
    assert reader.latestOffset({"ticks": 0}, None) == {"ticks": 1}
    assert reader.latestOffset({"ticks": 0}, None) == {"ticks": 1}, "it is not taken yet"
    ran(1, 90_000, 90_000)
    assert reader.latestOffset({"ticks": 1}, None) == {"ticks": 1}
    ran(2, 90_000, 95_000)
    assert TickReader(str(tmp_path), last, [], 0.0).latestOffset({"ticks": 1}, None) == {"ticks": 1}
    assert reader.latestOffset({"ticks": 1}, None) == {"ticks": 2}
    last.forget()
    assert reader.latestOffset({"ticks": 1}, None) == {"ticks": 1}


def test_ticks_of_processing_time_end_with_available_now(tmp_path):
    last = LastBatch("last", str(tmp_path))
    reader = TickReader(str(tmp_path), last, ["processingTime"], 0.0)
    last.set(0)
    assert reader.latestOffset({"ticks": 7}, None) == {"ticks": 8}
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"ticks": 8}, None) == {"ticks": 8}


def test_where_spark_passes_no_offset_a_tick_follows_the_one_that_it_has_recorded(tmp_path):
    def planned(batch, ticks):
        (tmp_path / "spark" / "offsets").mkdir(parents=True, exist_ok=True)
        lines = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":5}\n{"logOffset":3}\n'
        (tmp_path / "spark" / "offsets" / str(batch)).write_text(lines + ticks)

    last = LastBatch("last", str(tmp_path))
    reader = TickReader(str(tmp_path), last, ["processingTime"], 0.0)
    assert reader.latestOffset() == {"ticks": 0}, "no batch was planned"
    planned(0, '{"ticks":1}')
    last.set(0)
    assert reader.latestOffset() == {"ticks": 2}
    planned(1, '{"ticks":2}')
    assert reader.latestOffset() == {"ticks": 2}, "it is not taken yet"
    last.set(1)
    assert reader.latestOffset() == {"ticks": 3}
    last.forget()
    assert TickReader(str(tmp_path), last, ["processingTime"], 0.0).latestOffset() == {"ticks": 2}, "after a restart"
    planned(1, "-")
    with pytest.raises(LogBrokenError, match=r"last line of .*offsets/1 should be the offset of a source"):
        TickReader(str(tmp_path), last, [], 0.0).latestOffset()


def test_a_spark_whose_sources_cannot_end_a_query_has_ticks_too():
    absent = "import sys, pyspark.sql.datasource; sys.modules['pyspark.sql.streaming.datasource'] = None; "
    found = "from equipoise.spark.stream import ticks; print(ticks.ENDS_WITH_AVAILABLE_NOW)"
    ended = subprocess.run([sys.executable, "-c", absent + found], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


def test_two_sessions_of_a_process_run_queries_with_clocks(spark, tmp_path):
    for place, session in enumerate([spark, spark.newSession()]):
        last = LastBatch(f"equipoise-{place}", str(tmp_path))
        stream = session.readStream.format("rate").load().select("value")
        ticking = with_ticks(stream, str(tmp_path), last, ["eventTime"], paced=False)
        assert ticking.schema.names == ["value"]
