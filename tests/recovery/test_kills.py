"""Whatever is killed, at whatever point: nothing is lost, nothing happens twice, a batch is delivered with one content.

Every point is a line of the protocol; see ``equipoise.failpoints``. A killed worker is Spark's to replace, a killed
driver is started again by hand, as a user would.
"""

import json
import random
import re
import time
from pathlib import Path

import pytest

import equipoise
from equipoise.failpoints import POINTS

KILLED = -9
TASK_POINTS = [point for point in POINTS if point.startswith("task.")]
LATE_POINTS = {"driver.late-commit"}  # see test_late_commit
SPOOL_POINTS = {point for point in POINTS if point.startswith("spool.")}  # see test_spool_kills
COMPACTION_POINTS = {point for point in POINTS if point.startswith("compact.")}  # see test_compaction_kills
DRIVER_POINTS = [point for point in POINTS if point.startswith("driver.")]
FILE_SINKS = ["parquet", "table"]


DRIVER_KILLS = {
    "until delivery": (
        "storage.before-name:1",  # before there is anything
        "driver.before-commit:1",  # the initial state
        "driver.in-claim",
        "driver.before-look",
        "driver.after-look:2",
        "driver.before-plan",
        "driver.after-plan:2",
        "driver.before-commit",
        "driver.in-commit:2",
        "driver.after-commit",
        "driver.before-sink:2",
        "driver.after-sink",
    ),
    "after delivery": (
        "driver.before-summary",
        "driver.in-summary",
        "driver.after-summary",
        "driver.in-sweep",
        "driver.before-garbage",
        "driver.in-garbage",
        "driver.in-forgetting",
        "driver.after-garbage",
    ),
}
"""Kills one start after the other, each group on one checkpoint; every batch is looked at."""
LIST_KILLS = (
    "driver.before-list",
    "driver.after-list",
    "driver.before-list:3",
    "driver.after-list:2",
    "driver.after-sink:2",
    "driver.in-garbage",
)
"""The same where the output is transformed: only then its files are listed."""
STAGE_KILLS = (
    "driver.between-stages",
    "driver.before-commit:2",  # the initial state of the second operator
    "driver.before-stage",
    "driver.before-commit:2",  # from here on the second point of a batch is the second operator's
    "driver.in-commit:2",
    "task.end:4",  # after the two tasks of the first operator
    "driver.after-commit:2",
    "driver.before-sink:2",
    "driver.after-sink",
    "driver.after-stage",
    "driver.after-sink:2",
    "driver.in-summary:2",
    "driver.in-garbage",
)
"""The same with a second keyed operator, which is the sink of the first."""


def test_workers_killed_at_every_point_are_replaced(make_story):
    story = make_story()
    points = ",".join(f"{point}:{3 + number}" for number, point in enumerate(TASK_POINTS))
    assert story.run(failpoint=points) == 0, story.output
    assert all(story.reached(point) > 3 + number for number, point in enumerate(TASK_POINTS))
    story.check()


def test_a_driver_killed_before_and_after_its_commit_goes_on_where_it_was(make_story):
    story = make_story()
    for point in ("driver.before-commit:3", "driver.after-commit:2"):
        assert story.run(failpoint=point) == KILLED, f"{point}: {story.output}"
    story.finish()


@pytest.mark.parametrize("points", [*DRIVER_KILLS.values(), TASK_POINTS], ids=[*DRIVER_KILLS, "in tasks"])
def test_a_process_killed_at_every_point_goes_on_where_it_was(make_story, points):
    """Without Spark, which makes a start quick: the protocol and its code are the same."""
    killed_at_every_point(make_story(batches=10), points, "--local", "--look", "always")


@pytest.mark.parametrize("points", DRIVER_KILLS.values(), ids=DRIVER_KILLS)
def test_a_process_killed_at_every_point_writes_every_row_once(make_story, points):
    """With the sink that users have: no file twice, none missing, none half; each attempt finds other random keys."""
    story = make_story(batches=20)  # with random plans some points are reached after more batches than with others
    killed_at_every_point(story, points, "--local", "--sink", "parquet", "--look", "random")
    assert all(path.suffix == ".parquet" for path in (story.folder / "delivered").iterdir())


def test_a_process_killed_around_its_list_of_transformed_files_writes_every_row_once(make_story):
    """The transformation gives other bytes each time."""
    killed_at_every_point(make_story(batches=10), LIST_KILLS, "--local", "--sink", "transformed")


@pytest.mark.parametrize(("operators", "look"), [(2, "always"), (3, "random")])
def test_a_process_killed_between_two_operators_runs_each_batch_once_in_both(make_story, operators, look):
    story = make_story(batches=20)
    killed_at_every_point(story, STAGE_KILLS, "--local", "--operators", str(operators), "--look", look)
    assert len(list(story.folder.glob("state-*.json"))) == operators - 1


