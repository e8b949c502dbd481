import itertools

import numpy as np
import pytest

from equipoise import KIP, InvalidArgumentError
from equipoise.plan import Uniform
from equipoise_lab.simulate.replay import ReplayOptions, replay
from equipoise_lab.simulate.workloads import drifting_batches


def stream(**changes):
    options = {"keys": 5000, "exponent": 1.0, "batch_size": 5000, "batches": 8, "drift": 0.1, "seed": 3}
    return list(drifting_batches(**{**options, **changes}))


def test_each_batch_runs_under_the_plan_made_before_it():
    steps = list(replay(KIP(), stream(), ReplayOptions(8)))
    assert [step.batch for step in steps] == list(range(8))
    assert steps[0].plan.planner == "uniform"
    assert steps[0].migration == 0
    assert all(later.plan.version - earlier.plan.version in (0, 1) for earlier, later in itertools.pairwise(steps))
    for step, batch in zip(steps, stream(), strict=True):
        assert step.loads.sum() == len(batch)
        assert step.loads.tolist() == np.bincount(step.plan.assign(batch), minlength=8).tolist()
        assert step.imbalance >= step.bound - 1e-9


def test_plain_hash_moves_nothing_and_kip_is_better():
    batches = stream()
    plain = list(replay(Uniform(), batches, ReplayOptions(8)))
    ours = list(replay(KIP(), batches, ReplayOptions(8)))
    assert sum(step.migration for step in plain) == 0
    assert np.mean([s.imbalance for s in ours[1:]]) < np.mean([s.imbalance for s in plain[1:]])


def test_migration_is_the_part_of_the_window_that_changes_partition():
    batches = stream()
    steps = list(replay(KIP(), batches, ReplayOptions(8, state_window=2)))
    for i in range(2, len(steps)):
        window = np.concatenate(batches[max(0, i - 2) : i])
        moved = steps[i - 1].plan.assign(window) != steps[i].plan.assign(window)
        assert steps[i].migration == pytest.approx(moved.mean())


def test_a_window_of_one_batch_forgets_the_one_before():
    batches = stream()
    steps = list(replay(KIP(), batches, ReplayOptions(8, state_window=1)))
    for i in range(1, len(steps)):
        moved = steps[i - 1].plan.assign(batches[i - 1]) != steps[i].plan.assign(batches[i - 1])
        assert steps[i].migration == pytest.approx(moved.mean())


def test_an_empty_batch_teaches_and_moves_nothing():
    batches = [*stream(batches=3), np.empty(0, dtype=np.int64), stream()[3]]
    steps = list(replay(KIP(), batches, ReplayOptions(8)))
    assert (steps[3].imbalance, steps[3].bound) == (1.0, 1.0)
    assert steps[4].plan is steps[3].plan
    assert steps[4].migration == 0


@pytest.mark.parametrize("options", [{"state_window": 0}, {"retention": 2}, {"listed": -1}, {"partitions": 0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(InvalidArgumentError):
        ReplayOptions(**{"partitions": 4, **options})
