# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""A query goes on with other schemas of its state: earlier values are read by the names of their fields."""

import sys
from unittest import mock

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructType

from equipoise import FencedError, InvalidArgumentError, MismatchError, failpoints
from equipoise.spark import Aggregator, LocalQuery, VectorProcessor, read_state
from equipoise.state.fencing import Epoch
from equipoise.state.state_dump import local_states

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

ROWS = pa.schema({"k": pa.string(), "v": pa.int64()})
REPORTED = pa.schema({"k": pa.string(), "reported": pa.string()})
WORD = StructType().add("word", StringType())
FIRST = StructType().add("n", IntegerType()).add("name", StringType())
ADDED = StructType().add("n", IntegerType()).add("name", StringType()).add("score", DoubleType())
MOVED = StructType().add("score", DoubleType()).add("n", LongType())
NESTED = StructType().add("n", LongType()).add("inner", MOVED)
RELEASES = [(FIRST, (1, "one")), (ADDED, (2, "two", 0.5)), (MOVED, (1.5, 2**40)), (NESTED, (4, {"n": 5}))]


def frame(*rows):
    return pd.DataFrame(list(rows), columns=["k", "v"])


class Keeper(StatefulProcessor):
    """Says what it finds in value, list and map state, and writes a row to each for the keys with v > 0."""

    def __init__(self, schema, row):
        self.schema = schema
        self.row = row

    def init(self, handle):
        self.value = handle.getValueState("value", self.schema)
        self.items = handle.getListState("items", self.schema)
        self.table = handle.getMapState("table", WORD, self.schema)

    def handleInputRows(self, key, rows, timerValues):
        found = self.value.get(), list(self.items.get()), list(self.table.iterator())
        if sum(frame["v"].sum() for frame in rows) > 0:
            self.value.update(self.row)
            self.items.appendValue(self.row)
            self.table.updateValue((str(len(found[1])),), self.row)
        yield pd.DataFrame({"k": [key[0]], "reported": [repr(found)]})

    def close(self):
        pass


def released(path, release, processor=Keeper, **options):
    return LocalQuery(processor(*RELEASES[release]), "k", ROWS, REPORTED, str(path), **options)


def reported(query, *rows):
    return dict(query.process(frame(*rows)).to_numpy().tolist())


def test_each_release_reads_what_earlier_ones_have_written(tmp_path):
    with released(tmp_path, 0) as query:
        reported(query, ("old", 1), ("new", 1))
        first = query.state()
    with released(tmp_path, 1) as query:
        found = reported(query, ("old", 0), ("new", 1))
        assert found["old"] == "((1, 'one', None), [(1, 'one', None)], [(('0',), (1, 'one', None))])"
    with released(tmp_path, 2) as query:
        found = reported(query, ("old", 0), ("new", 1))
        assert found["old"] == "((None, 1), [(None, 1)], [(('0',), (None, 1))])"
        assert found["new"] == "((0.5, 2), [(None, 1), (0.5, 2)], [(('0',), (None, 1)), (('1',), (0.5, 2))])"
        last = {
            "value": (1.5, 2**40),
            "items": [(None, 1), (0.5, 2), (1.5, 2**40)],
            "table": {("0",): (None, 1), ("1",): (0.5, 2), ("2",): (1.5, 2**40)},
        }
        assert query.state()[("new",)] == last
        assert query.state(version=1) == first
    states = {row.pop(""): row for _, row in local_states(str(tmp_path))}
    assert states[("new",)] == {**last, "table": list(last["table"].items())}
    earlier = {row.pop(""): row for _, row in local_states(str(tmp_path), version=1)}
    assert earlier[("old",)] == {"value": (1, "one"), "items": [(1, "one")], "table": [(("0",), (1, "one"))]}


def test_a_narrower_release_is_refused_and_changes_nothing(tmp_path):
    with released(tmp_path, 2) as query:
        reported(query, ("a", 1))
    with pytest.raises(MismatchError, match=r"'value' .* value.n was long and is integer; declare it as before"):
        released(tmp_path, 1)
    with released(tmp_path, 2) as query:
        assert reported(query, ("a", 0))["a"] == f"((1.5, {2**40}), [(1.5, {2**40})], [(('0',), (1.5, {2**40}))])"


def test_a_record_of_another_release_that_came_first_is_not_gone_on_from(tmp_path, monkeypatch):
    """Two releases that each change a schema would give both changes the same number."""
    with released(tmp_path, 0) as query:
        reported(query, ("a", 1))
    first, second = released(tmp_path, 1), released(tmp_path, 2)
    real, checks = Epoch.check, []

    def late(epoch):
        """Find out on the second look that another query has taken over."""
        checks.append(epoch)
        if len(checks) > 1:
            real(epoch)

    def meanwhile(point):
        if point == "driver.before-commit":
            failpoints.watchers.remove(meanwhile)
            with mock.patch.object(Epoch, "check", late), pytest.raises(FencedError):
                first.process(frame(("a", 1)))

    monkeypatch.setattr(failpoints, "watchers", [meanwhile])
    for _ in range(2):
        with pytest.raises(MismatchError, match="start this query again"):
            second.process(frame(("a", 1)))
    third = released(tmp_path, 2)
    third.process(frame(("a", 1)))  # the batch of the first query, which was not delivered
    third.process(frame(("a", 1)))
    assert third.state()[("a",)]["items"] == [(None, 1), (0.5, 2), (1.5, 2**40)]


