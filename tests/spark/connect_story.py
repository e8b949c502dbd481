# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""What a user does on Spark Connect, in batch and with a stream; in a process of its own, which has one kind of Spark.

The function that runs each micro-batch is sent to yet another process there, and sees nothing of this one.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.testing.utils import assertDataFrameEqual

from equipoise import CheckpointInUseError, InvalidArgumentError, UserFunctionError
from equipoise.spark import Action, advise, balance, batch_log, join, profile, read_state

os.environ["PYSPARK_PYTHON"] = sys.executable


def batch(spark, folder):
    keys = np.minimum(np.random.default_rng(5).zipf(1.4, 3000), 100)
    df = spark.createDataFrame(pd.DataFrame({"k": [f"key {k}" for k in keys], "v": range(3000)}))

    report = profile(df, "k", numPartitions=4, slots=2)
    assert report.strategies["kip"].makespan <= report.strategies["hash"].makespan
    assert report.hot_keys(2, literal=True).first()["k"] == "key 1"
    assert advise(df, "k", operation="agg").action is Action.NOTHING
    assert advise(df, "k", operation="join", other=df.limit(3)).action is Action.BROADCAST
    assert profile(df, "k").slots == 2

    def summary(key, pdf):
        return pd.DataFrame({"k": [key[0]], "n": [len(pdf)], "c": [",".join(pdf.columns)]})

    schema = "k string, n long, c string"
    handle = balance(df, "k", numPartitions=4, record=str(folder / "record"))
    ours = handle.applyInPandas(summary, schema)
    assertDataFrameEqual(ours, df.groupBy("k").applyInPandas(summary, schema))
    assert handle.wait_for_record(30)

    second = balance(df, "k", numPartitions=4, record=str(folder / "record"))
    assert second.loads.rows == 3000
    ranked = second.dataframe().withColumn("r", F.row_number().over(second.window().orderBy("v")))
    assertDataFrameEqual(ranked, df.withColumn("r", F.row_number().over(Window.partitionBy("k").orderBy("v"))))
    assertDataFrameEqual(second.agg(F.count("*").alias("n")), df.groupBy("k").agg(F.count("*").alias("n")))
    assertDataFrameEqual(second.max("v"), df.groupBy("k").max("v"))

    @F.pandas_udf("double")
    def middle(values: pd.Series) -> float:
        return float(values.median())

    assertDataFrameEqual(second.agg(middle("v").alias("m")), df.groupBy("k").agg(middle("v").alias("m")))
    for other in (df, df.groupBy("k"), balance(df, "k")):
        pairs = second.cogroup(other).applyInPandas(lambda a, b: pd.DataFrame({"d": [len(a) - len(b)]}), "d long")
        assert {row.d for row in pairs.collect()} == {0}
    done = [line for _, line in second._operations]
    assert sum("handed to Spark" in line for line in done) == 2
    assert sum("keys placed by the plan of" in line for line in done) == len(done) - 2, done
    assertDataFrameEqual(join(df, df.limit(3), "k", "semi").dataframe(), df.join(df.limit(3), "k", "semi"))
    for key in (F.rand(), F.udf(lambda v: v, "long").asNondeterministic()("v")):
        try:
            balance(df, key)
        except InvalidArgumentError as error:
            assert "not deterministic" in str(error)  # noqa: PT017 - there is no pytest here
        else:
            raise AssertionError("a random key was accepted")


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


class Wrong(Count):
    """Stores text for a number."""

    def handleInputRows(self, key, rows, timerValues):
        self.sums.update(("many", 0))
        return []


def write(folder, number):
    rows = pd.DataFrame({"k": [f"k{min(place % 17, 5)}" for place in range(90)], "v": range(number, number + 90)})
    rows.to_parquet(folder / f"{number:05d}.parquet.writing")
    (folder / f"{number:05d}.parquet.writing").rename(folder / f"{number:05d}.parquet")


def expected(spark, folder):
    rows = spark.read.parquet(str(folder)).groupBy("k").agg(F.count("*"), F.sum("v")).collect()
    return {row[0]: tuple(row[1:]) for row in rows}


def in_state(state):
    return {row.k: (row.sums.n, row.sums.total) for row in state.collect()}


def parts(out, batch):
    return [path.read_bytes() for path in sorted(Path(out).glob(f"part-{batch:020d}-*.parquet"))]


def forget_delivery(folder, batch):
    """Leave the last batch as one that was committed and not delivered when the query stopped."""
    for path in [
        *(folder / "checkpoint/spark/commits").glob(f"*{batch}*"),
        *(folder / "out").glob(f"part-{batch:020d}-*"),
    ]:
        path.unlink()


