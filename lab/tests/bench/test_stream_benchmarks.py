"""The figures of the benchmarks of streams have the names that are followed, and mean what these say."""

from math import isnan
from types import SimpleNamespace

import pytest

from equipoise_lab.bench import moves, stream_drift, stream_look


def outcome(seconds, promises=(), over_bound=(1.0, 1.3, 1.1)):
    return {
        "seconds": [9.0, *seconds],
        "over_bound": list(over_bound),
        "promises": list(promises),
        "planned_bytes": [0.0, 2.0, 1.0],
        "replans": 2,
    }


def test_a_stream_that_drifts_is_judged_by_all_applied_plans_and_without_its_first_batch():
    outcomes = {name: [outcome([2.0, 2.0])] for name in ("kip", "readj", "scan")}
    outcomes |= {"hash": [outcome([2.0, 2.0])], "ideal": [outcome([1.0, 1.0])]}
    outcomes["ours"] = [outcome([1.5, 1.0], [(1.0, 0.9), (0.5, 0.5), (0.004, 0.002)])]
    metrics = stream_drift._metrics(outcomes, [1])
    assert metrics["recovered"] == metrics["recovered_worst"] == pytest.approx((4 - 2.5) / (4 - 2))
    assert metrics["over_bound_at_swap"] == 1.3
    assert metrics["applied_plans"] == 3
    assert metrics["promise_error"] == pytest.approx(0.1)
    assert metrics["promise_error_large"] == pytest.approx(0.05)
    assert isnan(stream_drift.promise_error([]))
    assert stream_drift.promise_error([(0.0, 0.1)]) == float("inf")


def test_the_worst_stream_counts_with_the_mean_of_its_seeds():
    found = {
        "tags 20 look": {"over_bound": [1.0, 1.1], "moved": [0.02, 0.04]},
        "tags 64 look": {"over_bound": [1.02, 1.02], "moved": [0.01, 0.01]},
        "tags 20 past": {"over_bound": [1.4, 1.2], "moved": [0.0, 0.0]},
    }
    metrics = stream_look._metrics(found)
    assert metrics["over_bound_mean_worst"] == pytest.approx(1.05)
    assert metrics["moved_share_worst"] == pytest.approx(0.03)
    assert metrics["over_bound_mean_worst_past"] == pytest.approx(1.3)
    assert metrics["tags_64_look_over_bound"] == pytest.approx(1.02)


def batches(plans, moved, imbalance):
    rows = zip(plans, moved, strict=True)
    return [
        SimpleNamespace(
            batch=number, plan=plan, seconds=1.0 + each / 100, moved_bytes=each, move_rate=None, state_bytes=100,
            imbalance_rows=imbalance, partition_rows=[1, 1], reason="",
        )
        for number, (plan, each) in enumerate(rows)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("plans", "moved", "imbalance", "expected"),
    [
        ([0, 0, 0, 0, 0, 1, 2, 2, 3, 3], [0, 0, 0, 0, 0, 20, 20, 0, 10, 0], 1.0, 4.0),
        ([0, 0, 0, 0, 0, 1, 2, 2, 2, 2], [0, 0, 0, 0, 0, 20, 10, 0, 0, 0], 1.0, None),
        ([0, 0, 0, 0, 0, 1, 2, 2, 2, 2], [0, 0, 0, 0, 0, 30, 20, 0, 0, 0], 1.6, None),
        ([0] * 10, [0] * 10, 1.0, None),
    ],
    ids=["completed", "stopped early", "not level", "nothing moves"],
)
def test_a_change_that_stops_early_is_not_completed(plans, moved, imbalance, expected):
    log = batches(plans, moved, imbalance)
    metrics = moves._metrics(log)
    assert metrics["moved_share"] == sum(moved) / 100
    assert metrics["imbalance_at_end"] == imbalance
    assert isnan(metrics["batches_to_complete"]) if expected is None else metrics["batches_to_complete"] == expected
    assert isnan(metrics["worst_over_median"]) == (not any(moved))
    assert moves._samples(log)["moved_bytes"] == moved
