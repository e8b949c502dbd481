"""The load record of earlier runs: observed, saved, planned from; refused or replaced if it does not fit."""

import sys
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import functions as F

from equipoise import DamagedError, Histogram, MismatchError, UnknownFormatError, fingerprint
from equipoise.framing import seal
from equipoise.spark import balance
from equipoise.spark.batch.key_loads import FINE_GROUPS, KeyLoads
from equipoise.spark.batch.load_record import LoadRecord, Recorder
from equipoise.spark.batch.sample import resolve_weight
from equipoise.spark.rows.keys import resolve_key


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "job.record")


@pytest.fixture(scope="module")
def df(spark):
    return spark.range(30_000).select(F.when(F.col("id") % 3 == 0, 0).otherwise(F.col("id") % 1000).alias("k"), "id")


def run(df, path, *, is_recorded=True, **options):
    """One run of a job, to the end of its record."""
    handle = balance(df, "k", numPartitions=4, record=path, slots=4, **options)
    rows = handle.dataframe().count()
    assert handle.wait_for_record(30) is is_recorded
    return handle, rows


def test_the_first_run_samples_and_the_next_plans_from_its_record(df, path, monkeypatch):
    first, rows = run(df, path, sample="full")
    assert rows == 30_000
    assert first.loads.histogram.shares[0] == pytest.approx(1 / 3, abs=0.01)

    def never(*_args, **_options):
        raise AssertionError("the second run must not sample")

    monkeypatch.setattr("equipoise.spark.batch.look.take_sample", never)
    second, rows = run(df, path)
    assert rows == 30_000
    assert second.loads.rows == 30_000
    assert second.plan.isolated == first.plan.isolated
    assert second.plan.planner == "kip"


def test_a_run_that_changed_is_seen_by_the_next(df, path):
    run(df, path)
    moved = df.withColumn("k", F.when(F.col("k") == 0, 999_999).otherwise(F.col("k")))
    for _ in range(4):
        run(moved, path)
    third, _ = run(moved, path)
    assert third.loads.histogram.fingerprints[0] == fingerprint(999_999)


def test_observing_changes_neither_rows_nor_columns(df, path):
    placed = balance(df, "k", numPartitions=4, record=path).dataframe()
    assert placed.columns == df.columns
    assert placed.agg(F.sum("id"), F.count("*")).first() == df.agg(F.sum("id"), F.count("*")).first()


def test_weights_are_recorded(df, path):
    weighted = df.withColumn("w", F.when(F.col("k") == 7, 1000).otherwise(1))
    run(weighted, path, weight="w")
    second, _ = run(weighted, path, weight="w")
    assert second.loads.histogram.fingerprints[0] == fingerprint(7)
    assert second.loads.load == pytest.approx(weighted.agg(F.sum("w")).first()[0])


def test_a_run_many_times_as_large_as_the_last_is_observed_by_a_small_sample(spark, df, path, monkeypatch):
    monkeypatch.setattr(sys.modules["equipoise.spark.batch.load_record"], "OBSERVED_ROWS", 500)
    run(df.limit(20), path)
    observed = []
    monkeypatch.setattr(Recorder, "_loads", seeing(Recorder._loads, observed))
    many = spark.range(0, 400_000, 1, 8).select((F.col("id") % 4).alias("k"), "id")
    run(many, path)
    assert 500 < len(observed[0]) < 20_000
    after = LoadRecord.of(path, resolve_key(many, "k"), resolve_weight(many, None)).load()
    assert after.rows == pytest.approx(400_000, rel=0.1)


def seeing(method, seen):
    def wrapped(self, metrics):
        seen.append(metrics["fingerprints"])
        return method(self, metrics)

    return wrapped


def test_a_run_without_rows_leaves_the_record_as_it_was(df, path):
    run(df, path)
    before = Path(path).read_bytes()
    run(df.where("id < 0"), path, is_recorded=False)
    assert Path(path).read_bytes() == before
    handle, _ = run(df, path)
    assert handle.loads.rows == 30_000


