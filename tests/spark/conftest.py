"""What tests on Spark share."""

import uuid
from contextlib import contextmanager

import pytest


@pytest.fixture
def jobs(spark):
    """Context manager that collects the numbers of the Spark jobs that the block starts."""

    @contextmanager
    def watch():
        group, started = uuid.uuid4().hex, []
        spark.sparkContext.setJobGroup(group, "watched")
        try:
            yield started
        finally:
            started += spark.sparkContext.statusTracker().getJobIdsForGroup(group)
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)

    return watch
