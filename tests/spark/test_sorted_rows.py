"""Rows that Spark has sorted by place reach the runners key by key."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.spark.rows import runs
from equipoise.spark.rows.columns import FINGERPRINT, GROUP, PARTIAL_BUFFER, marker
from equipoise.spark.rows.sorted_rows import PLACE_BITS, SortedRows
from equipoise.state.codec import KeyCodec

SCHEMA = {"type": "struct", "fields": [{"name": "key", "type": "string"}]}
FLOATS = {"type": "struct", "fields": [{"name": "key", "type": "double"}]}
LOW = 1 << (64 - PLACE_BITS)


TEXT = pa.string()


def batches(rows, size, kind=TEXT, **extra):
    """Record batches as Spark sends them; a row is (group, fingerprint, key)."""
    columns = {
        "key": pa.array([None, *(row[2] for row in rows)], kind),
        "at": pa.array([None, *range(len(rows))], pa.int64()),
        FINGERPRINT: pa.array([0, *(row[1] for row in rows)], pa.int64()),
        GROUP: pa.array([marker(3), *(row[0] for row in rows)], pa.int32()),
        **extra,
    }
    return iter(pa.table(columns).combine_chunks().to_batches(size))


def read(rows, size, schema=SCHEMA, kind=TEXT):
    source = SortedRows(batches(rows, size, kind), [0], KeyCodec(schema))
    assert source.partition == 3
    found = []
    for cut in source:
        at = cut.rows.column("at").to_pylist()
        for run, (first, last) in enumerate(zip(cut.starts[:-1], cut.starts[1:], strict=True)):
            found.append((int(cut.groups[run]), int(cut.fingerprints[run]), cut.keys[run][0], at[first:last]))
    return found


def of_each_key(found):
    """Keys in the order of their first run, each with all its rows; fails if a key comes back after another."""
    keys, rows = [], {}
    for group, fingerprint, key, at in found:
        if not keys or keys[-1] != (group, fingerprint, key):
            assert (group, fingerprint, key) not in rows, "the rows of a key are apart"
            keys.append((group, fingerprint, key))
        rows.setdefault((group, fingerprint, key), []).extend(at)
    return rows


# few places, each with several keys: by other low bits of the fingerprint, and by another key of the same fingerprint
ROW = st.tuples(st.integers(-3, 3), st.integers(0, 2), st.sampled_from("ab"))


@given(st.lists(ROW, max_size=60), st.sampled_from([1, 2, 3, 7, 100]))
def test_the_rows_of_a_key_come_together_whatever_shares_its_place(drawn, size):
    rows = [(high % 3, high * LOW + low, f"{key}{low}") for high, low, key in drawn]
    rows.sort(key=lambda row: (row[0], np.int64(row[1] // LOW * LOW).view(np.uint64)))  # stable, as the sort by place
    found = of_each_key(read(rows, size))
    expected = {}
    for at, row in enumerate(rows):
        expected.setdefault(row, []).append(at)
    assert found == expected
    assert [key[0] for key in found] == sorted(key[0] for key in found)


def test_without_shared_places_record_batches_are_passed_on_as_they_are():
    rows = [(0, number * LOW, f"k{number}") for number in range(10)]
    source = SortedRows(batches(rows, 4), [0], KeyCodec(SCHEMA))
    assert [cut.rows.num_rows for cut in source] == [3, 4, 3]


@pytest.mark.parametrize("extra", [{}, {PARTIAL_BUFFER: pa.array([None] * 6 + [b""] * 5, pa.binary())}])
def test_the_runs_of_a_record_batch_are_looked_for_once(monkeypatch, extra):
    looked, run_starts = [], runs.run_starts
    monkeypatch.setattr(runs, "run_starts", lambda *given: looked.append(given) or run_starts(*given))
    rows = [(0, number // 2 * LOW, f"k{number // 2}") for number in range(10)]
    found = list(SortedRows(batches(rows, 4, **extra), [0], KeyCodec(SCHEMA)))
    assert len(found) == 3 + bool(extra)
    assert len(looked) == 3


def test_the_first_key_of_a_place_does_not_wait_for_the_others():
    """A hot key streams through: only the rows of the keys that share its place are kept."""
    rows = [(0, 0, "hot")] * 20 + [(0, 1, "cold")] + [(0, 0, "hot")] * 20
    source = iter(SortedRows(batches(rows, 5), [0], KeyCodec(SCHEMA)))
    found = [(cut.keys[0][0], len(cut), cut.rows.num_rows) for cut in source]
    assert [each[0] for each in found[:-1]] == ["hot"] * (len(found) - 1)
    assert found[-1] == ("cold", 1, 1)
    assert sum(each[2] for each in found) == 41


def test_zeros_of_either_sign_are_one_key():
    rows = [(0, 5, 0.0), (0, 5, -0.0), (0, 5, 0.0), (0, 5, 1.0), (0, 5, -0.0)]
    found = read(rows, 2, FLOATS, pa.float64())
    zeros = [at for _, _, key, rows_at in found if key == 0 for at in rows_at]
    assert sorted(zeros) == [0, 1, 2, 4]
    assert [key for _, _, key, _ in found][-1] == 1.0


@pytest.mark.parametrize("size", [2, 100])
def test_partial_buffers_stay_with_their_key(size):
    rows = [(0, 0, "a"), (0, 1, "b"), (0, 0, "a"), (0, 1, "b")]
    buffers = pa.array([None, None, b"1", b"2", None], pa.binary())
    source = SortedRows(batches(rows, size, **{PARTIAL_BUFFER: buffers}), [0], KeyCodec(SCHEMA))
    assert [cut.keys[0][0] for cut in source] == ["a", "a", "b", "b"]
