"""Spark starts without a word, and its own words are shown where the start fails or the log is asked for."""

import subprocess
import sys

import pytest

START = """
from equipoise.cli.quiet_spark import start_quietly
settings = {settings}
print(start_quietly({{"spark.master": "local[1]", **settings}}).range(3).count())
"""


def started(settings):
    command = [sys.executable, "-c", START.format(settings=settings)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("spark")  # asks for Java in the same words
def test_nothing_is_written_unless_a_log_level_is_set():
    quiet = started({})
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "3\n", "")
    assert "INFO SparkContext" in started({"spark.log.level": "INFO"}).stderr


@pytest.mark.usefixtures("spark")
def test_a_start_that_fails_shows_what_the_jvm_wrote():
    failed = started({"spark.driver.memory": "5"})
    assert failed.returncode == 1
    assert "SparkError: Spark did not start; the JVM exited and wrote:" in failed.stderr
    assert "Too small maximum heap" in failed.stderr
