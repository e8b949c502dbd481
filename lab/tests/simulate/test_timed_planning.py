import numpy as np
import pytest

from equipoise.errors import InvalidArgumentError
from equipoise.plan import KIP, Costs, uniform_plan
from equipoise.sketch import Histogram
from equipoise_lab.simulate.timed_planning import TimedPlanning


def test_a_plan_from_the_other_process_is_that_of_the_planner():
    first, hot = uniform_plan(8), Histogram([1, 9, 17], [0.3, 0.2, 0.1])
    costs = Costs(group_load=np.arange(first.tail_groups, dtype=float))
    with TimedPlanning("kip", limit=600) as planning:
        found = planning.plan(first, hot, costs)
        again = planning.plan(found.plan, hot, costs)
    assert found.plan == KIP().plan(first, hot, costs=costs)
    assert again.plan == found.plan
    assert 0 < found.seconds < 600
    assert found.trouble == ""


def test_a_planner_that_takes_too_long_is_given_up():
    keys = np.arange(4001)
    hot = Histogram(keys, np.full(len(keys), 0.9 / len(keys)) * (1 + keys / 1e5) / 1.05)
    with TimedPlanning("readj", limit=0.05) as planning:
        found = planning.plan(uniform_plan(2000), hot, Costs())
        assert (found.plan, found.trouble) == (None, "gave up after 0.05 s")
        with pytest.raises(InvalidArgumentError, match="exceeded its time limit"):
            planning.plan(uniform_plan(2000), hot, Costs())


def test_a_planner_that_finds_no_plan_says_why():
    hot = Histogram([1, 2, 3], [0.5, 0.2, 0.1])
    with TimedPlanning("mixed", limit=600) as planning:
        found = planning.plan(uniform_plan(4), hot, Costs())
    assert (found.plan is None) == bool(found.trouble)


def test_wrong_names_and_limits_are_reported_before_a_process_starts():
    with pytest.raises(InvalidArgumentError, match="no planner"):
        TimedPlanning("none", limit=1)
    with pytest.raises(InvalidArgumentError, match="above 0"):
        TimedPlanning("kip", limit=0)
