"""A run of all cases goes on from its file, and a process that ends or hangs counts as crashed."""

import subprocess
import sys

import msgspec
import pytest

from equipoise_lab.conformance import progress, worker
from equipoise_lab.conformance.progress import Progress
from equipoise_lab.conformance.verdict import Outcome
from equipoise_lab.conformance.worker import Worker


def outcomes(verdict="same", name="value"):
    return [Outcome(name, form, "classic", verdict) for form in ("pandas", "row")]


def test_a_case_that_has_run_is_known_at_the_next_start(tmp_path):
    path = tmp_path / "progress.jsonl"
    Progress(path, "c1").add("value", "classic", outcomes())
    again = Progress(path, "c2")
    assert again.outcomes("value", "classic") == outcomes()
    assert again.outcomes("value", "connect") is None
    assert again.outcomes("list", "classic") is None
    assert again.commits == ["c1"]


def test_outcomes_of_other_code_do_not_count(tmp_path, monkeypatch):
    path = tmp_path / "progress.jsonl"
    Progress(path, "c1").add("value", "classic", outcomes())
    monkeypatch.setattr(progress, "_code", lambda: "other code")
    assert Progress(path, "c2").outcomes("value", "classic") is None
    assert Progress(path, "c2", accept="c1").outcomes("value", "classic") == outcomes()
    assert Progress(path, "c2", accept="c3").outcomes("value", "classic") is None


@pytest.mark.parametrize("verdict", ["different", "crashed", "stricter", "refused"])
def test_what_is_not_as_it_must_be_runs_again_with_other_code(tmp_path, monkeypatch, verdict):
    path = tmp_path / "progress.jsonl"
    Progress(path, "c1").add("value", "classic", outcomes(verdict))
    assert Progress(path, "c1").outcomes("value", "classic") == outcomes(verdict)
    monkeypatch.setattr(progress, "_code", lambda: "other code")
    assert Progress(path, "c2", accept="c1").outcomes("value", "classic") is None


def test_a_line_that_a_killed_run_left_half_written_is_dropped(tmp_path):
    path = tmp_path / "progress.jsonl"
    Progress(path, "c1").add("value", "classic", outcomes())
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    again = Progress(path, "c1")
    again.add("list", "classic", outcomes(name="list"))
    assert Progress(path, "c1").outcomes("list", "classic") == outcomes(name="list")
    assert len(path.read_bytes().splitlines()) == 2


START = subprocess.Popen


def run_instead(monkeypatch, code):
    """Let the worker's process run other code."""
    monkeypatch.setattr(worker.subprocess, "Popen", lambda _, **options: START([sys.executable, "-c", code], **options))


def test_a_process_that_hangs_counts_as_crashed_and_is_replaced(monkeypatch):
    with Worker("connect", seconds=1) as connect:
        run_instead(monkeypatch, "import time; time.sleep(1000)")
        assert [(each.verdict, each.difference) for each in connect.outcomes("value")] == [
            ("crashed", "no result within 1 s: ")
        ] * 2
        monkeypatch.setattr(connect, "_seconds", None)
        run_instead(monkeypatch, f"input(); print('outcome ' + {msgspec.json.encode(outcomes()).decode()!r})")
        assert connect.outcomes("value") == outcomes()


def test_a_process_that_ends_counts_as_crashed_with_its_last_words(monkeypatch):
    run_instead(monkeypatch, "import sys; input(); sys.exit('no Java')")
    with Worker("classic") as classic:
        found = classic.outcomes("value")
    assert [(each.form, each.verdict) for each in found] == [("pandas", "crashed"), ("row", "crashed")]
    assert found[0].difference == "exit code 1: no Java"
