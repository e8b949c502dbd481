"""Runs cases on Spark Connect, in a process of its own, since a process has one kind of Spark.

They are compared with the record of Spark on Classic.

``python -m equipoise_lab.conformance.connect CASE...`` prints the outcomes of a case, as JSON, in a line.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

import msgspec
from pyspark.sql import SparkSession

from equipoise.errors import SparkError
from equipoise_lab.conformance.verdict import Outcome, outcomes

_MARK = "outcome "


def outcomes_on_connect(names: Sequence[str]) -> Iterator[list[Outcome]]:
    """Run cases on Spark Connect, and give the outcomes of each when they are known."""
    command = [sys.executable, "-m", __name__, *names]
    found = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603 - a fixed command
        for line in process.stdout or ():
            if line.startswith(_MARK):
                found += 1
                yield msgspec.json.decode(line.removeprefix(_MARK), type=list[Outcome])
    if process.returncode or found != len(names):
        raise SparkError(
            f"the process with Spark Connect ended with code {process.returncode} after {found} of {len(names)} cases; "
            f"run python -m {__name__} {' '.join(names[found:][:1])} to see why"
        )


def _run(names: list[str]) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    try:
        for name in names:
            found = msgspec.json.encode(outcomes(spark, name, "connect", fresh=False))
            print(f"{_MARK}{found.decode()}", flush=True)  # noqa: T201 - the answer
    finally:
        spark.stop()


if __name__ == "__main__":
    _run(sys.argv[1:])
