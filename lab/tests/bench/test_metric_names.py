"""Benchmarks of streams and state print the metrics by which the project is judged; their measuring is replaced."""

from contextlib import contextmanager, nullcontext
from unittest import mock

import pytest

from equipoise_lab.bench import (
    hot_key,
    micro_batch_cost,
    processor_cost,
    restart,
    state_growth,
    stream_throughput,
)
from equipoise_lab.bench.harness import Context

QUICK = Context(quick=True)
SIZES = ("200k_17k", "2m_17k", "2m_500k")
OF_PROCESSORS = ("over_tws", "row_over_tws_row", "over_floor")
SERVED = {"seconds": [2.0, 4.0], "fullest": 1.1, "fullest_with_owners": 1.2}


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch, tmp_path):
    @contextmanager
    def folder():
        yield tmp_path

    for module in (hot_key, micro_batch_cost, restart, state_growth, stream_throughput):
        for name, replaced in {
            "local_spark": lambda *_, **__: nullcontext(mock.MagicMock()),
            "settings": lambda *_: nullcontext(),
            "scratch": folder,
            "write_batches": lambda *_: None,
            "read_batches": lambda *_: None,
        }.items():
            monkeypatch.setattr(module, name, replaced, raising=False)


def test_stream_throughput_has_a_ratio_for_each_size_and_each_other_way(monkeypatch):
    def rounds(_context, _spark, ours, *_):
        return {name: [1.0] for name in (*ours, stream_throughput._FLOOR)}

    monkeypatch.setattr(stream_throughput, "_rounds", rounds)
    monkeypatch.setattr(stream_throughput, "_batch", lambda *_: {})
    of_sizes = [f"{name}_{size}" for name in ("builtin_over_jvm", "vector_over_jvm") for size in SIZES]
    assert set(stream_throughput.run(Context()).metrics) >= {*of_sizes, *OF_PROCESSORS}


def test_hot_key_has_the_fullest_task_and_speedups_of_each_case(monkeypatch):
    log = mock.MagicMock()
    monkeypatch.setattr(hot_key, "run_stateful", lambda *_, **__: [1.0])
    monkeypatch.setattr(hot_key, "batch_log", lambda *_, **__: log)
    monkeypatch.setattr(hot_key, "_outcome", lambda *_, **__: SERVED)
    monkeypatch.setattr(hot_key.Path, "mkdir", lambda *_, **__: None)
    result = hot_key.run(QUICK)
    for case in ("p30", "p60", "p30_many_keys"):
        names = {f"{name}_{case}" for name in ("fullest", "fullest_with_owners", "speedup", "speedup_over_dealt")}
        assert names <= set(result.metrics)
    assert set(result.samples["ratios"]["speedup_p30"]) == {"median", "least", "most"}


def test_micro_batch_cost_has_the_ratios_to_counting_and_their_spread(monkeypatch):
    for name in ("_counting", "_ours"):
        monkeypatch.setattr(micro_batch_cost, name, lambda *_: ([1.0] * 12, [1.0] * 12))
    counted = [{"round_trips": 1, "jobs": 1}] * 12
    monkeypatch.setattr(micro_batch_cost, "_round_trips", lambda *_: counted)
    monkeypatch.setattr(micro_batch_cost, "_file_operations", lambda _: [{"files": 1}] * 12)
    result = micro_batch_cost.run(QUICK)
    assert {"empty_over_count", "small_over_count", "empty_cpu_over_count", "small_jobs"} <= set(result.metrics)
    assert set(result.samples["ratios"]["empty_over_count"]) == {"median", "least", "most"}


def test_state_growth_and_restart_compare_rounds_in_pairs(monkeypatch):
    seconds = {"20000": [1.0, 2.0, 4.0], "500000": [1.5, 4.0, 5.0]}
    pool = mock.MagicMock()
    pool.return_value.__enter__.return_value.submit.return_value.result.return_value = seconds
    monkeypatch.setattr(state_growth, "ProcessPoolExecutor", pool)
    found = state_growth.run(QUICK)
    assert found.metrics["cost_ratio"] == 1.5
    assert found.samples["cost_ratio"] == {"median": 1.5, "least": 1.25, "most": 2.0}
    assert "page_cache_bounded" in found.metrics
    monkeypatch.setattr(restart, "_run", lambda _spark, folder, _keys: 3.0 if folder.name == "50" else 2.0)
    monkeypatch.setattr(restart.shutil, "rmtree", lambda *_: None)
    found = restart.run(QUICK)
    assert found.metrics["restart_ratio"] == 1.5
    assert {len(each) for each in found.samples["seconds"].values()} == {7}


def test_processor_cost_has_both_forms(monkeypatch):
    for name in ("_ours", "_floor"):
        monkeypatch.setattr(processor_cost, name, lambda *_: [1.0, 2.0])
    assert {"floor_over_pandas", "floor_over_rows"} <= set(processor_cost.run(QUICK).metrics)
