"""The fullest task of `bench hot-key` is found from the files of the tasks and the batch log."""

import pytest

from equipoise_lab.bench.hot_key import _PARTITIONS, _SLOTS, _outcome


def served(folder, stages):
    """Write the files of tasks: for each stage the seconds that each of its tasks has served."""
    for stage, tasks in enumerate(stages):
        for task, seconds in enumerate(tasks):
            (folder / f"{stage:06d}-{task:04d}.csv").write_text(f"{stage},{task},{seconds}\n", encoding="ascii")


def batch(combined, owners):
    return {
        "rows": 100,
        "combined_rows": combined,
        "combine_scope": "hot",
        "partition_seconds": [owners] + [1.0] * (_PARTITIONS - 1),
        "imbalance_rows": 1.0,
        "reason": "",
    }


def test_service_before_the_exchange_and_of_owners_is_told_apart_by_the_rows_that_were_combined(tmp_path):
    level = [1.0] * _SLOTS
    owners = [1.0] * _PARTITIONS
    stages = [owners, level, [3.0, *level[1:]], [9.0, *owners[1:]], [5.0, *owners[1:]], level]
    served(tmp_path, stages)
    log = [batch(0, 1.0), batch(100, 1.0), batch(40, 6.0), batch(0, 2.0), batch(100, 4.0)]
    found = _outcome([9.0, 8.0, 1.0, 2.0, 3.0], tmp_path, log)
    maps = (3.0 + 1.0, (_SLOTS + 2.0) / _SLOTS + 1.0)
    assert found["fullest"] == pytest.approx((maps[0] + 9.0 + 5.0) / (maps[1] + 2 + (8.0 + 4.0) / _PARTITIONS))
    assert found["fullest_with_owners"] == pytest.approx((maps[0] + 12.0) / (maps[1] + 3 + (5 + 1 + 3) / _PARTITIONS))
    assert found["seconds"] == [1.0, 2.0, 3.0]
