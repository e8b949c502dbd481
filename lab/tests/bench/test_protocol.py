"""The commit protocol under thousands of schedules of faults, and a simulation that can be trusted to find defects."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from equipoise.errors import Damaged, Mismatch
from equipoise.failpoints import POINTS
from equipoise_lab.bench.protocol.checker import Violation
from equipoise_lab.bench.protocol.many import Progress, many
from equipoise_lab.bench.protocol.mutants import MUTANTS
from equipoise_lab.bench.protocol.paths import PATHS, unreached
from equipoise_lab.bench.protocol.schedule import FAULTS, MODELS, SINKS, Schedule
from equipoise_lab.bench.protocol.story import first_silent, shrunk, story
from equipoise_lab.bench.protocol.world import run

PARTS = 10
SCHEDULES = 2000


@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_loses_or_doubles_a_row(part):
    size = SCHEDULES // PARTS
    for seed in range(part * size, (part + 1) * size):
        outcome = run(Schedule.of(seed))
        assert outcome.violation is None, story(shrunk(outcome))


def test_every_path_and_every_failpoint_is_reached():
    counts = Counter()
    for seed in sorted(range(SCHEDULES), key=lambda seed: seed % len(MODELS)):  # the rarest are those of a local disk
        counts += run(Schedule.of(seed)).counts
        if not unreached(counts):
            break
    assert unreached(counts) == []


def test_every_failpoint_of_the_protocol_is_among_the_paths():
    points = {point for point in POINTS if not point.startswith("spool.")}
    assert {path.removeprefix("failpoint ") for path in PATHS if path.startswith("failpoint ")} == points


@pytest.mark.parametrize("name", MUTANTS)
def test_a_defect_of_the_past_is_found_and_told_as_a_story(name):
    with MUTANTS[name]():
        count, outcome = first_silent(range(1000))
        short = shrunk(outcome)
    assert count <= 1000
    assert short.violation.startswith(Violation.__name__)
    assert 0 < len(short.schedule.faults) <= len(outcome.schedule.faults)
    told = story(short)
    assert told.startswith(f"seed {outcome.schedule.seed}: store ")
    assert all(f"fault at step {fault.step}: {fault.kind}" in told for fault in short.schedule.faults)
    assert told.endswith(f"violation: {short.violation}")
    assert run(outcome.schedule).violation is None, "without the defect the same schedule is sound"


def test_the_same_seed_gives_the_same_trace_in_any_process():
    seeds = range(40, 48)
    code = (
        "from equipoise_lab.bench.protocol.schedule import Schedule\n"
        "from equipoise_lab.bench.protocol.world import run\n"
        f"print(*(run(Schedule.of(seed)).digest for seed in {seeds}))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert told == {" ".join(run(Schedule.of(seed)).digest for seed in seeds) + "\n"}


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


def test_progress_of_other_seeds_and_rubbish_are_refused(tmp_path):
    file = Path(tmp_path / "progress.json")
    file.write_bytes(msgspec.json.encode(Progress(0, 10, 5, 1.0, {}, {})))
    with pytest.raises(Mismatch, match=r"holds the progress of the seeds 0:10, not 0:20; give those, or another file"):
        next(many(range(20), file))
    file.write_text("{")
    with pytest.raises(Damaged, match=r"does not hold the progress of a simulation: .*; delete it to begin anew"):
        next(many(range(20), file))