@pytest.mark.long
@pytest.mark.parametrize("sink", ["parquet", "table"])
def test_a_driver_killed_between_two_operators_runs_each_batch_once_in_both(make_story, sink):
    points = [point for point in STAGE_KILLS if point.startswith("driver.")]  # Spark replaces a killed worker
    killed_at_every_point(make_story(batches=10), points, "--operators", "2", "--sink", sink)


@pytest.mark.long
def test_a_driver_killed_around_its_list_of_transformed_files_writes_every_row_once(make_story):
    killed_at_every_point(make_story(batches=10), LIST_KILLS, "--sink", "transformed")


def test_a_driver_killed_after_its_delivery_writes_every_row_once(make_story):
    story = make_story(batches=3)
    assert story.run("--sink", "parquet", failpoint="driver.after-sink:2") == KILLED, story.output
    story.finish("--sink", "parquet")


@pytest.mark.long
@pytest.mark.parametrize("sink", ["parquet", "table"])
@pytest.mark.parametrize("points", DRIVER_KILLS.values(), ids=DRIVER_KILLS)
def test_a_driver_killed_at_every_point_writes_every_row_once(make_story, points, sink):
    killed_at_every_point(make_story(batches=10), points, "--sink", sink, "--look", "always")


@pytest.mark.long
@pytest.mark.parametrize("points", DRIVER_KILLS.values(), ids=DRIVER_KILLS)
def test_a_driver_killed_at_every_point_goes_on_where_it_was(make_story, points):
    killed_at_every_point(make_story(batches=20), points, "--look", "random")


def killed_at_every_point(story, points, *options):
    for point in points:
        assert story.run(*options, failpoint=point) == KILLED, f"{point}: {story.output}"
    story.finish(*options)
    plans = [json.loads(path.read_text())["plan"] for path in sorted((story.checkpoint / "plans").iterdir())]
    assert len({plan["partitions"] for plan in plans}) == 3
    assert any(plan["isolated"] for plan in plans)
    left = [path for path in story.checkpoint.rglob("*.tmp") if "spark" not in path.parts]
    assert not [path for path in left if path.parent.name in {"log", "plans", "batch-log"}]


def test_a_driver_or_a_worker_is_killed_at_every_point_there_is():
    killed = {
        point.partition(":")[0] for points in (*DRIVER_KILLS.values(), LIST_KILLS, STAGE_KILLS) for point in points
    }
    assert killed | set(TASK_POINTS) | SPOOL_POINTS | COMPACTION_POINTS | LATE_POINTS == set(POINTS)


def test_the_points_of_the_protocol_are_those_that_the_code_passes():
    source = Path(equipoise.__file__).parent.rglob("*.py")
    passed = {
        name for path in source for name in re.findall(r'failpoint\("([^"]+)"\)', path.read_text(encoding="utf-8"))
    }
    assert passed == set(POINTS)


@pytest.mark.long
@pytest.mark.parametrize(("seed", "sinks"), [(0, FILE_SINKS), (1, FILE_SINKS), (2, ["function"])])
def test_sixty_kills_at_random(make_story, seed, sinks):
    """20 for each seed: several workers in every start, then the driver, at a point or at any moment."""
    _live_through(make_story, seed, 3, (3, 15), sinks)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_two_hundred_kills_at_random_without_spark(make_story, seed):
    """20 for each seed: of the one process that does everything, at a point or at any moment."""
    _live_through(make_story, 100 + seed, 0, (0.5, 4), ["function", "parquet", "transformed"], "--local")


def _live_through(make_story, seed, workers, moments, sinks, *options):
    """Stories with 20 kills, each with a sink and a way to look, all of which must end as if there had been none."""
    rng = random.Random(seed)  # noqa: S311 - tests want the same kills again
    kills = 0
    for number in range(100):
        story = make_story(f"story-{number}", batches=12, seed=1000 * seed + number)
        drawn = [*options, "--sink", rng.choice(sinks), "--look", rng.choice(["always", "random"])]
        for _ in range(rng.randrange(4, 9)):
            fired, code = _killed_somewhere(story, rng, workers, moments, drawn)
            kills += fired
            if code == 0:
                break
        story.finish(*drawn)
        if kills >= 20:
            break
    assert kills >= 20


def _killed_somewhere(story, rng, workers, moments, options):
    """One start with kills in it; gives how many there were, and its exit code."""
    points = {f"{point}:{rng.randrange(1, 9)}" for point in rng.sample(TASK_POINTS, workers)}
    by_hand = rng.random() < 0.3
    if not by_hand:
        anywhere = [*DRIVER_POINTS, "storage.before-name", *([] if workers else TASK_POINTS)]
        points.add(f"{rng.choice(anywhere)}:{rng.randrange(1, 7)}")
    process = story.start(*options, failpoint=",".join(sorted(points)) or None)
    if by_hand:
        time.sleep(rng.uniform(*moments))
        process.kill()
    code = process.wait()
    assert code in {0, KILLED}, story.output
    fired = sum(story.reached(point) >= int(count) for point, _, count in (each.partition(":") for each in points))
    return fired + (by_hand and code == KILLED), code
