"""Results that are converted together: many small frames, and rows with named fields."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.arrow_rows import dicts_to_arrow, named_rows_to_arrow, to_arrow
from equipoise.spark.rows.small_frames import FrameArrays, joined_frames
from equipoise.spark.stream.outputs import Call, Outputs

SCHEMA = pa.schema({"key": pa.string(), "n": pa.int64(), "x": pa.float64(), "at": pa.timestamp("us", "UTC")})
NOON = dt.datetime(2024, 3, 1, 12, tzinfo=dt.UTC)
FRAMES = [
    pd.DataFrame({"key": ["a"], "n": [1], "x": [0.5], "at": [NOON]}),
    pd.DataFrame({"key": ["b", None], "n": [2, 2**62], "x": [np.nan, 1.5], "at": [NOON, NOON]}),
    pd.DataFrame({"x": [3.0], "at": [NOON], "key": ["c"], "n": [3]}),
    pd.DataFrame({"key": ["d"], "n": [4.0], "x": [4], "at": [NOON]}),
    pd.DataFrame({"key": ["e"], "n": pd.array([None], dtype="Int64"), "x": [5.0], "at": [NOON]}),
    pd.DataFrame({"key": pd.Categorical(["f"]), "n": np.array([6], np.int8), "x": [6.0], "at": [NOON]}),
    pd.DataFrame({0: ["g"], 1: [7], 2: [7.0], 3: [NOON]}),
    pd.DataFrame(index=range(2)),
]
PLAIN = pa.schema({"key": pa.string(), "n": pa.int64(), "x": pa.float64()})


def together(frames, schema):
    return to_arrow(joined_frames([FrameArrays.of(frame) for frame in frames]), schema, "UTC")


def test_frames_of_every_layout_give_the_rows_that_they_give_alone():
    alone = pa.concat_tables([to_arrow([frame], SCHEMA, "UTC") for frame in FRAMES])
    assert together(FRAMES, SCHEMA).equals(alone)
    assert together(FRAMES * 3, SCHEMA).equals(pa.concat_tables([alone] * 3))


def test_frames_of_numpy_columns_are_joined_if_their_layout_is_equal():
    frames = [frame.drop(columns="at") for frame in FRAMES[:4]]
    alone = pa.concat_tables([to_arrow([frame], PLAIN, "UTC") for frame in frames])
    assert together(frames, PLAIN).equals(alone)
    joined = list(joined_frames([FrameArrays.of(frame) for frame in [*frames[:2], *frames]]))
    assert [len(frame) for frame in joined] == [6, 1, 1]  # other order of columns, other dtypes


def test_a_frame_may_change_after_it_was_added():
    frame = pd.DataFrame({"key": ["a"], "n": [1], "x": [1.0]})
    kept = FrameArrays.of(frame)
    frame.loc[0, "n"] = 99
    frame["key"] = "z"
    [found] = joined_frames([kept])
    assert found.to_dict("records") == [{"key": "a", "n": 1, "x": 1.0}]


ROWS = [
    Row(key="a", n=1, x=1.0),
    Row(key="b", n=None, x=2.0),
    Row("key", "n", "x")("c", 3),  # fewer values than names
    Row(n=4, key="d"),
    Row(key="e", n=5, x=5.0, more="left out"),
    Row("key", "n", "n")("f", 0, 6),  # the last of equal names counts
    Row(key="g", n=7, x=7.0),
]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:3], ROWS[3:4] * 2, ROWS[5:6]], ids=["mixed", "alike", "lacking", "twice"])
def test_rows_are_matched_by_name_and_keep_their_order(rows):
    outputs = Outputs(PLAIN, "UTC")
    for row in rows:
        outputs.add_row(row, Call("f", 0))
    expected = dicts_to_arrow([row.asDict(recursive=True) for row in rows], PLAIN)
    assert pa.Table.from_batches(list(outputs.taken()), PLAIN).equals(expected)


def test_rows_without_names_in_common_are_null():
    assert named_rows_to_arrow([(1,), (2,)], ["other"], PLAIN).to_pylist() == [{"key": None, "n": None, "x": None}] * 2


def test_a_row_that_does_not_fit_is_named_with_its_call():
    outputs = Outputs(
        PLAIN, "UTC", wrong_result=lambda call, error: InvalidArgumentError(f"{call.fingerprint}: {error}")
    )
    outputs.add_row(Row(key="a", n=1), Call("f", 1))
    outputs.add_row(Row(key="b", n="many"), Call("f", 2))
    with pytest.raises(InvalidArgumentError, match=r"^2: column 'n'"):
        list(outputs.taken())
