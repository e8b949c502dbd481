# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""Aggregates in append mode, alone and after another operator, give what Spark gives, batch by batch."""

import datetime as dt
import sys

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from equipoise.errors import InvalidArgumentError, MismatchError, UserFunctionError
from equipoise.spark import balance, read_state

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

SCHEMA = "k string, t timestamp, v long"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def at(seconds):
    return None if seconds is None else dt.datetime(2024, 3, 30, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


ROWS = [
    [("a", 10, 1), ("b", 15, 2), ("a", 10, 3), ("n", None, 9)],
    [("a", 11, 4), ("c", 25, 5), ("c", 25.0004, 5)],
    [("a", 5, 6), ("b", 20, 7), ("b", 20.5, 7), ("d", 31, 8)],  # 5 seconds is late, and so is 20 for the next batch
    [("b", 20, 1), ("a", 26, 1), ("n", None, 9), ("d", 60, 9)],
    [("e", 70, 1)],
]
BATCHES = [[(k, at(t), v) for k, t, v in rows] for rows in ROWS]


class FirstTime(StatefulProcessor):
    """Gives the first event time of a key in each batch, with the number of rows."""

    def init(self, handle):
        self.n = handle.getValueState("n", "n long")

    def handleInputRows(self, key, rows, timerValues):
        frame = pd.concat(rows)
        n = (self.n.get() or (0,))[0] + len(frame)
        self.n.update((n,))
        yield pd.DataFrame({"k": [key[0]], "t": [frame["t"].min()], "n": [n]})

    def close(self):
        pass


class FirstTimeOfRows(FirstTime):
    def handleInputRows(self, key, rows, timerValues):
        times = [row.t for row in rows]
        n = (self.n.get() or (0,))[0] + len(times)
        self.n.update((n,))
        yield Row(k=key[0], t=min((each for each in times if each is not None), default=None), n=n)


OUT = "k string, t timestamp, n long"


def grouped(rows, names, ours):
    return balance(rows, *names, numPartitions=2, tailGroups=8) if ours else rows.groupBy(*names)


def first_times(stream, *, ours, form="pandas"):
    groups = grouped(stream.withWatermark("t", "5 seconds"), ["k"], ours)
    if form == "rows":
        return groups.transformWithState(FirstTimeOfRows(), OUT, "append", "eventTime", eventTimeColumnName="t")
    return groups.transformWithStateInPandas(FirstTime(), OUT, "append", "eventTime", eventTimeColumnName="t")


QUERIES = {
    "a count by time": lambda stream, ours: grouped(stream.withWatermark("t", "5 seconds"), ["t"], ours).count(),
    "aggregates by window and key": lambda stream, ours: grouped(
        stream.withWatermark("t", "5 seconds").withColumn("w", F.window("t", "10 seconds", "5 seconds")),
        ["w", "k"],
        ours,
    ).agg(F.sum("v").alias("total"), F.min("t").alias("first")),
    "a count by time after another operator": lambda stream, ours: grouped(
        first_times(stream, ours=ours), ["t"], ours
    ).count(),
    "a count by time and key after an operator of rows": lambda stream, ours: grouped(
        first_times(stream, ours=ours, form="rows"), ["t", "k"], ours
    ).count(),
    "a sum by window after another operator": lambda stream, ours: grouped(
        first_times(stream, ours=ours).where("n > 1").withColumn("w", F.window("t", "10 seconds")), ["w"], ours
    ).sum("n"),
    "a count after a count": lambda stream, ours: grouped(
        grouped(stream.withWatermark("t", "5 seconds"), ["t", "k"], ours).count(), ["t"], ours
    ).agg(F.count("*").alias("keys"), F.sum("count").alias("rows")),
}


def run(made, sink, folder, mode="append"):
    writer = made.writeStream.foreachBatch(sink).outputMode(mode).trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder)).start().awaitTermination()


@pytest.fixture
def batches_of(feed, conf, tmp_path):
    """Run a query on both sides; gives the batches of ours and of Spark."""

    def both(make, rows=BATCHES):
        stream, found = feed(SCHEMA, *rows).stream(), []
        settings = {
            "spark__sql__streaming__noDataMicroBatches__enabled": "false",
            "spark__sql__shuffle__partitions": "2",
            "spark__sql__session__timeZone": "America/New_York",
        }
        with conf(**settings, **{PROVIDER: ROCKSDB}):
            for ours in (True, False):
                sink = Sink()
                run(make(stream, ours), sink, tmp_path / f"{ours}")
                found.append(sink.batches)
        return found

    return both


