"""The batch log keeps the row of a batch longer than the commit log keeps its record."""

from hashlib import sha256

import pytest

from equipoise.errors import DamagedError
from equipoise.framing import seal
from equipoise.state import batch_log
from equipoise.state.group_table import GroupTable

PLAN = f"{0:010d}-{sha256(b'').hexdigest()}"


def play(hand, first, last, *, every=5, retain=2):
    table = hand.log.table(first - 1) if first else GroupTable()
    for version in range(first, last + 1):
        table.advance(hand.append(version, measures={"rows": version}))
        if version and version % every == 0:
            oldest = hand.log.summarise(table, hand.epoch, version - retain)
            batch_log.write(hand.log, version)
            hand.log.forget_before(oldest)


def test_every_batch_has_one_row(hand):
    play(hand, 0, 23)
    rows = list(batch_log.rows(hand.storage))
    assert [row["version"] for row in rows] == list(range(24))
    assert [row["measures"]["rows"] for row in rows] == list(range(24))
    assert rows[7] == {
        "batch": 6,
        "version": 7,
        "time_ms": 1007,
        "watermark_ms": 0,
        "plan": PLAN,
        "decision": {"action": "keep", "applied": False, "reason": "", "numbers": {"bound": 1.5}},
        "measures": {"rows": 7},
    }
    assert hand.log.oldest() > 0


def test_a_batch_that_is_delivered_again_is_not_forgotten(hand):
    play(hand, 0, 10)
    batch_log.write(hand.log, 10)
    play(hand, 11, 20)
    assert [row["version"] for row in batch_log.rows(hand.storage)] == list(range(21))


def test_a_file_that_another_driver_has_written_meanwhile_is_left_alone(hand, monkeypatch):
    play(hand, 0, 5)
    path = f"batch-log/{5:020d}"
    hand.storage.write(path, before := hand.storage.read(path) + b"of another driver")
    monkeypatch.setattr(batch_log, "_files", lambda _: [])  # listed before the other one wrote it
    batch_log.write(hand.log, 5)
    assert hand.storage.read(path) == before


def test_an_empty_checkpoint_has_an_empty_batch_log(hand):
    assert list(batch_log.rows(hand.storage)) == []


def test_the_oldest_files_go(hand, monkeypatch):
    monkeypatch.setattr(batch_log, "FILES_KEPT", 3)
    play(hand, 0, 40)
    assert hand.storage.names("batch-log") == [f"{version:020d}" for version in (30, 35, 40)]
    assert [row["version"] for row in batch_log.rows(hand.storage)] == list(range(26, 41))


def test_files_that_end_before_the_first_wanted_version_are_not_read(hand, monkeypatch):
    play(hand, 0, 23)
    read, real = [], hand.storage.read
    monkeypatch.setattr(hand.storage, "read", lambda path: read.append(path) or real(path))
    assert [row["version"] for row in batch_log.stored_rows(hand.storage, 13)] == list(range(13, 21))
    assert read == [f"batch-log/{version:020d}" for version in (15, 20)]
    read.clear()
    assert list(batch_log.stored_rows(hand.storage, 21)) == []
    assert read == []


@pytest.mark.parametrize(
    "crafted",
    [
        {},
        {"version": 5},
        {"version": 5, "batch": 4, "decision": {}},
        {"decision": {"action": "keep", "applied": False, "reason": "", "numbers": {"bound": "wide"}}},
        {"measures": {"rows": "many"}},
    ],
)
def test_a_file_with_a_right_checksum_and_wrong_fields_is_damage(hand, crafted):
    play(hand, 0, 5)
    [row] = [row for row in batch_log.rows(hand.storage) if row["version"] == 5]
    path = f"batch-log/{5:020d}"
    whole = {"decision", "measures"} >= crafted.keys() > set()
    hand.storage.write(path, seal("batch-log", 2, [row | crafted if whole else crafted]))
    with pytest.raises(DamagedError, match=path):
        list(batch_log.rows(hand.storage))


def test_a_damaged_file_is_named(hand):
    play(hand, 0, 5)
    path = f"batch-log/{5:020d}"
    sound = hand.storage.read(path)
    hand.storage.write(path, sound[:20] + bytes([sound[20] ^ 1]) + sound[21:])
    with pytest.raises(DamagedError, match=path):
        list(batch_log.rows(hand.storage))
