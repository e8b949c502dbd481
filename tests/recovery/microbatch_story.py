"""A microbatch query to be killed: run in a process of its own, again and again on the same folder, until it ends well.

The folder gets ``spool/``, ``cp/`` and ``out/``, a file for each batch that the sink was given. With ``connect`` the
session is one of Spark Connect. With ``cluster`` executors are processes of their own, and the tasks that own keys take
their time and leave a file in ``finished/`` for each key of a result.
"""

import json
import os
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import numpy as np
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from equipoise.spark import Aggregator, microbatch, read_state, register

cloudpickle.register_pickle_by_value(sys.modules[__name__])

COUNT, INTERVAL, LENGTH = 2000, 0.5, 2
END = "the story ends well"


class Count(Aggregator):
    bufferSchema = "n bigint"  # noqa: N815 - as Spark names schemas

    def __init__(self, finished=None):
        self._finished = finished

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + len(rows),)

    def merge(self, one, other):
        return (one[0] + other[0],)

    def inverse(self, whole, part):
        return (whole[0] - part[0],)

    def finish(self, key, buffer):
        if self._finished is not None:
            time.sleep(0.1)
            (Path(self._finished) / str(uuid.uuid4())).touch()
        return (*key, buffer[0])


def rows(position):
    """Tuples by their number; the same whoever asks."""
    at = position or 0
    if at >= COUNT:
        return None
    time.sleep(0.05)
    return [{"key": int(key)} for key in np.random.default_rng(at).zipf(1.5, 100) % 40], at + 100


def expected():
    found, position = Counter(), None
    while (given := rows(position)) is not None:
        found.update(row["key"] for row in given[0])
        position = given[1]
    return found


def delivered(folder):
    """Over all results of the window, by key."""
    found = Counter()
    for path in (folder / "out").glob("*.json"):
        for key, n in json.loads(path.read_text()):
            found[key] += n
    return found


def sink_to(folder):
    def sink(df, batch):
        given = [list(row) for row in df.collect()]
        path = Path(folder) / "out" / f"{batch:06d}.json"
        path.with_suffix(".tmp").write_text(json.dumps(given))
        path.with_suffix(".tmp").rename(path)

    return sink


def main(folder, *, connect, cluster):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    master = "local-cluster[2,1,1024]" if cluster else "local[2]"
    spark = (builder.remote(master) if connect else builder.master(master)).getOrCreate()
    (folder / "finished").mkdir(exist_ok=True)
    count, partitions = (Count(str(folder / "finished")), 8) if cluster else (Count(), 2)
    (folder / "out").mkdir(exist_ok=True)
    register(spark, rows=rows)
    stream = spark.readStream.format("equipoise").options(
        schema="key bigint", key="key", spool=str(folder / "spool"), feed="rows", interval=INTERVAL, blocks=2, buckets=2
    )
    counts = microbatch(
        stream.load(), "key", reduce=count, outputStructType="key bigint, n bigint", numPartitions=partitions,
        spool=str(folder / "spool"), interval=INTERVAL, window=LENGTH * INTERVAL, slide=INTERVAL, retain=2,
    )  # fmt: skip
    query = counts.writeStream.foreachBatch(sink_to(str(folder))).start(checkpointLocation=str(folder / "cp"))
    wanted, until = {key: LENGTH * n for key, n in expected().items()}, time.monotonic() + 150
    while delivered(folder) != wanted or read_state(str(folder / "cp"), spark=spark).count():
        if query.exception() is not None:
            raise SystemExit(str(query.exception()))
        assert time.monotonic() < until, (delivered(folder), wanted)
        time.sleep(0.3)
    query.stop()
    spark.stop()
    sys.stdout.write(END)


if __name__ == "__main__":
    main(Path(sys.argv[1]), connect="connect" in sys.argv, cluster="cluster" in sys.argv)
