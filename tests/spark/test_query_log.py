"""Spark's own errors stay what they are after equipoise has silenced their log for a moment."""

import subprocess
import sys

CODE = """
from pyspark.logger import PySparkLogger
from equipoise.spark.rows.analysis import without_query_log
with without_query_log():
    pass
for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
    PySparkLogger.getLogger(name).exception("as pyspark logs an error", errorClass="ANY")
"""


def test_an_analysis_error_of_the_user_is_still_an_analysis_error():
    """In a process of its own: a logger keeps the class of whoever asked for it first."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
