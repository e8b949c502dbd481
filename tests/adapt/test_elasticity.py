"""The number of partitions follows the work, within its bounds, and never swings on a steady load."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise import InvalidArgumentError
from equipoise.adapt import Elastic, busy_fraction


def run(elastic, work, partitions):
    """N after each batch, for the work of each in seconds and a target of one second."""
    recent, course = [], []
    for seconds in work:
        recent.append(busy_fraction(seconds, partitions, 1.0))
        proposed = elastic.propose(recent, partitions)
        if proposed != partitions:
            recent, partitions = [], proposed
        course.append(partitions)
    return course


bounds = st.tuples(st.integers(1, 100), st.integers(0, 200)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(bounds, st.integers(1, 300), st.lists(st.floats(0, 1e4), max_size=20))
def test_the_number_stays_within_its_bounds(limits, partitions, work):
    elastic = Elastic(*limits)
    assert all(limits[0] <= count <= limits[1] for count in run(elastic, work, partitions)[:1])
    assert limits[0] <= elastic.propose([], partitions) <= limits[1]
    assert all(
        limits[0] <= count <= limits[1] for count in run(elastic, work, min(max(partitions, limits[0]), limits[1]))
    )


@given(bounds, st.integers(1, 300), st.floats(0, 500))
def test_a_steady_load_changes_the_number_at_most_once(limits, partitions, work):
    partitions = min(max(partitions, limits[0]), limits[1])
    course = [partitions, *run(Elastic(*limits), [work] * 30, partitions)]
    assert sum(a != b for a, b in pairwise(course)) <= 1


@given(st.integers(1, 300), st.floats(0.1, 300), st.integers(0, 2**32))
def test_a_load_within_a_tenth_of_its_mean_never_makes_the_number_turn_back(partitions, work, seed):
    noise = np.random.default_rng(seed).uniform(0.9, 1.1, 100)
    course = np.array([partitions, *run(Elastic(1, 500), work * noise, partitions)])
    steps = np.diff(course)
    assert np.all(steps >= 0) or np.all(steps <= 0)


def test_a_lasting_change_of_load_is_followed_both_ways():
    elastic = Elastic(1, 64)
    course = run(elastic, [5.0] * 5 + [20.0] * 5 + [2.0] * 5, 8)
    assert course == [8] * 7 + [29] * 5 + [3] * 3


def test_one_batch_that_disagrees_starts_the_count_anew():
    assert set(run(Elastic(1, 64), [8.0, 8.0, 5.0] * 5, 8)) == {8}
    assert set(run(Elastic(1, 64), [1.0, 1.0, 5.0] * 5, 8)) == {8}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"minimum": 0}, "minimum"),
        ({"maximum": 1}, "maximum must be a whole number of at least 2"),
        ({"low": 0.8}, "low < goal < high"),
        ({"goal": 0.95}, "low < goal < high"),
        ({"patience": 0}, "patience"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(options, complaint):
    with pytest.raises(InvalidArgumentError, match=complaint):
        Elastic(**{"minimum": 2, "maximum": 8} | options)


def test_a_busy_fraction_needs_a_target():
    with pytest.raises(InvalidArgumentError, match="target_seconds"):
        busy_fraction(1.0, 4, 0)
    with pytest.raises(InvalidArgumentError, match="a busy fraction"):
        Elastic(1, 4).propose([-1.0] * 3, 2)
