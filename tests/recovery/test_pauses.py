"""A driver that stops inside its sink, is taken over, and wakes up: every row is delivered as if it had not."""

import os
import signal

import pytest

BATCHES = 8
AFTER = {"1 batch": BATCHES - 2, "5 batches": BATCHES - 6}
"""Where the first driver stops, by the number of batches that the second one goes on after this one."""

LOCAL, PARQUET = ("--local", "--sink", "parquet"), ("--sink", "parquet")
TABLE, FUNCTION = ("--sink", "table"), ("--sink", "function")


def _on_spark(options, after):
    return pytest.param(options, AFTER[after], marks=pytest.mark.long, id=f"{options[-1]}-{after}")


@pytest.mark.parametrize(
    ("options", "batch"),
    [
        *(pytest.param(LOCAL, batch, id=f"parquet, local-{after}") for after, batch in AFTER.items()),
        pytest.param(TABLE, AFTER["1 batch"], id="table-1 batch"),
        _on_spark(TABLE, "5 batches"),
        *(_on_spark(options, after) for options in (PARQUET, FUNCTION) for after in AFTER),
    ],
)
def test_a_driver_that_wakes_up_inside_its_sink_changes_nothing_and_says_that_it_was_taken_over(
    make_story, options, batch
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
    assert "FencedError: another query has taken over" in hung.read_text()
    assert _files(story) == files
    assert not list((story.folder / "delivered").rglob("*.tmp")), "half a copy is left"
    found = story.deliveries()
    assert found.keys() == delivered.keys()
    assert all(set(found[each]) == set(delivered[each]) for each in found), "a batch came again with other bytes"


def _files(story):
    """What a shipped sink wrote, without what the first driver had open."""
    paths = (story.folder / "delivered").rglob("part-*.parquet")
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}