class Total(Aggregator):
    """A sum, with a buffer of the given schema; fields beyond the sum count what has been added since."""

    def __init__(self, schema):
        self.bufferSchema = schema

    def zero(self):
        return (0,) * len(self.bufferSchema)

    def reduce(self, buffer, rows):
        return tuple((each or 0) + int(rows["v"].sum()) for each in buffer)

    def merge(self, one, other):
        return tuple((a or 0) + (b or 0) for a, b in zip(one, other, strict=True))

    def finish(self, key, buffer):
        return (*key, repr(buffer))


def test_the_buffer_of_an_aggregator_evolves(tmp_path):
    def started(**fields):
        schema = StructType()
        for name, kind in fields.items():
            schema = schema.add(name, kind())
        return LocalQuery(Total(schema), "k", ROWS, REPORTED, str(tmp_path))

    with started(total=IntegerType) as query:
        assert reported(query, ("a", 1), ("b", 1)) == {"a": "(1,)", "b": "(1,)"}
    with started(since=LongType, total=LongType) as query:
        assert reported(query, ("a", 2)) == {"a": "(2, 3)"}
        assert query.state() == {("a",): {"buffer": (2, 3)}, ("b",): {"buffer": (None, 1)}}


class VectorTotal(VectorProcessor):
    def __init__(self, schema):
        self.stateSchema = schema

    def process(self, batch):
        known = [pc.fill_null(batch.state.column(name), 0) for name in batch.state.column_names]
        more = batch.rows.group_by("k", use_threads=False).aggregate([("v", "sum")]).column("v_sum")
        batch.update(pa.table([pc.add(column, more) for column in known], names=batch.state.column_names))
        return pa.table({"k": batch.keys.column("k"), "reported": [repr(row) for row in batch.updated.to_pylist()]})


def test_the_state_of_a_vectorised_processor_evolves(tmp_path):
    schemas = [StructType().add("total", LongType()), StructType().add("since", LongType()).add("total", LongType())]
    for schema, expected in zip(schemas, ["{'total': 2}", "{'since': 2, 'total': 4}"], strict=True):
        with LocalQuery(VectorTotal(schema), "k", ROWS, REPORTED, str(tmp_path)) as query:
            assert reported(query, ("a", 2), ("b", 1))["a"] == expected
            reported(query, ("b", 1))
    assert query.state() == {("a",): {"state": (2, 4)}, ("b",): {"state": (2, 4)}}


class Nesting(Keeper):
    """Says the types as well."""

    def handleInputRows(self, key, rows, timerValues):
        found = self.value.get()
        if found is None:
            self.value.update(self.row)
        yield pd.DataFrame({"k": [key[0]], "reported": [repr(found)]})


def test_a_struct_that_is_added_is_null_and_then_a_row(tmp_path):
    with released(tmp_path, 0, Nesting) as query:
        reported(query, ("a", 1))
    with released(tmp_path, 3, Nesting) as query:
        assert reported(query, ("a", 1), ("b", 1)) == {"a": "(1, None)", "b": "None"}
        assert reported(query, ("b", 1)) == {"b": repr((4, Row(score=None, n=5)))}


def test_the_state_of_each_version_is_read_on_spark(tmp_path, spark):
    for release in (0, 2):
        with released(tmp_path, release) as query:
            reported(query, ("old", 1 - release), ("new", 1))
    [old] = read_state(str(tmp_path), spark=spark).where("k = 'old'").collect()
    assert (old.value, old["items"], old.table) == ((None, 1), [(None, 1)], {Row(word="0"): (None, 1)})
    [before] = read_state(str(tmp_path), 1, spark=spark).where("k = 'old'").collect()
    assert before.value == Row(n=1, name="one")


AVRO = {"spark__sql__streaming__stateStore__encodingFormat": "avro"}


def test_releases_give_what_spark_gives_with_avro(feed, ours, sparks, conf):
    source, schema = feed("k string, v long"), "k string, reported string"
    with conf(**AVRO):
        for release in range(3):
            source.add([("old", int(release == 0)), ("new", 1)])
            mine = ours(source.stream(), "k", Keeper(*RELEASES[release]), schema)
            theirs = sparks(source.stream(), "k", Keeper(*RELEASES[release]), schema)
            assert mine.batches == theirs.batches
        assert [row.reported.count("None") for row in mine.rows] == [2, 3]
        with pytest.raises(InvalidArgumentError, match=r"'value' has fields that are not nullable \(n\)"):
            ours(source.stream(), "k", Keeper(StructType().add("n", LongType(), False), (1,)), schema)
