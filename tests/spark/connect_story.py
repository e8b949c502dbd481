"""What a user does in batch, on Spark Connect; run in a process of its own, since one process has one kind of Spark."""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.testing.utils import assertDataFrameEqual

from equipoise.spark import Action, advise, balance, balanced, profile

os.environ["PYSPARK_PYTHON"] = sys.executable


def story(spark, folder):
    keys = np.minimum(np.random.default_rng(5).zipf(1.4, 3000), 100)
    df = spark.createDataFrame(pd.DataFrame({"k": [f"key {k}" for k in keys], "v": range(3000)}))

    report = profile(df, "k", 4, slots=2)
    assert report.strategies["kip"].makespan <= report.strategies["hash"].makespan
    assert report.hot_keys(2, literal=True).first()["k"] == "key 1"
    assert advise(df, "k", "agg").action is Action.NOTHING
    assert advise(df, "k", "join", other=df.limit(3)).action is Action.BROADCAST
    assert profile(df, "k").slots == 2

    def summary(key, pdf):
        return pd.DataFrame({"k": [key[0]], "n": [len(pdf)], "c": [",".join(pdf.columns)]})

    schema = "k string, n long, c string"
    handle = balance(df, "k", 4, history=str(folder / "history"))
    ours = handle.groupBy().applyInPandas(summary, schema)
    assertDataFrameEqual(ours, df.groupBy("k").applyInPandas(summary, schema))
    assert handle.wait_for_history(30)

    second = balance(df, "k", 4, history=str(folder / "history"))
    assert second.loads.rows == 3000
    ranked = second.dataframe().withColumn("r", F.row_number().over(second.window().orderBy("v")))
    assertDataFrameEqual(ranked, df.withColumn("r", F.row_number().over(Window.partitionBy("k").orderBy("v"))))
    assertDataFrameEqual(second.groupBy().agg(F.count("*").alias("n")), df.groupBy("k").agg(F.count("*").alias("n")))
    pairs = second.cogroup(df).applyInPandas(lambda a, b: pd.DataFrame({"d": [len(a) - len(b)]}), "d long")
    assert {row.d for row in pairs.collect()} == {0}
    assert df.transform(balanced, "k", 3).count() == 3000


if __name__ == "__main__":
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    try:
        with tempfile.TemporaryDirectory() as name:
            story(session, Path(name))
    finally:
        session.stop()
    print("the story ends well")  # noqa: T201 - the answer to the test that starts this
