"""A snapshot says what the checkpoint says, reads only what is new, and has words for every state of a checkpoint."""

import os
import shutil
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from equipoise import InvalidArgumentError
from equipoise.dashboard import Snapshot, Watcher, hot_keys, record
from equipoise.dashboard.metrics_text import metrics_text
from equipoise.framing import seal
from equipoise.hashing import fingerprint, fingerprints
from equipoise.metrics import load_imbalance
from equipoise.microbatch.record_lines import line_of
from equipoise.spark.stream import engine
from equipoise.state import fencing
from equipoise.state.batch_log import batch_log_rows
from equipoise.state.checkpoint import Checkpoint, Overrides
from equipoise.state.log import CommitLog
from equipoise.storage import Storage


def look(folder, **options):
    return Watcher(str(folder), pause=0, **options).look().snapshot


def text_of(key):
    return f"{fingerprint(key) % 2**64:016x}"


def test_the_batches_are_those_of_the_batch_log(lived):
    found, reported = look(lived), batch_log_rows(lived)
    assert [each.batch for each in found.batches] == list(range(26)) == [each["batch"] for each in reported]
    for each, row in zip(found.batches, reported, strict=True):
        assert (each.rows, each.seconds, each.imbalance_rows) == (row["rows"], row["seconds"], row["imbalance_rows"])
        assert (each.bound_rows, each.plan, each.partitions) == (row["bound_rows"], row["plan"], 4)
    assert found.batches[0].since_previous is None
    assert found.batches[1].since_previous >= 0
    assert found.key == ["k"]
    assert found.totals.rows == 26 * 600
    assert msgspec.json.decode(found.to_json(), type=Snapshot) == found


def test_the_score_of_plain_hash_is_that_of_the_very_same_rows(lived, make_story):
    for each in look(lived).batches:
        places = fingerprints(make_story.keys(each.batch)) % 16 % 4
        assert each.imbalance_rows_hash == pytest.approx(load_imbalance(np.bincount(places, minlength=4)))
    calm = look(lived).batches[5:14]
    assert np.mean([each.imbalance_rows for each in calm]) < np.mean([each.imbalance_rows_hash for each in calm]) - 0.1


def test_the_tasks_are_those_of_the_last_batch_and_have_all_of_the_state(lived):
    found = look(lived)
    assert sum(task.rows for task in found.tasks) == 600
    assert load_imbalance([task.rows for task in found.tasks]) == pytest.approx(found.batches[-1].imbalance_rows)
    assert sum(task.state_bytes for task in found.tasks) == found.batches[-1].state_bytes > 0
    assert all(task.seconds > 0 for task in found.tasks)


def test_hot_keys_have_their_share_their_place_and_their_age(lived):
    found = look(lived)
    plan = Checkpoint(Storage(lived)).plan_of_version(found.plan.version)
    hottest, *others = found.hot_keys
    assert hottest.key == text_of("late 1")
    assert 0.2 < hottest.share < 0.45
    assert hottest.isolated
    assert 14 <= hottest.since <= 17
    assert hottest.age == 25 - hottest.since + 1
    assert not hottest.earlier
    assert hottest.partition == plan.isolated[fingerprint("late 1")]
    assert [each.share for each in found.hot_keys] == sorted((each.share for each in found.hot_keys), reverse=True)
    assert len(others) == hot_keys.SHOWN - 1
    assert sum(each.isolated for each in found.hot_keys) <= found.plan.isolated_keys == len(plan.isolated)


def test_literal_keys_are_read_from_the_state(lived):
    hidden, shown = look(lived).hot_keys, look(lived, literal_keys=True)
    assert [each.key for each in hidden] == [text_of(each.key) for each in shown.hot_keys]
    assert all(each.key.startswith(("early ", "late ")) for each in shown.plan.isolated)


def test_decisions_tell_reason_cost_and_gain_and_runs_of_keeping_are_one(lived):
    found, reported = look(lived), batch_log_rows(lived)
    decisions = found.decisions
    assert [each.last for each in decisions] == sorted((each.last for each in decisions), reverse=True)
    spans = [batch for each in decisions for batch in range(each.first, each.last + 1)]
    assert sorted(spans) == list(range(26))
    made = [each for each in decisions if each.action != "keep"]
    assert any(each.first >= 14 for each in made)
    for each in made:
        row = reported[each.first]
        assert each.first == each.last
        assert (each.reason, each.move_bytes, each.gain_seconds) == (
            row["reason"],
            row["move_bytes"],
            row["gain_seconds"],
        )
        assert each.imbalance_after < each.imbalance_before
        assert each.seen_after == row["imbalance_rows"]
        assert each.seen_before == (reported[each.first - 1]["imbalance_rows"] if each.first else None)
    kept = [each for each in decisions if each.action == "keep" and each.first < each.last]
    assert kept[0].reason == reported[kept[0].last]["reason"]
    assert found.totals.plan_changes == sum(row["plan"] != before["plan"] for before, row in pairwise(reported))
    assert found.totals.moved_bytes == sum(row["move_bytes"] or 0 for row in reported if row["applied"])


