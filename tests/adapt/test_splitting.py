"""Which keys of a stream are split: those too hot for a task, beyond chance, and not back and forth."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from equipoise import Histogram
from equipoise.adapt import split_widths


@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=12),
    st.integers(1, 40),
    st.dictionaries(st.integers(0, 11), st.integers(2, 40)),
)
def test_shards_hold_at_most_a_tasks_worth(weights, tasks, current):
    shares = np.array(weights) / max(1.0, sum(weights))
    histogram = Histogram(np.arange(len(shares)), shares)
    widths = split_widths(histogram, tasks, current)
    for key, share in histogram:
        if key in widths:
            assert 2 <= widths[key] <= tasks
            assert share * tasks / widths[key] <= 1 + 1e-9
        else:
            assert share * tasks <= 1.2 + 1e-9 or tasks == 1
    assert split_widths(histogram, tasks, widths) == widths, "what was decided stays decided"


def test_an_even_load_is_not_split_by_chance():
    rng = np.random.default_rng(1)
    for rows in (50, 200, 1000):
        for _ in range(200):
            keys, counts = np.unique(rng.integers(0, 16, rows), return_counts=True)
            assert split_widths(Histogram(keys, counts / rows), 16, {}, rows=rows) == {}


def test_a_width_changes_when_the_load_does():
    hot = Histogram([1], [0.5])
    assert split_widths(hot, 8, {}) == {1: 4}
    assert split_widths(hot, 8, {1: 6}) == {1: 6}, "near enough"
    assert split_widths(Histogram([1], [0.9]), 8, {1: 4}) == {1: 8}
    assert split_widths(Histogram([1], [0.15]), 8, {1: 8}) == {1: 2}
    assert split_widths(Histogram([1], [0.11]), 8, {1: 4}) == {1: 4}, "above 0.8 of a task"
    assert split_widths(Histogram([1], [0.09]), 8, {1: 4}) == {}
