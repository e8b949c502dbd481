# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""What becomes of a batch when user code or the sink fails, and of every type of output."""

import datetime as dt
import re
import shutil
import sys
import uuid
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from equipoise import LogBrokenError, UserFunctionError
from equipoise.spark import batch_log, read_state
from equipoise.spark.stream import jobs, sinks
from equipoise.spark.stream.placement import RowPlacement

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

OUT = "k string, n long, id string"


class Random(StatefulProcessor):
    """Counts, and gives every output a new name."""

    def __init__(self, poison=None):
        self.poison = poison

    def init(self, handle):
        self.n = handle.getValueState("n", "n long")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.n.get() or (0,))[0]
        for frame in rows:
            if (frame["v"] == self.poison).any():
                raise ValueError("this row is poison")
            n += len(frame)
        self.n.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n], "id": [uuid.uuid4().hex]})

    def close(self):
        pass


class FailingOnce:
    """A sink that fails after it was given a batch."""

    def __init__(self, batch):
        self.batch = batch
        self.given = []

    def __call__(self, df, batch):
        self.given.append((batch, sorted(map(tuple, df.collect()))))
        if batch == self.batch and [each for each, _ in self.given].count(batch) == 1:
            raise OSError("the sink is full")


def test_a_sink_that_failed_is_given_the_same_rows_again(feed, ours):
    source = feed("k string, v int", [("a", 1), ("b", 2)], [("a", 3)], [("b", 4)])
    sink = FailingOnce(1)
    with pytest.raises(UserFunctionError, match=r"^OSError in the sink .*: the sink is full"):
        ours(source.stream(), "k", Random(), OUT, sink=sink)
    ours(source.stream(), "k", Random(), OUT, sink=sink)
    batches, rows = zip(*sink.given, strict=True)
    assert batches == (0, 1, 1, 2)
    assert rows[1] == rows[2]
    assert [row[:2] for row in rows[3]] == [("b", 2)]


def test_a_committed_batch_that_spark_runs_again_is_delivered_not_computed(feed, ours, spark):
    source = feed("k string, v int", [("a", 1), ("b", 2)], [("a", 3)])
    first = ours(source.stream(), "k", Random(), OUT)
    for name in (f"{ours.checkpoint}/spark/commits/1", f"{ours.checkpoint}/spark/commits/.1.crc"):
        Path(name).unlink(missing_ok=True)  # Spark died before it knew that the batch was done
    source.add([("a", 5)])
    second = ours(source.stream(), "k", Random(), OUT)
    assert second.calls == [1, 2]
    assert second.batches[1] == first.batches[1]
    assert {row.k: row.n.n for row in read_state(ours.checkpoint, spark=spark).collect()} == {"a": 3, "b": 1}
    assert [row.rows for row in batch_log(ours.checkpoint, spark=spark).dataframe().orderBy("batch").collect()] == [
        2,
        1,
        1,
    ]


@pytest.mark.parametrize("how", ["corrupt", "missing"])
def test_a_lost_output_is_not_passed_over_even_if_the_session_says_so(feed, ours, conf, how):
    lost = []

    def damaging(df, _):
        [path] = [Path(name.removeprefix("file://")) for name in df.inputFiles()]
        lost.append(path.name)
        if how == "corrupt":
            path.write_bytes(b"rubbish")
        else:
            path.unlink()
        df.collect()

    source = feed("k string, v int", [("a", 1)])
    ignoring = conf(spark__sql__files__ignoreCorruptFiles="true", spark__sql__files__ignoreMissingFiles="true")
    with ignoring, pytest.raises(UserFunctionError) as failure:
        ours(source.stream(), "k", Random(), OUT, 1, sink=damaging)
    assert lost[0] in str(failure.value)


def test_a_placement_serves_all_batches_of_its_plan(feed, ours, monkeypatch):
    made = []
    monkeypatch.setattr(jobs, "RowPlacement", lambda *args, **more: made.append(args) or RowPlacement(*args, **more))
    source = feed("k string, v int", [("a", 1), ("b", 2)], [("a", 3)], [("c", 4)])
    sink = ours(source.stream(), "k", Random(), OUT, placement="hash")
    assert [row[:2] for row in sink.rows] == [("a", 1), ("b", 1), ("a", 2), ("c", 1)]
    assert len(made) == 1


def test_user_code_that_failed_can_be_mended(feed, ours, spark):
    source = feed("k string, v int", [("a", 1), ("b", 2)], [("a", 3), ("b", 13)], [("b", 4)])
    key = spark.createDataFrame([("b",)], "k string").select(F.lower(F.hex(F.xxhash64("k")))).first()[0].rjust(16, "0")
    with pytest.raises(UserFunctionError) as failure:
        ours(source.stream(), "k", Random(poison=13), OUT)
    first, second, *trace = str(failure.value).splitlines()
    assert re.fullmatch(
        r"ValueError in Random.handleInputRows \(.*test_redelivery.py, line \d+\): this row is poison", first
    )
    assert second.startswith(
        f"It was called for the key with the fingerprint {key} in batch 1, of which nothing was committed. Correct the"
    )
    assert '    raise ValueError("this row is poison")' in trace
    sink = ours(source.stream(), "k", Random(), OUT)
    assert sink.calls == [1, 2]
    assert {row.k: row.n.n for row in read_state(ours.checkpoint, spark=spark).collect()} == {"a": 2, "b": 3}


