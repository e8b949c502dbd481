"""A receiver that is killed at any step: nothing that it took is lost, and nothing is read twice."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from equipoise.failpoints import POINTS
from equipoise.microbatch.feeds import GeneratedFeed
from equipoise.microbatch.rates import Rate

SCRIPT = Path(__file__).with_name("spool_story.py")
END, COUNT = "the story ends well", 3000


def run(folder, failpoint=None):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EQUIPOISE_")}
    if failpoint:
        environment["EQUIPOISE_FAILPOINT"] = failpoint
    command = [sys.executable, str(SCRIPT), str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def expected():
    import pyarrow as pa

    feed = GeneratedFeed(pa.schema({"key": pa.int64()}), Rate(1e9), keys=50, count=COUNT)
    feed.open(None)
    found = Counter()
    while (chunk := feed.read(0)) is not None:
        found.update(chunk.table["key"].to_pylist())
    return found


def read(folder):
    return Counter(key for path in folder.glob("batch-*.json") for key in json.loads(path.read_text()))


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("point", sorted(name for name in POINTS if name.startswith(("spool.", "storage."))))
def test_killed_at_a_step_of_the_spool(tmp_path, point, count):
    killed = run(tmp_path, f"{point}:{count}")
    assert killed.returncode == -9, killed.stderr
    again = run(tmp_path, f"{point}:{count + 2}")  # once more, later in its life
    if again.returncode != 0:
        assert again.returncode == -9, again.stderr
    last = run(tmp_path)
    assert last.returncode == 0, last.stderr
    assert END in last.stdout
    assert read(tmp_path) == expected()
