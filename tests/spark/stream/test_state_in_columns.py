"""The state of a vectorised processor is that of a dict, whatever moves it: plans, restarts, snapshots, lost caches."""

import shutil
import sys

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from equipoise.adapt import Policy
from equipoise.spark import LocalQuery, VectorProcessor
from equipoise.spark.stream import owned_groups
from equipoise.state import group_table
from equipoise.state.entry_columns import EntryColumns
from equipoise.state.transaction import GroupTransaction

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = pa.schema({"key": pa.string(), "value": pa.int64()})
OUT = pa.schema({"key": pa.string(), "n": pa.int64()})


class Kept(VectorProcessor):
    """Counts rows; keeps values of several types; forgets a key at every seventh row."""

    stateSchema = "n long, share double, text string, even boolean"  # noqa: N815 - as Spark names schemas

    def process(self, batch):
        n = np.diff(batch.offsets) + batch.state["n"].fill_null(0).to_numpy()
        text = pa.array([None if each % 3 == 0 else "x" * int(each % 40) for each in n], pa.string())
        batch.update(
            pa.table({"n": n, "share": pa.array(n / 7, mask=n % 5 == 0), "text": text, "even": pa.array(n % 2 == 0)})
        )
        batch.remove(n % 7 == 0)
        return pa.table({"key": batch.keys["key"], "n": n})


def expected_row(n):
    return {
        "n": n,
        "share": None if n % 5 == 0 else n / 7,
        "text": None if n % 3 == 0 else "x" * (n % 40),
        "even": n % 2 == 0,
    }


def batch_of(number, rows=400):
    """Rows of which many are of a key that changes from batch to batch."""
    rng = np.random.default_rng(number)
    keys = [f"k{each}" for each in rng.integers(0, 60, rows)]
    hot = rng.random(rows) < 0.4
    return pa.table(
        {"key": [f"hot{number // 3}" if h else k for h, k in zip(hot, keys, strict=True)], "value": np.arange(rows)}
    )


def query(folder, cache, **options):
    policy = Policy(load="rows", minimum_interval=1, horizon=100)
    options = {"numPartitions": 3, "tailGroups": 8, "policy": policy, "look": "always", "cache": str(cache), **options}
    return LocalQuery(Kept(), "key", ROWS, OUT, str(folder), **options)


def test_state_is_that_of_a_dict_through_plans_restarts_and_lost_caches(tmp_path, monkeypatch):
    monkeypatch.setattr(group_table, "MOST_VERSIONS", 2)  # snapshots after every second change
    monkeypatch.setattr(owned_groups, "_content", counting := Counted(owned_groups._content))
    folder, cache = tmp_path / "checkpoint", tmp_path / "cache"
    known, plans, running = {}, set(), query(folder, cache)
    for number in range(12):
        if number in (4, 9):
            running.close()
            running = query(folder, cache)
        if number == 6:
            shutil.rmtree(cache)
        if number == 7:
            running.rescale(5)
        rows = batch_of(number)
        running.process_arrow(rows)
        for key in rows["key"].to_pylist():
            known[key] = known.get(key, 0) + 1
        for key in set(rows["key"].to_pylist()):
            if known[key] % 7 == 0:
                del known[key]
        assert running.state() == {(key,): {"state": tuple(expected_row(n).values())} for key, n in known.items()}, (
            number
        )
        plans.add(tuple(running.plan.isolated))
    assert len(plans) > 2
    assert counting.calls
    running.close()


class Counted:
    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *arguments):
        self.calls += 1
        return self.function(*arguments)


def test_a_batch_makes_no_python_object_for_each_key(tmp_path, monkeypatch):
    """Entries are only iterated one by one in the batch that moves them."""
    running = query(tmp_path / "checkpoint", tmp_path / "cache", look="never", placement="hash")
    running.process_arrow(batch_of(0))

    def refused(*_):
        raise AssertionError("entry by entry")

    monkeypatch.setattr(EntryColumns, "__iter__", refused)
    monkeypatch.setattr(GroupTransaction, "get_many", refused)
    running.process_arrow(batch_of(1))
    running.process_arrow(batch_of(2))
    running.close()


class Totals(VectorProcessor):
    """Counts rows, and yields each count."""

    stateSchema = "n long"  # noqa: N815 - as Spark names schemas

    def process(self, batch):
        n = np.diff(batch.offsets) + batch.state["n"].fill_null(0).to_numpy()
        batch.update(pa.table({"n": n}))
        return pa.table({"key": batch.keys["key"], "n": n})


def test_a_key_that_comes_again_in_a_batch_sees_what_was_stored(tmp_path):
    with LocalQuery(Totals(), "key", ROWS, OUT, str(tmp_path), numPartitions=1, batchRows=5) as running:
        for number in range(3):
            out = running.process_arrow(pa.table({"key": ["a"] * 12, "value": range(12)}))
            seen = [row["n"] - 12 * number for row in out.to_pylist()]
            assert len(seen) > 2
            assert seen == sorted(set(seen))
            assert seen[-1] == 12


def test_record_batches_are_joined_unless_the_session_asks_for_small_ones():
    for rows, calls in ((10_000, 1), (9_999, 3)):
        with LocalQuery(Calls(), "key", ROWS, OUT, numPartitions=1, batchRows=rows) as running:
            out = running.process_arrow(pa.table({"key": ["a"] * 25_000, "value": range(25_000)}))
            assert out.num_rows == calls


class Calls(Totals):
    def process(self, batch):
        assert len(batch) == 1
        return super().process(batch)
