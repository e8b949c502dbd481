"""The random numbers are splitmix64's, and the bounds of a sample are Freedman's inequality solved for the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.sketch.sampling import FAILURE_PROBABILITY, SamplingError, uniform

sampled_weights = st.floats(0, 1e9)
errors = st.builds(SamplingError.of, st.floats(1.001, 1000), st.integers(0, 200))


def deviation(error, true):
    """Freedman's bound on the distance between a sample and the truth."""
    return error.step + math.sqrt(error.step**2 + 2 * error.spread * true)


def test_random_numbers_are_those_of_splitmix64():
    state = np.array([1234567], dtype=np.uint64)
    reference = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [uniform(state) for _ in reference] == [(number >> 11) / 2**53 for number in reference]


@given(errors, sampled_weights)
def test_the_upper_bound_is_the_largest_truth_that_the_sample_allows(error, sampled):
    upper = error.at_most(np.array([sampled]))[0]
    assert upper - deviation(error, upper) == pytest.approx(sampled, rel=1e-6, abs=1e-6)


@given(errors, sampled_weights)
def test_the_lower_bound_is_the_smallest_truth_that_the_sample_allows(error, sampled):
    lower = error.at_least(np.array([sampled]))[0]
    if sampled > deviation(error, 0):
        assert lower + deviation(error, lower) == pytest.approx(sampled, rel=1e-6, abs=1e-6)
    else:
        assert lower == 0


def test_without_sampling_there_is_no_error():
    weights = np.array([0.0, 1.0, 17.0])
    exact = SamplingError.of(1.0, 0)
    assert exact.at_least(weights).tolist() == exact.at_most(weights).tolist() == weights.tolist()


def test_the_probability_is_shared_out_among_all_boundaries_and_all_beginnings():
    shares = [
        2 * (boundaries + 1) * math.exp(-3 * SamplingError.of(2.0, boundaries).step / 2.0) / FAILURE_PROBABILITY
        for boundaries in range(2000)
    ]
    assert sum(shares) == pytest.approx(1, abs=1e-3)
    assert sum(shares) < 1
