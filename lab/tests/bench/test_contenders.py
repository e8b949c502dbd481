"""Every contender gives the same result, and one that does not is found."""

import numpy as np
import pytest

from equipoise.errors import CheckError
from equipoise_lab.bench.contenders import grouped
from equipoise_lab.bench.contenders.contender import Contender, require_equal, timed
from equipoise_lab.bench.local_spark import as_parquet
from equipoise_lab.spark_settings import settings


@pytest.fixture
def df(spark):
    keys = np.where(np.arange(400) % 3 == 0, 0, np.arange(400) % 11)
    with as_parquet(spark, {"key": keys}, 2) as df:
        yield df


def test_contenders_are_compared_before_they_are_timed(df):
    calls = []

    def make(seconds_per_row):
        calls.append(seconds_per_row)
        serve = grouped.waiting(seconds_per_row)
        return {
            "hash": Contender(lambda: grouped.by_hash(df, 4, serve)),
            "salted": Contender(lambda: grouped.by_salt(df, 4, serve, 3)),
            "range": Contender(lambda: grouped.by_range(df, 4, serve)),
        }

    seconds = timed(make, 1e-6, repeats=2)
    assert calls == [0.0, 1e-6]
    assert {name: len(each) for name, each in seconds.items()} == {"hash": 2, "salted": 2, "range": 2}


def test_a_contender_with_another_result_is_refused(df):
    def make(_):
        return {
            "all": Contender(lambda: grouped.by_jvm(df)),
            "some": Contender(lambda: grouped.by_jvm(df.where("key > 3"))),
        }

    with pytest.raises(CheckError, match="'some' gives another result than 'all'"):
        timed(make, 0.0, repeats=1)
    require_equal({"only": 1})


def test_a_range_needs_no_second_exchange(df):
    plan = grouped.by_range(df, 4, grouped.waiting(0.0))._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange") == 1


def test_settings_hold_for_a_while_only(spark):
    name, unset = "spark.sql.shuffle.partitions", "spark.equipoise.nothing"
    before = spark.conf.get(name)
    with settings(spark, {name: "3", unset: "x"}):
        assert (spark.conf.get(name), spark.conf.get(unset)) == ("3", "x")
    assert (spark.conf.get(name), spark.conf.get(unset, None)) == (before, None)
