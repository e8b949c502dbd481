# ruff: noqa: N802, N803 - the names belong to Spark's protocol
"""Rows that come after the watermark reach a processor exactly where Spark lets them, under each time mode."""

import datetime as dt
import sys

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

from equipoise.spark import LocalQuery

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

SCHEMA = "k string, id string, t timestamp"
OUT = "k string, ids string, watermark long, n long"


def at(seconds):
    return dt.datetime(2024, 3, 30, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


class Reached(StatefulProcessor):
    """Gives the rows that reached it, the watermark, and how many rows a key has had."""

    def init(self, handle):
        self.n = handle.getValueState("n", "n long")

    def handleInputRows(self, key, rows, timerValues):
        ids = sorted(each for frame in rows for each in frame["id"])
        n = (self.n.get() or (0,))[0] + len(ids)
        self.n.update((n,))
        watermark = timerValues.getCurrentWatermarkInMs()
        yield pd.DataFrame({"k": [key[0]], "ids": [" ".join(ids)], "watermark": [watermark], "n": [n]})

    def close(self):
        pass


BATCHES = [
    [("a", "first", 0), ("b", "ahead", 20), ("c", "none", None), ("d", "before 1970", -2_000_000_000)],
    [("a", "late", 9), ("a", "edge", 10), ("a", "in time", 10.001), ("c", "none", None)],
    [("a", "late", 9), ("b", "edge", 10), ("b", "in time", 10.001), ("b", "ahead", 50), ("c", "none", None)],
    [("a", "late", 39), ("a", "edge", 40), ("b", "in time", 40.5), ("b", "older", 10.5), ("e", "only late", 1)],
    [("a", "late", 39), ("a", "edge", 40), ("b", "in time", 41), ("b", "older", 10.5), ("e", "only late", 1)],
]
ROWS = [[(key, name, None if t is None else at(t)) for key, name, t in batch] for batch in BATCHES]


@pytest.mark.parametrize("mode", ["none", "processingTime", "eventTime"])
def test_late_rows_reach_a_processor_where_spark_lets_them(feed, ours, sparks, conf, spark, mode):
    source = feed(SCHEMA, *ROWS)
    stream = source.stream().withWatermark("t", "10 seconds")
    with conf(spark__sql__streaming__noDataMicroBatches__enabled="false"):
        mine = ours(stream, "k", Reached(), OUT, timeMode=mode)
        theirs = sparks(stream, "k", Reached(), OUT, timeMode=mode)
    assert mine.batches == theirs.batches
    schema, out = (StructType.fromDDL(each) for each in (SCHEMA, OUT))
    with LocalQuery(Reached(), "k", schema, out, timeMode=mode, watermark=("t", "10 seconds")) as query:
        for batch, rows in enumerate(ROWS):
            found = query.process(spark.createDataFrame(rows, SCHEMA).toArrow())
            assert sorted(map(tuple, found.to_numpy().tolist())) == [tuple(row) for row in theirs.batches[batch]]
