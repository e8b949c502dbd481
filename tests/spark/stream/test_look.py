"""A batch is planned from a look at its own keys; no result depends on what the look finds."""

import random
from contextlib import nullcontext

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from equipoise import FencedError, adapt, failpoints, fingerprints
from equipoise.adapt import Combining, Look, Policy
from equipoise.spark import Aggregator, LocalQuery, balance
from equipoise.spark.rows.columns import ROW_ID
from equipoise.spark.rows.thinning import falling_chance
from equipoise.spark.stream.key_sample import numbered_keys, sampled_keys, taken
from equipoise.state.batch_log import batch_log_rows

ROWS, OUT = pa.schema({"k": pa.string(), "v": pa.int64()}), pa.schema({"k": pa.string(), "total": pa.int64()})
POLICY = Policy(load="rows")


class Total(Aggregator):
    bufferSchema = StructType([StructField("total", LongType())])  # noqa: N815 - as Spark names schemas

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + int(rows["v"].sum()),)

    def merge(self, one, other):
        return (one[0] + other[0],)

    def finish(self, key, buffer):
        return (*key, *buffer)


def renamed(batch):
    """Rows of which half have hot keys with other names in each batch, all of one tail group."""
    names = [f"hot {batch} {number}" for number in range(200)]
    home = fingerprints(names) % 16
    hot = [name for name, place in zip(names, home, strict=True) if place == home[0]][:4]
    return pd.DataFrame({"k": [hot[i % 4] if i % 2 else f"k{i % 97}" for i in range(800)], "v": range(800)})


def run(folder, look, batches=6, taken=None, combine="never"):
    """Outputs and batch log of a query over renamed keys."""
    options = {"numPartitions": 4, "tailGroups": 16, "policy": POLICY, "combine": combine, "look": look}
    with LocalQuery(Total(), "k", ROWS, OUT, str(folder), **options) as query:
        if taken is not None:
            query._jobs.look = taken
        outputs = [sorted(query.process(renamed(batch)).itertuples(index=False)) for batch in range(batches)]
        return outputs, query.state(), batch_log_rows(str(folder))


def test_each_batch_is_level_although_its_hot_keys_are_new(tmp_path):
    outputs, state, log = run(tmp_path / "always", "always")
    assert max(row["imbalance_rows"] for row in log) <= 1.05
    assert all(row["look_rows"] == 800 and row["look_seconds"] > 0 for row in log)
    assert [row["promised_rows"] for row in log] == pytest.approx([row["imbalance_rows"] for row in log])
    past_outputs, past_state, past_log = run(tmp_path / "never", "never")
    assert (past_outputs, past_state) == (outputs, state)
    assert max(row["imbalance_rows"] for row in past_log[1:]) > 1.5
    assert {row["look_rows"] for row in past_log} == {None}
    assert {row["look"] for row in past_log} == {"look='never'"}


def test_results_do_not_depend_on_what_the_look_finds(tmp_path):
    draw = random.Random(3)  # noqa: S311 - the same keys in each run

    def anything(rows, wanted, *, is_dear, late_ms):  # noqa: ARG001 - the names belong to the protocol
        found = [draw.randint(-(2**63), 2**63 - 1) for _ in range(draw.randint(0, 30))]
        if draw.random() < 0.5:  # the keys of another batch
            found = fingerprints(renamed(draw.randint(0, 9))["k"].tolist()).tolist()
        return Look.of(found, seconds=0.001)

    outputs, state, log = run(tmp_path / "wrong", "always", taken=anything)
    expected, expected_state, _ = run(tmp_path / "right", "never")
    assert (outputs, state) == (expected, expected_state)
    assert len({row["plan"] for row in log}) > 3


