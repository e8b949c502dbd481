import re

import pytest
from pyspark.sql import functions as F

from equipoise import InvalidArgumentError, fingerprint
from equipoise.plan import PLANNERS
from equipoise.readable import fingerprint_text
from equipoise.spark import profile


@pytest.fixture(scope="module")
def df(spark):
    hot = F.when(F.col("id") % 5 == 0, F.lit("hot key")).otherwise(F.concat(F.lit("k"), F.col("id") % 500))
    return spark.range(10_000).select(hot.alias("host"), F.length(hot).alias("w"))


@pytest.fixture(scope="module")
def report(df):
    return profile(df, "host", numPartitions=10, slots=4)


def test_every_strategy_is_predicted(report):
    assert set(report.strategies) == {"hash", "hash x2", "hash x4", "hash x8", "hash x16", *PLANNERS}
    assert all(strategy.loads.sum() == pytest.approx(1) for strategy in report.strategies.values())
    assert len(report.strategies["hash x4"].loads) == 40


def test_the_bound_is_what_the_hottest_key_makes_unavoidable(report):
    assert report.hottest_share == pytest.approx(0.2)
    assert report.bound == pytest.approx(2.0)
    assert report.ideal_makespan == pytest.approx(0.25)
    assert report.strategies["kip"].imbalance == pytest.approx(2.0, rel=0.02)
    assert report.strategies["hash"].imbalance > report.strategies["kip"].imbalance


def test_hot_keys_are_fingerprints_unless_asked(report):
    shown = report.hot_keys(3)
    assert shown.columns == ["fingerprint", "share", "error"]
    assert shown.first().fingerprint == fingerprint_text(fingerprint("hot key"))
    assert "hot key" not in str(report)
    literal = report.hot_keys(3, literal=True)
    assert literal.first().host == "hot key"
    assert literal.count() == 3


def test_loads_are_a_table(report):
    table = report.loads().groupBy("strategy").agg(F.count("*").alias("n"), F.sum("share").alias("s")).toPandas()
    by_name = table.set_index("strategy")
    assert by_name.loc["kip", "n"] == 10
    assert by_name["s"].tolist() == pytest.approx([1.0] * len(table))


def test_it_prints_the_hot_keys_the_strategies_and_the_bound(report):
    text = str(report)
    assert "Key host: 10,000 rows, 10 partitions on 4 slots; from all rows." in text
    assert re.search(r"^  kip +10 +2\.0\d ", text, re.MULTILINE)
    assert "below 2.00 of the mean" in text


def test_it_has_the_plan_the_advice_and_a_table(report, capsys):
    assert report.plan is report.strategies["kip"].plan
    report.explain()
    text = capsys.readouterr().out
    assert text.startswith("Key host: 10,000 rows")
    assert f"Advice on applyInPandas: {report.advice}" in text
    assert fingerprint_text(fingerprint("hot key")) in report._repr_html_()


def test_it_plots_hash_beside_a_strategy(report, tmp_path):
    report.plot().savefig(tmp_path / "bars.png")
    labels = {text.get_text().split(" ")[0] for text in report.plot("scan").axes[0].get_legend().get_texts()}
    assert labels == {"hash:", "scan:", "mean"}
    with pytest.raises(InvalidArgumentError, match="no strategy 'best'"):
        report.plot("best")


def test_slots_and_partitions_have_the_sessions_values_unless_given(df):
    report = profile(df, "host")
    assert (report.partitions, report.slots) == (4, 2)


def test_a_weight_changes_what_is_hot(df):
    by_weight = profile(df, "host", numPartitions=4, weight="w", slots=2)
    assert by_weight.hottest_share > 0.25


def test_an_empty_frame_is_profiled_without_complaint(df):
    report = profile(df.where("false"), "host", numPartitions=4, slots=2)
    assert report.hottest_share == 0
    assert report.bound == 1
    assert report.hot_keys().count() == 0
    assert "0 rows" in str(report)


@pytest.mark.parametrize("options", [{"numPartitions": 0}, {"slots": 0}, {"sample": 0}])
def test_bad_options_are_refused(df, options):
    with pytest.raises(InvalidArgumentError):
        profile(df, "host", **options)


def test_a_key_that_is_called_as_a_column_of_ours_is_distinguished(spark):
    named = spark.range(100).select((F.col("id") % 3).alias("share"))
    found = profile(named, "share", numPartitions=4).hot_keys(literal=True)
    assert found.columns == ["fingerprint", "share", "error", "key_share"]
    assert {row.key_share for row in found.collect()} == {0, 1, 2}
