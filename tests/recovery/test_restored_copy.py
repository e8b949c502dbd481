"""A restored copy of a checkpoint goes on from the copy, whatever caches have seen since or lies beside it."""

import shutil

import pandas as pd
import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from equipoise.spark import Aggregator, LocalQuery

ROWS, SUMS = pa.schema({"k": pa.string(), "v": pa.int64()}), pa.schema({"k": pa.string(), "total": pa.int64()})


class Sum(Aggregator):
    bufferSchema = StructType([StructField("total", LongType())])  # noqa: N815 - as Spark names schemas

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + int(rows["v"].sum()),)

    def merge(self, one, other):
        return (one[0] + other[0],)

    def finish(self, key, buffer):
        return *key, *buffer


def rows(value, *keys):
    return pd.DataFrame({"k": list(keys), "v": [value] * len(keys)})


def test_a_restored_copy_does_not_see_what_came_after_it(tmp_path):
    def query():
        at, cache = str(tmp_path / "checkpoint"), str(tmp_path / "cache")
        return LocalQuery(Sum(), "k", ROWS, SUMS, at, cache=cache, numPartitions=2, tailGroups=4)

    with query() as first:
        first.process(rows(1, "a", "b"))
        shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
        first.process(rows(100, "a", "b"))
        first.process(rows(100, "a", "b"))
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "copy", tmp_path / "checkpoint")

    with query() as restored:
        restored.process(rows(10, "a"))
        restored.process(rows(10, "a"))
        outputs = restored.process(rows(10, "a", "b"))
        assert restored.state() == {("a",): {"buffer": (31,)}, ("b",): {"buffer": (11,)}}
    assert sorted(outputs.to_numpy().tolist()) == [["a", 31], ["b", 11]]


def test_files_of_others_in_a_checkpoint_are_left_alone(tmp_path):
    strays = [
        tmp_path / folder / ".stray"
        for folder in ("log", "changes", "snapshots", "outputs", "plans", "epochs", "batch-log")
    ]
    for number in (1, 2, 3):
        with LocalQuery(Sum(), "k", ROWS, SUMS, str(tmp_path), numPartitions=2, tailGroups=4, retain=1) as query:
            query.process(rows(1, "a"))
            for stray in strays:
                stray.parent.mkdir(exist_ok=True)
                stray.write_text("not ours")
            assert query.state() == {("a",): {"buffer": (number,)}}
    assert all(stray.exists() for stray in strays)