def test_a_look_that_fails_changes_nothing_and_says_so(tmp_path):
    def broken(rows, wanted, *, is_dear, late_ms):  # noqa: ARG001 - as above
        raise ValueError("no such file\nand a long trace")

    outputs, state, log = run(tmp_path / "broken", "always", taken=broken)
    expected, expected_state, past = run(tmp_path / "past", "never")
    assert (outputs, state) == (expected, expected_state)
    assert {row["look"] for row in log} == {"the look failed: ValueError: no such file"}
    assert all(row["look_seconds"] > 0 and row["look_rows"] is None for row in log), "its time counts"
    assert [row["plan"] for row in log] == [row["plan"] for row in past]


@pytest.mark.parametrize("part", ["Combining.decide", "Look.combined", "StreamLoadRecord.seen"])
def test_an_error_in_what_follows_from_a_look_changes_nothing_either(tmp_path, monkeypatch, part):
    kind, name = part.split(".")
    owner = getattr(adapt, kind)
    usual = getattr(owner, name)

    def fails_for_a_look(self, *given):
        if any(isinstance(each, Look) for each in (self, *given)):
            raise ZeroDivisionError("division by zero")
        return usual(self, *given)

    monkeypatch.setattr(owner, name, fails_for_a_look)
    outputs, state, log = run(tmp_path / "broken", "always", combine="always")
    monkeypatch.undo()
    expected, expected_state, past = run(tmp_path / "past", "never", combine="always")
    assert (outputs, state) == (expected, expected_state)
    assert {row["look"] for row in log} == {"the look failed: ZeroDivisionError: division by zero"}
    assert [row["plan"] for row in log] == [row["plan"] for row in past]


@pytest.mark.parametrize(
    "words",
    [
        "An error occurred while calling o37.getResult.\n: java.lang.InterruptedException\n\tat java.base",
        "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group 1f SQLSTATE: XXKDA",
    ],
)
def test_a_query_that_was_stopped_ends_in_its_look(tmp_path, words):
    def cancelled(rows, wanted, *, is_dear, late_ms):  # noqa: ARG001 - as above
        raise RuntimeError(words)

    with pytest.raises(RuntimeError):
        run(tmp_path, "always", taken=cancelled)
    assert [row["batch"] for row in batch_log_rows(str(tmp_path))] == []


def test_a_query_that_was_taken_over_ends_in_its_look(tmp_path):
    def taken_over(rows, wanted, *, is_dear, late_ms):  # noqa: ARG001 - as above
        raise FencedError("another query has taken over")

    with pytest.raises(FencedError):
        run(tmp_path, "always", taken=taken_over)


def test_a_batch_that_was_not_committed_may_run_again_under_another_plan(tmp_path, monkeypatch):
    options = {"numPartitions": 4, "tailGroups": 16, "policy": POLICY, "combine": "never", "look": "always"}
    looks = iter([Look.of(fingerprints(renamed(7)["k"].tolist()), seconds=0.0)])
    plans = []

    def stop(point):
        if point == "driver.after-plan":
            plans.append(point)
        if point == "driver.before-commit" and len(plans) == 2:
            raise OSError("stopped")

    with LocalQuery(Total(), "k", ROWS, OUT, str(tmp_path / "twice"), **options) as query:
        outputs = [sorted(query.process(renamed(0)).itertuples(index=False))]
        look = query._jobs.look
        query._jobs.look = lambda *given, **named: next(looks, None) or look(*given, **named)
        plans.append("batch 0")
        monkeypatch.setattr(failpoints, "watchers", [stop])
        with pytest.raises(OSError, match="stopped"):
            query.process(renamed(1))
        plans.append("again")
        outputs.append(sorted(query.process(renamed(1)).itertuples(index=False)))
        state = query.state()
    expected, expected_state, _ = run(tmp_path / "once", "never", batches=2)
    assert (outputs, state) == (expected, expected_state)
    assert len(list((tmp_path / "twice" / "plans").iterdir())) > len(
        {row["plan"] for row in batch_log_rows(str(tmp_path / "twice"))}
    )


