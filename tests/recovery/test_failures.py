"""Lost executors, failed and repeated tasks, failing sinks, queries that were taken over: the same result."""

import importlib.util
import os
import signal
from pathlib import Path

import pytest

from equipoise.errors import CheckpointInUseError
from equipoise.framing import seal
from equipoise.state.fencing import claim
from equipoise.state.log import CommitLog
from equipoise.storage import Storage

CLUSTER = "local-cluster[2,1,1024]"


def children(process):
    """Ids of the processes below one, from the system's table of processes."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
    below = {process}
    while True:
        more = {child for child, parent in parents.items() if parent in below} - below
        if not more:
            return below - {process}
        below |= more


def executors(process):
    found = []
    for child in children(process):
        try:
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
        except OSError:
            continue  # it has just ended
    return sorted(found)


def a_value(story, batch):
    """A value of a batch that belongs to a key that is not NULL."""
    return str(story.batches[batch].dropna()["v"].iloc[0])


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """Lets Spark start executors as processes of their own, each in a folder of its own."""
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("finding executors needs /proc")
    home = tmp_path / "spark"  # executors work below it, and not among the installed packages
    home.mkdir()
    for part in Path(importlib.util.find_spec("pyspark").origin).parent.iterdir():
        (home / part.name).symlink_to(part)
    monkeypatch.setenv("SPARK_HOME", str(home))


@pytest.mark.usefixtures("cluster")
def test_a_lost_executor_and_repeated_tasks_change_nothing(make_story):
    """Every executor has caches of its own here, so the one that takes over reads what the other had.

    Every task runs twice at the same time; the files of the attempt that does not count are there but in no commit.
    """
    story = make_story(batches=6)
    with story.start("--master", CLUSTER, "--cache", "cache", "--twice") as process:
        story.until(lambda: len(story.deliveries()) >= 1, process)
        lost = executors(process.pid)[0]
        os.kill(lost, signal.SIGKILL)
        assert process.wait(240) == 0, story.output
    story.check()
    storage = Storage(str(story.checkpoint))
    newest = f"changes/{len(story.batches):020d}"
    needed = CommitLog(storage).table(len(story.batches)).files()
    assert {f"{newest}/{name}" for name in storage.names(newest)} > {path for path in needed if path.startswith(newest)}
    caches = list(story.folder.parent.glob("spark/work/*/*/cache"))
    assert len(caches) == 3, "two executors, and the one in place of the lost"


def test_failing_tasks_and_a_failing_sink_change_nothing(make_story):
    story = make_story(batches=5)
    points = "task.end=raise:4,task.after-files=raise:7,storage.before-name=raise:22"
    assert story.run("--sink-fails-at", "3", failpoint=points) == 1
    assert "the sink is out of order" in story.output
    assert story.reached("task.end") > 4
    assert story.reached("task.after-files") > 7
    story.finish()
    assert len(story.deliveries()[3]) == 2


@pytest.mark.parametrize("options", [("--local",), pytest.param((), marks=pytest.mark.long)], ids=["local", "Spark"])
def test_a_query_that_was_taken_over_stops_at_its_commit_and_delivers_nothing(make_story, options):
    story = make_story()
    storage = Storage(str(story.checkpoint))
    with story.start("--wait-value", a_value(story, 3), *options) as first:
        story.until((story.folder / "waiting").exists, first)
        with pytest.raises(CheckpointInUseError, match=f"process {first.pid} is running"):
            claim(storage, lambda owner: owner == "")
        os.kill(first.pid, signal.SIGSTOP)
        storage.write("epochs/0000000002-another", seal("epoch", 1, ["another machine", 1, 1]))
        (story.folder / "go").touch()
        os.kill(first.pid, signal.SIGCONT)
        assert first.wait(240) == 1
    assert "FencedError: another query has taken over" in story.log.read_text()
    assert sorted(story.deliveries()) == [0, 1, 2]
    story.finish(*options)


@pytest.mark.long
def test_a_query_that_wakes_up_long_after_it_was_taken_over_changes_nothing(make_story):
    story = make_story()
    storage = Storage(str(story.checkpoint))
    with story.start("--wait-value", a_value(story, 3)) as first:
        story.until((story.folder / "waiting").exists, first)
        os.kill(first.pid, signal.SIGSTOP)
        hung = story.log
        story.finish("--machine", "another")
        before = CommitLog(storage).table(len(story.batches)).chains
        delivered = story.deliveries()
        (story.folder / "go").touch()
        os.kill(first.pid, signal.SIGCONT)
        assert first.wait(240) == 1
    assert "FencedError: another query has taken over" in hung.read_text()
    assert story.deliveries() == delivered
    assert CommitLog(storage).table(len(story.batches)).chains == before
