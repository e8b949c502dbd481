# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""The plan changes while a query runs, and only the batch log shows it."""

import sys
import time

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from equipoise import InvalidArgumentError, fingerprints
from equipoise.adapt import Policy
from equipoise.spark import batch_log, read_state

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

SCHEMA = "k string, v long"
OUT = "k string, n long, total long"


class Slow(StatefulProcessor):
    """Counts, and takes its time for every row."""

    def __init__(self, seconds=0.001):
        self.seconds = seconds

    def init(self, handle):
        self.sums = handle.getValueState("sums", "n long, total long")
        self.seen = handle.getListState("seen", "v long")

    def handleInputRows(self, key, rows, timerValues):
        n, total = self.sums.get() or (0, 0)
        for frame in rows:
            time.sleep(len(frame) * self.seconds)
            n, total = n + len(frame), total + int(frame["v"].sum())
            self.seen.appendList([(int(v),) for v in frame["v"]])
        self.sums.update((n, total))
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})

    def close(self):
        pass


def _hot(count=4):
    """Keys of one tail group, whatever the number of groups up to 16: plain hash cannot part them."""
    names = [f"hot{number}" for number in range(1000)]
    places = fingerprints(names) % 16
    return [name for name, place in zip(names, places, strict=True) if place == places[0]][:count]


HOT = _hot()


def skewed(batch):
    """Half of the rows are of a few hot keys."""
    return [(HOT[place // 2 % 4] if place % 2 else f"k{place % 120}", place + batch) for place in range(480)]


def in_state(state):
    return {row.k: (row.sums.n, row.sums.total, sorted(value.v for value in row.seen)) for row in state.collect()}


def in_files(source, files):
    rows = source.table().where(F.regexp_extract(F.input_file_name(), r"(\d+)\.parquet", 1).cast("int") < files)
    found = rows.groupBy("k").agg(F.count("*"), F.sum("v"), F.array_sort(F.collect_list("v"))).collect()
    return {row[0]: tuple(row[1:]) for row in found}


def test_replanning_changes_no_answer(feed, ours, spark):
    source = feed(SCHEMA, *(skewed(batch) for batch in range(4)))
    balanced = ours(source.stream(), "k", Slow(), OUT, 4)
    plain = ours(source.stream(), "k", Slow(0), OUT, 4, placement="hash", checkpoint="plain")
    assert balanced.batches == plain.batches
    for version in range(5):
        assert in_state(read_state(ours.checkpoint, version, spark=spark)) == in_files(source, version)
    reported = batch_log(ours.checkpoint, spark=spark).dataframe().orderBy("batch").collect()
    first = reported[0]  # nothing is known of the keys, so the batch is looked at
    assert (first.action, first.applied, first.plan) == ("replan", True, 1)
    assert first.imbalance_after < first.imbalance_before
    assert first.bound <= first.imbalance_after
    assert f"imbalance {first.imbalance_before:.3f} -> {first.imbalance_after:.3f}" in first.reason
    assert first.keys_moved + first.groups_moved > 0
    assert [row.rows for row in reported] == [480] * 4
    assert all(len(row.partition_rows) == 4 and sum(row.partition_rows) == 480 for row in reported)
    assert all(row.imbalance_rows < row.imbalance_rows_hash for row in reported)


@pytest.mark.parametrize(
    "options",
    [{"policy": Policy("advise")}, {"policy": Policy("observe")}, {"placement": "hash"}],
    ids=["advise", "observe", "hash"],
)
def test_nothing_is_applied_where_it_is_not_wanted(feed, ours, spark, options):
    source = feed(SCHEMA, skewed(0), skewed(1))
    ours(source.stream(), "k", Slow(), OUT, 4, **options)
    reported = batch_log(ours.checkpoint, spark=spark).dataframe().orderBy("batch").collect()
    assert [(row.plan, row.applied) for row in reported] == [(0, False)] * 2
    if options == {"policy": Policy("advise")}:
        assert reported[1].action == "replan"
        assert reported[1].imbalance_after < reported[1].imbalance_before
    else:
        assert [row.action for row in reported] == ["keep"] * 2
    assert in_state(read_state(ours.checkpoint, spark=spark)) == in_files(source, 2)


def test_a_running_query_follows_its_overrides(feed, keyed, begin, tmp_path, collected):
    source = feed(SCHEMA)
    made = keyed(source.stream(), "k", Slow(0), OUT, 2, tailGroups=16, policy=Policy(load="rows"))
    query = begin(made, collected, tmp_path / "checkpoint")

    def batches(count=2):
        for _ in range(count):
            source.add(skewed(source.files))
            query.processAllAvailable()
        assert in_state(query.state()) == in_files(source, source.files)
        return query.batch_log().dataframe().orderBy("batch").collect()[-1]

    try:
        first = batches(1)
        assert (first.action, first.applied) == ("replan", True)
        query.rescale(4)
        assert len(batches().partition_rows) == 4
        assert query.plan.partitions == 4
        query.rescale(1)
        assert len(batches().partition_rows) == 1
        query.rescale(None)
        assert len(batches().partition_rows) == 2
        pinned = query.pin()
        last = batches(1)
        assert last.plan == pinned.version
        assert f"plan {pinned.version} is pinned" in last.reason
        assert query.rollback(1).version == 1
        last = batches()
        assert last.plan > pinned.version
        assert query.plan.same_routing(query._checkpoint.plan_of_version(1))
        query.plain_hash()
        batches()
        assert query.plan.planner == "uniform"
        assert not query.plan.isolated
        query.unpin()
        last = batches(1)
        assert (last.action, last.applied) == ("replan", True)
        with pytest.raises(InvalidArgumentError, match="there is no plan 99; there are 0, 1"):
            query.rollback(99)
        with pytest.raises(InvalidArgumentError, match="numPartitions 17 exceeds the 16 tail groups"):
            query.rescale(17)
        with pytest.raises(InvalidArgumentError, match="numPartitions"):
            query.rescale(0)
        reasons = [row.reason for row in query.batch_log().dataframe().where("action = 'pin'").collect()]
        assert reasons == ["plan 1 was asked for", "plain hash was asked for"]
    finally:
        query.stop()
    assert not query.isActive
    assert collected.calls == list(range(source.files))
