"""After a restart without caches a batch reads what its keys need, and caches stay within their bound."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from equipoise.spark import Aggregator, LocalQuery, VectorProcessor
from equipoise.state import catch_up, group_table, section_reader, sections
from equipoise.storage import Storage

ROWS = pa.schema({"k": pa.int64(), "v": pa.int64()})
TOTALS = pa.schema({"k": pa.int64(), "total": pa.int64()})
KEYS = 4_000


class Sum(Aggregator):
    bufferSchema = "total long"  # noqa: N815 - as Spark names schemas

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + int(rows["v"].sum()),)

    def finish(self, key, buffer):
        return *key, *buffer


class SumOfMany(VectorProcessor):
    stateSchema = "total long"  # noqa: N815 - as Spark names schemas

    def process(self, batch):
        total = pc.add(batch.rows["v"], pc.fill_null(batch.state["total"], 0))
        batch.update(pa.table({"total": total}))
        return pa.table({"k": batch.keys["k"], "total": total})


@pytest.fixture(params=[Sum(), SumOfMany()], ids=["entries", "columns"])
def started(request, tmp_path):
    """Starts the query, on one checkpoint."""
    return lambda **options: LocalQuery(
        request.param, "k", ROWS, TOTALS, str(tmp_path), numPartitions=1, tailGroups=4, look="never", **options
    )


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(sections, "FRAME_BYTES", 2_000)
    monkeypatch.setattr(section_reader, "_TAIL_BYTES", 1_000)
    monkeypatch.setattr(catch_up, "SPARSE_BYTES", 10_000)


@pytest.fixture
def fetched(monkeypatch):
    """Length of each read from files of state."""
    lengths, real = [], Storage.read_range

    def read(storage, path, offset, length):
        data = real(storage, path, offset, length)
        if path.startswith(("changes/", "snapshots/")):
            lengths.append(len(data))
        return data

    monkeypatch.setattr(Storage, "read_range", read)
    return lengths


def add(query, keys, value):
    rows = query.process(pd.DataFrame({"k": list(keys), "v": value}, dtype="int64"))
    return dict(zip(rows["k"], rows["total"], strict=True))


def state_bytes(folder):
    return sum(path.stat().st_size for name in ("changes", "snapshots") for path in (folder / name).glob("*/*"))


def test_a_batch_after_a_restart_reads_the_frames_of_its_keys(started, tmp_path, fetched):
    with started() as query:
        add(query, range(KEYS), 1)
        add(query, range(0, KEYS, 2), 10)
    known = {key: 1 + 10 * (key % 2 == 0) for key in range(KEYS)}
    asked = [7, 8, 1_111, 3_998, KEYS + 5]
    for start in range(3):
        fetched.clear()
        with started() as query:
            got = add(query, asked, 100)
        known |= {key: known.get(key, 0) + 100 for key in asked}
        assert got == {key: known[key] for key in asked}
        assert 0 < sum(fetched) < state_bytes(tmp_path) / 2, start
    with started() as query:
        assert add(query, range(KEYS + 10), 0) == {key: known.get(key, 0) for key in range(KEYS + 10)}


def test_the_first_batch_of_a_run_leaves_snapshots_to_the_next(started, tmp_path, monkeypatch):
    monkeypatch.setattr(group_table, "SMALLEST_BYTES", 1_000_000)
    monkeypatch.setattr(group_table, "MOST_VERSIONS", 4)
    monkeypatch.setattr(group_table, "_GROUPS_A_BATCH", 1)

    def snapshots():
        return len(list(tmp_path.glob("snapshots/*/*")))

    with started() as query:
        for _ in range(4):
            add(query, range(100), 1)
    assert snapshots() == 0
    with started() as query:
        add(query, range(100), 1)
        assert snapshots() == 0
        add(query, range(100), 1)
        assert snapshots() == 1
        assert add(query, range(100), 1) == dict.fromkeys(range(100), 7)


def test_runs_of_one_batch_write_snapshots_when_they_are_twice_overdue(started, tmp_path, monkeypatch):
    monkeypatch.setattr(group_table, "SMALLEST_BYTES", 1_000_000)
    monkeypatch.setattr(group_table, "MOST_VERSIONS", 4)
    for batch in range(9):
        with started() as query:
            assert add(query, range(100), 1) == dict.fromkeys(range(100), batch + 1)
    assert list(tmp_path.glob("snapshots/*/*"))


def test_caches_stay_within_their_bound(started, tmp_path):
    folder = tmp_path / "local"

    def cached():
        return sum(path.stat().st_size for path in Path(folder).glob("*/*/groups/*/data.mdb"))

    with started(cache=str(folder)) as query:
        for _ in range(4):
            add(query, range(KEYS), 1)
        unbounded = cached()
    bound = unbounded * 2 // 3
    with started(cache=str(folder), cacheBytes=bound) as query:
        for batch in range(5, 9):
            assert add(query, range(KEYS), 1) == dict.fromkeys(range(KEYS), batch)
            assert 0 < cached() <= bound
