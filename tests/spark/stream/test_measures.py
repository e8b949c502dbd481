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


def test_plain_hash_is_scored_as_if_no_key_were_isolated_or_split(tmp_path):
    keys = ["hot"] * 600 + [f"k{number}" for number in range(200)]
    query = LocalQuery(
        Count(), "k", ROWS, COUNTS, str(tmp_path), numPartitions=4, tailGroups=16, policy=Policy(load="rows")
    )
    for _ in range(4):
        query.process(pd.DataFrame({"k": keys}))
    by_hash = load_imbalance(np.bincount(fingerprints(keys) % 16 % 4, minlength=4))
    rows = batch_log_rows(str(tmp_path))
    assert query.plan.widths, "the hot key is in shards"
    assert [row["imbalance_rows_hash"] for row in rows] == pytest.approx([by_hash] * 4)
    assert rows[0]["imbalance_rows"] == pytest.approx(by_hash)
    assert [row["bound_rows"] for row in rows] == pytest.approx([4 * 600 / 800] * 4)
    assert rows[-1]["imbalance_rows"] < 3 < by_hash, "a key in shards goes below the bound of whole keys"
    assert all(1 <= row["bound_seconds"] <= row["imbalance_seconds_hash"] + 1e-9 for row in rows)
    assert all(row["imbalance_seconds_hash"] >= 1 for row in rows)
