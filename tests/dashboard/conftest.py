"""Checkpoints of small queries without Spark, and a server over one of them."""

import shutil
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from equipoise.adapt import Policy
from equipoise.dashboard import DashboardServer, Watcher
from equipoise.spark import Aggregator, LocalQuery
from equipoise.spark.stream import engine

PARTITIONS, GROUPS, BATCHES, SWAP = 4, 16, 26, 14
ROWS, COUNTS = pa.schema({"k": pa.string()}), pa.schema({"k": pa.string(), "n": pa.int64()})


class Count(Aggregator):
    bufferSchema = StructType([StructField("n", LongType())])  # noqa: N815 - as Spark names schemas

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + len(rows),)

    def finish(self, key, buffer):
        return (*key, *buffer)


class Story:
    """A query whose hot keys are swapped at one batch; ``play`` runs it on, ``keys`` are those of a batch."""

    def __init__(self, folder, **options):
        self.folder = str(folder)
        self.query = LocalQuery(
            Count(),
            "k",
            ROWS,
            COUNTS,
            self.folder,
            numPartitions=PARTITIONS,
            tailGroups=GROUPS,
            policy=Policy(load="rows"),
            **options,
        )

    @staticmethod
    def keys(batch):
        ranks = np.random.default_rng(batch).zipf(1.3, 600) % 100
        return [f"{'late' if batch >= SWAP else 'early'} {rank}" for rank in ranks]

    def play(self, batches=1):
        for _ in range(batches):
            self.query.process(pd.DataFrame({"k": self.keys(self.query.batch)}))
        return self

    def counts(self, batches):
        return Counter(key for batch in range(batches) for key in self.keys(batch))


@pytest.fixture
def story(tmp_path):
    """A query that has not begun; it ends with the test."""
    made = Story(tmp_path / "checkpoint")
    yield made
    made.query.close()


@pytest.fixture(scope="session")
def make_story():
    return Story


@pytest.fixture(scope="session")
def lived(tmp_path_factory):
    """The checkpoint of a query that has ended, with a swap of its hot keys; the log has forgotten the first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SUMMARY_EVERY", 5)
        made = Story(tmp_path_factory.mktemp("lived") / "checkpoint", retain=2).play(BATCHES)
    made.query.close()
    return made.folder


@pytest.fixture
def copied(lived, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(lived, tmp_path / "copied")


@pytest.fixture
def serve():
    """Starts servers, which end with the test."""
    started = []

    def start(checkpoint, *, pause=0.0, watched=None, **options):
        server = DashboardServer(Watcher(str(checkpoint), pause=pause, **(watched or {})), **options)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()
