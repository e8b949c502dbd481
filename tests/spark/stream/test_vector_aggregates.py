"""A vectorised aggregator gives what a plain loop gives, whether rows are combined or not, in one row for each key."""

import math
import sys
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, DoubleType, LongType, StringType, StructField, StructType

from equipoise import InvalidArgumentError, UserFunctionError
from equipoise.spark import LocalQuery, VectorAggregator, batch_log, read_state
from equipoise.spark.rows.column_aggregator import Aggregate, ColumnAggregator
from equipoise.spark.rows.column_vectors import ColumnVectors
from equipoise.spark.rows.vector_aggregator import merged

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules


class Slowest(VectorAggregator):
    bufferSchema = "n long, ms long"  # noqa: N815 - as Spark names schemas

    def reduce(self, rows, offsets):
        ms = rows["ms"].to_numpy()
        if (ms < 0).any():
            raise ValueError("negative")
        return pa.table({"n": np.diff(offsets), "ms": np.maximum.reduceat(ms, offsets[:-1])})

    def merge(self, one, other):
        return pa.table({"n": pc.add(one["n"], other["n"]), "ms": pc.max_element_wise(one["ms"], other["ms"])})

    def finish(self, keys, buffers):
        return keys.append_column("n", buffers["n"]).append_column("ms", buffers["ms"])


def query(**options):
    return LocalQuery(Slowest(), "k", "k string, ms long", "k string, n long, ms long", **options)


def expected(known, keys, values):
    for key, value in zip(keys, values, strict=True):
        known.setdefault(key, []).append(value)
    return sorted(((key, len(known[key]), max(known[key])) for key in set(keys)), key=repr)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 99)), max_size=60), max_size=3),
    st.integers(1, 20),
    st.sampled_from(["auto", "always", "never"]),
)
def test_each_key_is_delivered_once_a_batch_as_in_a_plain_loop(batches, records, combine):
    known = {}
    with query(batchRows=records, combine=combine, numPartitions=2, tailGroups=4) as running:
        for rows in batches:
            keys, values = [key for key, _ in rows], [value for _, value in rows]
            table = pa.table({"k": pa.array(keys, pa.string()), "ms": pa.array(values, pa.int64())})
            found = running.process_arrow(table).to_pylist()
            assert sorted((tuple(row.values()) for row in found), key=repr) == expected(known, keys, values)
        state = {key[0]: row["buffer"] for key, row in running.state().items()}
    assert state == {key: (len(values), max(values)) for key, values in known.items()}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_buffers_are_merged_in_pairs_until_each_key_has_one(counts):
    offsets = np.concatenate([[0], np.cumsum(counts)])
    given = pa.table({"n": [1] * int(offsets[-1]), "ms": list(range(int(offsets[-1])))})
    assert merged(Slowest(), given, offsets).to_pylist() == [
        {"n": count, "ms": int(end) - 1} for count, end in zip(counts, offsets[1:], strict=True)
    ]


KINDS = {"l": LongType(), "d": DoubleType(), "c": DecimalType(38, 2), "s": StringType()}
VALUES = st.tuples(
    st.none() | st.integers(-99, 99),
    st.none() | st.sampled_from([math.nan, 0.5, -2.0, 7.0]),
    st.none() | st.integers(-(10**9), 10**9).map(lambda value: Decimal(value).scaleb(-2)),
    st.none() | st.text("aé\x00", max_size=2),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(VALUES, min_size=1, max_size=5), min_size=1, max_size=6), st.integers(0, 6))
def test_columns_are_merged_and_finished_as_one_by_one(groups, split):
    schema = StructType([StructField("k", LongType()), *(StructField(name, kind) for name, kind in KINDS.items())])
    numbers = [(function, name) for name in "ldc" for function in ("count", "sum", "min", "max", "avg")]
    asked = [("count", None), *numbers, ("min", "s"), ("max", "s")]
    single = ColumnAggregator([Aggregate(*each, f"r{at}") for at, each in enumerate(asked)], schema)
    vectors = ColumnVectors(single)
    arrow = [pa.int64(), pa.float64(), pa.decimal128(38, 2), pa.string()]
    columns = zip(*(row for group in groups for row in group), strict=True)
    rows = pa.table([pa.array(column, kind) for column, kind in zip(columns, arrow, strict=True)], names=list(KINDS))
    offsets = np.cumsum([0, *map(len, groups)])
    made = vectors.reduce(rows, offsets)
    place = np.roll(np.arange(len(groups)), split)
    keys = pa.table({"k": range(len(groups))})
    found = vectors.finish(keys, vectors.merge(made, made.take(pa.array(place)))).to_pylist()
    parts = [rows.slice(first, last - first) for first, last in pairwise(offsets)]
    buffers = [single.reduce(single.zero(), part) for part in parts]
    wanted = [single.finish((at,), single.merge(buffers[at], buffers[place[at]])) for at in range(len(groups))]
    assert [repr(_plain(row.values())) for row in found] == [repr(_plain(row)) for row in wanted]


def _plain(values):
    return [each.normalize() + 0 if isinstance(each, Decimal) else each for each in values]


def test_errors_name_the_class_and_what_to_do():
    with (
        query() as running,
        pytest.raises(UserFunctionError, match=r"^ValueError in Slowest.*: negative\n.* for 1 key"),
    ):
        running.process_arrow(pa.table({"k": ["a"], "ms": [-1]}))

    class Short(Slowest):
        def reduce(self, rows, offsets):
            return super().reduce(rows, offsets).select(["n"])

    running = LocalQuery(Short(), "k", "k string, ms long", "k string, n long, ms long", combine="never")
    with running, pytest.raises(UserFunctionError, match=r"reduce gave 1 row with the columns \['n'\] for 1 key; give"):
        running.process_arrow(pa.table({"k": ["a"], "ms": [1]}))


@pytest.mark.parametrize("combine", ["always", "never"])
def test_on_spark_too(feed, ours, spark, combine):
    batches = [[(f"k{number % 7}" if number % 5 else "hot", number + at) for number in range(300)] for at in range(3)]
    source = feed("k string, ms long", *batches)
    ours(source.stream(), "k", Slowest(), "k string, n long, ms long", 4, combine=combine)
    wanted = source.table().groupBy("k").agg(F.count("*"), F.max("ms")).collect()
    found = read_state(ours.checkpoint, spark=spark).selectExpr("k", "buffer.n", "buffer.ms").collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, wanted))
    log = batch_log(ours.checkpoint, spark=spark).rows
    assert [(row["rows"], row["keys"]) for row in log] == [(300, 8)] * 3
    assert all((row["combined_rows"] == 300) == (combine == "always") for row in log)
    assert all(row["sent_rows"] < 50 if combine == "always" else row["sent_rows"] == 300 for row in log)


def test_it_has_no_append_mode(feed, keyed):
    stream = feed("k timestamp, ms long").stream().withWatermark("k", "1 second")
    made = keyed(stream, "k", Slowest(), "k timestamp, n long, ms long")
    with pytest.raises(InvalidArgumentError, match="Slowest is a VectorAggregator, which has no timers"):
        made.writeStream.outputMode("append").format("noop").option("checkpointLocation", "unused").start()
