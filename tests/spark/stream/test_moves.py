"""Large moves are spread over batches, their speed is measured, and promises are compared with what came of them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from equipoise.adapt import MoveLimit, Policy
from equipoise.hashing import fingerprints
from equipoise.metrics import load_imbalance
from equipoise.readable import fingerprint_text
from equipoise.spark import Aggregator, KeyBatch, LocalQuery, VectorProcessor
from equipoise.spark.stream.load_meter import LoadMeter
from equipoise.spark.stream.planning import Planning
from equipoise.state.batch_log import batch_log_rows

ROWS, OUT = pa.schema({"k": pa.string(), "v": pa.int64()}), pa.schema({"k": pa.string(), "total": pa.int64()})
KEYS, TEXT = 600, "state" * 1000


class Total(Aggregator):
    """A sum, with a state of 5 KB for each key."""

    bufferSchema = StructType([StructField("total", LongType()), StructField("text", StringType())])  # noqa: N815

    def zero(self):
        return 0, TEXT

    def reduce(self, buffer, rows):
        return buffer[0] + int(rows["v"].sum()), buffer[1]

    def merge(self, one, other):
        return one[0] + other[0], one[1]

    def finish(self, key, buffer):
        return (*key, buffer[0])


class Rows(VectorProcessor):
    """A number of rows, which the library cannot merge."""

    stateSchema = "n long"  # noqa: N815 - as Spark names schemas

    def process(self, batch: KeyBatch):
        n = np.diff(batch.offsets) + batch.state["n"].fill_null(0).to_numpy()
        batch.update(pa.table({"n": n}))
        return pa.table({"k": batch.keys["k"], "total": n})


def even(batch):
    return pd.DataFrame({"k": [f"k{i}" for i in range(KEYS)] * 20, "v": np.arange(20 * KEYS) + batch})


def run(folder, batches=24, restart=False, rescale_at=2, rows=even, **options):
    """Outputs, state and batch log of a query that is rescaled from 4 to 8 partitions."""
    made = {"numPartitions": 4, "tailGroups": 64, "combine": "never", "look": "never", **options}
    outputs, query = [], LocalQuery(Total(), "k", ROWS, OUT, str(folder), **made)
    for batch in range(batches):
        if batch == rescale_at:
            query.rescale(8)
        outputs.append(sorted(query.process(rows(batch)).itertuples(index=False)))
        if restart:
            query.close()
            query = LocalQuery(Total(), "k", ROWS, OUT, str(folder), **made)
    state = {key: buffer["buffer"][0] for key, buffer in query.state().items()}
    query.close()
    return outputs, state, batch_log_rows(str(folder))


def test_a_large_move_is_spread_over_batches_and_changes_no_result(tmp_path, monkeypatch):
    policy = Policy(load="rows", threshold=0.01, minimum_gain=0.01, move_share=1e9)
    expected, expected_state, at_once = run(tmp_path / "at once", policy=policy)
    assert [row["plan"] for row in at_once] == [0, 0, *[1] * 22]
    monkeypatch.setattr(Planning, "_at_once", lambda *_, **__: MoveLimit(150_000.0, 150_000.0))
    outputs, state, log = run(tmp_path / "in steps", policy=policy)
    assert (outputs, state) == (expected, expected_state)
    moved, whole = [row["moved_bytes"] for row in log], at_once[2]["moved_bytes"]
    assert sum(moved) == pytest.approx(whole, rel=0.15)
    assert max(moved[3:]) <= 200_000
    assert sum(each > 0 for each in moved) >= 8
    assert "in steps" in log[3]["reason"]
    assert log[-1]["imbalance_rows"] < 1.1 < log[3]["imbalance_rows"]


def test_what_may_move_at_once_follows_the_time_of_a_batch_and_the_measured_speed(tmp_path):
    """A query that must not replan later moves everything at once; so does one of which no time is known."""
    with LocalQuery(Total(), "k", ROWS, OUT, str(tmp_path), numPartitions=4, policy=Policy(move_share=0.5)) as query:
        query.process(even(0))
        planning = query._engine._progress.planning
        planning._batch_seconds, planning._move_rate = 10.0, 2e6
        assert planning._at_once(4, pinned=False) == MoveLimit(total=0.5 * 10 * 2e6 * 4, partition=0.5 * 10 * 2e6)
        assert planning._at_once(4, pinned=True) is None
        planning._batch_seconds = 0.0
        assert planning._at_once(4, pinned=False) is None
    _, _, log = run(tmp_path / "advise", batches=5, policy=Policy("advise", load="rows", move_share=1e-9))
    assert [row["plan"] for row in log] == [0, 0, 1, 1, 1]
    assert log[2]["moved_bytes"] > 1_000_000


def test_the_speed_of_moving_is_measured_and_counts_in_the_next_decision(tmp_path):
    _, _, log = run(tmp_path, batches=5, policy=Policy(load="rows", move_share=1e9))
    assert log[1]["moved_bytes"] == log[1]["moved_seconds"] == 0
    assert log[1]["move_rate"] is None
    assert log[2]["moved_bytes"] == pytest.approx(log[2]["move_bytes"], rel=0.1)
    assert log[2]["moved_bytes"] > 1_000_000
    assert log[2]["moved_seconds"] > 0
    assert log[2]["move_rate"] * log[2]["moved_seconds"] * 8 >= 0.99 * log[2]["moved_bytes"]


def drifting(batch):
    """Rows of which half have hot keys with other names in each batch."""
    return pd.DataFrame({"k": [f"hot {batch} {i % 3}" if i % 2 else f"k{i % 97}" for i in range(600)], "v": range(600)})


def test_broken_promises_are_shown_and_make_the_next_plan_less_trusted(tmp_path):
    policy = Policy(load="rows", move_rate=1e12)
    _, _, log = run(tmp_path / "past", batches=12, rows=drifting, policy=policy, rescale_at=None)
    promised = [row for row in log if row["applied"] and row["batch"]]
    assert promised
    assert min(row["trust"] for row in log[1:]) < 0.8
    got, said = (sum(row[name] for row in promised) for name in ("got_seconds", "promised_seconds"))
    assert got < 0.8 * said
    assert any("believed, as earlier plans have kept" in row["reason"] for row in log)
    _, _, seen = run(tmp_path / "seen", batches=12, rows=drifting, policy=policy, rescale_at=None, look="always")
    assert [row["imbalance_rows"] for row in seen] == pytest.approx([row["promised_rows"] for row in seen])
    assert {row["trust"] for row in seen} == {1.0}


@pytest.mark.parametrize("look", ["never", "always"])
def test_a_restart_knows_how_far_promises_were_kept(tmp_path, look):
    options = {"batches": 8, "rows": drifting, "policy": Policy(load="rows", move_rate=1e12), "rescale_at": None}
    *same, log = run(tmp_path / "on", look=look, **options)
    *again, restarted = run(tmp_path / "off", look=look, restart=True, **options)
    assert same == again
    assert [(row["trust"], row["plan"]) for row in restarted] == [(row["trust"], row["plan"]) for row in log]


def test_a_promise_is_compared_with_the_plan_before_over_the_rows_of_the_very_batch(tmp_path):
    policy, options = Policy(load="rows", move_rate=1e12), {"numPartitions": 4, "tailGroups": 64, "combine": "never"}
    with LocalQuery(Total(), "k", ROWS, OUT, str(tmp_path), policy=policy, look="never", **options) as query:
        plans = [query.plan]
        for batch in range(8):
            query.process(drifting(batch))
            plans.append(query.plan)
    log = batch_log_rows(str(tmp_path))
    assert sum(row["applied"] for row in log) >= 2
    for batch, row in enumerate(log):
        keys = fingerprints(drifting(batch)["k"].tolist())
        before, after = (load_imbalance(np.bincount(plans[n].assign(keys), minlength=4)) for n in (batch, batch + 1))
        assert (row["imbalance_rows_unchanged"], row["imbalance_rows"]) == pytest.approx((before, after))
        assert (row["imbalance_load_unchanged"], row["imbalance_load"]) == pytest.approx((before, after))
        saved = (before - after) * row["work_seconds"] / 4 - row["caught_up_seconds"]
        assert row["got_seconds"] == pytest.approx(saved if row["applied"] else 0.0, abs=1e-6)
        if not row["applied"]:
            assert row["promised_seconds"] == 0


def test_plans_of_the_past_that_fail_do_not_make_plans_from_looks_less_trusted(tmp_path):
    options = {"numPartitions": 4, "tailGroups": 64, "combine": "never", "policy": Policy(load="rows", move_rate=1e12)}
    with LocalQuery(Total(), "k", ROWS, OUT, str(tmp_path), look="never", **options) as query:
        for batch in range(8):
            query.process(drifting(batch))
    with LocalQuery(Total(), "k", ROWS, OUT, str(tmp_path), look="always", **options) as query:
        query.process(drifting(8))
        trust = query._engine._recovered().planning._memory()["trust"]
    assert trust["past"] < 0.9
    assert trust["look"] == 1.0
    assert batch_log_rows(str(tmp_path))[-1]["trust"] == 1.0


def test_a_plan_that_levels_costs_and_not_rows_is_promised_in_both(tmp_path, monkeypatch):
    """A row of one key takes 10 ms and any other 1 ms, by a clock of the test."""
    rows = pd.DataFrame({"k": ["slow" if i % 20 == 0 else f"k{i % 97}" for i in range(800)], "v": range(800)})
    add, slow = LoadMeter.add, fingerprints(["slow"])[0]

    def timed(meter, groups, keys, counts, seconds, received=None):  # noqa: ARG001 - as the method
        return add(meter, groups, keys, counts, counts * np.where(keys == slow, 0.01, 0.001), received)

    monkeypatch.setattr(LoadMeter, "add", timed)
    options = {"numPartitions": 4, "tailGroups": 64, "combine": "never", "look": "always", "policy": Policy()}
    with LocalQuery(Total(), "k", ROWS, OUT, str(tmp_path), **options) as query:
        for _ in range(6):
            query.process(rows)
        known = query._engine._recovered().planning._memory()
    log = batch_log_rows(str(tmp_path))
    levelled = next(row for row in log if row["applied"] and row["promised_rows"] > row["unchanged_rows"])
    assert levelled["imbalance_after"] < 0.8 * levelled["imbalance_before"]
    assert levelled["imbalance_load"] < 0.8 * levelled["imbalance_load_unchanged"]
    assert levelled["imbalance_rows"] == pytest.approx(levelled["promised_rows"])
    assert levelled["promised_seconds"] > 0
    assert levelled["got_seconds"] > 0
    assert known["trust"]["look"] > 0.8
    assert known["look"]["reached"] == pytest.approx(log[-1]["imbalance_before"], rel=0.2)


@pytest.mark.parametrize(
    ("processor", "options", "way_out"),
    [
        (Total(), {"combine": "never"}, "combine='auto' would combine its rows before the exchange"),
        (Total(), {"orderBy": "v"}, "orderBy keeps its rows together"),
        (Rows(), {}, "Rows has no merge: an operator that merges would combine its rows"),
    ],
)
def test_a_key_that_no_plan_can_cure_is_named_with_the_way_out_of_this_query(tmp_path, processor, options, way_out):
    hot = pd.DataFrame({"k": ["hot" if i % 5 else f"k{i % 97}" for i in range(800)], "v": range(800)})
    made = {"numPartitions": 4, "tailGroups": 16, "policy": Policy(load="rows"), "look": "always", **options}
    with LocalQuery(processor, "k", ROWS, OUT, str(tmp_path), **made) as query:
        query.process(hot)
        query.process(hot)
    first, second = batch_log_rows(str(tmp_path))
    for row, action in ((first, "replan"), (second, "keep")):
        assert row["action"] == action
        key = fingerprint_text(int(fingerprints(["hot"])[0]))
        assert f" 3.200, because the key {key} alone has 80.0% of the load; {way_out}" in row["reason"]
