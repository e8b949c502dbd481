"""A compaction that is killed at every step: the state stays as it was, and the query goes on from it."""

import os
import subprocess
import sys

from equipoise.failpoints import POINTS
from equipoise.state.state_dump import local_states

KILLED = -9
STEPS = [
    "driver.in-claim",
    "storage.before-name:2",  # the snapshots; the first file is the claim
    "compact.before-summary",
    "storage.before-name:3",  # the summary
    "compact.after-summary",
    "driver.in-sweep",
    "driver.in-garbage",
    "compact.in-garbage",
]


def compact(checkpoint, failpoint=None):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EQUIPOISE_")}
    if failpoint:
        environment["EQUIPOISE_FAILPOINT"] = failpoint
    command = [sys.executable, "-m", "equipoise", "state", "compact", str(checkpoint)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def states(checkpoint):
    return {repr(state.pop("")): repr(sorted(state.items())) for _, state in local_states(str(checkpoint))}


def test_killed_at_every_step(make_story):
    story = make_story(batches=10)
    assert story.run("--local", failpoint="driver.after-commit:6") == KILLED, story.output
    for number, step in enumerate(STEPS):
        if number == len(STEPS) // 2:  # some batches in between, on what is left of the compactions
            assert story.run("--local", failpoint="driver.after-commit:2") == KILLED, story.output
        known = states(story.checkpoint)
        killed = compact(story.checkpoint, step)
        assert killed.returncode == KILLED, f"{step}: {killed.stdout}{killed.stderr}"
        assert states(story.checkpoint) == known, step
    done = compact(story.checkpoint)
    assert done.returncode == 0, done.stderr
    assert states(story.checkpoint) == known
    story.finish("--local")


def test_every_step_of_a_compaction_is_killed():
    assert {step.partition(":")[0] for step in STEPS} >= {point for point in POINTS if point.startswith("compact.")}
