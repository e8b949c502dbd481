import numpy as np
import pytest

from equipoise import InvalidArgumentError
from equipoise.arguments import at_least, whole


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3)])
def test_whole_numbers_of_any_kind_become_plain_integers(value):
    assert whole("n", value, 0) == 3
    assert type(whole("n", value, 0)) is int


@pytest.mark.parametrize("value", [2, 3.0, 2.5, "3", None, True, np.True_, [3]])
def test_what_is_no_whole_number_or_too_small_is_refused_by_name(value):
    with pytest.raises(InvalidArgumentError, match="n must be a whole number of at least 3, got"):
        whole("n", value, 3)


@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf, "0.5", None, True, 1j])
def test_what_is_no_finite_number_or_too_small_is_refused_by_name(value):
    with pytest.raises(InvalidArgumentError, match="x must be a finite number of at least 0, got"):
        at_least("x", value, 0)


def test_numbers_of_any_kind_become_floats():
    assert [at_least("x", value, 0) for value in (1, 0.5, np.float32(0.25))] == [1.0, 0.5, 0.25]