def test_a_restart_plans_as_a_query_that_went_on_however_long_ago_it_looked_and_replanned(tmp_path):
    options = {"numPartitions": 4, "tailGroups": 16, "policy": POLICY, "combine": "never"}
    arguments = Total(), "k", ROWS, OUT, str(tmp_path)
    with LocalQuery(*arguments, **options) as query:
        query.process(renamed(0))
        for _ in range(44):
            query.process(renamed(0)[:2])
        went_on = query._engine._recovered().planning._memory()
        assert went_on["last_replan"] == 0
        assert went_on["look"]["cost"] > 0
    with LocalQuery(*arguments, **options) as query:
        assert query._engine._recovered().planning._memory() == went_on


def test_the_first_batch_with_rows_is_looked_at_and_saves_what_its_own_work_shows(tmp_path):
    with LocalQuery(Total(), "k", ROWS, OUT, str(tmp_path), numPartitions=4, policy=POLICY) as query:
        for rows in (renamed(0)[:0], renamed(0), renamed(0)[:0]):
            query.process(rows)
        known = query._engine._recovered().planning._memory()
    log = batch_log_rows(str(tmp_path))
    assert [row["look_rows"] for row in log[:2]] == [0, 800]
    assert known["rows"] == 800
    before, after = log[1]["imbalance_before"], log[1]["promised_rows"]
    assert before > 1.5 > after
    assert log[1]["promised_seconds"] == pytest.approx((before - after) * log[1]["work_seconds"] / 4, rel=1e-3)


def test_a_key_too_hot_for_a_task_is_combined_in_the_batch_in_which_it_is_seen(tmp_path):
    hot = pd.DataFrame({"k": ["hot" if i % 5 else f"k{i % 97}" for i in range(800)], "v": range(800)})
    options = {"numPartitions": 4, "tailGroups": 16, "policy": POLICY, "look": "always", "batchRows": 200}
    with LocalQuery(Total(), "k", ROWS, OUT, str(tmp_path), **options) as query:
        output = dict(query.process(hot).itertuples(index=False))
    assert output == hot.groupby("k")["v"].sum().to_dict()
    [row] = batch_log_rows(str(tmp_path))
    assert row["combine_scope"] == "hot"
    assert (row["combined_rows"], row["sent_rows"]) == (640, 160 + 4)
    assert row["imbalance_rows"] < 1.5
    assert row["promised_rows"] == pytest.approx(row["imbalance_rows"])


def test_limits_that_the_user_has_set_hold_for_batches_that_were_seen(tmp_path):
    even = pd.DataFrame({"k": [f"k{i % 97}" for i in range(800)], "v": range(800)})
    for name, policy, replans in (("default", POLICY, 1), ("set", Policy(load="rows", threshold=9.0), 0)):
        options = {"numPartitions": 4, "tailGroups": 16, "policy": policy, "combine": "never", "look": "always"}
        with LocalQuery(Total(), "k", ROWS, OUT, str(tmp_path / name), **options) as query:
            query.process(even)
        assert [row["action"] for row in batch_log_rows(str(tmp_path / name))].count("replan") == replans


def test_a_look_that_saw_no_row_leaves_the_limits_of_plans_from_the_past(tmp_path):
    def nothing(rows, wanted, *, is_dear, late_ms):  # noqa: ARG001 - as above
        return Look.of([], seconds=0.001)

    *_, log = run(tmp_path, "always", batches=1, taken=nothing)
    assert (log[0]["look_rows"], log[0]["promised_rows"]) == (0, None)
    even = pd.DataFrame({"k": [f"k{i % 97}" for i in range(800)], "v": range(800)})
    options = {"numPartitions": 4, "tailGroups": 1024, "policy": POLICY, "combine": "never", "look": "always"}
    with LocalQuery(Total(), "k", ROWS, OUT, str(tmp_path / "even"), **options) as query:
        query._jobs.look = nothing
        for _ in range(6):
            query.process(even)
    reasons = [row["reason"] for row in batch_log_rows(str(tmp_path / "even"))]
    assert "within 8% of the bound" in reasons[-1]


