"""A microbatch query whose driver, receiver or tasks are killed: a tuple counts once in every window that has it."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("microbatch_story.py")
END = "the story ends well"
KILLS = [
    "spool.before-append:4",
    "spool.after-append:6",
    "spool.before-seal:2",
    "spool.after-seal:2",
    "spool.in-forgetting:1",
    "driver.before-commit:3",
    "driver.after-commit:3",
    "driver.after-sink:2",
    "task.before-files:3",
    "task.end:2",
]


def run(folder, *options, failpoint=None):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EQUIPOISE_")}
    if failpoint:
        environment["EQUIPOISE_FAILPOINT"] = failpoint
        environment["EQUIPOISE_FAILPOINT_FOLDER"] = str(folder / "reached")
        (folder / "reached").mkdir(exist_ok=True)
    command = [sys.executable, str(SCRIPT), str(folder), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.usefixtures("spark")  # asks for Java in the same words
@pytest.mark.long
@pytest.mark.parametrize("point", KILLS)
def test_killed_at_a_step(tmp_path, point):
    killed = run(tmp_path, failpoint=point)
    name, _, count = point.partition(":")
    assert (tmp_path / "reached" / f"{name}-{count}").exists(), killed.stderr[-2000:]
    last = run(tmp_path) if killed.returncode != 0 else killed  # a killed task is Spark's to repeat
    assert last.returncode == 0, last.stderr[-3000:]
    assert END in last.stdout


@pytest.mark.usefixtures("spark")
@pytest.mark.long
def test_a_driver_that_is_killed_goes_on(tmp_path):
    killed = run(tmp_path, failpoint="driver.after-commit:3")
    assert killed.returncode == -9, killed.stderr[-2000:]
    last = run(tmp_path)
    assert last.returncode == 0, last.stderr[-3000:]
    assert END in last.stdout


@pytest.mark.usefixtures("spark")
@pytest.mark.long
def test_it_works_on_connect(tmp_path):
    reported = run(tmp_path, "connect")
    assert reported.returncode == 0, reported.stderr[-3000:]
    assert END in reported.stdout


def _failures():
    """How stories of executors that are lost are played."""
    spec = importlib.util.spec_from_file_location("equipoise_failures", Path(__file__).with_name("test_failures.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


executors, cluster = _failures().executors, _failures().cluster


@pytest.mark.usefixtures("spark", "cluster")
@pytest.mark.long
def test_an_executor_that_is_lost_while_results_are_made_changes_nothing(tmp_path):
    """Some partitions have their result then, and the others need again what the lost one had made for them."""
    folder = tmp_path / "story"
    folder.mkdir()
    with (tmp_path / "reported").open("w") as reported:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder), "cluster"], stdout=reported, stderr=reported
        )
        try:
            until = time.monotonic() + 120
            while not (folder / "finished").exists() or len(list((folder / "finished").iterdir())) < 12:
                assert process.poll() is None, (tmp_path / "reported").read_text()[-3000:]
                assert time.monotonic() < until, (tmp_path / "reported").read_text()[-3000:]
                time.sleep(0.02)
            os.kill(executors(process.pid)[0], signal.SIGKILL)
            assert process.wait(240) == 0, (tmp_path / "reported").read_text()[-3000:]
        finally:
            process.kill()
            process.wait()
    assert END in (tmp_path / "reported").read_text()
