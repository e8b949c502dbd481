import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import InvalidArgumentError
from equipoise.split import Affinity, StaticPoTC

CANDIDATES = {"A": [0, 1], "B": [1, 2], "C": [2, 0], "D": [0, 2]}
STREAM = "ABACADABAC"
FIVE = {"A": [0, 1, 2, 3, 4], "B": [1, 2, 3, 4, 0]}


@pytest.mark.parametrize(
    ("ties_last", "targets", "loads"),
    [(True, [1, 2, 1, 0, 1, 2, 1, 2, 1, 0], [2, 5, 3]), (False, [0, 1, 0, 2, 0, 2, 0, 1, 0, 2], [5, 2, 3])],
)
def test_the_worked_example_comes_out(keys_with, stream_of, ties_last, targets, loads):
    splitter = Affinity(3, ties_last=ties_last)
    stream = stream_of(keys_with(splitter.candidates, CANDIDATES), STREAM)
    assert splitter.route(stream).tolist() == targets
    assert splitter.loads.tolist() == loads
    if not ties_last:
        assert StaticPoTC(3).route(stream).tolist() == targets


@pytest.mark.parametrize(
    ("as_coded", "targets", "loads"),
    [
        (False, [0] * 8 + [1, 0, 0, 1], [10, 2, 0, 0, 0]),
        (True, [0, 1, 2, 3, 4, 4, 4, 4, 1, 4, 4, 2], [1, 2, 2, 1, 6]),
    ],
)
def test_five_choices_come_out_as_intended_and_as_coded(keys_with, stream_of, as_coded, targets, loads):
    splitter = Affinity(5, choices=5, as_coded=as_coded)
    stream = stream_of(keys_with(splitter.candidates, FIVE), "AAAAAAAABAAB")
    assert splitter.route(stream).tolist() == targets
    assert splitter.loads.tolist() == loads


@settings(max_examples=50)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=90), st.integers(1, 7), st.integers(1, 20))
def test_every_window_is_static_potc_from_the_start(stream, workers, window):
    targets = Affinity(workers, window=window).route(stream)
    for start in range(0, len(stream), window):
        part = slice(start, start + window)
        assert targets[part].tolist() == StaticPoTC(workers).route(stream[part]).tolist()


def test_a_window_can_be_ended_by_hand():
    splitter, stream = Affinity(4), np.arange(30)
    first = splitter.route(stream)
    splitter.new_window()
    assert splitter.route(stream).tolist() == first.tolist()


@pytest.mark.parametrize("wrong", [{"choices": 0}, {"window": 0}, {"window": 1.5}])
def test_impossible_options_are_refused(wrong):
    with pytest.raises(InvalidArgumentError):
        Affinity(4, **wrong)
