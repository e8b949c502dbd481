"""The commit protocol under thousands of schedules of faults, and a simulation that can be trusted to find defects."""

import copy
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from equipoise.errors import DamagedError, MismatchError
from equipoise.failpoints import POINTS
from equipoise.storage import Storage
from equipoise_lab.bench import simulate_protocol
from equipoise_lab.bench.harness import Context, Environment
from equipoise_lab.bench.protocol import story as story_module
from equipoise_lab.bench.protocol.actors import Actors
from equipoise_lab.bench.protocol.checker import ViolationError
from equipoise_lab.bench.protocol.many import Progress, many
from equipoise_lab.bench.protocol.mutants import MUTANTS
from equipoise_lab.bench.protocol.paths import PATHS, unreached
from equipoise_lab.bench.protocol.schedule import FAULTS, MODELS, SINKS, Fault, Schedule
from equipoise_lab.bench.protocol.store import SimulatedStore
from equipoise_lab.bench.protocol.story import first_silent, shrunk, story
from equipoise_lab.bench.protocol.world import Outcome, run

SCHEDULES = 2000


def test_no_schedule_loses_or_doubles_a_row_and_every_path_is_reached():
    *_, done = many(range(SCHEDULES), processes=2)
    assert done.schedules == SCHEDULES
    assert not done.stories, "\n\n".join(done.stories.values())
    assert unreached(done.counts) == []


def test_every_failpoint_of_the_protocol_is_among_the_paths():
    points = {point for point in POINTS if not point.startswith("spool.")}
    assert {path.removeprefix("failpoint ") for path in PATHS if path.startswith("failpoint ")} == points


@pytest.mark.parametrize("name", MUTANTS)
def test_a_defect_is_found_and_reported(name):
    with MUTANTS[name]():
        count, outcome = first_silent(range(1000))
        short = shrunk(outcome)
    assert count <= 1000
    assert short.violation.startswith(ViolationError.__name__)
    assert 0 < len(short.schedule.faults) <= len(outcome.schedule.faults)
    reported = story(short)
    assert reported.startswith(f"seed {outcome.schedule.seed}: store ")
    assert f", {outcome.schedule.stages} operator" in reported.splitlines()[0]
    assert all(f"fault at step {fault.step}: {fault.kind}" in reported for fault in short.schedule.faults)
    assert reported.endswith(f"violation: {short.violation}")
    assert run(outcome.schedule).violation is None, "without the defect the same schedule is sound"


def test_a_story_keeps_its_kind_of_violation(monkeypatch):
    """A fault that is left out may give another violation, which is another story."""
    faults = tuple(Fault(step, kind, 3) for step, kind in enumerate(("crash", "pause", "lost")))
    whole = replace(Schedule.of(0), faults=faults)

    def played(schedule):
        kinds = {fault.kind for fault in schedule.faults}
        violation = f"ViolationError: batch {len(kinds)} was lost" if {"pause", "lost"} <= kinds else "OSError: 1"
        return Outcome(schedule, violation if kinds else None, Counter(), [], "")

    monkeypatch.setattr(story_module, "run", played)
    short = shrunk(played(whole))
    assert short.violation == "ViolationError: batch 2 was lost"
    assert [fault.kind for fault in short.schedule.faults] == ["pause", "lost"]


@pytest.fixture
def disk():
    """A local disk, looked at from outside of any schedule."""
    return SimulatedStore("local", Actors(replace(Schedule.of(0), faults=()), lambda *_: None), 1)


def after_power_cut(store, seed):
    copied = SimulatedStore("local", store._actors, seed)
    copied._files = copy.deepcopy(store._files)
    copied.lose_power()
    return copied


def survives(store, path):
    """Whether a file is there after each of many power cuts."""
    return all(after_power_cut(store, seed).look(path) is not None for seed in range(20))


def test_a_file_appears_before_its_name_survives_a_power_cut(disk):
    disk.put_temporary("log/.1.tmp", b"1")
    disk._files["log/1"] = disk._files["log/.1.tmp"]
    assert disk.look("log/1") is not None
    assert not survives(disk, "log/1")
    disk.sync("log/1")
    assert survives(disk, "log/1")


