"""A planner whose promises fail is trusted less, and is trusted again after a while without new plans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.adapt import Promises

GAIN = st.floats(-8, 8)


def noted(*batches):
    promises = Promises()
    for promised, got in batches:
        promises.note(promised, got)
    return promises.trust


@given(st.lists(st.tuples(GAIN, GAIN)))
def test_trust_is_a_fraction(batches):
    assert 0 <= noted(*batches) <= 1


@pytest.mark.parametrize(("got", "trust"), [(1.0, 1.0), (1.1, 1.0), (0.5, 0.75), (0.0, 0.5), (-1.0, 0.5)])
def test_trust_is_the_part_of_the_promise_that_was_kept(got, trust):
    assert noted((1.0, got)) == pytest.approx(trust)


def test_trust_falls_with_each_broken_promise_and_returns_without_new_plans():
    broken, steady = (1.0, 0.0), (0.0, 0.0)
    assert noted(broken, broken, broken) == pytest.approx(0.125)
    assert noted(broken, broken, broken, *[steady] * 60) > 0.95


def test_a_batch_of_which_nothing_was_promised_is_no_broken_promise():
    assert noted((0.0, -3.0), (-0.2, -3.0)) == 1
