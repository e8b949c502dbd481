# ruff: noqa: ARG001, ARG002, N802, N803 - the names belong to protocols
"""No result rests on what a look finds: batches planned from wrong looks give the results of plain Spark."""

import datetime as dt
import random
import sys
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType

from equipoise import fingerprints
from equipoise.adapt import Look, Policy
from equipoise.spark import Aggregator, LocalQuery, balance, batch_log, read_state
from equipoise.spark.stream.jobs import SparkJobs
from equipoise.state.batch_log import batch_log_rows

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

BATCHES, ROWS = 4, "k string, v long, t timestamp"
EAGER = {"policy": Policy(load="rows", threshold=0.0, minimum_gain=0.0, move_rate=1e15), "look": "always"}


def key_of(batch, place):
    """Half of the rows have one of two keys, which are others in each batch."""
    return f"hot {batch} {place % 4 // 2}" if place % 2 else f"k{place * 7 % 41}"


def rows_of(batch):
    start = dt.datetime(2024, 3, 30, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=30 * batch)
    return [(key_of(batch, place), place + batch, start + dt.timedelta(seconds=place % 40)) for place in range(300)]


@pytest.fixture(params=["keys of another batch", "random keys"])
def wrong_looks(request, monkeypatch):
    """Every batch is planned from a look at other rows."""
    draw = random.Random(5)  # noqa: S311 - the same keys in each run
    taken = []

    def look(self, rows, wanted, *, is_dear, late_ms):
        taken.append(len(taken))
        if request.param == "random keys":
            found = [draw.randint(-(2**63), 2**63 - 1) for _ in range(draw.randint(1, 30))]
        else:
            found = fingerprints([key_of(len(taken) % BATCHES, place) for place in range(300)]).tolist()
        return Look.of(found, seconds=0.001, tasks=[draw.randint(0, 1) for _ in found])

    monkeypatch.setattr(SparkJobs, "look", look)
    return taken


def was_planned_anew(checkpoint, spark, looks):
    log = batch_log(checkpoint, spark=spark).collect()
    seen = [row for row in log if row.rows]
    assert len(looks) >= BATCHES
    assert all(row.look_rows for row in seen)
    assert len({row.plan for row in seen}) > 1
    return seen


@pytest.mark.parametrize("combine", ["always", "never"])
def test_built_in_aggregates(spark, feed, begin, collected, wrong_looks, conf, tmp_path, combine):
    source = feed(ROWS, *(rows_of(batch) for batch in range(BATCHES)))
    functions = [F.count(F.lit(1)).alias("n"), F.sum("v").alias("total"), F.max("v").alias("most")]
    at = tmp_path / "ours"
    made = balance(source.stream(), "k", numPartitions=4, tailGroups=16, combine=combine, **EAGER).agg(*functions)
    begin(made, collected, at, {"availableNow": True}).awaitTermination()
    theirs = type(collected)()
    with conf(spark__sql__shuffle__partitions="2"):
        writer = source.stream().groupBy("k").agg(*functions).writeStream.outputMode("update").foreachBatch(theirs)
        writer = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "theirs"))
        writer.start().awaitTermination()
    assert collected.batches == theirs.batches
    seen = was_planned_anew(str(at), spark, wrong_looks)
    assert {row.combine_scope for row in seen} == {{"always": "all", "never": "none"}[combine]}
    final = {row.k: row for row in source.table().groupBy("k").agg(*functions).collect()}
    assert {row.k: row for row in collected.rows} == final
    state = {row.k: tuple(row.buffer) for row in read_state(str(at), spark=spark).collect()}
    assert state == {key: (row.n, row.total, row.n, row.most) for key, row in final.items()}


class Totals(Aggregator):
    bufferSchema = StructType([StructField("total", LongType())])  # noqa: N815 - as Spark names schemas

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + int(rows["v"].sum()),)

    def merge(self, one, other):
        return (one[0] + other[0],)

    def finish(self, key, buffer):
        return (*key, *buffer)


def test_an_aggregator_whose_map_tasks_combine(spark, feed, ours, wrong_looks):
    source = feed(ROWS, *(rows_of(batch) for batch in range(BATCHES)))
    mine = ours(source.stream(), "k", Totals(), "k string, total long", partitions=4, combine="always", **EAGER)
    totals = Counter()
    for batch in range(BATCHES):
        for key, value, _ in rows_of(batch):
            totals[key] += value
        changed = {key: totals[key] for key, _, _ in rows_of(batch)}
        assert {row.k: row.total for row in mine.batches[batch]} == changed
    was_planned_anew(ours.checkpoint, spark, wrong_looks)
    state = read_state(ours.checkpoint, spark=spark).collect()
    final = source.table().groupBy("k").agg(F.sum("v").alias("total")).collect()
    assert {row.k: row.buffer.total for row in state} == {row.k: row.total for row in final}


