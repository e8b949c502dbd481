import numpy as np
import pytest

from equipoise import Costs, Histogram, InvalidArgumentError, MismatchError, uniform_plan
from equipoise.plan.cost import Resource, Utility, imbalance_threshold, price, tracking_threshold


def test_thresholds_have_the_values_of_the_paper():
    assert imbalance_threshold(1.2, 3) == pytest.approx(0.125)
    assert imbalance_threshold(1.2, 10) == pytest.approx(0.17647, abs=5e-6)
    assert imbalance_threshold(1.2, 20) == pytest.approx(0.18812, abs=5e-6)
    ten, twenty = imbalance_threshold(1.2, 10), imbalance_threshold(1.2, 20)
    assert tracking_threshold(Resource.LINEAR, 0.1, ten, 10, 10**6) == pytest.approx(0.0017647, abs=5e-8)
    assert tracking_threshold(Resource.LINEAR, 0.1, twenty, 20, 10**6) == pytest.approx(0.00094059, abs=5e-9)
    assert tracking_threshold(Resource.QUADRATIC, 0.1, ten, 10, 10**6) == pytest.approx(4.2008e-5, abs=5e-10)
    assert tracking_threshold(Resource.CONSTANT, 0.1, ten, 10, 10**6) == 1.0


def test_resources_grow_as_their_names_say():
    shares = np.array([0.1, 0.5])
    assert Resource.CONSTANT(shares).tolist() == [1.0, 1.0]
    assert Resource.LINEAR(shares).tolist() == [0.1, 0.5]
    assert Resource.QUADRATIC(shares) == pytest.approx([0.01, 0.25])


def test_utilities_are_numbered_in_the_order_of_the_paper():
    assert [utility.number for utility in Utility] == [0, 1, 2, 3, 4]


def test_without_measurements_the_rest_is_spread_evenly_and_state_follows_load():
    priced = price(Histogram([1, 2], [0.4, 0.2]), groups=4)
    assert priced.group_load == pytest.approx([0.1] * 4)
    assert priced.key_state == pytest.approx([0.4, 0.2])
    assert priced.total_state == pytest.approx(1.0)


def test_measured_group_loads_are_freed_of_the_listed_keys():
    # key 1 falls into group 1, key 6 into group 2
    priced = price(Histogram([1, 6], [0.4, 0.2]), 4, Costs(group_load=np.array([10, 50, 30, 10])))
    assert priced.group_load == pytest.approx([0.1, 0.1, 0.1, 0.1])
    assert priced.loads(uniform_plan(2, 4)) == pytest.approx([0.4, 0.6])


def test_measured_state_is_split_between_a_key_and_its_group():
    costs = Costs(group_load=np.array([1.0, 1.0]), group_state=np.array([100.0, 60.0]), key_state={2: 90.0})
    priced = price(Histogram([2, 3], [0.25, 0.25]), 2, costs)
    assert priced.key_state == pytest.approx([90.0, 30.0])
    assert priced.group_state == pytest.approx([10.0, 30.0])
    assert priced.total_state == pytest.approx(160.0)


def test_groups_in_which_nothing_was_measured_count_as_unmeasured():
    assert price(Histogram([1], [0.2]), 4, Costs(group_load=np.zeros(4))).group_load == pytest.approx([0.2] * 4)


@pytest.mark.parametrize("values", [[-1.0, 1.0], [np.nan, 1.0], [np.inf, 1.0], [[1.0], [2.0]]])
def test_impossible_measurements_are_refused(values):
    with pytest.raises(InvalidArgumentError, match="group_load"):
        Costs(group_load=np.array(values))
    with pytest.raises(InvalidArgumentError, match="group_state"):
        Costs(group_state=np.array(values))


def test_the_state_of_single_keys_must_be_possible_and_part_of_the_groups():
    with pytest.raises(InvalidArgumentError, match="key_state must hold"):
        Costs(group_state=np.ones(4), key_state={1: -1.0})
    with pytest.raises(InvalidArgumentError, match="without group_state"):
        Costs(key_state={1: 1.0})


def test_single_keys_and_groups_are_priced_together_or_apart():
    costs = Costs(group_load=np.array([4.0, 4.0]), group_state=np.array([10.0, 20.0]), key_state={2: 4.0, 7: 3.0})
    priced = price(Histogram([2, 3], [0.25, 0.125]), 2, costs)
    load, state = priced.of_keys(np.array([3, 7, 2]))
    assert load.tolist() == [0.125, 0.0, 0.25]
    assert state == pytest.approx([4.25, 3.0, 4.0])  # key 3 has a quarter of what key 7 leaves of its group
    load, state = priced.of_groups(isolated=np.array([2]))
    assert load == pytest.approx([0.25, 0.5])
    assert state == pytest.approx([6.0, 20.0])


def test_measurements_of_another_number_of_groups_are_refused():
    with pytest.raises(MismatchError, match="covers 3 tail groups but the plan has 4"):
        price(Histogram([], []), 4, Costs(group_load=np.ones(3)))


@pytest.mark.parametrize("alpha", [1.0, 0.5, np.nan])
def test_an_alpha_that_tolerates_nothing_is_refused(alpha):
    with pytest.raises(InvalidArgumentError, match="alpha"):
        imbalance_threshold(alpha, 4)


@pytest.mark.parametrize("sigma", [0.0, 1.5, np.nan])
def test_a_sigma_outside_its_range_is_refused(sigma):
    with pytest.raises(InvalidArgumentError, match="sigma"):
        tracking_threshold(Resource.LINEAR, sigma, 0.1, 4, 10)
