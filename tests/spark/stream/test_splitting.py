"""Keys too hot for a partition are reduced in shards, made whole again when they cool, and no answer changes."""

import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from equipoise import Plan, UserFunctionError, fingerprint
from equipoise.adapt import Policy
from equipoise.readable import fingerprint_text
from equipoise.spark import Aggregator, LocalQuery, batch_log, read_state
from equipoise.spark.rows.column_aggregator import Aggregate, ColumnAggregator
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.log import CommitLog
from equipoise.storage import Storage

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

ROWS = pa.schema({"k": pa.string(), "v": pa.int64(), "at": pa.timestamp("us", "UTC")})
OUT = pa.schema({"k": pa.string(), "n": pa.int64(), "total": pa.int64(), "seen": pa.string()})
BUFFER = StructType(
    [StructField("n", LongType()), StructField("total", LongType()), StructField("seen", ArrayType(LongType()))]
)


class Sums(Aggregator):
    bufferSchema = BUFFER  # noqa: N815 - as Spark names schemas

    def zero(self):
        return 0, 0, []

    def reduce(self, buffer, rows):
        assert list(rows.columns) == ["k", "v", "at"]
        assert rows["v"].dtype == np.int64
        if (rows["v"] < 0).any():
            raise ValueError("negative")
        n, total, seen = buffer
        return n + len(rows), total + int(rows["v"].sum()), sorted({*seen, *(rows["v"] % 7).tolist()})

    def merge(self, one, other):
        return one[0] + other[0], one[1] + other[1], sorted({*one[2], *other[2]})

    def finish(self, key, buffer):
        n, total, seen = buffer
        return (*key, n, total, ",".join(map(str, seen)))


def frame(keys, values, at=0):
    return pd.DataFrame({"k": keys, "v": values, "at": pd.to_datetime([at] * len(keys), unit="s", utc=True)})


def batch(hot, share, rows=2000, seed=0):
    """Rows of which a share is of one key."""
    rng = np.random.default_rng(seed)
    others = np.array([f"k{i}" for i in rng.integers(0, 300, rows)], dtype=object)
    keys = np.where(rng.random(rows) < share, hot, others)
    return frame(keys, rng.integers(0, 1000, rows))


def query(folder, **options):
    options = {"numPartitions": 4, "tailGroups": 64, "policy": Policy(load="rows"), **options}
    return LocalQuery(Sums(), "k", ROWS, OUT, str(folder), **options)


def decisions(folder):
    return [commit.decision for commit in CommitLog(Storage(str(folder))).kept() if commit.version]


def plans(folder):
    checkpoint = Checkpoint(Storage(str(folder)))
    return [checkpoint.plan(name) for name in checkpoint.plan_names().values()]


def rows_of(output):
    return sorted(map(tuple, output.to_numpy().tolist()), key=repr)


def expected(known, given_rows):
    """What a plain loop over the rows gives."""
    output = []
    for key, values in given_rows.groupby("k", dropna=False)["v"]:
        name = None if pd.isna(key) else key
        known.setdefault(name, []).extend(values.tolist())
        seen = ",".join(map(str, sorted({v % 7 for v in known[name]})))
        output.append((name, len(known[name]), sum(known[name]), seen))
    return sorted(output, key=repr)


def test_a_viral_key_is_split_and_made_whole_again(tmp_path):
    running, known = query(tmp_path), {}
    for number, (hot, share) in enumerate([("a", 0.0), *[("a", 0.7)] * 4, *[("b", 0.6)] * 3, *[("a", 0.0)] * 5]):
        rows = batch(hot, share, seed=number)
        assert rows_of(running.process(rows)) == expected(known, rows), number
    taken = [decision["action"] for decision in decisions(tmp_path)]
    assert "split" in taken[1]
    assert "fold" in taken
    assert not plans(tmp_path)[-1].widths
    assert max(max(plan.widths.values()) for plan in plans(tmp_path) if plan.widths) == 3
    state = {key[0]: row["buffer"][:2] for key, row in running.state().items()}
    assert state == {key: (len(values), sum(values)) for key, values in known.items()}


def test_aggregates_of_columns_tell_null_from_nan_in_a_split_key(tmp_path):
    schema = pa.schema({"k": pa.string(), "x": pa.float64()})
    asked = [Aggregate(function, "x", function) for function in ("count", "sum", "min", "max", "avg")]
    totals = ColumnAggregator(asked, from_arrow_schema(schema))
    output = totals.output_schema(["k"])
    found = {}
    for splits in (True, False):
        folder = tmp_path / str(splits)
        options = {"numPartitions": 4, "tailGroups": 64, "policy": Policy(load="rows"), "split": splits}
        with LocalQuery(totals, "k", schema, output, str(folder), **options) as running:
            for number in range(4):
                given_rows = batch("a", 0.7, seed=number)
                x = [
                    None if v % 3 else np.nan if v == 999 and k != "a" else float(v)
                    for k, v in given_rows[["k", "v"]].to_numpy()
                ]
                table = pa.table({"k": given_rows["k"].tolist(), "x": pa.array(x, pa.float64(), from_pandas=False)})
                found.setdefault(splits, []).append(sorted(map(repr, running.process_arrow(table).to_pylist())))
        assert any(plan.widths for plan in plans(folder)) == splits
    assert found[True] == found[False]
    assert "nan" in str(found[True])
    assert "None" in str(found[True])


def test_the_work_of_a_split_key_is_counted_once_and_not_as_imbalance(tmp_path):
    running = query(tmp_path)
    for number in range(4):
        running.process(batch("a", 0.7, seed=number))
    first, *_, last = [commit.measures for commit in CommitLog(Storage(str(tmp_path))).kept() if commit.version]
    assert first["split_rows"] == 0
    assert first["rows"] == last["rows"] == 2000
    assert 1300 < last["split_rows"] < 1500
    assert sum(last["partition_rows"]) == 2000 - last["split_rows"]
    assert first["imbalance_rows"] > 2
    assert last["imbalance_rows"] < 1.25