class Sessions(StatefulProcessor):
    """Counts the rows of a key until no more come for 20 s of event time."""

    def init(self, handle):
        self.handle = handle
        self.known = handle.getValueState("known", "n long, total long")

    def handleInputRows(self, key, rows, timerValues):
        n, total = self.known.get() or (0, 0)
        last = 0
        for frame in rows:
            n, total = n + len(frame), total + int(frame["v"].sum())
            last = max(last, int(frame["t"].max().timestamp() * 1000))
        self.known.update((n, total))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(max(last, timerValues.getCurrentWatermarkInMs()) + 20_000)
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total], "ended": [False]})

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        n, total = self.known.get()
        self.known.clear()
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total], "ended": [True]})

    def close(self):
        pass


def test_a_processor_with_timers(spark, feed, ours, sparks, wrong_looks, tmp_path):
    source = feed(ROWS, *(rows_of(batch) for batch in range(BATCHES)))
    out = "k string, n long, total long, ended boolean"
    stream = source.stream().withWatermark("t", "5 seconds")
    mine = ours(stream, "k", Sessions(), out, partitions=4, timeMode="eventTime", **EAGER)
    theirs = sparks(source.stream().withWatermark("t", "5 seconds"), "k", Sessions(), out, timeMode="eventTime")
    assert mine.batches == theirs.batches
    assert any(row.ended for row in mine.rows)
    was_planned_anew(ours.checkpoint, spark, wrong_looks)
    reader = spark.read.format("statestore").option("stateVarName", "known")
    kept = {row[0].k: row[1] for row in reader.load(str(tmp_path / "sparks")).select("key", "value").collect()}
    state = read_state(ours.checkpoint, spark=spark).collect()
    assert {row.k: row.known for row in state if row.known is not None} == kept


def test_a_key_that_cannot_be_read_fails_its_batch_and_nothing_is_lost(spark, feed, ours, conf):
    source = feed("k string, v long", [("1", 1), ("2", 2)], [("3", 3), ("one", 4)], [("1", 5)])
    out = "k int, total long"
    with conf(spark__sql__ansi__enabled="true"):
        with pytest.raises(StreamingQueryException, match="CAST_INVALID_INPUT"):
            ours(source.stream().selectExpr("cast(k AS int) AS k", "v"), "k", Totals(), out, look="always")
        assert [row.rows for row in batch_log(ours.checkpoint, spark=spark).collect()] == [2]
        readable = source.stream().selectExpr("try_cast(k AS int) AS k", "v")
        rest = ours(readable, "k", Totals(), out, look="always")
    assert sorted((row.k or -1, row.total) for row in rest.rows) == [(-1, 4), (1, 6), (3, 3)]
    assert sorted(rest.batches) == [1, 2]


def test_a_function_that_fails_in_the_look_and_not_in_the_run_fails_nothing(spark, feed, ours, tmp_path):
    source = feed("k string, v long", [("a", 1), ("b", 2)], [("a", 3)])
    calls = tmp_path / "calls"
    calls.mkdir()

    def fails_first(frames):
        (calls / str(len(list(calls.iterdir())))).touch()
        if len(list(calls.iterdir())) == 1:
            raise ValueError("not yet")
        yield from frames

    stream = source.stream().mapInPandas(fails_first, "k string, v long")
    mine = ours(stream, "k", Totals(), "k string, total long", look="always")
    assert [(row.k, row.total) for row in mine.rows] == [("a", 1), ("b", 2), ("a", 4)]
    log = batch_log(ours.checkpoint, spark=spark).collect()
    assert log[0].look.startswith("the look failed: PythonException")
    assert [row.look_rows for row in log] == [None, 1]


SCHEMA, OUT = pa.schema({"k": pa.string(), "v": pa.int64()}), pa.schema({"k": pa.string(), "total": pa.int64()})
UNUSUAL = {
    "every key is new": lambda batch: [f"{batch} {place}" for place in range(500)],
    "one key is everything": lambda _: ["all"] * 500,
    "more partitions than keys": lambda batch: ["a", "b", "c"][: batch % 3 + 1] * 100,
    "an empty batch": lambda batch: ["a", "b"] * 50 if batch % 2 else [],
    "no rows at all": lambda _: [],
}


@pytest.mark.parametrize("combine", ["auto", "never"])
@pytest.mark.parametrize("keys", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_keys_give_right_results_with_a_look_at_each_batch(tmp_path, keys, combine):
    totals, options = Counter(), {"numPartitions": 8, "tailGroups": 16, "combine": combine, **EAGER}
    with LocalQuery(Totals(), "k", SCHEMA, OUT, str(tmp_path), **options) as query:
        for batch in range(5):
            rows = pd.DataFrame({"k": pd.Series(keys(batch), dtype=object), "v": np.arange(len(keys(batch)))})
            totals.update(rows.groupby("k")["v"].sum().to_dict())
            output = query.process(rows)
            assert dict(output.itertuples(index=False)) == {key: totals[key] for key in set(keys(batch))}
        assert query.state() == {(key,): {"buffer": (total,)} for key, total in totals.items()}
    log = batch_log_rows(str(tmp_path))
    assert [row["look_rows"] for row in log] == [len(keys(batch)) for batch in range(5)]
    with_rows = [row for row in log if row["rows"]]  # where none were seen, the promise is that of earlier batches
    assert all(row["promised_rows"] == pytest.approx(row["imbalance_rows"]) for row in with_rows)
