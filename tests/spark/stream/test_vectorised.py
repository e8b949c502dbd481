# ruff: noqa: DTZ001, N815 - the names belong to Spark's protocol, and its rows have no zones
"""Processors that see many keys at once, and aggregators, against a plain ``groupBy``."""

import datetime as dt
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F

from equipoise import EquipoiseError
from equipoise.spark import Aggregator, VectorProcessor, read_state
from equipoise.spark.rows.pandas_rows import key_shower, state_array

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

KEYS = [0.0, -0.0, 1.5, float("nan"), -float("nan"), None, 1e300]
SCHEMA = "d double, k string, v long"


def skewed(batch, rows=60):
    rng = np.random.default_rng(batch)
    for place in range(rows):
        yield KEYS[int(rng.integers(len(KEYS)))], f"k{min(int(rng.zipf(1.5)), 9)}", place + batch


class Sums(VectorProcessor):
    stateSchema = "n long, total long, last timestamp"

    def process(self, batch):
        values = batch.rows["v"].to_numpy()
        assert batch.offsets[-1] == batch.rows.num_rows
        n = pc.add(pc.fill_null(batch.state["n"], 0), pa.array(np.diff(batch.offsets)))
        total = pc.add(pc.fill_null(batch.state["total"], 0), pa.array(np.add.reduceat(values, batch.offsets[:-1])))
        known = batch.state["last"].drop_null().unique().to_pylist()
        assert known in ([], [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)])
        last = pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)] * len(batch), pa.timestamp("us", "UTC"))
        batch.update(pa.table({"last": last, "total": total, "n": n}))
        return pa.table({"n": n, "k": batch.keys["k"], "d": batch.keys["d"], "total": total})


def same(number):
    """One text for numbers that are one key: -0.0 is 0.0."""
    return repr(number if number is None else number + 0.0)


def expected(source):
    rows = source.table().groupBy("d", "k").agg(F.count("*").alias("n"), F.sum("v").alias("total")).collect()
    return sorted(rows, key=repr)


@pytest.mark.parametrize("records", ["7", "10000"])
def test_sums_are_those_of_a_group_by(feed, ours, conf, spark, records):
    source = feed(SCHEMA, *(skewed(batch) for batch in range(2)))
    with conf(spark__sql__execution__arrow__maxRecordsPerBatch=records):
        sink = ours(source.stream(), ["d", "k"], Sums(), "d double, k string, n long, total long")
    state = read_state(ours.checkpoint, spark=spark).selectExpr("d", "k", "state.n", "state.total", "state.last")
    assert {row.last for row in state.collect()} == {dt.datetime(2024, 1, 1)}
    assert sorted(map(repr, state.drop("last").collect())) == list(map(repr, expected(source)))  # NaN is not NaN
    largest = {(same(row.d), row.k): row.n for row in sorted(sink.rows, key=lambda row: row.n)}
    assert largest == {(same(row.d), row.k): row.n for row in expected(source)}


class Forgetful(VectorProcessor):
    """Keeps the states of keys whose latest sum is even."""

    stateSchema = "total long"

    def process(self, batch):
        total = np.add.reduceat(batch.rows["v"].to_numpy(), batch.offsets[:-1])
        total += pc.fill_null(batch.state["total"], 0).to_numpy()
        batch.update(pa.table({"total": total}))
        batch.remove(total % 2 == 1)
        return pa.table({"k": batch.keys["k"], "known": batch.exists})


def test_states_can_be_removed(feed, ours, spark):
    source = feed("k string, v long", [("a", 1), ("b", 2), ("c", 4)], [("a", 6), ("b", 1), ("c", 2), ("d", 0)])
    sink = ours(source.stream(), "k", Forgetful(), "k string, known boolean")
    assert [(row.k, row.known) for row in sink.batches[1]] == [("a", False), ("b", True), ("c", True), ("d", False)]
    state = read_state(ours.checkpoint, spark=spark)
    assert {row.k: row.state.total for row in state.collect()} == {"a": 6, "c": 6, "d": 0}


