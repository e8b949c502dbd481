"""Everything runs on Spark Connect as it does on Classic."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.usefixtures("spark")  # asks for Java in the same words
def test_batch_and_streams_work_on_connect():
    story = Path(__file__).with_name("connect_story.py")
    result = subprocess.run([sys.executable, str(story)], capture_output=True, text=True, timeout=600, check=False)
    assert result.stdout.endswith("all stories end well\n"), result.stderr[-3000:]
