"""What tasks measure is what the controller hears of: every row, in its own key group."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from equipoise.adapt import Policy
from equipoise.hashing import fingerprints
from equipoise.metrics import load_imbalance
from equipoise.spark import Aggregator, KeyBatch, LocalQuery, VectorProcessor
from equipoise.spark.stream.local_jobs import LocalJobs
from equipoise.state.batch_log import batch_log_rows

COUNT = StructType([StructField("n", LongType())])
ROWS, COUNTS = pa.schema({"k": pa.string()}), pa.schema({"k": pa.string(), "n": pa.int64()})


class Count(Aggregator):
    bufferSchema = COUNT  # noqa: N815 - as Spark names schemas

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + len(rows),)

    def merge(self, one, other):
        return (one[0] + other[0],)

    def finish(self, key, buffer):
        return *key, *buffer


class VectorCount(VectorProcessor):
    stateSchema = COUNT  # noqa: N815 - as Spark names schemas

    def process(self, batch: KeyBatch):
        n = np.diff(batch.offsets) + batch.state["n"].fill_null(0).to_numpy()
        batch.update(pa.table({"n": n}))
        return pa.table({"k": batch.keys["k"], "n": n})


@pytest.mark.parametrize("processor", [Count(), VectorCount()], ids=["key by key", "vectorised"])
def test_the_measures_of_the_tasks_cover_every_row_of_every_group(processor, monkeypatch):
    said = []
    run = LocalJobs.run
    monkeypatch.setattr(LocalJobs, "run", lambda *given, **named: said.append(run(*given, **named)) or said[-1])
    keys = [f"k{number}" for number in np.random.default_rng(1).zipf(1.3, 800) % 90]
    query = LocalQuery(
        processor, "k", ROWS, COUNTS, numPartitions=3, tailGroups=8, batchRows=50, policy=Policy("observe")
    )
    query.process(pd.DataFrame({"k": keys}))

    loads = {group: load.rows for manifest in said[-1] for group, load in manifest.loads.items()}
    groups = np.bincount(fingerprints(keys) % 8, minlength=8)
    assert loads == {f"t{group:05d}": rows for group, rows in enumerate(groups) if rows}
    assert sum(manifest.rows for manifest in said[-1]) == len(keys)
    hottest = max(hot for each in said[-1] for hot in zip(each.hot_rows, each.hot_keys, strict=True))
    assert hottest == (pd.Series(keys).value_counts().iloc[0], fingerprints([pd.Series(keys).mode()[0]])[0])
    assert all(load.seconds > 0 for manifest in said[-1] for load in manifest.loads.values())


def test_plain_hash_is_scored_as_if_no_key_were_isolated(tmp_path):
    keys = ["hot"] * 600 + [f"k{number}" for number in range(200)]
    options = {"numPartitions": 4, "tailGroups": 16, "policy": Policy(load="rows")}
    query = LocalQuery(Count(), "k", ROWS, COUNTS, str(tmp_path), combine="never", **options)
    for _ in range(4):
        query.process(pd.DataFrame({"k": keys}))
    by_hash = load_imbalance(np.bincount(fingerprints(keys) % 16 % 4, minlength=4))
    rows = batch_log_rows(str(tmp_path))
    assert query.plan.isolated, "the hot key has a place of its own"
    assert [row["imbalance_rows_hash"] for row in rows] == pytest.approx([by_hash] * 4)
    assert [row["bound_rows"] for row in rows] == pytest.approx([4 * 600 / 800] * 4)
    assert [row["imbalance_rows"] for row in rows] == pytest.approx([4 * 600 / 800] * 4)
    assert by_hash > 4 * 600 / 800
    assert all(1 <= row["bound_seconds"] <= row["imbalance_seconds_hash"] + 1e-9 for row in rows)
    assert all(row["imbalance_seconds_hash"] >= 1 for row in rows)


def test_imbalance_counts_what_tasks_receive_and_the_log_keeps_the_rows_of_each_key(tmp_path):
    keys = ["hot"] * 600 + [f"k{number}" for number in range(200)]
    options = {"numPartitions": 4, "tailGroups": 16, "placement": "hash", "combine": "always"}
    query = LocalQuery(Count(), "k", ROWS, COUNTS, str(tmp_path), batchRows=100, **options)
    query.process(pd.DataFrame({"k": keys}))
    [row] = batch_log_rows(str(tmp_path))
    received = np.bincount(fingerprints(sorted(set(keys))) % 16 % 4, minlength=4)
    received[fingerprints(["hot"])[0] % 16 % 4] += 5  # it is in 6 map tasks
    assert row["partition_rows"] == received.tolist()
    assert row["imbalance_rows"] == pytest.approx(load_imbalance(received)) == row["imbalance_rows_hash"]
    assert (row["rows"], row["combined_rows"], row["sent_rows"], row["keys"]) == (800, 800, 206, 201)
    assert (row["hot_keys"][0], row["hot_rows"][0]) == (fingerprints(["hot"])[0], 600)
    assert row["bound_rows"] == 1
