"""``balance`` stands where ``df.groupBy`` stood: same methods, same signatures, same results, nothing read before."""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType
from pyspark.testing.utils import assertDataFrameEqual

from equipoise import InvalidArgumentError, uniform_plan
from equipoise.adapt import Elastic, Policy
from equipoise.spark import BalancedGroups, balance


@pytest.fixture(scope="module")
def df(spark):
    rng = np.random.default_rng(5)
    data = pd.DataFrame({"k": np.minimum(rng.zipf(1.4, 3000), 100), "c": rng.integers(0, 3, 3000), "v": range(3000)})
    return spark.createDataFrame(data).cache()


SHARED = ("applyInPandas", "applyInArrow", "agg", "count", "sum", "avg", "mean", "min", "max", "pivot", "cogroup")
STREAM_ONLY = ("applyInPandasWithState", "process")


@pytest.mark.parametrize("name", SHARED)
def test_methods_have_the_signatures_of_pyspark(name):
    def parameters(owner):
        found = inspect.signature(getattr(owner, name)).parameters.values()
        return [(each.name, each.kind, each.default) for each in found]

    assert parameters(BalancedGroups) == parameters(GroupedData)


def test_every_public_method_of_grouped_data_is_there():
    public = {name for name, value in vars(GroupedData).items() if not name.startswith("_") and callable(value)}
    public |= {name for base in GroupedData.__mro__ for name in vars(base) if not name.startswith("_")} - {"apply"}
    methods = {name for name in public if callable(getattr(GroupedData, name))}
    assert methods - {"apply"} <= set(dir(BalancedGroups))  # apply is deprecated since Spark 3.0


AGGREGATES = {
    "agg of columns": lambda g: g.agg(F.sum("v").alias("s"), F.count("*").alias("n")),
    "agg of a dict": lambda g: g.agg({"v": "max", "*": "count"}),
    "count": lambda g: g.count(),
    "sum": lambda g: g.sum("v", "c"),
    "sum of all": lambda g: g.sum(),
    "avg": lambda g: g.avg("v"),
    "mean": lambda g: g.mean("v"),
    "min": lambda g: g.min("v"),
    "max": lambda g: g.max("v"),
    "pivot": lambda g: g.pivot("c", [0, 1, 2]).sum("v"),  # noqa: PD010 - Spark's, not that of pandas
    "pivot without values": lambda g: g.pivot("c").count(),  # noqa: PD010 - as above
}


@pytest.mark.parametrize("name", AGGREGATES)
def test_built_in_aggregates_are_those_of_spark_and_measure_nothing(df, name):
    groups = balance(df, "k", numPartitions=5)
    ours, theirs = AGGREGATES[name](groups), AGGREGATES[name](df.groupBy("k"))
    assert ours.columns == theirs.columns
    assertDataFrameEqual(ours, theirs)
    assert not groups._look.is_done
    assert groups._operations == [
        (name.split()[0], "handed to Spark, which combines before the shuffle; the plan is not used")
    ]


@F.pandas_udf(DoubleType())
def middle(values: pd.Series) -> float:
    return float(values.median())


def test_a_python_aggregate_is_placed_by_the_plan(df):
    groups = balance(df, "k", numPartitions=5)
    ours = groups.agg(middle("v").alias("m"))
    assert "keys placed by the plan of kip" in groups._operations[0][1]
    assert "hashpartitioning" not in plan_of(ours)
    assertDataFrameEqual(ours, df.groupBy("k").agg(middle("v").alias("m")))


def test_a_built_in_aggregate_over_a_python_one_is_handed_to_spark(df):
    medians = df.groupBy("k", "c").agg(middle("v").alias("m"))
    groups = balance(medians, "k", numPartitions=5)
    assertDataFrameEqual(groups.agg(F.max("m")), medians.groupBy("k").agg(F.max("m")))
    assert "handed to Spark" in groups._operations[0][1]


def plan_of(df):
    return df._jdf.queryExecution().toString()


def pandas_batches(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for pdf in batches:
        yield pd.DataFrame({"n": [len(pdf)], "s": [int(pdf["v"].sum())]})


def keyed_pandas_batches(key: tuple[Any, ...], batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for pdf in batches:
        assert (pdf["k"] == key[0]).all()
        yield pd.DataFrame({"n": [len(pdf)], "s": [int(pdf["v"].sum())]})


def arrow_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"n": [batch.num_rows], "s": [sum(batch.column("v").to_pylist())]})


