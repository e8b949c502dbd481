import pytest

from equipoise import KIP, InvalidArgumentError
from equipoise.adapt import Policy


def test_the_smaller_of_two_budgets_counts():
    assert Policy().budget(1e6) is None
    assert Policy(budget_bytes=5e6, budget_seconds=2).budget(1e6) == 2e6
    assert Policy(budget_bytes=5e6, budget_seconds=9).budget(1e6) == 5e6
    assert Policy(budget_bytes=0).budget(1e6) == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"mode": "manual"}, "mode must be one of observe, advise, auto"),
        ({"planner": "kipp"}, "there is no planner 'kipp'"),
        ({"planner": KIP}, "planner must be a Planner or its name"),
        ({"load": "bytes"}, "load must be one of"),
        ({"decay": 1.0}, "decay"),
        ({"threshold": -0.1}, "threshold"),
        ({"minimum_gain": -0.1}, "minimum_gain"),
        ({"minimum_gain": 0.6, "hysteresis": 0.4}, "must add up to less than 1"),
        ({"minimum_interval": 0}, "minimum_interval"),
        ({"horizon": 0}, "horizon"),
        ({"budget_bytes": -1}, "budget_bytes"),
        ({"budget_seconds": float("nan")}, "budget_seconds"),
        ({"move_rate": 0}, "move_rate"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_refused(options, complaint):
    with pytest.raises(InvalidArgumentError, match=complaint):
        Policy(**options)


def test_limits_that_are_set_hold_for_batches_that_were_seen_too_whatever_their_value():
    assert Policy().limits(seen=False) == (0.08, 0.08)
    assert Policy().limits(seen=True) == (0.02, 0.01)
    assert Policy(threshold=0.08, minimum_gain=0.08).limits(seen=True) == (0.08, 0.08)
