"""Results of Spark in each case, recorded in ``recorded.json``; a fresh run that differs from its record fails.

``python -m equipoise_lab.conformance.recorded [CASE...]`` runs the cases through Spark alone and records them again.
"""

import sys
import tempfile
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession
from rich.progress import track

from equipoise.cli.quiet_spark import start_quietly
from equipoise_lab.conformance.case import Case, Form
from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.harness import Trace, by_form, processors, run_on_spark

FILE = Path(__file__).with_name("recorded.json")

SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "equipoise conformance",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings of the session on Classic."""


def recorded() -> dict[str, dict[str, Trace]]:
    """Return the recorded traces by case and form."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, dict[str, Trace]])


def record(spark: SparkSession, names: list[str]) -> None:
    """Run cases through Spark, and write the file after each, so that an interrupted run loses nothing."""
    traces = recorded() if FILE.exists() else {}
    for name in track(names, "recording"):
        traces[name] = _traces(spark, CASES[name])
        in_order = {each: traces[each] for each in CASES if each in traces}
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(in_order), indent=1) + b"\n")


def _traces(spark: SparkSession, case: Case) -> dict[str, Trace]:
    with tempfile.TemporaryDirectory() as folder:

        def run(form: Form) -> Trace:
            return run_on_spark(spark, case, form, processors(case, form), Path(folder) / form)

        return {str(form): trace for form, trace in by_form(spark, case, run).items()}


if __name__ == "__main__":
    session = start_quietly(SETTINGS)
    try:
        record(session, sys.argv[1:] or list(CASES))
    finally:
        session.stop()
