"""Every operation of ``balance`` gives the result of ``groupBy``, with one exchange."""

import re
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.testing.utils import assertDataFrameEqual

from equipoise import InvalidArgumentError, MismatchError, fingerprint, uniform_plan
from equipoise.adapt import Policy
from equipoise.plan import PLANNERS, Plan
from equipoise.spark import advise, balance
from equipoise.spark.batch.key_loads import FINE_GROUPS
from equipoise.spark.rows.columns import PARTITION

KEYS = {
    "bigint": "CAST(k AS bigint)",
    "int": "k",
    "string": "concat('key ', k)",
    "string with NULL": "if(k < 3, NULL, concat('key ', k))",
    "double": "CASE WHEN k = 1 THEN double('NaN') WHEN k = 2 THEN -0.0D WHEN k = 3 THEN 0.0D ELSE k / 2 END",
    "boolean": "k < 2",
    "binary": "encode(concat('key ', k), 'utf-8')",
    "decimal": "CAST(k AS decimal(30,4))",
    "date": "date_add(DATE'2024-02-28', k)",
    "timestamp": "timestamp_seconds(k * 86400)",
    "struct": "named_struct('a', k, 'b', if(k < 3, NULL, 'x'))",
    "array": "array(k, NULL)",
    "all NULL": "CAST(NULL AS string)",
}


@pytest.fixture(scope="module")
def rows(spark):
    rng = np.random.default_rng(5)
    data = pd.DataFrame({"k": np.minimum(rng.zipf(1.4, 4000), 200), "v": np.arange(4000), "w": rng.random(4000)})
    return spark.createDataFrame(data.astype({"k": "int32"})).cache()


def keyed(rows, name):
    return rows.select(F.expr(KEYS[name]).alias("key"), "v", "w")


def exchanges(df):
    """Exchanges in the physical plan, as it was before adaptive execution copied it."""
    text = df._jdf.queryExecution().executedPlan().toString().split("Initial Plan")[-1]
    return len(re.findall(r"\bExchange ", text))


def summary(pdf):
    """A function of the data alone; fails if it sees a column that is not the user's."""
    assert list(pdf.columns) == ["key", "v", "w"]
    return pd.DataFrame({"n": [len(pdf)], "s": [int(pdf["v"].sum())]})


def keyed_summary(key, pdf):
    assert len(key) == 1
    return summary(pdf).assign(text=str(pdf["v"].min()) + "|" + str(len(key)))


@pytest.mark.parametrize("name", KEYS)
def test_apply_in_pandas_gives_the_same_for_keys_of_any_type(rows, name):
    df = keyed(rows, name)
    ours = balance(df, "key", numPartitions=5).applyInPandas(summary, "n long, s long")
    assertDataFrameEqual(ours, df.groupBy("key").applyInPandas(summary, "n long, s long"))


@pytest.mark.parametrize("planner", PLANNERS)
def test_apply_in_pandas_gives_the_same_under_every_planner(rows, planner):
    df = keyed(rows, "string with NULL")
    ours = balance(df, "key", numPartitions=5, policy=Policy(planner=planner)).applyInPandas(
        keyed_summary, "n long, s long, text string"
    )
    assertDataFrameEqual(ours, df.groupBy("key").applyInPandas(keyed_summary, "n long, s long, text string"))
    assert exchanges(ours) == 1


def quantile(key, pdf, q):
    return pd.DataFrame({"key": [key[0]], "p": [pdf["v"].quantile(q)]})


def bare_quantile(pdf, *, q=0.5):
    return pd.DataFrame({"key": [pdf["key"].iloc[0]], "p": [pdf["v"].quantile(q)]})


@pytest.mark.parametrize("function", [partial(quantile, q=0.9), bare_quantile, partial(bare_quantile, q=0.9)])
def test_arguments_that_are_bound_by_name_are_not_taken_for_the_key(rows, function):
    df = keyed(rows, "int")
    ours = balance(df, "key", numPartitions=5).applyInPandas(function, "key int, p double")
    assertDataFrameEqual(ours, df.groupBy("key").applyInPandas(function, "key int, p double"))


