"""The comparison with peers, on little work, and the page it writes."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from equipoise import InvalidArgumentError
from equipoise_lab.bench import Report, peers
from equipoise_lab.bench.harness import Context, Environment
from equipoise_lab.bench.peers.curves import grouped_curve, state_curve
from equipoise_lab.bench.peers.results import Comparison, Curve, Point, Results, worst_first
from equipoise_lab.bench.peers.sizes import QUICK
from equipoise_lab.bench.peers.tables import cheap_table, grouped_table, join_table, stream_table
from equipoise_lab.cli.commands import app

TINY = replace(
    QUICK,
    ideal=0.01,
    rows=400,
    keys=20,
    partitions=4,
    cheap_rows=500,
    factors=(2,),
    salts=(2, 3),
    join_rows=500,
    stream_rows=300,
    stream_keys=40,
    stream_batches=2,
    curve_ideal=0.01,
    curve_skews=(0.0, 1.2),
    states=(50, 200),
    state_batches=2,
)
ENV = Environment("0123456789abcdef", dirty=True, versions={"python": "3.11", "pyspark": "4.1"}, cores=2, seed=1)


@pytest.mark.long
def test_grouped_work_has_every_contender(spark):
    table = grouped_table(spark, 1.2, TINY, 1)
    assert set(table.seconds) == {
        "hash",
        "over-partitioned x2",
        "repartitionByRange",
        "salted 2",
        "salted 3",
        "equipoise balance",
        "equipoise aggregate",
    }
    assert all(len(seconds) == TINY.repeats for seconds in table.seconds.values())
    assert "Zipf 1.2" in table.name
    assert "JVM aggregation" in cheap_table(spark, TINY, 1).seconds


def test_joins_have_every_contender(spark):
    table = join_table(spark, "hot key", 0.4, 2, 0, TINY, 1)
    assert set(table.seconds) == {"plain", "adaptive", "equipoise", "broadcast", "salted 2", "salted 3"}


@pytest.mark.long
def test_streams_have_every_contender_and_seconds_of_the_later_batches(spark, tmp_path):
    table = stream_table(spark, tmp_path, TINY, Context())
    assert len(table.seconds) == 5
    assert all(len(seconds) == TINY.stream_batches - 1 for seconds in table.seconds.values())


@pytest.mark.long
def test_curves_have_a_point_for_each_size(spark, tmp_path):
    skew = grouped_curve(spark, "skew", TINY, Context())
    assert [point.at for point in skew.points] == [0.0, 1.2]
    assert "20 keys, 4 partitions;" in skew.what
    state = state_curve(spark, tmp_path, TINY, Context())
    assert [point.at for point in state.points] == [50, 200]
    assert {len(each) for point in state.points for each in point.seconds.values()} == {TINY.state_batches - 1}


TABLE = Comparison(
    "grouped, some skew",
    "what it is.",
    ("ours a", "ours b"),
    {"hash": [4.0, 4.2], "salted 2": [3.0, 3.0], "salted 8": [1.0, 1.2], "ours a": [2.0, 2.4], "ours b": [1.4, 1.6]},
    ("hash", "ours a"),
)
WON = Comparison("join", "another.", ("ours",), {"plain": [9.0], "ours": [3.0]})
CURVE = Curve("rows", "rows grow.", [Point(1000, {"hash": [1.0, 3.0]}), Point(1_000_000, {"hash": [4.0]})])


def report(*tables):
    samples = {"quick": False, **msgspec.to_builtins(Results(list(tables), [CURVE]))}
    return Report("peers", {}, samples, ENV)


def test_figures_are_derived_from_the_raw_seconds():
    assert (TABLE.best_of_ours, TABLE.best_peer) == ("ours b", "salted 8")
    assert TABLE.over_best_peer == pytest.approx((1.4 / 1.0 + 1.6 / 1.2) / 2)
    assert TABLE.families["salted"] == ["salted 2", "salted 8"]
    assert TABLE.whole_over_best_peer == pytest.approx((2.0 / 4.0 + 2.4 / 4.2) / 2)
    assert WON.whole_over_best_peer is None
    assert [duel.name for duel in worst_first([WON, TABLE])] == [TABLE.name, f"{TABLE.name}, keys whole", "join"]


def test_the_page_shows_medians_spread_ratios_and_where_others_are_faster():
    page = peers.page(report(TABLE, WON))
    assert "| grouped, some skew | ours b | 1.50 | salted 8 | 1.10 | 1.37 | 1.33 to 1.40 |" in page
    assert "- Grouped, some skew: salted 8 takes 1.10 s, ours b 1.50 s (1.37 times as long, 1.33 to 1.40)." in page
    assert "| salted 8 (best of 2, 8) | 1.10 | 1.00 to 1.20 | 0.73 |" in page
    assert "| **ours b** | 1.50 | 1.40 to 1.60 | 1.00 |" in page
    assert "| 1,000 | 2.00 (1.00 to 3.00) |" in page
    assert "| 1,000,000 | 4.00 (4.00 to 4.00) |" in page
    assert "commit `0123456789ab` with changes that were not committed, 2 cores, seed 1, python 3.11" in page
    assert "salted 2 |" not in page


def test_a_way_that_keeps_keys_whole_and_is_faster_is_listed_though_ours_is_faster_where_keys_are_split():
    seconds = {"by range": [2.0, 2.0, 9.0], "balance": [2.2, 2.4, 2.6], "aggregate": [1.0, 1.0, 1.0]}
    table = Comparison("grouped", "what.", ("balance", "aggregate"), seconds, ("by range", "balance"))
    assert table.over_best_peer < 1
    page = peers.page(report(table, WON))
    assert "- Grouped, keys whole: by range takes 2.00 s, balance 2.40 s (1.10 times as long, 0.29 to 1.20, not" in page


def test_rounds_that_overlap_are_no_clear_loss():
    close = Comparison("close", "so close.", ("ours",), {"hash": [1.0, 2.0], "ours": [1.5, 1.9]})
    assert "(1.23 times as long, 0.95 to 1.50, not in every round)" in peers.page(report(close))
    assert "Nowhere in this run." in peers.page(report(WON))


def test_a_benchmark_without_a_page_says_which_has_one(tmp_path):
    answer = CliRunner().invoke(app, ["bench", "assign", "--quick", "--page", str(tmp_path / "a.md")])
    assert isinstance(answer.exception, InvalidArgumentError)
    assert "bench peers" in str(answer.exception)
    answer = CliRunner().invoke(app, ["bench", "peers", "--quick", "--page", str(tmp_path / "no" / "a.md")])
    assert isinstance(answer.exception, InvalidArgumentError)


@pytest.mark.long
def test_the_quick_form_runs_to_its_end_and_writes_its_page(tmp_path):
    page = tmp_path / "results.md"
    command = [str(Path(sys.executable).with_name("equipoise-lab")), "bench", "peers", "--quick", "--page", str(page)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    text = page.read_text(encoding="utf-8")
    for heading in (
        "# Side by side with other ways",
        "## Over executors",
        "## Over keys in state",
        "## Where another way is faster",
    ):
        assert heading in text