@pytest.mark.parametrize("fails", [None, "driver.before-plan", "task.start", "driver.before-commit"])
def test_what_a_look_keeps_of_a_batch_is_released_however_the_batch_ends(tmp_path, monkeypatch, fails):
    released = []

    def stop(point):
        if point == fails:
            raise OSError("stopped")

    with LocalQuery(Total(), "k", ROWS, OUT, str(tmp_path), numPartitions=2, look="always") as query:
        query._jobs.release = lambda: released.append(query._jobs)
        monkeypatch.setattr(failpoints, "watchers", [stop])
        with nullcontext() if fails is None else pytest.raises(OSError, match="stopped"):
            query.process(renamed(0))
    assert len(released) == 1


class _Settings:
    """As much of the settings as a sample needs."""

    def __init__(self, key, watermark=None):
        self.identity = type("Identity", (), {"key": key, "time_mode": "none"})()
        self.query = type("Query", (), {"final_by": None, "watermark": watermark})()


def test_a_small_batch_is_seen_whole_and_a_large_one_by_a_sample_of_all_partitions(spark):
    rows = spark.range(0, 60_000, 1, 6).select((F.col("id") / 10_000).cast("int").alias("k"))
    whole = sampled_keys(rows, _Settings(("k",)), 60_000, 2, 0)
    assert whole.is_exact
    assert (whole.counts.tolist(), whole.tasks, whole.buffers) == ([10_000] * 6, 6, 6)
    part = sampled_keys(rows, _Settings(("k",)), 3000, 2, 0)
    assert not part.is_exact
    assert 3000 < part.seen < 20_000
    assert part.effective_rows > 3000
    assert sorted(part.fingerprints.tolist()) == sorted(whole.fingerprints.tolist())
    assert part.counts == pytest.approx(whole.counts, rel=0.4)
    assert part.rows == pytest.approx(60_000, rel=0.15)
    assert sampled_keys(rows.where("false"), _Settings(("k",)), 3000, 2, 0).seen == 0


def test_the_size_of_a_first_batch_is_estimated_however_large_it_is_and_its_keys_are_combined(spark):
    rows = spark.range(0, 1_000_000, 1, 2).select(F.pmod(F.xxhash64("id"), F.lit(8_000)).alias("k"))
    look = sampled_keys(rows, _Settings(("k",)), 20_000, 2, 0)
    assert look.seen < 150_000
    assert look.rows == pytest.approx(1_000_000, rel=0.05)
    assert 62.5 / 6 < look.rows / look.buffers < 62.5 * 1.5, "each of 2 map tasks has 62.5 rows of a key"
    assert Combining("auto", buffer_cost=4).decide(2, look).scope == "all"


@pytest.mark.parametrize("rows", [200, 19_000])
@pytest.mark.parametrize("partitions", [1, 40])
def test_all_rows_of_a_batch_smaller_than_wanted_are_seen_wherever_they_are(spark, rows, partitions):
    ahead = spark.range(0, partitions - 1, 1, max(1, partitions - 1)).select(F.col("id").alias("k"))
    behind = ahead.union(spark.range(0, rows, 1, 1).select(F.pmod("id", F.lit(97)).alias("k")))
    look = sampled_keys(behind, _Settings(("k",)), 20_000, 2, 0)
    assert look.is_exact
    assert (look.seen, look.tasks) == (rows + partitions - 1, partitions)


def test_a_large_batch_in_one_of_many_partitions_is_seen_as_exactly_as_wanted(spark):
    few = spark.range(0, 40, 1, 40).select("id")
    rows = few.union(spark.range(0, 300_000, 1, 1)).select(F.pmod("id", F.lit(7)).alias("k"))
    look = sampled_keys(rows, _Settings(("k",)), 5_000, 2, 0)
    assert look.effective_rows > 2_500
    assert look.rows == pytest.approx(300_040, rel=0.1)


