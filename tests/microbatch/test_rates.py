"""Rate curves: what is sent adds up, and its time is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise import InvalidArgumentError
from equipoise.microbatch.rates import CURVES, Rate


@given(
    st.sampled_from(CURVES),
    st.floats(10, 1000),
    st.floats(0, 1),
    st.floats(0.5, 100),
    st.floats(0, 300),
    st.floats(0, 300),
)
def test_never_fewer_tuples_later_and_when_is_the_inverse_of_sent(curve, rate, swing, period, early, late):
    curve = Rate(rate, curve, swing=swing * rate, period=period)
    early, late = sorted((early, late))
    assert 0 <= curve.sent(early) <= curve.sent(late) + 1e-6
    sent = curve.sent(late)
    assert curve.sent(curve.when(sent)) == pytest.approx(sent, abs=1e-3, rel=1e-6)


@pytest.mark.parametrize("curve", CURVES)
def test_what_is_sent_is_the_rate_added_up(curve):
    rate = Rate(100, curve, swing=50, period=4)
    step = 1e-3
    times = np.arange(0, 12, step)
    slope = np.diff([rate.sent(t) for t in times]) / step
    at = {"constant": 100, "sinusoidal": 150, "step": 100, "ramp": 112.5}[curve]
    assert slope[1000] == pytest.approx(at, abs=1)
    assert slope.min() >= 49
    assert slope.max() <= 151


def test_a_ramp_goes_up_and_comes_back():
    rate = Rate(10, "ramp", swing=10, period=5)
    assert rate.sent(20) - rate.sent(19) == pytest.approx(10)
    assert rate.sent(5.05) - rate.sent(4.95) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"curve": "zigzag"}, "curve must be one of"),
        ({"curve": "sinusoidal", "swing": 200}, "falls below 0"),
        ({"period": 0}, "period must exceed"),
    ],
)
def test_curves_that_cannot_be_are_reported(options, reported):
    with pytest.raises(InvalidArgumentError, match=reported):
        Rate(100, **options)
    with pytest.raises(InvalidArgumentError, match="never comes"):
        Rate(0).when(1)
