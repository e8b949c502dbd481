import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import Costs, Histogram, MismatchError, Plan, diff, uniform_plan
from equipoise.plan.plan_diff import Move


def test_groups_and_keys_that_move_are_listed_with_source_and_target():
    moves = diff(Plan(3, [0, 1, 2], {10: 0, 11: 1}), Plan(3, [0, 2, 2], {11: 1, 12: 2}, version=1))
    assert moves.groups == {1: Move(1, 2)}
    assert moves.keys == {10: Move(0, 2), 12: Move(0, 2)}
    assert (moves.load, moves.state) == (None, None)
    assert "1 tail group and 2 keys" in str(moves)


def test_equal_routing_is_an_empty_difference():
    plan = uniform_plan(3, 12)
    assert not diff(plan, Plan(3, plan.tail, {4: plan.tail[4]}, version=1))


@given(st.integers(0, 2**32))
@settings(max_examples=50)
def test_moved_load_and_state_are_those_of_the_keys_that_change_partition(seed):
    rng = np.random.default_rng(seed)
    keys = rng.permutation(2000)[:300].astype(np.int64)
    load, state = rng.random(300), rng.random(300) * 50
    load /= load.sum()
    groups = 40
    isolated = [{int(k): int(rng.integers(4)) for k in rng.choice(keys, 20, replace=False)} for _ in range(2)]
    before, after = (Plan(4, rng.integers(0, 4, groups), each) for each in isolated)
    # single keys are distinguished if they are listed or their state was measured; half of the isolated ones are listed
    single = np.isin(keys, [*isolated[0], *isolated[1]])
    listed = single & (keys % 2 == 0)
    load[single & ~listed] = 0.0
    load /= load.sum()
    histogram = Histogram(keys[listed], load[listed])
    costs = Costs(
        group_load=np.bincount(keys % groups, load, groups),
        group_state=np.bincount(keys % groups, state, groups),
        key_state=dict(zip(keys[single].tolist(), state[single].tolist(), strict=True)),
    )
    moves = diff(before, after, histogram, costs)
    moved = before.assign(keys) != after.assign(keys)
    assert moves.load == pytest.approx(load[moved].sum())
    assert moves.state == pytest.approx(state[moved].sum())


def test_plans_of_other_key_groups_are_not_compared():
    with pytest.raises(MismatchError, match="12 and 16 tail groups"):
        diff(uniform_plan(2, 12), uniform_plan(2, 16))
    with pytest.raises(MismatchError, match="hash seed"):
        diff(uniform_plan(2, 16), uniform_plan(2, 16, hash_seed=1))
    with pytest.raises(MismatchError, match="hash seed"):
        diff(uniform_plan(2, 16), uniform_plan(2, 16), Histogram([], [], hash_seed=1))