def test_two_halves_of_different_times_are_distinguished(feed, ours, tmp_path):
    source = feed("k string, v int", [("a", 1)])
    ours(source.stream(), "k", Random(), OUT)
    shutil.copytree(f"{ours.checkpoint}/spark", tmp_path / "old")
    source.add([("a", 2)], [("a", 3)])
    ours(source.stream(), "k", Random(), OUT)
    shutil.rmtree(f"{ours.checkpoint}/spark")
    shutil.copytree(tmp_path / "old", f"{ours.checkpoint}/spark")
    with pytest.raises(
        LogBrokenError, match=r"Spark's half is older than the log: .*batch 2, .*after 0; .*from one copy"
    ):
        ours(source.stream(), "k", Random(), OUT)


TYPES = {
    "y byte": 1,
    "s short": 2,
    "i int": 3,
    "l long": 2**40,
    "f float": 0.5,
    "d double": 1e300,
    "c decimal(20,3)": Decimal("12345678901234567.125"),
    "z boolean": True,
    "t string": "text",
    "x binary": b"\0\1",
    "day date": dt.date(1969, 7, 20),
    "moment timestamp": dt.datetime(2024, 7, 1, 12, 0, 0, 123456),  # noqa: DTZ001 - as Spark gives it
    "wall timestamp_ntz": dt.datetime(1900, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001 - it has no zone
    "span interval day to second": dt.timedelta(days=1, microseconds=5),
    "list array<int>": [1, None, 3],
    "pairs map<string, int>": {"a": 1, "b": None},
    "nested struct<a: int, b: array<struct<c: string>>>": {"a": 1, "b": [{"c": "x"}]},
}


class AllTypes(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        for _ in rows:
            pass
        names = [name.split()[0] for name in TYPES]
        values = list(TYPES.values())
        nothing = [None] * len(values)
        yield pd.DataFrame(dict(zip(names, zip(values, nothing, strict=True), strict=True)))
        yield pd.DataFrame({name: pd.Series([None], dtype=object) for name in names})

    def close(self):
        pass


def test_outputs_of_every_type_arrive(feed, ours):
    sink = ours(feed("k string, v int", [("a", 1)]).stream(), "k", AllTypes(), ", ".join(TYPES))
    rows = [row.asDict(recursive=True) for row in sink.rows]
    full = [row for row in rows if row["y"] is not None]
    assert full == [{name.split()[0]: value for name, value in TYPES.items()}]
    assert len(rows) == 3
    assert all(set(row.values()) == {None} for row in rows if row["y"] is None)


def test_parquet_files_have_the_schema_of_the_output_for_every_type(feed, ours, spark, tmp_path):
    """Also for what Spark writes in a way of its own: intervals, times without a zone, and small integers."""
    schema = ", ".join(TYPES)
    source = feed("k string, v int", [("a", 1)], [("b", 2)])
    sink = sinks.parquet(str(tmp_path / "out"))
    ours(source.stream(), "k", AllTypes(), schema, sink=sink)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.schema == spark.createDataFrame([], schema).schema
    rows = [row.asDict(recursive=True) for row in found.collect()]
    full = [row for row in rows if row["y"] is not None]
    assert full == [{name.split()[0]: value for name, value in TYPES.items()}] * 2
    assert len(rows) == 6
    assert {path.parent for path in (tmp_path / "out").rglob("*.parquet")} == {tmp_path / "out"}


class WrongOutput(AllTypes):
    def __init__(self, frame):
        self.frame = frame

    def handleInputRows(self, key, rows, timerValues):
        yield self.frame


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (
            pd.DataFrame({"k": ["a"]}),
            r"the function yielded columns \['k'\], but the output schema has .*: n is missing",
        ),
        (
            pd.DataFrame({"k": ["a"], "n": ["x"]}),
            "column 'n' that the function yielded does not fit .*int64",
        ),
        ([("a", 1)], "it must yield pandas DataFrames, got a list"),
    ],
    ids=["missing", "wrong type", "no frame"],
)
def test_outputs_that_do_not_fit_are_described(feed, ours, frame, said):
    with pytest.raises(UserFunctionError, match=f"^WrongOutput.handleInputRows gave a wrong result: {said}"):
        ours(feed("k string, v int", [("a", 1)]).stream(), "k", WrongOutput(frame), "k string, n long", 1)
