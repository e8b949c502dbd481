"""The metrics follow Prometheus' text format to the letter, and Grafana's dashboard asks for nothing else."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from equipoise.dashboard import Watcher, grafana_dashboard
from equipoise.dashboard.document import HotKey, SourceBatch, Status
from equipoise.dashboard.metrics_text import metrics_text

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.e+-]+)')
NOW = 2_000_000_000.0
LABEL = re.compile(r'([a-z]+)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def parsed(text):
    """Values by name and labels; fails where the text breaks the rules."""
    assert text.endswith("\n")
    values, kinds, helped = {}, {}, set()
    current = None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in helped, "all lines of a metric come together"
            assert line.split(" ", 3)[3]
            helped.add(current)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            assert kind in {"gauge", "counter"}
            assert (kind == "counter") == name.endswith("_total")
            kinds[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == current
            assert match[1] in kinds
            labels = tuple(
                (name, re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value))
                for name, value in LABEL.findall(match[2] or "")
            )
            assert (match[1], labels) not in values
            values[match[1], labels] = float(match[3])
    return values


@pytest.fixture(scope="module")
def snapshot(lived):
    found = Watcher(lived).look().snapshot
    source = [SourceBatch(batch=0, rows=1, blocks=4, buckets=3, load=0.5, action="keep", reason="")]
    batches = [*found.batches[:-1], msgspec.structs.replace(found.batches[-1], target_seconds=2.5)]
    return msgspec.structs.replace(found, source=source, batches=batches)


def test_every_figure_of_the_snapshot_is_there(snapshot):
    values, last = parsed(metrics_text(snapshot, NOW)), snapshot.batches[-1]
    assert values["equipoise_batch", ()] == 25
    assert values["equipoise_batch_seconds", ()] == last.seconds
    assert values["equipoise_batch_target_seconds", ()] == 2.5
    assert values["equipoise_imbalance", (("by", "rows"), ("placed", "hash"))] == last.imbalance_rows_hash
    assert values["equipoise_imbalance_bound", (("by", "rows"),)] == last.bound_rows
    for placed, promised, measured in (
        ("plan", last.promised_rows, last.imbalance_rows),
        ("plan before", last.unchanged_rows, last.imbalance_rows_unchanged),
    ):
        assert values["equipoise_promise", (("placed", placed), ("what", "promised"))] == promised
        assert values["equipoise_promise", (("placed", placed), ("what", "measured"))] == measured
    assert values["equipoise_batch_promised_seconds", ()] == last.promised_seconds
    assert values["equipoise_batch_got_seconds", ()] == last.got_seconds
    assert values["equipoise_trust_ratio", ()] == last.trust
    looked = [each for each in snapshot.batches if each.look_rows]
    assert looked, "the first batch is looked at"
    values = parsed(metrics_text(msgspec.structs.replace(snapshot, batches=looked[:1]), NOW))
    assert values["equipoise_look_rows", ()] == looked[0].look_rows == 600
    assert values["equipoise_look_seconds", ()] == looked[0].look_seconds
    values = parsed(metrics_text(snapshot, NOW))
    for task in snapshot.tasks:
        assert values["equipoise_partition_rows", (("partition", str(task.partition)),)] == task.rows
        assert values["equipoise_partition_state_bytes", (("partition", str(task.partition)),)] == task.state_bytes
    assert values["equipoise_rows_total", ()] == 26 * 600
    assert values["equipoise_hot_key_share", (("key", snapshot.hot_keys[0].key),)] == snapshot.hot_keys[0].share
    statuses = {status: values["equipoise_status", (("status", status),)] for status in get_args(Status)}
    assert statuses.pop("finished") == 1
    assert set(statuses.values()) == {0}


def test_keys_are_named_by_their_fingerprints_even_if_the_page_shows_literal_keys(snapshot):
    key = HotKey(
        key="a person",
        fingerprint="00ff",
        share=0.5,
        partition=0,
        isolated=True,
        since=0,
        earlier=False,
        age=1,
    )
    text = metrics_text(msgspec.structs.replace(snapshot, hot_keys=[key]), NOW)
    assert parsed(text)["equipoise_hot_key_share", (("key", "00ff"),)] == 0.5
    assert "a person" not in text


def test_whatever_a_label_holds_stays_inside_it(snapshot):
    odd = 'a "quoted" \\ back\nnext} 1'
    key = msgspec.structs.replace(snapshot.hot_keys[0], fingerprint=odd, share=0.5)
    values = parsed(metrics_text(msgspec.structs.replace(snapshot, hot_keys=[key]), NOW))
    assert values["equipoise_hot_key_share", (("key", odd),)] == 0.5


def test_an_empty_checkpoint_has_metrics_too(tmp_path):
    values = parsed(metrics_text(Watcher(str(tmp_path)).look().snapshot, NOW))
    assert values["equipoise_up", ()] == 0
    assert values["equipoise_status", (("status", "empty"),)] == 1
    assert ("equipoise_batch", ()) not in values


def test_a_checkpoint_that_cannot_be_read_is_down(copied):
    (copied / "query").write_bytes(b"x")
    assert parsed(metrics_text(Watcher(str(copied)).look().snapshot, NOW))["equipoise_up", ()] == 0


def up(snapshot, now=NOW):
    return parsed(metrics_text(snapshot, now))["equipoise_up", ()]


def test_a_query_is_up_while_its_process_runs_and_down_after_a_kill(tmp_path, make_story):
    """Killed as by ``kill -9``: nothing was released, and the claim still names the process."""
    code = f"""
