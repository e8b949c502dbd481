"""Streams with state run on Spark Connect as they do on Classic."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.usefixtures("spark")  # asks for Java in the same words
def test_streams_work_on_connect():
    story = Path(__file__).with_name("connect_stream_story.py")
    result = subprocess.run([sys.executable, str(story)], capture_output=True, text=True, timeout=300, check=False)
    assert result.stdout.endswith("the story ends well\n"), result.stderr[-3000:]
