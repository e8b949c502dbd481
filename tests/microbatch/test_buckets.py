"""Clusters of a map task to reduce buckets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import InvalidArgumentError
from equipoise.microbatch import prompt_buckets

CLUSTER = st.tuples(st.integers(0, 60), st.integers(1, 50), st.booleans())


def test_goldens():
    keys, sizes = [0, 1, 2, 3, 4, 5, 6], [6, 9, 8, 3, 2, 1, 1]
    buckets = prompt_buckets(keys, sizes, [True] + [False] * 6, 3)
    assert buckets.tolist() == [0, 1, 2, 0, 2, 0, 1]
    assert np.bincount(buckets, sizes).tolist() == [10, 10, 10]
    alone = ([1, 2, 3, 4, 5, 6], [10, 1, 1, 1, 1, 1], [False] * 6, 3)
    assert np.bincount(prompt_buckets(*alone), alone[1]).tolist() == [11, 2, 2]
    assert np.bincount(prompt_buckets(*alone, turns=False), alone[1]).tolist() == [10, 3, 2]


@given(st.lists(CLUSTER, unique_by=lambda each: each[0], max_size=60), st.integers(1, 9))
@settings(max_examples=100)
def test_split_keys_meet_and_the_others_take_turns(clusters, count):
    keys, sizes, split = np.array(clusters, dtype=np.int64).reshape(-1, 3).T
    split = split.astype(bool)
    found = prompt_buckets(keys, sizes, split, count)
    assert np.all((found >= 0) & (found < count))
    assert found[split].tolist() == prompt_buckets(keys[split], sizes[split], split[split], count).tolist()
    turns = np.bincount(found[~split], minlength=count)
    assert turns.max() - turns.min() <= 1


def test_wrong_arguments_are_reported():
    with pytest.raises(InvalidArgumentError, match="2 keys, 1 sizes and 2 flags"):
        prompt_buckets([1, 2], [1], [True, False], 3)
