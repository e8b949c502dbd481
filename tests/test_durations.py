"""Lengths of time as users write them."""

import pytest

from equipoise import InvalidArgumentError
from equipoise.durations import seconds_of


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("500 milliseconds", 0.5), ("1 second", 1), ("30 seconds", 30), ("2 hours", 7200), (1.5, 1.5), ("2", 2)],
)
def test_durations_are_understood(given, seconds):
    assert seconds_of("window", given) == pytest.approx(seconds)


@pytest.mark.parametrize("given", ["soon", "0 seconds", -1, 0, "1 fortnight"])
def test_what_is_no_duration_is_reported(given):
    with pytest.raises(InvalidArgumentError, match="window must"):
        seconds_of("window", given)