def test_a_look_has_neither_an_exchange_nor_a_sort(spark):
    rows = spark.range(0, 100, 1, 2).select("id", F.col("id").alias("k"))
    numbered = numbered_keys(rows, _Settings(("k",)), 0)
    for chance in (falling_chance(F.col(ROW_ID), 10, 2), F.lit(0.5)):
        plan = taken(numbered, chance)._jdf.queryExecution().executedPlan().toString()
        assert "Range" in plan
        assert not {word for word in ("Exchange", "Sort", "TakeOrdered", "Limit") if word in plan}, plan


def persisted(spark):
    """Numbers of the RDDs that are persisted; other tests of this session may have left some."""
    return set(spark.sparkContext._jsc.getPersistentRDDs())


def test_rows_are_read_once_where_looks_take_a_large_part_of_the_batches(spark, tmp_path, monkeypatch):
    for _ in range(2):
        rows = spark.range(0, 400, 1, 2).selectExpr("id % 7 AS k")
        rows.write.mode("append").parquet(str(tmp_path / "rows"))
    computed, before = spark.sparkContext.accumulator(0), persisted(spark)

    def counted(frames):
        for frame in frames:
            computed.add(len(frame))
            yield frame

    known = []
    monkeypatch.setattr(adapt.Looking, "is_dear", lambda _, seconds: known.append(seconds) or len(known) > 1)
    rows = spark.readStream.schema("k long").option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "rows"))
    counts = balance(rows.mapInPandas(counted, "k long"), "k", numPartitions=2, look="always").count()
    writer = counts.writeStream.foreachBatch(print).outputMode("update").trigger(availableNow=True)
    query = writer.start(checkpointLocation=str(tmp_path / "checkpoint"))
    query.awaitTermination()
    log = query.batch_log().collect()
    assert [(row.look_rows, row.rows) for row in log] == [(400, 400)] * 2
    assert computed.value == 2 * 400 + 400
    assert known == [0.0, log[0].seconds]
    assert persisted(spark) == before


def test_a_batch_that_cannot_be_persisted_has_no_look(spark, tmp_path, monkeypatch):
    def refused(_):
        raise RuntimeError("no room")

    monkeypatch.setattr(type(spark.range(1)), "persist", refused)
    spark.range(0, 400, 1, 2).selectExpr("id % 7 AS k").write.parquet(str(tmp_path / "rows"))
    rows = spark.readStream.schema("k long").parquet(str(tmp_path / "rows")).dropDuplicates()
    counts = balance(rows, "k", numPartitions=2, look="always").count()
    query = counts.writeStream.format("memory").queryName("refused").outputMode("update").trigger(availableNow=True)
    query = query.start(checkpointLocation=str(tmp_path / "checkpoint"))
    query.awaitTermination()
    [row] = query.batch_log().collect()
    assert (row.look, row.look_rows, row.rows) == ("the look failed: RuntimeError: no room", None, 7)


def test_where_spark_keeps_state_before_the_operator_a_batch_is_computed_once(spark, tmp_path):
    spark.range(0, 400, 1, 2).selectExpr("id % 7 AS k").write.parquet(str(tmp_path / "rows"))
    computed, before = spark.sparkContext.accumulator(0), persisted(spark)

    def counted(frames):
        for frame in frames:
            computed.add(len(frame))
            yield frame

    rows = spark.readStream.schema("k long").parquet(str(tmp_path / "rows"))
    counts = balance(rows.dropDuplicates().mapInPandas(counted, "k long"), "k", numPartitions=2, look="always").count()
    writer = counts.writeStream.foreachBatch(print).outputMode("update").trigger(availableNow=True)
    query = writer.start(checkpointLocation=str(tmp_path / "checkpoint"))
    query.awaitTermination()
    assert [(row.look_rows, row.rows) for row in query.batch_log().collect()] == [(7, 7)]
    assert computed.value == 7
    assert persisted(spark) == before