def keyed_arrow_batches(key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        assert set(batch.column("k").to_pylist()) == {key[0].as_py()}
        yield pa.RecordBatch.from_pydict({"n": [batch.num_rows], "s": [sum(batch.column("v").to_pylist())]})


@pytest.mark.parametrize(
    ("method", "function"),
    [
        ("applyInPandas", pandas_batches),
        ("applyInPandas", keyed_pandas_batches),
        ("applyInArrow", arrow_batches),
        ("applyInArrow", keyed_arrow_batches),
    ],
    ids=["pandas", "pandas with key", "arrow", "arrow with key"],
)
def test_iterator_forms_give_the_same(df, method, function):
    ours = getattr(balance(df, "k", numPartitions=5), method)(function, "n long, s long")
    theirs = getattr(df.groupBy("k"), method)(function, "n long, s long")
    assertDataFrameEqual(ours, theirs)


@pytest.mark.parametrize("make", [lambda d: d, lambda d: d.groupBy("k"), lambda d: balance(d, "k")])
def test_a_cogroup_takes_groups_of_spark_and_of_balance(df, make):
    other = df.where("v % 3 = 0").select("k", "v")

    def sizes(left, right):
        return pd.DataFrame({"a": [len(left)], "b": [len(right)]})

    ours = balance(df, "k", numPartitions=5).cogroup(make(other)).applyInPandas(sizes, "a long, b long")
    theirs = df.groupBy("k").cogroup(other.groupBy("k")).applyInPandas(sizes, "a long, b long")
    assertDataFrameEqual(ours, theirs)


def test_a_cogroup_refuses_what_it_cannot_place(df):
    with pytest.raises(InvalidArgumentError, match=r"grouped by 'digit', which is computed; use balance\(df"):
        balance(df, "k").cogroup(df.groupBy((F.col("k") % 10).alias("digit")))
    with pytest.raises(InvalidArgumentError, match=r"grouped by 'k', which is computed; use balance\(df"):
        balance(df, "k").cogroup(df.groupBy((F.col("k") % 10).alias("k")))
    with pytest.raises(InvalidArgumentError, match="or a DataFrame, got str"):
        balance(df, "k").cogroup("k")


def test_nothing_is_read_before_a_terminal_method_is_called(spark, jobs):
    fails = spark.range(10).select(F.expr("raise_error('was read')").cast("int").alias("k"), "id")
    with jobs() as started:
        groups = balance(fails, "k", F.upper(F.col("id").cast("string")), numPartitions=4, weight="id")
        groups.agg(F.count("*"))
        groups.count()
        groups.sum("id")
        groups.cogroup(groups)
        assert repr(groups) == "BalancedGroups[key: k, upper(CAST(id AS STRING)), numPartitions: 4]"
        assert "not made yet" in groups._repr_html_()
    assert started == []


def test_the_loads_are_measured_once_for_all_operations(df, monkeypatch):
    from equipoise.spark.batch import look

    calls = []
    take = look.take_sample
    monkeypatch.setattr(look, "take_sample", lambda *given: calls.append(given) or take(*given))
    groups = balance(df, "k", numPartitions=5)
    assert calls == []
    groups.applyInPandas(lambda pdf: pdf, df.schema)
    groups.dataframe()
    groups.explain()
    assert groups.plan is groups.plan
    assert len(calls) == 1


@pytest.mark.parametrize(
    "options",
    [{"placement": "hash"}, {"policy": Policy(mode="advise")}, {"policy": Policy(mode="observe")}],
    ids=["hash", "advise", "observe"],
)
def test_rows_may_be_left_to_the_hash_of_spark(df, jobs, options, capsys):
    groups = balance(df, "k", numPartitions=5, **options)

    def sizes(pdf):
        return pd.DataFrame({"n": [len(pdf)]})

    with jobs() as started:
        ours = groups.applyInPandas(sizes, "n long")
        groups.dataframe()
        groups.window()
        groups.cogroup(df).applyInPandas(lambda left, _: left, df.schema)
        plan = groups.plan
    makes_plan = groups._options.makes_plan
    assert (plan is not None) == makes_plan
    assert bool(started) == makes_plan
    assert "__equipoise" not in plan_of(ours)
    assert len(re.findall(r"Exchange hashpartitioning\(k#\d+L, 5\)", plan_of(ours))) >= 1
    assertDataFrameEqual(ours, df.groupBy("k").applyInPandas(sizes, "n long"))
    groups.explain()
    assert "left to Spark's hash" in capsys.readouterr().out
    assert (groups.advice is not None) == makes_plan
    with pytest.raises(InvalidArgumentError, match="left to Spark's hash"):
        groups.partition  # noqa: B018 - the property raises


@pytest.mark.parametrize("name", STREAM_ONLY)
def test_methods_of_streams_are_refused_by_name(df, name):
    with pytest.raises(
        InvalidArgumentError, match=f"{name} keeps state .* with spark.readStream, or use transformWithState"
    ):
        getattr(balance(df, "k"), name)(None, "n long")


def test_the_deprecated_apply_is_refused_with_the_way_out(df):
    with pytest.raises(InvalidArgumentError, match=r"Spark has deprecated; .*applyInPandas\(func, schema\)"):
        balance(df, "k").apply(lambda frame: frame)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((), "the key has no column; name at least one"),
        (("k", 16), "16 is a number, not a key column; for the number of partitions write numPartitions=16"),
        ((F.rand,), "a key column is a name or a Column, got function"),
        (("typo",), "there is no column `typo` for the key; there are k, c, v"),
    ],
)
def test_a_bad_key_is_refused(df, key, message):
    with pytest.raises(InvalidArgumentError, match=message):
        balance(df, *key)
    with pytest.raises(InvalidArgumentError, match="not deterministic"):
        balance(df, "k", F.rand())


