"""Rows are reduced before the exchange where that pays, and no answer changes."""

import sys
from dataclasses import replace

import msgspec
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

from equipoise import UserFunctionError, fingerprint
from equipoise.adapt import Combine, Policy
from equipoise.readable import fingerprint_text
from equipoise.spark import Aggregator, LocalQuery, batch_log, read_state
from equipoise.spark.rows.column_aggregator import Aggregate, ColumnAggregator
from equipoise.spark.rows.columns import FINGERPRINT, PARTIAL_BUFFER
from equipoise.spark.rows.keyed_frames import PartialBuffer
from equipoise.spark.stream.partial_buffers import chunks, combiner
from equipoise.state.log import CommitLog
from equipoise.storage import Storage
from equipoise_lab.bench.prompt import _batch_spec as microbatch_spec

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


def measures(folder):
    return [commit.measures for commit in CommitLog(Storage(str(folder))).kept() if commit.version]


@pytest.mark.parametrize("combine", ["auto", "always", "never"])
def test_a_viral_key_comes_and_goes(tmp_path, combine):
    running, known = query(tmp_path, combine=combine, batchRows=500, look="always"), {}
    for number, (hot, share) in enumerate([("a", 0.0), *[("a", 0.7)] * 4, *[("b", 0.6)] * 3, *[("a", 0.0)] * 5]):
        rows = batch(hot, share, seed=number)
        assert rows_of(running.process(rows)) == expected(known, rows), number
    state = {key[0]: row["buffer"][:2] for key, row in running.state().items()}
    assert state == {key: (len(values), sum(values)) for key, values in known.items()}
    scopes = [each["combine_scope"] for each in measures(tmp_path)]
    few = ["none", *["hot"] * 7, *["none"] * 5]
    assert scopes == {"auto": few, "always": ["all"] * 13, "never": ["none"] * 13}[combine]


def test_a_hot_key_is_one_buffer_of_each_map_task(tmp_path):
    running = query(tmp_path, batchRows=500)
    for number in range(3):
        running.process(batch("a", 0.7, seed=number))
    for each in measures(tmp_path):
        assert each["combine_scope"] == "hot"
        assert "1 key with much load" in each["combine"]
        assert each["rows"] == 2000
        assert each["hot_keys"][0] == fingerprint("a")
        assert each["combined_rows"] == each["hot_rows"][0] > 1300
        assert each["sent_rows"] == sum(each["partition_rows"]) == 2000 - each["combined_rows"] + 4
        assert each["imbalance_rows"] < 1.25


def test_keys_that_repeat_often_are_all_combined(tmp_path):
    running = query(tmp_path, batchRows=500)
    rows = frame([f"k{i % 10}" for i in range(2000)], range(2000))
    for _ in range(2):
        running.process(rows)
    for each in measures(tmp_path):
        assert (each["combine_scope"], each["combined_rows"], each["sent_rows"], each["keys"]) == ("all", 2000, 40, 10)
        assert each["combine"] == "50 rows for each buffer, and a buffer costs as much as 16 rows"


def test_a_restart_decides_as_the_running_query_would(tmp_path):
    stories = {"running": [], "restarted": []}
    for name, story in stories.items():
        running = query(tmp_path / name, batchRows=500, look="never")
        for number, share in enumerate([0.0, 0.0, 0.7, 0.7, 0.0, 0.0]):
            if name == "restarted":
                running.close()
                running = query(tmp_path / name, batchRows=500, look="never")
            running.process(batch("a", share, seed=number))
        running.close()
        story += [(each["combine_scope"], each["combined_rows"]) for each in measures(tmp_path / name)]
    assert stories["running"] == stories["restarted"]
    assert [scope for scope, _ in stories["running"]] == ["all", "none", "none", "hot", "hot", "none"]


def test_aggregates_of_columns_tell_null_from_nan_in_a_combined_key(tmp_path):
    schema = pa.schema({"k": pa.string(), "x": pa.float64()})
    asked = [Aggregate(function, "x", function) for function in ("count", "sum", "min", "max", "avg")]
    totals = ColumnAggregator(asked, from_arrow_schema(schema))
    output = totals.output_schema(["k"])
    found = {}
    for combine in ("always", "never"):
        folder = tmp_path / combine
        options = {"numPartitions": 4, "tailGroups": 64, "policy": Policy(load="rows"), "combine": combine}
        with LocalQuery(totals, "k", schema, output, str(folder), **options) as running:
            for number in range(4):
                given_rows = batch("a", 0.7, seed=number)
                x = [
                    None if v % 3 else np.nan if v == 999 and k != "a" else float(v)
                    for k, v in given_rows[["k", "v"]].to_numpy()
                ]
                table = pa.table({"k": given_rows["k"].tolist(), "x": pa.array(x, pa.float64(), from_pandas=False)})
                found.setdefault(combine, []).append(sorted(map(repr, running.process_arrow(table).to_pylist())))
        assert all((each["combined_rows"] > 0) == (combine == "always") for each in measures(folder))
    assert found["always"] == found["never"]
    assert "nan" in str(found["always"])
    assert "None" in str(found["always"])


@pytest.mark.parametrize(
    "options",
    [{"combine": "never"}, {"combine": "always", "orderBy": "v"}],
    ids=["never", "orderBy"],
)
def test_nothing_is_combined_where_it_is_not_wanted(tmp_path, options):
    running, known = query(tmp_path, **options), {}
    for number in range(3):
        rows = batch("a", 0.7, seed=number)
        assert rows_of(running.process(rows)) == expected(known, rows)
    assert {each["combined_rows"] for each in measures(tmp_path)} == {0}
    said = "orderBy keeps the rows of a key together" if "orderBy" in options else "combine='never'"
    assert {each["combine"] for each in measures(tmp_path)} == {said}


