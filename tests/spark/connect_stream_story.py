# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""What a user does with a stream, on Spark Connect; run in a process of its own.

There the function that runs each micro-batch is sent to another process, and sees nothing of this one.
"""

import os
import sys
import tempfile
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from equipoise import CheckpointInUse
from equipoise.spark import history, read_state, sinks, stateful

os.environ["PYSPARK_PYTHON"] = sys.executable


class Count(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.sums = handle.getValueState("sums", "n long, total long")
        self.words = handle.getMapState("words", "word string", "n int")

    def handleInputRows(self, key, rows, timerValues):
        n, total = self.sums.get() or (0, 0)
        for frame in rows:
            n, total = n + len(frame), total + int(frame["v"].sum())
        self.sums.update((n, total))
        self.words.updateValue((f"word {n}",), (n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})

    def close(self):
        pass


def write(folder, number):
    rows = pd.DataFrame({"k": [f"k{min(place % 17, 5)}" for place in range(90)], "v": range(number, number + 90)})
    rows.to_parquet(folder / f"{number:05d}.parquet.writing")
    (folder / f"{number:05d}.parquet.writing").rename(folder / f"{number:05d}.parquet")


def expected(spark, folder):
    rows = spark.read.parquet(str(folder)).groupBy("k").agg(F.count("*"), F.sum("v")).collect()
    return {row[0]: tuple(row[1:]) for row in rows}


def in_state(state):
    return {row.k: (row.sums.n, row.sums.total) for row in state.collect()}


def story(spark, folder):
    files, out, checkpoint = folder / "in", str(folder / "out"), str(folder / "checkpoint")
    files.mkdir()
    for number in range(2):
        write(files, number)
    reader = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
    stream = reader.option("pathGlobFilter", "*.parquet").parquet(str(files))
    made = stateful(stream, "k", Count(), "k string, n long, total long", 2, tailGroups=8)

    query = made.start(sinks.parquet(out), checkpoint, trigger={"availableNow": True})
    query.awaitTermination()
    assert in_state(read_state(checkpoint, spark=spark)) == expected(spark, files)
    assert [row.rows for row in history(checkpoint, spark=spark).dataframe().orderBy("batch").collect()] == [90, 90]
    rows = spark.read.parquet(out).where("batch = 1").drop("batch").collect()
    assert {row.k: (row.n, row.total) for row in rows} == expected(spark, files)

    query = made.start(sinks.parquet(out), checkpoint)
    try:
        try:
            made.start(sinks.parquet(out), checkpoint)
            raise AssertionError("two queries run on one checkpoint")
        except CheckpointInUse:
            pass
        query.rescale(3)
        for number in range(2, 4):
            write(files, number)
            query.processAllAvailable()
        assert len(query.history().dataframe().orderBy("batch").collect()[-1].partition_rows) == 3
        assert query.plan.partitions == 3
        assert in_state(query.state()) == expected(spark, files)
        assert in_state(query.state(1)) != expected(spark, files)
    finally:
        query.stop()


if __name__ == "__main__":
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    try:
        with tempfile.TemporaryDirectory() as name:
            story(session, Path(name))
    finally:
        session.stop()
    print("the story ends well")  # noqa: T201 - the answer to the test that starts this