class Sink:
    def __init__(self):
        self.batches = {}

    def __call__(self, df, batch):
        self.batches[batch] = sorted(df.collect(), key=repr)


@pytest.mark.parametrize("make", QUERIES.values(), ids=QUERIES)
def test_a_query_in_append_mode_delivers_each_key_once_as_spark_does(batches_of, make):
    mine, theirs = batches_of(make)
    assert mine == theirs
    assert sum(map(len, mine.values())) > 1


class Early(FirstTime):
    """Gives an event time that is too early."""

    def handleInputRows(self, key, rows, timerValues):
        for frame in rows:
            yield pd.DataFrame({"k": [key[0]], "t": [frame["t"].min() - pd.Timedelta("1 hour")], "n": [1]})


def too_early(stream, *, ours):
    groups = grouped(stream.withWatermark("t", "5 seconds"), ["k"], ours)
    return groups.transformWithStateInPandas(Early(), OUT, "append", "eventTime", eventTimeColumnName="t")


def test_an_output_that_is_older_than_the_watermark_is_an_error_as_in_spark(feed, conf, tmp_path):
    stream = feed(SCHEMA, *BATCHES).stream()
    with pytest.raises(
        UserFunctionError, match=r"row with t = 2024-03-30 11:.* not after the watermark .* 12:00:10"
    ) as raised:
        run(too_early(stream, ours=True), Sink(), tmp_path / "ours")
    assert str(raised.value).startswith("Early.handleInputRows gave a wrong result: it yielded a row")
    assert "for the key with the fingerprint" in str(raised.value)
    with (
        conf(**{PROVIDER: ROCKSDB}),
        pytest.raises(StreamingQueryException, match="EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED"),
    ):
        run(too_early(stream, ours=False), Sink(), tmp_path / "sparks")


def test_a_finished_key_leaves_no_state(feed, conf, tmp_path):
    stream = feed(SCHEMA, *BATCHES).stream().withWatermark("t", "5 seconds")
    with conf(spark__sql__streaming__noDataMicroBatches__enabled="false"):
        run(balance(stream, "t", numPartitions=2).count(), Sink(), tmp_path / "cp")
    found = {row.t and row.t.timestamp() for row in read_state(f"{tmp_path}/cp").collect()}
    assert found == {None, at(60).timestamp(), at(70).timestamp()}, "the watermark of the last batch is 55"


def test_an_aggregate_that_never_finishes_is_refused_in_append_mode(feed, tmp_path):
    plain = feed(SCHEMA, *BATCHES).stream()
    timed = plain.withWatermark("t", "5 seconds")
    for made in (balance(plain, "t").count(), balance(timed, "k").count()):
        with pytest.raises(InvalidArgumentError, match="has no event time; group also by the column of withWatermark"):
            run(made, Sink(), tmp_path / "cp")
    windows = timed.select(F.window("t", "10 seconds").alias("w"), "v")
    with pytest.raises(InvalidArgumentError, match="keep the column of withWatermark in the stream"):
        run(balance(windows, "w").count(), Sink(), tmp_path / "cp")


def test_an_aggregate_in_update_mode_has_no_second_operator(feed, tmp_path):
    counts = balance(feed(SCHEMA, *BATCHES).stream().withWatermark("t", "5 seconds"), "t").count()
    for mode in ("update", None):
        writer = balance(counts, "t").sum("count").writeStream.foreachBatch(Sink())
        writer = writer.option("checkpointLocation", str(tmp_path / "cp"))
        writer = writer if mode is None else writer.outputMode(mode)
        with pytest.raises(InvalidArgumentError, match=r"call outputMode\('append'\), with an event time in that key"):
            writer.start()


def test_a_query_keeps_its_output_mode(feed, tmp_path):
    source = feed(SCHEMA, BATCHES[0])

    def counts():
        return balance(source.stream().withWatermark("t", "5 seconds"), "t", numPartitions=2).count()

    run(counts(), Sink(), tmp_path / "cp")
    with pytest.raises(MismatchError, match="has time_mode 'eventTime' but 'none' was given"):
        run(counts(), Sink(), tmp_path / "cp", "update")


@pytest.mark.parametrize(
    ("column", "said"),
    [("nothing", "not a column of outputStructType, which has k, t, n"), ("n", "is a bigint, but event times are")],
)
def test_an_event_time_column_that_cannot_be_is_refused(feed, column, said):
    groups = balance(feed(SCHEMA, *BATCHES).stream().withWatermark("t", "5 seconds"), "k")
    with pytest.raises(InvalidArgumentError, match=said):
        groups.transformWithStateInPandas(FirstTime(), OUT, "append", "eventTime", eventTimeColumnName=column)
