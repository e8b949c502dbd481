"""Tasks follow the load, after some patience, and not back and forth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise import InvalidArgumentError
from equipoise.microbatch import AutoScale

BATCH = st.tuples(st.floats(0, 2), st.integers(1, 100), st.integers(1, 100))


def test_golden():
    loads = [0.85, 0.95, 0.96, 0.97, 0.88, *[0.7] * 5, *[0.95] * 3]
    rates = [100, 110, 120, 130, 130, *[90] * 5, *[120] * 3]
    keys = [*[50] * 7, *[40] * 4, 60, 60]
    scale = AutoScale(4, 4, patience=3)
    found = [scale.next(*each) for each in zip(loads, rates, keys, strict=True)]
    acted = {n: (each.action, each.maps, each.reduces) for n, each in enumerate(found) if each.action != "keep"}
    assert acted == {3: ("out", 5, 4), 7: ("in", 4, 3), 12: ("out", 5, 4)}
    assert "took 97% of its interval; tasks were added: 5 map, 4 reduce tasks" in found[3].reason


def test_where_neither_rate_nor_keys_changed_both_stages_change():
    scale = AutoScale(2, 3, patience=2)
    found = [(each.maps, each.reduces) for each in (scale.next(0.99, 10, 10) for _ in range(4))]
    assert found == [(2, 3), (3, 4), (3, 4), (4, 5)]


def test_a_longer_stride_follows_a_steep_load_in_one_action():
    scale = AutoScale(8, 8, patience=1, stride=64)
    assert [scale.next(load, 10, 10).maps for load in (1.7, 0.85, 0.85, 0.425)] == [16, 16, 16, 8]
    short = AutoScale(8, 8, patience=1, stride=3)
    assert short.next(1.7, 10, 10).maps == 11


def test_with_a_longer_stride_no_task_is_taken_away_that_the_rest_could_not_do_without():
    scale = AutoScale(4, 4, patience=1, stride=8)
    assert [scale.next(0.73, 10, 10).action for _ in range(5)] == ["keep"] * 5
    assert scale.next(1.2, 12, 12).action == "out"
    printed = AutoScale(4, 4, patience=1)
    assert printed.next(0.73, 10, 10).action == "in"


@given(st.floats(0, 1), st.integers(1, 50))
def test_with_a_longer_stride_what_is_left_stays_below_the_threshold(load, tasks):
    made = AutoScale(tasks, tasks, patience=1, stride=64).next(load, 10, 10)
    assert made.action == "out" or load * tasks / made.maps <= 0.9


def test_nothing_to_change_is_no_action_that_others_would_wait_for():
    scale = AutoScale(2, 2, patience=2, least=2)
    assert [scale.next(0.1, 10, 10).action for _ in range(4)] == ["keep"] * 4
    assert [scale.next(1.5, 10, 10).action for _ in range(2)] == ["keep", "out"]


def test_batches_that_wait_are_made_up_for():
    scale = AutoScale(8, 8, patience=1, stride=64)
    assert scale.next(0.85, 10, 10).action == "keep"
    made = scale.next(0.85, 10, 10, behind=3)
    assert (made.action, made.maps) == ("out", 11)
    assert made.reason == "the batch took 85% of its interval and 3 wait; tasks were added: 11 map, 11 reduce tasks"


@given(st.lists(BATCH, max_size=60), st.integers(1, 4), st.integers(1, 3))
def test_bounds_and_patience_hold(batches, patience, stride):
    scale = AutoScale(3, 3, patience=patience, stride=stride, least=2, most=5)
    last = {"out": -100, "in": -100}
    for number, batch in enumerate(batches):
        before = (scale.maps, scale.reduces)
        made = scale.next(*batch)
        assert 2 <= min(made.maps, made.reduces) <= max(made.maps, made.reduces) <= 5
        change = {made.maps - before[0], made.reduces - before[1]}
        if made.action == "keep":
            assert change == {0}
            continue
        sign = 1 if made.action == "out" else -1
        assert change <= {0, *(sign * size for size in range(1, stride + 1))}
        window = [load for load, _, _ in batches[number - patience + 1 : number + 1]]
        assert all(load > 0.9 for load in window) if sign > 0 else all(load <= 0.8 for load in window)
        assert number - last["in" if sign > 0 else "out"] > patience
        last[made.action] = number


def test_wrong_arguments_are_reported():
    with pytest.raises(InvalidArgumentError, match=r"maps is 9, outside of 1..8"):
        AutoScale(9, 1, most=8)
    with pytest.raises(InvalidArgumentError, match="least 3 exceeds most 2"):
        AutoScale(3, 3, least=3, most=2)
    with pytest.raises(InvalidArgumentError, match="step 2 leaves no load"):
        AutoScale(3, 3, threshold=1, step=2)