@pytest.mark.parametrize("combine", ["auto", "always"])
def test_the_watermark_sees_the_rows_of_combined_keys(tmp_path, combine):
    running = query(tmp_path, watermark=("at", 1000), timeMode="eventTime", combine=combine)
    for number in range(4):
        rows = batch("a", 0.8, seed=number).assign(at=pd.to_datetime(100, unit="s", utc=True))
        rows.loc[rows["k"] == "a", "at"] = pd.to_datetime(1000 * (number + 1), unit="s", utc=True)
        running.process(rows)
    commits = [commit for commit in CommitLog(Storage(str(tmp_path))).kept() if commit.version]
    assert commits[-1].measures["combined_rows"] > 1000
    assert [commit.next_watermark_ms for commit in commits] == [999_000, 1_999_000, 2_999_000, 3_999_000]


def test_a_failing_reduce_of_a_combined_key_names_the_key(tmp_path):
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


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.floats(0, 1), st.integers(1, 6)), min_size=3, max_size=7),
    st.integers(5, 500),
    st.sampled_from(["auto", "always", "never"]),
)
def test_whatever_is_hot_the_answers_are_those_of_a_plain_loop(tmp_path_factory, story, records, combine):
    policy = Policy(load="rows", minimum_gain=0.0)
    running, known = query(tmp_path_factory.mktemp("story"), batchRows=records, policy=policy, combine=combine), {}
    for number, (hot, share, partitions) in enumerate(story):
        running.rescale(partitions)
        rows = batch(hot, share, rows=400, seed=number)
        assert rows_of(running.process(rows)) == expected(known, rows)
    state = {key[0]: row["buffer"][:2] for key, row in running.state().items()}
    assert state == {key: (len(values), sum(values)) for key, values in known.items()}


@pytest.mark.parametrize("combine", [Combine("all"), Combine("hot", keys=(7,))], ids=["all", "hot"])
def test_a_repeated_map_task_sends_the_same(combine):
    """Spark takes other rows of a repeated task for a failure."""
    key = StructType([StructField("k", LongType())]).jsonValue()
    spec = replace(microbatch_spec(), key_fields=[0], key_schema=key, event_time=2, combine=combine)
    keys = [7, -1, 7, 8, 7, -1]
    columns = {"k": keys, "v": range(6), "at": pa.array(range(6), pa.timestamp("us", "UTC")), FINGERPRINT: keys}
    task = [pa.record_batch(columns)]
    first, again = (pa.Table.from_batches(combiner(spec, Sums(), BUFFER.jsonValue())(iter(task))) for _ in range(2))
    assert first == again
    made = [each and msgspec.msgpack.decode(each, type=PartialBuffer) for each in first[PARTIAL_BUFFER].to_pylist()]
    if combine.scope == "all":
        assert first.column_names == ["k", PARTIAL_BUFFER]
        assert [(k, each.rows) for k, each in zip(first["k"].to_pylist(), made, strict=True)] == [
            (-1, 2),
            (7, 3),
            (8, 1),
        ]
    else:
        assert first.column_names == ["k", "v", "at", PARTIAL_BUFFER]
        assert [each if each is None else each.rows for each in made] == [None, None, None, 3]
        assert first["v"].to_pylist() == [1, 3, 5, None]
    assert {each.latest_event_ms for each in made if each} == {0}


def test_a_map_task_reduces_a_bounded_number_of_bytes_at_a_time():
    batches = [pa.record_batch({FINGERPRINT: [number] * 100}) for number in range(10)]
    assert [each.num_rows for each in chunks(iter(batches), most_bytes=2000)] == [300, 300, 300, 100]
    assert list(chunks(iter([batches[0].slice(0, 0)]))) == []


class SparkSums(Sums):
    bufferSchema = "n long, total long, seen array<long>"  # noqa: N815 - as Spark names schemas

    def reduce(self, buffer, rows):
        assert list(rows.columns) == ["k", "v"]
        return super().reduce(buffer, rows.assign(at=0))


@pytest.mark.parametrize("combine", ["auto", "always"])
def test_on_spark_too(feed, ours, spark, combine):
    def rows(number):
        found = batch("ab"[number // 3], 0.85, rows=1200, seed=number)
        return [(k, int(v)) for k, v in found[["k", "v"]].to_numpy()]

    source = feed("k string, v long", *(rows(number) for number in range(5)))
    shape = ("k", SparkSums(), "k string, n long, total long, seen string", 4)
    combined = ours(source.stream(), *shape, policy=Policy(load="rows"), combine=combine, look="always")
    whole = ours(source.stream(), *shape, policy=Policy(load="rows"), combine="never", checkpoint="whole")
    assert combined.batches == whole.batches
    log = batch_log(ours.checkpoint, spark=spark).dataframe().orderBy("batch").collect()
    assert {row.combine_scope for row in log} == {"hot" if combine == "auto" else "all"}
    assert all(row.combined_rows > 900 and row.imbalance_rows < 1.5 for row in log)
    found = read_state(ours.checkpoint, spark=spark).selectExpr("k", "buffer.n", "buffer.total").collect()
    wanted = source.table().groupBy("k").agg(F.count("*"), F.sum("v")).collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, wanted))