STREAM_OPTIONS = {
    "elastic": Elastic(1, 4),
    "orderBy": "v",
    "targetSeconds": 2.0,
    "tailGroups": 64,
    "combine": "never",
    "cache": "folder",
    "cacheBytes": 1 << 30,
    "retain": 3,
}
BATCH_OPTIONS = {"plan": uniform_plan(4), "record": "file", "weight": "value", "sample": 10, "slots": 2, "seed": 0}


@pytest.mark.parametrize("name", STREAM_OPTIONS)
def test_options_of_streams_are_refused_on_a_batch(df, name):
    with pytest.raises(InvalidArgumentError, match=f"{name} is not an option of balance on a batch DataFrame; it has"):
        balance(df, "k", **{name: STREAM_OPTIONS[name]})


@pytest.mark.parametrize("name", BATCH_OPTIONS)
def test_options_of_batches_are_refused_on_a_stream(spark, name):
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InvalidArgumentError, match=f"{name} is not an option of balance on a streaming DataFrame"):
        balance(stream, "value", **{name: BATCH_OPTIONS[name]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"placement": "range"}, "placement must be 'plan' or 'hash', got 'range'"),
        ({"policy": "auto"}, r"policy must be an equipoise.adapt.Policy, for example Policy\(mode='advise'\)"),
        ({"plan": "plan"}, "plan must be an equipoise.Plan, got str"),
        ({"plan": uniform_plan(2), "placement": "hash"}, "plan= is used with placement='plan'"),
        ({"slots": 0}, "slots must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
    ],
)
def test_options_that_cannot_be_are_refused(df, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        balance(df, "k", **options)


def test_key_columns_may_come_in_a_list_as_for_group_by(df):
    assertDataFrameEqual(balance(df, ["k", "c"]).count(), df.groupBy(["k", "c"]).count())


def test_balance_loads_nothing_of_streams():
    code = "import sys; from equipoise.spark import balance; print(*sorted(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = answer.stdout.split()
    ours = {name for name in loaded if name.startswith("equipoise.spark.")}
    assert {name.split(".")[2] for name in ours} == {"_balance", "batch", "rows"}
    assert not [name for name in loaded if name.split(".")[0] in {"lmdb", "grpc", "zstandard", "numba"}]
    assert not [name for name in loaded if name.startswith(("equipoise.microbatch", "equipoise.dashboard"))]
