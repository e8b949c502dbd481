"""The benchmark of looks: its metrics, by source."""

import io
from contextlib import nullcontext

import pytest
from rich.console import Console

from equipoise_lab.bench import look_cost
from equipoise_lab.bench.harness import Context

NAMES = {
    "look_over_batch",
    "look_over_batch_worst",
    "look_seconds",
    "plan_seconds",
    "placement_seconds",
    "batch_seconds",
    "rows_seen",
    "new_plans",
}


@pytest.fixture
def smaller(monkeypatch, spark):
    sample = look_cost.sample
    monkeypatch.setattr(look_cost, "local_spark", lambda _: nullcontext(spark))
    monkeypatch.setattr(look_cost, "sample", lambda shares, rows, rng: sample(shares, rows // 100, rng))


@pytest.mark.usefixtures("smaller")
def test_the_metrics_are_those_of_parquet_and_json_and_kafka_is_said_to_be_absent():
    said = io.StringIO()
    result = look_cost.run(Context(quick=True, console=Console(file=said, width=200)))
    assert set(result.metrics) == NAMES | {f"{name}_json" for name in NAMES}
    assert "without --kafka HOST:PORT there is no look_over_batch_kafka" in said.getvalue()
    for suffix in ("", "_json"):
        assert result.metrics[f"rows_seen{suffix}"] == 2000
        parts = [result.metrics[f"{name}{suffix}"] for name in ("look_seconds", "plan_seconds", "placement_seconds")]
        assert all(part >= 0 for part in parts)
        assert sum(parts[:2]) < result.metrics[f"batch_seconds{suffix}"]
        assert 0 < result.metrics[f"look_over_batch{suffix}"] <= result.metrics[f"look_over_batch_worst{suffix}"]


@pytest.mark.usefixtures("smaller")
def test_a_batch_that_keeps_its_plan_has_no_placement_to_make(monkeypatch):
    usual = look_cost.Policy
    monkeypatch.setattr(look_cost, "Policy", lambda **given: usual(**given, mode="advise"))
    metrics = look_cost.run(Context(quick=True, console=Console(file=io.StringIO()))).metrics
    assert (metrics["new_plans"], metrics["placement_seconds"]) == (0, 0)


def test_with_a_broker_its_stream_is_measured_too(monkeypatch):
    monkeypatch.setattr(look_cost, "_kafka", lambda spark, broker, keys: (spark, broker, keys))
    sources = {suffix: make for make, suffix in look_cost._sources("spark", None, "keys", Context(kafka="here:9092"))}
    assert list(sources) == ["", "_json", "_kafka"]
    assert sources["_kafka"]() == ("spark", "here:9092", "keys")