def test_apply_in_pandas_takes_functions_of_iterators(rows):
    from collections.abc import Iterator

    def sums(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for pdf in batches:
            yield summary(pdf)

    df = keyed(rows, "int")
    ours = balance(df, "key", numPartitions=5).applyInPandas(sums, "n long, s long")
    assert ours.agg(F.sum("n")).first()[0] == 4000


@pytest.mark.parametrize("takes_key", [False, True])
def test_apply_in_arrow_gives_the_same(rows, takes_key):
    def one(table):
        assert table.column_names == ["key", "v", "w"]
        return pa.table({"n": [table.num_rows], "k": [None]}, schema=pa.schema([("n", pa.int64()), ("k", pa.string())]))

    def two(key, table):
        return one(table).set_column(1, "k", pa.array([str(len(key)) + str(key[0].as_py())]))

    df, function = keyed(rows, "string with NULL"), two if takes_key else one
    ours = balance(df, "key", numPartitions=5).applyInArrow(function, "n long, k string")
    assertDataFrameEqual(ours, df.groupBy("key").applyInArrow(function, "n long, k string"))
    assert exchanges(ours) == 1


def test_agg_gives_the_same_columns_and_rows(rows):
    df = keyed(rows, "string with NULL")
    expressions = [F.sum("v").alias("s"), F.collect_list("w").alias("l")]
    ours = balance(df, "key", numPartitions=5).agg(*expressions).withColumn("l", F.sort_array("l"))
    theirs = df.groupBy("key").agg(*expressions).withColumn("l", F.sort_array("l"))
    assert ours.columns == theirs.columns
    assertDataFrameEqual(ours, theirs)
    assert exchanges(ours) == 1


def test_windows_give_the_same(rows):
    from pyspark.sql import Window

    df = keyed(rows, "string with NULL")
    handle = balance(df, "key", numPartitions=5)
    ours = handle.dataframe().withColumn("r", F.row_number().over(handle.window().orderBy("v")))
    theirs = df.withColumn("r", F.row_number().over(Window.partitionBy("key").orderBy("v")))
    assert ours.columns == theirs.columns
    assertDataFrameEqual(ours, theirs)
    assert exchanges(ours) == 1


@pytest.mark.parametrize("takes_key", [False, True])
@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_cogroups_give_the_same(rows, takes_key, kind):
    def pandas(left, right):
        assert list(left.columns) == ["key", "v", "w"]
        assert list(right.columns) == ["key", "v"]
        return pd.DataFrame({"a": [len(left)], "b": [len(right)]})

    def arrow(left, right):
        assert left.column_names == ["key", "v", "w"]
        return pa.table({"a": [left.num_rows], "b": [right.num_rows]})

    plain = pandas if kind == "pandas" else arrow
    function = (lambda key, left, right: plain(left, right) if len(key) == 1 else None) if takes_key else plain
    df = keyed(rows, "string with NULL")
    other = df.where("v % 3 = 0").select("key", "v")
    method = "applyInPandas" if kind == "pandas" else "applyInArrow"
    ours = getattr(balance(df, "key", numPartitions=5).cogroup(other), method)(function, "a long, b long")
    theirs = getattr(df.groupBy("key").cogroup(other.groupBy("key")), method)(function, "a long, b long")
    assertDataFrameEqual(ours, theirs)
    assert exchanges(ours) == 2  # one for each side


def test_a_cogroup_with_a_balanced_side_uses_one_plan(rows):
    df = keyed(rows, "int")
    left, right = balance(df, "key", numPartitions=5), balance(df.select("key", "v"), "key", numPartitions=3)
    ours = left.cogroup(right).applyInPandas(lambda a, b: pd.DataFrame({"n": [len(a) - len(b)]}), "n long")
    assert {row.n for row in ours.collect()} == {0}


def test_the_frame_has_its_own_rows_and_columns_on_as_many_partitions_as_asked(rows):
    df = keyed(rows, "string")
    placed = balance(df, "key", numPartitions=7).dataframe()
    assert placed.columns == df.columns
    assertDataFrameEqual(placed, df)
    assert placed.select(F.spark_partition_id()).distinct().count() == 7


def test_several_key_columns_are_one_key(rows):
    df = rows.withColumn("k2", F.col("v") % 3)
    ours = balance(df, "k", "k2", numPartitions=5).agg(F.count("*").alias("n"))
    assertDataFrameEqual(ours, df.groupBy("k", "k2").agg(F.count("*").alias("n")))


def test_a_computed_key_is_grouped_by_its_name(rows):
    ours = balance(rows, (F.col("k") % 10).alias("digit"), numPartitions=5).agg(F.count("*").alias("n"))
    assertDataFrameEqual(ours, rows.groupBy((F.col("k") % 10).alias("digit")).agg(F.count("*").alias("n")))


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.sql.adaptive.enabled": "false"},
        {"spark.sql.adaptive.enabled": "true", "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1g"},
        {"spark.sql.adaptive.forceOptimizeSkewedJoin": "true"},
        {"spark.sql.execution.arrow.maxRecordsPerBatch": "7"},
        {"spark.sql.requireAllClusterKeysForCoPartition": "false"},
    ],
    ids=str,
)
def test_no_setting_of_spark_undoes_the_placement(spark, rows, settings):
    df = keyed(rows, "string with NULL")
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        handle = balance(df, "key", numPartitions=6)
        ours = handle.applyInPandas(summary, "n long, s long")
        assertDataFrameEqual(ours, df.groupBy("key").applyInPandas(summary, "n long, s long"))
        placed = handle.dataframe().select(handle.partition.alias("p"), F.spark_partition_id().alias("at"))
        assert placed.where("p <> at").count() == 0
        ranked = handle.dataframe().withColumn("r", F.row_number().over(handle.window().orderBy("v")))
        both = handle.cogroup(df).applyInPandas(lambda a, b: pd.DataFrame({"n": [len(a) - len(b)]}), "n long")
        assert (exchanges(ours), exchanges(ranked), exchanges(both)) == (1, 1, 2)
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_a_setting_that_makes_spark_shuffle_again_is_warned_of(spark, rows):
    df = keyed(rows, "int")
    spark.conf.set("spark.sql.requireAllClusterKeysForDistribution", "true")
    try:
        with pytest.warns(RuntimeWarning, match="requireAllClusterKeysForDistribution is on"):
            ours = balance(df, "key", numPartitions=6).applyInPandas(summary, "n long, s long")
        assert exchanges(ours) == 2
        assertDataFrameEqual(ours, df.groupBy("key").applyInPandas(summary, "n long, s long"))
    finally:
        spark.conf.unset("spark.sql.requireAllClusterKeysForDistribution")


