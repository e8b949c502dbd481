"""One Spark session for all tests."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from equipoise import SparkUnavailableError
from equipoise.requirements import require_java

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
# A JVM that lives for a minute spends less on compiling than it would gain. The archive of classes halves the cost of
# its start; the JVM ignores it if it is missing or does not fit. The code cache holds all code of a run, so that none
# is compiled twice.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -Xlog:cds=off -Xlog:cds+dynamic=off "
    f'"-XX:SharedArchiveFile={Path(sys.prefix) / "spark.jsa"}"',
)

# tests are never timed: the suite passes on a machine that is busy with other work
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def spark():
    try:
        require_java()
    except SparkUnavailableError as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(reason))
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("equipoise tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def pytest_collection_modifyitems(items):
    """Two processes must find the same tests, so that none may be named after an address in memory."""
    nameless = [item.nodeid for item in items if " at 0x" in item.nodeid]
    assert not nameless, f"give these tests ids of their own: {nameless}"
