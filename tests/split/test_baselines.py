"""Shuffle, key grouping, static PoTC, On-Greedy and Off-Greedy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import InvalidArgumentError
from equipoise.metrics import average_imbalance_fraction, imbalance
from equipoise.split import KeyGrouping, OffGreedy, OnGreedy, Shuffle, StaticPoTC

CANDIDATES = {"A": [0, 1], "B": [1, 2], "C": [2, 0], "D": [0, 2]}
STREAM = "ABACADABAC"
STREAMS = st.lists(st.integers(-8, 8), min_size=1, max_size=80)


@pytest.fixture
def keys(keys_with):
    return keys_with(StaticPoTC(3).candidates, CANDIDATES)


def test_static_potc_comes_out_as_in_the_worked_example(keys, stream_of):
    splitter = StaticPoTC(3)
    targets = splitter.route(stream_of(keys, STREAM))
    assert "".join(map(str, targets)) == "0102020102"
    assert splitter.loads.tolist() == [5, 2, 3]
    assert imbalance(splitter.loads) == pytest.approx(1.6667, abs=1e-4)
    assert average_imbalance_fraction(targets, 3) == pytest.approx(0.11667, abs=1e-5)


def test_on_greedy_comes_out_as_in_the_worked_example(keys, stream_of):
    splitter = OnGreedy(3)
    assert "".join(map(str, splitter.route(stream_of(keys, STREAM)))) == "0102010102"
    assert splitter.loads.tolist() == [5, 3, 2]


def test_off_greedy_comes_out_as_in_the_worked_example(stream_of):
    keys = {"A": 1, "B": 2, "C": 3, "D": 4}
    splitter = OffGreedy(3)
    splitter.learn(stream_of(keys, STREAM[:4]))
    splitter.learn(stream_of(keys, STREAM[4:]))
    targets = splitter.route(stream_of(keys, STREAM))
    assert dict(zip(STREAM, targets.tolist(), strict=True)) == {"A": 0, "B": 1, "C": 2, "D": 1}
    assert splitter.loads.tolist() == [5, 3, 2]


def test_key_grouping_comes_out_as_in_the_worked_example(keys, stream_of):
    splitter = KeyGrouping(3)  # the first hash of the seed is also the first candidate above
    splitter.route(stream_of(keys, STREAM))
    assert splitter.loads.tolist() == [6, 2, 2]


@settings(max_examples=50)
@given(STREAMS, st.integers(1, 9), st.integers(0, 5))
def test_the_loads_of_shuffle_differ_by_at_most_one(stream, workers, seed):
    loads = np.bincount(Shuffle(workers, seed=seed).route(stream), minlength=workers)
    assert loads.max() - loads.min() <= 1


@settings(max_examples=50)
@given(STREAMS, st.integers(1, 9))
def test_static_potc_and_on_greedy_choose_once_by_the_load_of_the_moment(stream, workers):
    for kind in (StaticPoTC, OnGreedy):
        splitter, loads, placed = kind(workers), [0] * workers, {}
        for key, target in zip(stream, splitter.route(stream).tolist(), strict=True):
            choices = kind(workers).candidates(key).tolist()
            expected = placed.setdefault(key, min(choices, key=lambda worker: loads[worker]))
            assert target == expected
            loads[target] += 1


@settings(max_examples=50)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=9), st.integers(1, 3))
def test_off_greedy_is_within_grahams_bound_of_the_best(counts, workers):
    stream = np.repeat(np.arange(len(counts)), counts)
    splitter = OffGreedy(workers)
    splitter.learn(stream)
    splitter.route(stream)
    best = {(0,) * workers}
    for count in counts:  # all ways to place the keys
        best = {tuple(sorted((*s[:i], s[i] + count, *s[i + 1 :]))) for s in best for i in range(workers)}
    assert splitter.loads.max() <= (4 / 3 - 1 / (3 * workers)) * min(max(s) for s in best) + 1e-9


def test_off_greedy_places_keys_it_was_not_given_and_learns_no_more():
    splitter = OffGreedy(2)
    splitter.learn([1, 1, 1])
    assert splitter.candidates(9).tolist() == [1]
    assert splitter.route([9, 1, 8, 9]).tolist() == [1, 0, 1, 1]
    with pytest.raises(InvalidArgumentError, match="new splitter"):
        splitter.learn([2])


def test_tables_grow_with_the_keys_and_forget_none():
    stream = np.arange(5000)
    splitter = StaticPoTC(7)
    first = splitter.route(stream)
    before = splitter.nbytes
    assert splitter.route(stream).tolist() == first.tolist()
    assert splitter.nbytes == before > StaticPoTC(7).nbytes
