"""A driver that stops inside its sink, is taken over, and wakes up: every row is delivered as if it had not."""

import os
import signal

import pytest

BATCHES = 8
AFTER = {"1 batch": BATCHES - 2, "5 batches": BATCHES - 6}
"""Where the first driver stops, by the number of batches that the second one goes on after this one."""

on_spark = pytest.mark.long


@pytest.mark.parametrize("batch", AFTER.values(), ids=AFTER)
@pytest.mark.parametrize(
    "options",
    [
        ("--local", "--sink", "parquet"),
        pytest.param(("--sink", "parquet"), marks=on_spark),
        pytest.param(("--sink", "table"), marks=on_spark),
        pytest.param(("--sink", "function"), marks=on_spark),
    ],
    ids=["parquet, local", "parquet", "table", "function"],
)
def test_a_driver_that_wakes_up_inside_its_sink_changes_nothing_and_says_that_it_was_taken_over(
    make_story, batch, options
):
    story = make_story(batches=BATCHES)
    with story.start(*options, "--pause-at", str(batch)) as first:
        try:
            story.until((story.folder / "paused").exists, first)
            hung = story.log
            story.finish(*options, "--machine", "another")
            delivered, files = story.deliveries(), _files(story)
            os.kill(first.pid, signal.SIGCONT)
            assert first.wait(240) == 1, hung.read_text()[-3000:]
        finally:
            first.kill()
    assert "Fenced: another query has taken over" in hung.read_text()
    assert _files(story) == files
    found = story.deliveries()
    assert found.keys() == delivered.keys()
    assert all(set(found[each]) == set(delivered[each]) for each in found), "a batch came again with other bytes"


def _files(story):
    """What a shipped sink wrote, without what the first driver had open."""
    paths = (story.folder / "delivered").rglob("part-*.parquet")
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}
