"""The buffer of a batch: exact sizes, quasi-sorted keys, and a bounded number of updates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import InvalidArgumentError
from equipoise.microbatch import Accumulator, post_sorted

LETTERS = {letter: number for number, letter in enumerate("abcd")}


def test_the_worked_example():
    """Golden 6: (exact, placed, budget left) of every key, and the steps on the way."""
    buffer = Accumulator(0, 2, expected=20, expected_keys=4, budget=4, first_step=2)
    placed = []
    for number, letter in enumerate("aabaacaabaadaabaacaa"):
        buffer.add([LETTERS[letter]], 0.1 * number)
        placed.append({key: buffer.entry(LETTERS[key])[1] for key in "abcd" if LETTERS[key] < buffer.keys})
    found = {key: buffer.entry(LETTERS[key]) for key in "abcd"}
    assert found == {"a": (14, 11, 1), "b": (3, 3, 2), "c": (2, 2, 3), "d": (1, 1, 4)}
    steps = {key: [n for n in range(1, 20) if placed[n].get(key) != placed[n - 1].get(key)] for key in "abc"}
    assert steps == {"a": [3, 9, 15], "b": [2, 8, 14], "c": [5, 17]}  # the first of b and c is their arrival
    assert buffer.close().keys.tolist() == [0, 1, 2, 3]


@st.composite
def streams(draw):
    keys = draw(st.lists(st.integers(-5, 30), min_size=1, max_size=400))
    sizes = draw(st.none() | st.lists(st.integers(1, 9), min_size=len(keys), max_size=len(keys)))
    chunk = draw(st.integers(1, 400))
    return np.array(keys), None if sizes is None else np.array(sizes), chunk


@given(streams(), st.integers(1, 8), st.integers(2, 40))
@settings(max_examples=100)
def test_sizes_are_exact_and_every_tuple_is_with_its_key(stream, budget, levels):
    keys, sizes, chunk = stream
    times = np.linspace(0, 1, len(keys), endpoint=False)
    buffer = Accumulator(0, 1, expected=len(keys), expected_keys=10, budget=budget, levels=levels)
    for start in range(0, len(keys), chunk):
        part = slice(start, start + chunk)
        buffer.add(keys[part], times[part], None if sizes is None else sizes[part])
    entries = {int(key): buffer.entry(int(key)) for key in np.unique(keys)}
    batch = buffer.close()
    weights = np.ones(len(keys), dtype=int) if sizes is None else sizes
    assert sorted(batch.keys.tolist()) == sorted(entries)
    assert sorted(batch.tuples.tolist()) == list(range(len(keys)))
    for number, key in enumerate(batch.keys.tolist()):
        mine = np.flatnonzero(keys == key)
        assert batch.tuples[batch.starts[number] : batch.starts[number + 1]].tolist() == mine.tolist()
        assert batch.sizes[number] == weights[mine].sum() == entries[key][0]
        assert entries[key][1] <= entries[key][0]
        assert 0 <= entries[key][2] <= budget
    placed = [entries[key][1] for key in batch.keys.tolist()]
    assert placed == sorted(placed, reverse=True)
    assert batch.size == buffer.size == weights.sum()


@given(streams())
@settings(max_examples=50)
def test_with_a_budget_for_every_tuple_the_order_is_that_of_sorting(stream):
    keys, sizes, _ = stream
    buffer = Accumulator(0, 1, expected=1, expected_keys=1, budget=10**6, first_step=0)
    buffer.add(keys, np.linspace(0, 1, len(keys), endpoint=False), sizes)
    mine, theirs = buffer.close(), post_sorted(keys, sizes)
    assert mine.sizes.tolist() == theirs.sizes.tolist()
    pairs = [sorted(zip(each.keys.tolist(), each.sizes.tolist(), strict=True)) for each in (mine, theirs)]
    assert pairs[0] == pairs[1]


def test_many_keys_grow_the_buffer():
    keys = np.random.default_rng(1).permutation(np.repeat(np.arange(5000), 3))
    buffer = Accumulator(0, 1, expected=15_000, expected_keys=10)
    for chunk in np.array_split(keys, 7):
        buffer.add(chunk, 0.5)
    batch = buffer.close()
    assert buffer.keys == len(batch.keys) == 5000
    assert set(batch.sizes.tolist()) == {3}


def test_an_empty_batch_is_a_batch():
    buffer = Accumulator(0, 1, expected=0, expected_keys=0)
    buffer.add([], [])
    assert len(buffer.close()) == 0


def small():
    return Accumulator(0, 1, expected=1, expected_keys=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Accumulator(1, 1, expected=1, expected_keys=1), "is empty"),
        (lambda: Accumulator(0, 1, expected=1, expected_keys=1, budget=0), "budget"),
        (lambda: small().add([1, 2], [0.1, 0.2, 0.3]), "2 tuples but 3 times"),
        (lambda: small().add([1, 2], 0.1, [1, 0]), "size 0; sizes are at least 1"),
        (lambda: small().entry(7), "key 7 is not in the batch"),
    ],
)
def test_wrong_arguments_are_reported(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call()