def test_above_a_thousand_partitions_the_tail_is_still_placed_by_its_load(spark):
    df = spark.range(30_000).select((F.col("id") % 15_000).alias("k"))
    handle = balance(df, "k", numPartitions=1500, slots=1500)
    assert handle.plan.tail_groups == FINE_GROUPS
    assert handle.loads.predicted(handle.plan).max() < handle.loads.predicted(uniform_plan(1500, FINE_GROUPS)).max()


def test_the_numbers_of_explain_and_advise_are_the_same(rows):
    df = keyed(rows, "string")
    handle, asked = balance(df, "key", numPartitions=4, slots=4), advise(df, "key", numPartitions=4, slots=4)
    assert handle.advice.numbers == asked.numbers
    assert str(handle.advice) == str(asked)


def test_hot_keys_are_apart_and_loads_even(spark):
    df = spark.range(20_000).select(F.when(F.col("id") % 2 == 0, F.col("id") % 4).otherwise(F.col("id")).alias("k"))
    handle = balance(df, "k", numPartitions=4, slots=4)
    loads = handle.dataframe().groupBy(F.spark_partition_id()).count().toPandas()["count"]
    assert loads.max() <= 1.03 * 20_000 / 4
    assert len(handle.plan.isolated) > 0


def test_weights_count_instead_of_rows(spark):
    df = spark.range(10_000).select(
        (F.col("id") % 100).alias("k"), F.when(F.col("id") % 100 < 2, 1000).otherwise(1).alias("w")
    )
    handle = balance(df, "k", numPartitions=2, weight="w")
    where = handle.dataframe().where("k < 2").select("k", F.spark_partition_id().alias("p")).distinct().toPandas()
    assert sorted(where["p"]) == [0, 1]
    assert handle.loads.load == pytest.approx(200 * 1000 + 9800)


def test_an_empty_frame_gives_an_empty_result(rows):
    df = keyed(rows, "string").where("v < 0")
    assert balance(df, "key", numPartitions=4).applyInPandas(summary, "n long, s long").count() == 0


def test_one_partition_takes_everything(rows):
    df = keyed(rows, "string")
    assert balance(df, "key", numPartitions=1).dataframe().select(F.spark_partition_id()).distinct().count() == 1


def test_a_plan_that_is_given_is_used_and_nothing_is_measured(rows):
    plan = Plan(3, uniform_plan(3).tail)
    handle = balance(keyed(rows, "string"), "key", plan=plan)
    assert handle.plan is plan
    assert handle.loads is None
    assert handle.advice is None
    assert handle.dataframe().select(F.spark_partition_id()).distinct().count() == 3


def test_the_number_of_partitions_is_the_sessions_unless_given(rows):
    assert balance(keyed(rows, "string"), "key").plan.partitions == 4