import importlib.util, sys, time
spec = importlib.util.spec_from_file_location("stories", {str(Path(__file__).with_name("conftest.py"))!r})
stories = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stories)
story = stories.Story({str(tmp_path / "checkpoint")!r}).play(1)
print("committed", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "committed\n"
        watcher = Watcher(str(tmp_path / "checkpoint"), pause=0)
        assert up(watcher.look().snapshot) == 1
        process.kill()
        process.wait()
        killed = watcher.look().snapshot
        assert up(killed) == 0
        assert killed.status == "stopped"
        assert "killed?" in killed.message
    story = make_story(tmp_path / "checkpoint")
    assert up(watcher.look().snapshot) == 1
    story.query.close()
    assert up(watcher.look().snapshot) == 0


def test_of_a_query_on_another_machine_the_age_of_the_last_batch_decides(snapshot):
    far = msgspec.structs.replace(snapshot, status="elsewhere")
    last = far.batches[-1].time_ms / 1000  # targetSeconds is 2.5, and batches followed each other at once
    assert up(far, last + 59) == 1
    assert up(far, last + 61) == 0
    rare = [*far.batches[:-1], msgspec.structs.replace(far.batches[-1], since_previous=600.0)]
    assert up(msgspec.structs.replace(far, batches=rare), last + 1799) == 1
    assert up(msgspec.structs.replace(far, batches=rare), last + 1801) == 0
    slow = [*far.batches[:-1], msgspec.structs.replace(far.batches[-1], target_seconds=100.0)]
    assert up(msgspec.structs.replace(far, batches=slow), last + 299) == 1
    assert up(msgspec.structs.replace(far, batches=[]), last) == 0


def test_grafana_asks_only_for_metrics_and_labels_that_there_are(snapshot):
    values = parsed(metrics_text(snapshot, NOW))
    names = {name for name, _ in values}
    labels = {name: {label for found, pairs in values if found == name for label, _ in pairs} for name in names}
    dashboard = json.loads(grafana_dashboard())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [each["query"] for each in dashboard["templating"]["list"]]
    found = [match for text in asked for match in re.findall(r"(equipoise_\w+)(?:\{([^}]*)\})?", text)]
    assert len(found) > 20
    for name, selected in found:
        assert name in names
        assert set(re.findall(r"(\w+)=", selected)) - {"instance"} <= labels[name], name
    identifiers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identifiers)) == len(identifiers)
