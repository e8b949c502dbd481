"""A planner whose promises fail is trusted less, and is trusted again after a while without new plans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.adapt import Promises

BATCH = st.tuples(st.floats(1, 8), st.floats(1, 8), st.floats(1, 8), st.booleans())


def noted(*batches):
    promises = Promises()
    for unchanged, promised, came, changed in batches:
        measures = {"unchanged_rows": unchanged, "promised_rows": promised, "imbalance_rows": came}
        promises.note(measures, changed=changed)
    return promises.trust


@given(st.lists(BATCH))
def test_trust_is_a_fraction(batches):
    assert 0 <= noted(*batches) <= 1


@pytest.mark.parametrize(("came", "trust"), [(1.0, 1.0), (0.9, 1.0), (1.5, 0.75), (2.0, 0.5), (3.0, 0.5)])
def test_trust_is_the_part_of_the_promise_that_was_kept(came, trust):
    assert noted((2.0, 1.0, came, True)) == pytest.approx(trust)


def test_trust_falls_with_each_broken_promise_and_returns_without_new_plans():
    broken, steady = (2.0, 1.0, 2.0, True), (2.0, 2.0, 2.0, False)
    assert noted(broken, broken, broken) == pytest.approx(0.125)
    assert noted(broken, broken, broken, *[steady] * 60) > 0.95


def test_a_batch_of_which_nothing_was_promised_is_no_broken_promise():
    promises = Promises()
    promises.note({"imbalance_rows": 3.0}, changed=True)
    promises.note({"unchanged_rows": None, "promised_rows": None, "imbalance_rows": 3.0}, changed=True)
    promises.note({"unchanged_rows": 1.0, "promised_rows": 1.2, "imbalance_rows": 3.0}, changed=True)
    assert promises.trust == 1