def test_a_record_may_be_a_path(df, tmp_path):
    run(df, tmp_path / "job.record")
    assert (tmp_path / "job.record").exists()


def test_a_record_of_another_key_or_weight_is_refused_and_kept(df, path):
    run(df, path)
    before = Path(path).read_bytes()
    with pytest.raises(MismatchError, match="is about key k bigint with weight 1, but this job has key id bigint"):
        balance(df, "id", numPartitions=4, record=path).dataframe()
    with pytest.raises(MismatchError, match="is about key k bigint with weight 1, but this job has key k string"):
        balance(df.withColumn("k", F.col("k").cast("string")), "k", numPartitions=4, record=path).dataframe()
    with pytest.raises(MismatchError, match="weight id"):
        balance(df, "k", numPartitions=4, record=path, weight="id").dataframe()
    assert Path(path).read_bytes() == before


def test_a_damaged_record_is_a_warning_and_is_replaced(df, path, tmp_path):
    run(df, path)
    file = tmp_path / "job.record"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.warns(RuntimeWarning, match="is not used: stored load-record"):
        run(df, path)
    assert LoadRecord(path, ("k bigint",), "").load().rows == 30_000


def test_a_record_of_a_newer_release_is_refused(df, path, tmp_path):
    (tmp_path / "job.record").write_bytes(seal("load-record", 99, []))
    with pytest.raises(UnknownFormatError, match=r"format 99.*remove the file"):
        balance(df, "k", numPartitions=4, record=path).dataframe()


def test_a_record_that_cannot_be_written_is_logged_and_the_job_goes_on(df, tmp_path, caplog):
    (tmp_path / "file").write_text("in the way of a folder")
    nowhere = str(tmp_path / "file" / "job.record")
    handle = balance(df, "k", numPartitions=4, record=nowhere)
    assert handle.dataframe().count() == 30_000
    assert not handle.wait_for_record(30)
    assert "the run was not recorded in" in caplog.text


def test_a_record_may_be_any_location_that_arrow_knows(df, tmp_path):
    run(df, (tmp_path / "job.record").as_uri())
    assert (tmp_path / "job.record").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["job.record"]


def loads_of(seed):
    rng = np.random.default_rng(seed)
    keys, weights = rng.integers(-(2**63), 2**63 - 1, 500), rng.random(500)
    histogram = Histogram(keys, weights / weights.sum(), error=0.01)
    return KeyLoads.of(histogram, keys, weights, rows=500, load=float(weights.sum()))


def test_key_loads_survive_their_bytes():
    loads = loads_of(1)
    again = KeyLoads.from_bytes(loads.to_bytes())
    assert again.histogram == loads.histogram
    assert np.array_equal(again.group_load, loads.group_load)
    assert (again.rows, again.load) == (loads.rows, loads.load)
    assert again.to_bytes() == loads.to_bytes()


def test_any_damage_to_key_loads_is_noticed():
    data = loads_of(1).to_bytes()
    for at in range(0, len(data), max(1, len(data) // 200)):
        changed = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
        with pytest.raises((DamagedError, UnknownFormatError)):
            KeyLoads.from_bytes(changed)


def test_fine_groups_fold_to_any_plan():
    loads = loads_of(2)
    for groups in (256, 4096, FINE_GROUPS):
        folded = loads.costs(groups).group_load
        assert folded.sum() == pytest.approx(1.0)
        assert folded[3] == pytest.approx(loads.group_load[3::groups].sum())
    assert loads.costs(100).group_load is None


def test_the_past_fades_in_the_blend():
    blended = loads_of(1).blend(loads_of(2), weight=0.25)
    assert blended.group_load == pytest.approx(0.25 * loads_of(1).group_load + 0.75 * loads_of(2).group_load)
    assert blended.rows == 500