class Wrong(VectorProcessor):
    stateSchema = "total long"

    def __init__(self, how):
        self.how = how

    def process(self, batch):
        if self.how == "raises":
            return 1 / 0
        if self.how == "short":
            batch.update(pa.table({"total": [1]}))
        if self.how == "lacking":
            batch.update(pa.table({"sum": [1] * len(batch)}))
        if self.how == "flags":
            batch.remove(np.ones(1, dtype=bool))
        if self.how == "output":
            return pa.table({"x": [1]})
        return None


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "raises",
            r"ZeroDivisionError in Wrong.process \(.*py, line \d+\): .*\nIt was called for 2 keys \(.*\) in batch 0",
        ),
        ("short", "update got 1 state for 2 keys"),
        ("lacking", "update lacks the state columns .*total"),
        ("flags", r"remove got flags of shape \(1,\) for 2 keys"),
        ("output", "process gave columns .*k missing"),
    ],
)
def test_what_is_wrong_in_process_is_said(feed, ours, how, said):
    source = feed("k string, v long", [("a", 1), ("b", 2)])
    with pytest.raises(EquipoiseError, match=said):
        ours(source.stream(), "k", Wrong(how), "k string", 1)


class Statistics(Aggregator):
    bufferSchema = "n long, least long, most long"

    def zero(self):
        return (0, None, None)

    def reduce(self, buffer, rows):
        return self.merge(buffer, (len(rows), int(rows["v"].min()), int(rows["v"].max())))

    def merge(self, one, other):
        both = [part for part in (one, other) if part[0]]
        if not both:
            return self.zero()
        counts, least, most = zip(*both, strict=True)
        return sum(counts), min(least), max(most)

    def finish(self, key, buffer):
        return None if key[0] == "k1" else (*key, *buffer)


def test_an_aggregator_gives_what_a_group_by_does(feed, ours, spark, conf):
    source = feed(SCHEMA, *(skewed(batch) for batch in range(2)))
    start = spark.createDataFrame(
        [("k1", 5, -7, 3), ("k77", 1, 2, 3), ("k1", 1, 0, 99)], "k string, n long, least long, most long"
    )
    with conf(spark__sql__execution__arrow__maxRecordsPerBatch="7"):
        sink = ours(source.stream(), "k", Statistics(), "k string, n long, least long, most long", initialState=start)
    found = read_state(ours.checkpoint, spark=spark).selectExpr("k", "buffer.*").collect()
    merged = {"k1": (6, -7, 99), "k77": (1, 2, 3)}
    for row in source.table().groupBy("k").agg(F.count("*"), F.min("v"), F.max("v")).collect():
        merged[row.k] = Statistics().merge(merged.get(row.k, (0, None, None)), tuple(row)[1:])
    assert {row.k: tuple(row)[1:] for row in found} == merged
    last = {row.k: tuple(row)[1:] for row in sink.rows}
    assert last == {key: value for key, value in merged.items() if key not in ("k1", "k77")}


def test_instants_of_the_state_do_not_depend_on_the_clock_of_the_process(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        noon = dt.datetime(2024, 7, 1, 8)
        utc = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
        instant, wall = pa.timestamp("us", "UTC"), pa.timestamp("us")
        assert state_array([noon, None], instant).to_pylist() == [utc, None]
        assert state_array([noon], wall).to_pylist() == [noon]
        nested = pa.struct(
            [("t", instant), ("l", pa.list_(instant)), ("m", pa.map_(pa.string(), instant)), ("n", wall)]
        )
        found = state_array([(noon, [noon, None], {"a": noon}, noon), None], nested).to_pylist()
        assert found == [{"t": utc, "l": [utc, None], "m": [("a", utc)], "n": noon}, None]
        assert state_array([[("a", noon)]], pa.map_(pa.string(), instant)).to_pylist() == [[("a", utc)]]
        schema = {"fields": [{"type": "timestamp"}, {"type": "timestamp_ntz"}, {"type": "string"}]}
        shown = key_shower(schema, "Europe/Berlin")
        assert shown((noon, noon, "a")) == shown((utc, noon, "a"))
        assert shown((utc, None, None)) == (pd.Timestamp("2024-07-01 14:00"), None, None)
    finally:
        monkeypatch.undo()
        time.tzset()