def test_when_measuring_fails_keys_go_by_hash_with_a_warning(rows, monkeypatch):
    def broken(*_args, **_options):
        raise OSError("no space left")

    monkeypatch.setattr("equipoise.spark.batch.look.take_sample", broken)
    df = keyed(rows, "string")
    handle = balance(df, "key", numPartitions=4)
    with pytest.warns(RuntimeWarning, match="keys go by hash: no space left"):
        plan = handle.plan
    assert plan.planner == "uniform"
    assert (handle.loads, handle.advice) == (None, None)
    assertDataFrameEqual(handle.dataframe(), df)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"numPartitions": 0}, InvalidArgumentError, "at least 1, got 0"),
        ({"numPartitions": 2.5}, InvalidArgumentError, "whole number"),
        ({"weight": "nothing"}, InvalidArgumentError, "for the weight"),
        ({"weight": "key"}, InvalidArgumentError, "not a number"),
        ({"sample": 0}, InvalidArgumentError, "sample must be a whole number of at least 1"),
        ({"numPartitions": 3, "plan": uniform_plan(2)}, MismatchError, "drop one"),
        ({"record": "h", "plan": uniform_plan(2)}, InvalidArgumentError, "drop one"),
    ],
)
def test_bad_options_are_refused(rows, options, error, message):
    with pytest.raises(error, match=message):
        balance(keyed(rows, "string"), "key", **options)


def test_keys_of_different_types_cannot_be_cogrouped(rows):
    with pytest.raises(MismatchError, match=r"here is of type \(int, bigint\), there \(int\)"):
        balance(rows, "k", "v", numPartitions=3).cogroup(balance(rows, "k"))
    with pytest.raises(MismatchError, match=r"\(int\), there \(bigint\); cast one"):
        balance(rows, "k", numPartitions=3).cogroup(rows.select(F.col("k").cast("bigint").alias("k")))


@pytest.mark.parametrize(
    ("wrap", "answer"),
    [
        ("without_partition(two)", "((8,), 'x')"),
        ("without_partition_column(two, lambda f, c: f)", "((7, 8), 'x')"),
    ],
)
def test_executors_need_no_equipoise(wrap, answer, tmp_path):
    from pyspark import cloudpickle

    from equipoise.spark.batch.cogroups import without_partition, without_partition_column

    def two(key, data):
        return (key, data)

    names = {
        "two": two,
        "without_partition": without_partition,
        "without_partition_column": without_partition_column,
    }
    function = eval(wrap, names)  # noqa: S307 - one of two expressions above
    path = tmp_path / "function"
    path.write_bytes(cloudpickle.dumps(function))
    code = (
        "import sys, pathlib; sys.modules['equipoise'] = None; from pyspark import cloudpickle; "
        f"print(cloudpickle.loads(pathlib.Path({str(path)!r}).read_bytes())((7, 8), 'x'))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == answer, result.stderr[-2000:]


def test_explain_shows_the_plan_the_hot_keys_the_advice_and_what_was_done(rows, capsys):
    handle = balance(keyed(rows, "string"), "key", numPartitions=4, slots=4)
    assert "not made yet" in handle._repr_html_()
    handle.count()
    handle.applyInPandas(summary, "n long, s long")
    handle.explain()
    text = capsys.readouterr().out
    assert text.startswith("== Balanced groups ==\nkey ")
    assert re.search(r"^plan +kip, version 1: \d+ isolated keys", text, re.MULTILINE)
    assert re.search(r"^time over ideal +Spark's hash \d\.\d\d, keys placed whole \d\.\d\d", text, re.MULTILINE)
    assert f"{fingerprint('key 1') % 2**64:016x}" in text
    assert re.search(r"^count\(\) +handed to Spark, which combines before the shuffle", text, re.MULTILINE)
    assert re.search(
        r"^applyInPandas\(\) +one exchange into 4 partitions, keys placed by the plan of kip$", text, re.MULTILINE
    )
    assert str(handle.advice) in text
    assert "key 1" not in text  # fingerprints, not literal keys
    assert f"{fingerprint('key 1') % 2**64:016x}" in handle._repr_html_()


def test_cogroups_have_the_plan_the_advice_and_the_explanation_of_the_groups(rows, capsys):
    df = keyed(rows, "string")
    groups = balance(df, "key", numPartitions=4, slots=4)
    both = groups.cogroup(df)
    assert "not made yet" in both._repr_html_()
    assert both.plan is groups.plan
    assert str(both.advice) == str(groups.advice)
    both.explain()
    assert capsys.readouterr().out.startswith("== Balanced cogroups ==\nkey ")


def test_results_hold_no_column_of_ours(rows):
    df = keyed(rows, "string")
    handle = balance(df, "key", numPartitions=4)
    assert PARTITION not in handle.agg(F.count("*")).columns
    assert PARTITION not in handle.dataframe().columns


def test_balancing_warns_of_nothing_by_itself(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        balance(keyed(rows, "string"), "key", numPartitions=4).dataframe().count()