def streams(spark, folder):
    files, out, checkpoint = folder / "in", str(folder / "out"), str(folder / "checkpoint")
    files.mkdir()
    for number in range(2):
        write(files, number)
    reader = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
    stream = reader.option("pathGlobFilter", "*.parquet").parquet(str(files))
    made = balance(stream, "k", numPartitions=2, tailGroups=8).transformWithStateInPandas(
        Count(), "k string, n long, total long", "update", "none"
    )
    writer = made.writeStream.option("checkpointLocation", checkpoint)

    made.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(out).awaitTermination()
    assert in_state(read_state(checkpoint, spark=spark)) == expected(spark, files)
    assert [row.rows for row in batch_log(checkpoint, spark=spark).dataframe().orderBy("batch").collect()] == [90, 90]
    rows = spark.read.option("pathGlobFilter", f"part-{1:020d}-*.parquet").parquet(out).collect()
    assert {row.k: (row.n, row.total) for row in rows} == expected(spark, files)

    query = writer.start(out)
    try:
        try:
            writer.start(out)
            raise AssertionError("two queries run on one checkpoint")
        except CheckpointInUseError:
            pass
        query.rescale(3)
        for number in range(2, 4):
            write(files, number)
            query.processAllAvailable()
        assert len(query.batch_log().dataframe().orderBy("batch").collect()[-1].partition_rows) == 3
        assert query.plan.partitions == 3
        assert in_state(query.state()) == expected(spark, files)
        assert in_state(query.state(1)) != expected(spark, files)
        delivered = parts(out, 3)
        forget_delivery(folder, 3)
    finally:
        query.stop()
    assert parts(out, 3) == [], "the sink is at the server, and stop() was called at the client"
    assert not batch_log(checkpoint, spark=spark).dataframe().orderBy("batch").collect()[-1].delivered
    writer.trigger(availableNow=True).start(out).awaitTermination()
    assert parts(out, 3) == delivered

    doubled = made.where(F.col("n") > 0).withColumn("n", F.col("n") * 2).transform(lambda df: df.orderBy("k"))
    again = doubled.writeStream.option("checkpointLocation", f"{checkpoint}-2").trigger(availableNow=True)
    again.start(f"{out}-2").awaitTermination()
    last = spark.read.option("pathGlobFilter", f"part-{3:020d}-*.parquet").parquet(f"{out}-2").collect()
    assert {row.k: (row.n // 2, row.total) for row in last} == expected(spark, files)


def refuses(spark, folder):
    """A message of a task reaches the client with the class, the method, the key and a way out."""
    write(folder, 0)
    stream = spark.readStream.schema("k string, v long").parquet(str(folder))
    wrong = balance(stream, "k", numPartitions=2).transformWithStateInPandas(Wrong(), "k string", "update", "none")
    writer = wrong.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    try:
        writer.start(str(folder / "out")).awaitTermination()
    except UserFunctionError as error:
        said = str(error)
    assert "InvalidArgumentError in Wrong.handleInputRows" in said
    assert "cannot hold 'many': Expected `int | null`, got `str`; give int(...)" in said
    assert "for the key with the fingerprint" in said


class Newest(StatefulProcessor):
    """Gives the latest time of a key."""

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield pd.DataFrame({"k": [key[0]], "t": [max(frame["t"].max() for frame in rows)]})

    def close(self):
        pass


def chains(spark, folder):
    """A second operator, which counts by time in append mode; both run at the server."""
    files, out, checkpoint = folder / "in", str(folder / "out"), str(folder / "checkpoint")
    files.mkdir()
    start = pd.Timestamp("2024-03-30 12:00", tz="UTC")
    for number in range(4):
        rows = pd.DataFrame({"k": [f"k{place % 3}" for place in range(6)], "t": start + pd.Timedelta(minutes=number)})
        rows.to_parquet(files / f"{number}.writing", coerce_timestamps="us")
        os.utime(files / f"{number}.writing", (number + 1,) * 2)  # Spark reads the oldest file first
        (files / f"{number}.writing").rename(files / f"{number}.parquet")
    reader = spark.readStream.schema("k string, t timestamp").option("maxFilesPerTrigger", 1)
    stream = reader.option("pathGlobFilter", "*.parquet").parquet(str(files)).withWatermark("t", "30 seconds")
    newest = balance(stream, "k", numPartitions=2).transformWithStateInPandas(
        Newest(), "k string, t timestamp", "append", "eventTime", eventTimeColumnName="t"
    )
    unmarked = balance(newest.withColumn("w", F.window("t", "1 minute")), "w", numPartitions=2).count().writeStream
    try:
        unmarked.outputMode("append").option("checkpointLocation", checkpoint).start(out)
    except InvalidArgumentError as error:
        assert "withColumn of Spark Connect makes a window without event time" in str(error)  # noqa: PT017 - as above
    else:
        raise AssertionError("Spark Connect keeps the event time of a window that withColumn makes: drop the hint")
    windows = newest.select("*", F.window("t", "1 minute").alias("w"))
    counts = balance(windows, "w", numPartitions=2).count()
    writer = counts.select(F.unix_timestamp("w.start").alias("start"), "count").writeStream.outputMode("append")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(out)
    query.awaitTermination()
    found = {row.start - int(start.timestamp()): row["count"] for row in spark.read.parquet(out).collect()}
    assert found[0] == 3, "the first window is finished by the watermark of the last batch"
    assert {row.w.start for row in query.stage(2).state().collect()}, "the last window is not finished"
    assert [row["rows"] for row in query.stage(2).batch_log().rows][:4] == [3, 3, 3, 3]


if __name__ == "__main__":
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    try:
        for story in (batch, streams, chains, refuses):
            with tempfile.TemporaryDirectory() as name:
                story(session, Path(name))
    finally:
        session.stop()
    print("all stories end well")  # noqa: T201 - the answer to the test that starts this
