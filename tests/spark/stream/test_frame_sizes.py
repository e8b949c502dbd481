# ruff: noqa: ARG001, ARG002, N802, N803 - the names belong to Spark's protocol
"""The rows of a key come in frames of the sizes that the session sets, as in Spark."""

import sys

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

from equipoise.spark import LocalQuery, balance
from equipoise.spark.rows.worker_options import WorkerOptions

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

OUT = "k string, sizes string"
ROWS = [("a", n, n % 2 == 0) for n in range(7)] + [("a", 7, None)]
ONE_KEY = "k string, v int, yes boolean"


def described(frames):
    return " ".join(f"{len(frame)}{list(frame.dtypes.astype(str))}{list(frame.index)}" for frame in frames)


class Sizes(StatefulProcessor):
    """Yields what the frames of a key look like, after those of its initial state."""

    def init(self, handle):
        self.initial = handle.getListState("initial", "sizes string")

    def handleInitialState(self, key, initialState, timerValues):
        self.initial.appendValue((described([initialState]),))

    def handleInputRows(self, key, rows, timerValues):
        seen = [text for (text,) in self.initial.get()]
        yield pd.DataFrame({"k": [key[0]], "sizes": [" ".join([*seen, described(rows)])]})

    def close(self):
        pass


LIMITS = [
    ("maxRecordsPerBatch", "1"),
    ("maxRecordsPerBatch", "3"),
    ("maxRecordsPerBatch", "0"),
    ("maxRecordsPerBatch", "-1"),
    ("maxBytesPerBatch", "2"),
    ("maxBytesPerBatch", "100k"),
]


@pytest.mark.parametrize(("name", "value"), LIMITS)
def test_frames_of_one_key(feed, ours, sparks, conf, name, value):
    source = feed(ONE_KEY, ROWS, ROWS[:3])
    with conf(**{f"spark__sql__execution__arrow__{name}": value}):
        mine = ours(source.stream(), "k", Sizes(), OUT, 1)
        theirs = sparks(source.stream(), "k", Sizes(), OUT, partitions=1)
    assert mine.batches == theirs.batches


def test_frames_of_an_initial_state(feed, ours, sparks, spark, conf):
    initial = spark.createDataFrame(ROWS[:5], ONE_KEY).coalesce(1)
    source = feed(ONE_KEY, [("b", 1, True)], ROWS[:3])
    with conf(spark__sql__execution__arrow__maxRecordsPerBatch="2"):
        mine = ours(source.stream(), "k", Sizes(), OUT, 1, initialState=initial)
        theirs = sparks(source.stream(), "k", Sizes(), OUT, partitions=1, initialState=initial)
    assert mine.batches == theirs.batches


def grouped(key, frames, state):
    yield pd.DataFrame({"k": [key[0]], "sizes": [described(frames)]})


@pytest.mark.parametrize(("name", "value"), LIMITS[1:5])
def test_frames_of_a_function_with_group_state(feed, begin, conf, collected, tmp_path, name, value):
    source = feed(ONE_KEY, ROWS)
    mine = type(collected)()
    with conf(**{f"spark__sql__execution__arrow__{name}": value, "spark__sql__shuffle__partitions": "1"}):
        arguments = (grouped, OUT, "n int", "update", "NoTimeout")
        own = balance(source.stream(), "k", numPartitions=1, tailGroups=8).applyInPandasWithState(*arguments)
        begin(own, mine, tmp_path / "ours", {"availableNow": True}).awaitTermination()
        made = source.stream().groupBy("k").applyInPandasWithState(*arguments)
        writer = made.writeStream.foreachBatch(collected).outputMode("update").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "sparks")).start().awaitTermination()
    assert mine.batches == collected.batches


def test_a_frame_spans_record_batches_and_keeps_the_values_of_both():
    schema = (
        StructType().add("k", "string").add("yes", "boolean").add("v", "long").add("span", "interval day to second")
    )
    out = StructType().add("k", "string").add("sizes", "string")
    rows = pd.DataFrame(
        {
            "k": ["a"] * 4,
            "yes": [True, False, True, None],
            "v": [0, 1, 2, None],
            "span": [None, None, pd.Timedelta(days=1), None],
        }
    )
    with LocalQuery(Describes(), "k", schema, out, numPartitions=1, batchRows=3) as query:
        [text] = query.process(rows)["sizes"]
    assert text == (
        "bool float64 timedelta64[ns] [True, False, True] [0.0, 1.0, 2.0] [NaT, NaT, Timedelta('1 days 00:00:00')]; "
        "object float64 datetime64[ns] [None] [nan] [NaT]"
    )


class Describes(StatefulProcessor):
    """Yields the dtypes and values of the frames."""

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        texts = []
        for frame in rows:
            columns = [frame[name] for name in ("yes", "v", "span")]
            texts.append(
                " ".join([str(column.dtype) for column in columns] + [str(list(column)) for column in columns])
            )
        yield pd.DataFrame({"k": [key[0]], "sizes": ["; ".join(texts)]})

    def close(self):
        pass


def test_a_full_frame_by_rows_or_by_bytes():
    assert WorkerOptions(frame_rows=3, frame_bytes=100).rows_of(10) == 3
    assert WorkerOptions(frame_rows=0, frame_bytes=100).rows_of(30) == 4
    assert WorkerOptions(frame_rows=-1, frame_bytes=2).rows_of(30) == 1
    assert WorkerOptions(frame_rows=-1, frame_bytes=2**31 - 1).rows_of(30) == 2**31 - 1