def test_only_what_is_new_is_read(story, monkeypatch):
    story.play(5)
    watcher = Watcher(story.folder, pause=0)
    first = watcher.look()
    read, real = [], Storage.read
    monkeypatch.setattr(Storage, "read", lambda self, path: read.append(path) or real(self, path))
    assert watcher.look() is first
    assert not [path for path in read if path.startswith(("log", "plans", "batch-log"))]
    story.play(2)
    read.clear()
    later = watcher.look()
    assert later.number == first.number + 1
    assert [each.batch for each in later.snapshot.batches] == list(range(7))
    assert sorted(path[:24] for path in read if path.startswith("log")) == [f"log/{version:020d}" for version in (6, 7)]
    assert not [path for path in read if path.startswith("batch-log")]
    assert later.snapshot == look(story.folder)


def test_a_checkpoint_is_not_looked_at_more_often_than_the_pause_allows(story):
    story.play(1)
    watcher = Watcher(story.folder, pause=3600)
    first = watcher.look()
    story.play(1)
    assert watcher.look() is first


def test_of_a_long_life_only_the_end_is_read(make_story, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "SUMMARY_EVERY", 3)
    monkeypatch.setattr(record, "BATCHES", 5)
    story = make_story(tmp_path / "long", retain=1).play(4)
    watcher = Watcher(story.folder, pause=0)
    assert [each.batch for each in watcher.look().snapshot.batches] == [0, 1, 2, 3]
    story.play(14)  # many are gone from the log before the next look
    story.query.close()
    read, real = [], Storage.read
    monkeypatch.setattr(Storage, "read", lambda self, path: read.append(path) or real(self, path))
    found = watcher.look().snapshot
    assert [each.batch for each in found.batches] == [13, 14, 15, 16, 17]
    assert len([path for path in read if path.startswith("batch-log")]) <= 3
    assert found.batches == look(story.folder).batches


def test_empty_running_finished_and_begun_anew(make_story, tmp_path):
    folder = tmp_path / "checkpoint"
    with pytest.raises(InvalidArgumentError, match=r"there is no folder .*checkpointLocation"):
        Watcher(str(folder))
    folder.mkdir()
    watcher = Watcher(str(folder), pause=0)
    assert (watcher.look().snapshot.status, watcher.look().snapshot.batches) == ("empty", [])
    story = make_story(folder)
    waiting = watcher.look().snapshot
    assert waiting.status == "running"
    assert "No batch" in waiting.message
    assert waiting.plan.version == 0
    story.play(3)
    assert (watcher.look().snapshot.status, len(watcher.look().snapshot.batches)) == ("running", 3)
    story.query.close()
    assert watcher.look().snapshot.status == "finished"
    shutil.rmtree(folder)
    folder.mkdir()
    assert watcher.look().snapshot.status == "empty"
    make_story(folder).play(1).query.close()
    assert [each.batch for each in watcher.look().snapshot.batches] == [0]


def test_an_older_copy_that_is_restored_is_read_anew(make_story, tmp_path):
    folder = tmp_path / "checkpoint"
    story = make_story(folder).play(2)
    shutil.copytree(folder, tmp_path / "older")
    watcher = Watcher(str(folder), pause=0)
    story.play(2).query.close()
    assert len(watcher.look().snapshot.batches) == 4
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "older", folder)
    assert len(watcher.look().snapshot.batches) == 2


@pytest.mark.parametrize(
    ("claimed", "status"),
    [
        ([fencing._machine(), 2**22 + 5, 17], "stopped"),
        (["another machine", 1, 1], "elsewhere"),
        ([fencing._machine(), os.getpid(), fencing._started(os.getpid())], "running"),
    ],
    ids=["gone", "elsewhere", "running"],
)
def test_who_holds_the_checkpoint_is_reported_as_far_as_it_can_be_seen(copied, claimed, status):
    [released] = Path(copied, "epochs").glob("*.released")
    released.unlink()
    Path(str(released).removesuffix(".released")).write_bytes(seal("epoch", 1, claimed))
    found = look(copied)
    assert found.status == status
    assert found.message


def test_without_any_claim_nobody_holds_it(copied):
    shutil.rmtree(Path(copied, "epochs"))
    assert look(copied).status == "stopped"


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def newer(path):
    """The file as a later format would have it."""
    reformat(path, 9)