def test_a_file_of_spark_survives_only_if_it_is_synced_itself(disk):
    disk.write_unsynced("spark/offsets/1", b"1")
    Storage("spark", store=disk).write("offsets/beside", b"")
    assert not survives(disk, "spark/offsets/1")
    disk.sync("spark/offsets/1")
    assert survives(disk, "spark/offsets/1")


def test_a_power_cut_may_give_back_what_was_replaced_and_what_was_deleted(disk):
    Storage("log", store=disk).write("1", b"old")
    disk.put_temporary("log/.1.tmp", b"new")
    disk._files["log/1"] = replace(disk._files["log/.1.tmp"], replaced=disk._files["log/1"])
    assert {after_power_cut(disk, seed).read("log/1") for seed in range(20)} == {b"old", b"new"}
    disk.sync("log/1")
    disk.delete("log/1")
    assert {after_power_cut(disk, seed).look("log/1") is None for seed in range(20)} == {True, False}


def test_the_same_seed_gives_the_same_trace_in_any_process():
    seeds = range(40, 48)
    code = (
        "from equipoise_lab.bench.protocol.schedule import Schedule\n"
        "from equipoise_lab.bench.protocol.world import run\n"
        f"print(*(run(Schedule.of(seed)).digest for seed in {seeds}))"
    )
    reported = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert reported == {" ".join(run(Schedule.of(seed)).digest for seed in seeds) + "\n"}


def test_schedules_have_every_store_sink_and_fault():
    schedules = [Schedule.of(seed) for seed in range(300)]
    assert {schedule.model for schedule in schedules} == set(MODELS)
    assert {(schedule.model, schedule.sink) for schedule in schedules} == {(m, s) for m in MODELS for s in SINKS}
    assert {fault.kind for schedule in schedules for fault in schedule.faults} == set(FAULTS)


def test_a_run_that_was_interrupted_goes_on_where_it_was(tmp_path):
    file = tmp_path / "progress.json"
    first = next(many(range(60), file, processes=1))
    assert 0 < first.schedules < 60
    *_, last = many(range(60), file, processes=1)
    *_, whole = many(range(60), processes=2)
    assert (last.schedules, last.counts, last.stories) == (60, whole.counts, whole.stories) == (60, last.counts, {})
    [done] = many(range(60), file)
    assert done == msgspec.json.decode(file.read_bytes(), type=Progress)


def test_the_benchmark_keeps_its_progress_unless_the_tree_has_changes(monkeypatch, tmp_path):
    here = Environment("abc", dirty=False, versions={}, cores=1, seed=3)
    monkeypatch.setattr(simulate_protocol, "environment", lambda _: here)
    monkeypatch.setattr(simulate_protocol, "SCHEDULES", 4)
    monkeypatch.setattr(simulate_protocol, "MUTANTS", {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    context = Context(seed=3)
    file = simulate_protocol.progress_file(context)
    assert (file.parent, "abc" in file.name) == (tmp_path, True)
    begun = Progress(3_000_000, 3_000_004, 3_000_004, 8.0, dict.fromkeys(PATHS, 1), {})
    file.write_bytes(msgspec.json.encode(begun))
    metrics = simulate_protocol.run(context).metrics
    assert (metrics["schedules"], metrics["schedules_per_second"], metrics["paths_unreached"]) == (4, 0.5, 0)
    assert not file.exists(), "the next run of the benchmark starts again"
    here.dirty = True
    assert simulate_protocol.progress_file(context) is None


def test_progress_of_other_seeds_and_rubbish_are_refused(tmp_path):
    file = Path(tmp_path / "progress.json")
    file.write_bytes(msgspec.json.encode(Progress(0, 10, 5, 1.0, {}, {})))
    with pytest.raises(
        MismatchError, match=r"holds the progress of the seeds 0:10, not 0:20; give those, or another file"
    ):
        next(many(range(20), file))
    file.write_text("{")
    with pytest.raises(DamagedError, match=r"does not hold the progress of a simulation: .*; delete it to start again"):
        next(many(range(20), file))