@pytest.mark.parametrize(
    "options",
    [{"split": False}, {"policy": Policy("advise", load="rows")}, {"placement": "hash"}, {"orderBy": "v"}],
    ids=["split", "advise", "hash", "orderBy"],
)
def test_nothing_is_split_where_it_is_not_wanted(tmp_path, options):
    running, known = query(tmp_path, **options), {}
    for number in range(3):
        rows = batch("a", 0.7, seed=number)
        assert rows_of(running.process(rows)) == expected(known, rows)
    assert not any(plan.widths for plan in plans(tmp_path))


def test_a_restart_without_splitting_takes_over(tmp_path):
    known = {}
    with query(tmp_path) as running:
        for number in range(3):
            rows = batch("a", 0.7, seed=number)
            assert rows_of(running.process(rows)) == expected(known, rows)
    assert plans(tmp_path)[-1].widths
    with query(tmp_path, split=False) as running:
        for number in range(3, 6):
            rows = batch("a", 0.7, seed=number)
            assert rows_of(running.process(rows)) == expected(known, rows)
    assert not plans(tmp_path)[-1].widths


def test_the_watermark_sees_the_rows_of_split_keys(tmp_path):
    running = query(tmp_path, watermark=("at", 1000), timeMode="eventTime")
    for number in range(4):
        rows = batch("a", 0.8, seed=number).assign(at=pd.to_datetime(100, unit="s", utc=True))
        rows.loc[rows["k"] == "a", "at"] = pd.to_datetime(1000 * (number + 1), unit="s", utc=True)
        running.process(rows)
    commits = [commit for commit in CommitLog(Storage(str(tmp_path))).kept() if commit.version]
    assert commits[-1].measures["split_rows"] > 1000
    assert [commit.next_watermark_ms for commit in commits] == [999_000, 1_999_000, 2_999_000, 3_999_000]


def test_a_failing_reduce_of_a_split_key_names_the_key(tmp_path):
    running = query(tmp_path)
    for number in range(3):
        running.process(batch("a", 0.7, seed=number))
    bad = batch("a", 0.7, seed=9)
    bad.loc[bad["k"] == "a", "v"] = -1
    said = r"^ValueError in reduce \(.*, line \d+\): negative\nIt was called for the key with the "
    with pytest.raises(UserFunctionError, match=said) as failure:
        running.process(bad)
    key = fingerprint("a")
    assert f"fingerprint {fingerprint_text(key)} in batch 3" in str(failure.value)
    assert f'with where("xxhash64(k) = {key}")' in str(failure.value)
    running.process(batch("a", 0.7, seed=9))


def test_a_plan_that_splits_needs_the_key_isolated():
    with pytest.raises(ValueError, match="has 2 shards but is not isolated"):
        Plan(2, [0, 1], {}, widths={7: 2})
    with pytest.raises(ValueError, match="the number of shards of a key"):
        Plan(2, [0, 1], {7: 0}, widths={7: 1})
    plan = Plan(2, [0, 1], {7: 0, -3: 1}, widths={7: 2})
    assert Plan.from_json(plan.to_json()) == plan
    assert not plan.same_routing(Plan(2, [0, 1], {7: 0, -3: 1}))


STEPS = st.tuples(st.sampled_from(["a", "b", None]), st.floats(0, 1), st.integers(1, 6))
"""Which key is hot, its share, and the number of partitions to ask for."""


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.floats(0, 1), st.integers(1, 6)), min_size=3, max_size=7),
    st.integers(5, 500),
)
def test_whatever_is_hot_the_answers_are_those_of_a_plain_loop(tmp_path_factory, story, records):
    policy = Policy(load="rows", minimum_gain=0.0)
    running, known = query(tmp_path_factory.mktemp("story"), batchRows=records, policy=policy), {}
    for number, (hot, share, partitions) in enumerate(story):
        running.rescale(partitions)
        rows = batch(hot, share, rows=400, seed=number)
        assert rows_of(running.process(rows)) == expected(known, rows)
    state = {key[0]: row["buffer"][:2] for key, row in running.state().items()}
    assert state == {key: (len(values), sum(values)) for key, values in known.items()}


class SparkSums(Sums):
    bufferSchema = "n long, total long, seen array<long>"  # noqa: N815 - as Spark names schemas

    def reduce(self, buffer, rows):
        assert list(rows.columns) == ["k", "v"]
        return super().reduce(buffer, rows.assign(at=0))


def test_on_spark_too(feed, ours, spark):
    def rows(number):
        found = batch("ab"[number // 3], 0.85, rows=1200, seed=number)
        return [(k, int(v)) for k, v in found[["k", "v"]].to_numpy()]

    source = feed("k string, v long", *(rows(number) for number in range(5)))
    shape = ("k", SparkSums(), "k string, n long, total long, seen string", 4)
    split = ours(source.stream(), *shape, policy=Policy(load="rows"))
    whole = ours(source.stream(), *shape, policy=Policy(load="rows"), split=False, checkpoint="whole")
    assert split.batches == whole.batches
    told = batch_log(ours.checkpoint, spark=spark).dataframe().orderBy("batch").collect()
    assert told[0].action == "split"
    assert told[1].imbalance_rows < told[0].imbalance_rows
    assert any(plan.widths for plan in plans(ours.checkpoint))
    found = read_state(ours.checkpoint, spark=spark).selectExpr("k", "buffer.n", "buffer.total").collect()
    wanted = source.table().groupBy("k").agg(F.count("*"), F.sum("v")).collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, wanted))