def older(path):
    """The file as the first format had it, or one before."""
    reformat(path, 0)


def reformat(path, version):
    if path.suffix == ".json":
        path.write_text(path.read_text().replace('"format_version": 2', f'"format_version": {version}'))
        return
    data = bytearray(path.read_bytes())
    at = 5 + data[4]
    struct.pack_into("<H", data, at, version)
    data[-4:] = struct.pack("<I", zlib.crc32(bytes(data[:-4])))
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("harm", [flip, newer, older, Path.unlink], ids=["damaged", "newer", "older", "missing"])
@pytest.mark.parametrize("file", ["log/*25.commit", "query", "batch-log/*20", "plans/*"], ids=lambda f: f.split("/")[0])
def test_a_file_that_cannot_be_read_is_named_and_what_was_read_stays(copied, file, harm):
    path = max(Path(copied).glob(file))
    watcher = Watcher(str(copied), pause=0)
    before = watcher.look().snapshot
    harm(path)
    if file.startswith("batch-log") and harm is Path.unlink:
        assert len(look(copied).batches) < len(before.batches)
        return
    found = look(copied)
    named_by_digest = file.startswith("plans")  # the bytes of another format have another name
    assert found.status == ("incompatible" if harm in {newer, older} and not named_by_digest else "damaged")
    assert str(path) in found.message or path.name[:20] in found.message or "version 25" in found.message
    assert found.batches == []
    Path(copied, "overrides").write_bytes(seal("overrides", 3, {"pinned": "hash", "partitions": None}))
    after = Watcher(str(copied), pause=0)
    after._seen = watcher._seen
    kept = after.look().snapshot
    assert (kept.status, kept.batches) == (found.status, before.batches)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"measures": {}}, "record of version 26"),
        ({"measures": {"rows": "many"}}, f"{26:020d}.commit"),
        ({"decision": {"action": "keep"}}, f"{26:020d}.commit"),
    ],
)
def test_a_record_without_what_every_batch_has_is_damage_too(copied, fields, named):
    log = CommitLog(Storage(str(copied)))
    last = log.read(log.head())
    path = Path(copied, "log", f"{last.version:020d}.commit")
    path.write_bytes(seal("commit", 4, msgspec.to_builtins(last, builtin_types=(bytes,)) | fields))
    found = look(copied)
    assert found.status == "damaged"
    assert named in found.message


def test_a_batch_that_is_committed_and_not_delivered_is_an_alarm(copied):
    watcher = Watcher(str(copied), pause=0)
    assert watcher.look().snapshot.undelivered is None
    assert "equipoise_undelivered_batches 0\n" in metrics_text(watcher.look().snapshot, 0.0)
    last = max((Path(copied) / "spark" / "commits").iterdir(), key=lambda path: int(path.name))
    last.unlink()
    found = watcher.look().snapshot
    assert found.undelivered == int(last.name)
    assert found.message.startswith(f"Batch {last.name} is committed and not delivered; the next start delivers it. ")
    assert "equipoise_undelivered_batches 1\n" in metrics_text(found, 0.0)


def test_overrides_are_described(copied):
    storage = Storage(str(copied))
    watcher = Watcher(str(copied), pause=0)
    assert watcher.look().snapshot.plan.overrides is None
    Checkpoint(storage).override(Overrides(pinned=Checkpoint(storage).plan_names()[0], partitions=9))
    assert watcher.look().snapshot.plan.overrides == "plan 0 and 9 partitions"
    Checkpoint(storage).override(Overrides(pinned="hash"))
    assert watcher.look().snapshot.plan.overrides == "plain hash"


def test_the_source_of_planned_batches_is_shown_where_its_spool_is_named(lived, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"there is no folder .*spool"):
        Watcher(lived, spool=str(tmp_path / "none"))
    assert look(lived).source == []
    lines = [
        {"batch": n, "rows": 10, "blocks": 4 + n, "buckets": 3, "load": None, "action": "out", "reason": "late", "x": 1}
        for n in range(3)
    ]
    (tmp_path / "batches.jsonl").write_bytes(b"".join(map(line_of, lines)) + b'{"batch"')
    found = look(lived, spool=str(tmp_path)).source
    assert [(each.batch, each.blocks, each.reason) for each in found] == [
        (0, 4, "late"),
        (1, 5, "late"),
        (2, 6, "late"),
    ]
    (tmp_path / "batches.jsonl").write_bytes(line_of({"batch": "none"}))
    said = look(lived, spool=str(tmp_path)).message
    assert "cannot be read" in said
    assert said.endswith("; delete its file batches.jsonl, which is only shown")
