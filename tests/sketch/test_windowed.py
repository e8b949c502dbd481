"""The windowed counter answers like one Lossy Counter over the recent past."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import DamagedError, InvalidArgumentError, MismatchError
from equipoise.framing import seal, unseal
from equipoise.sketch import LossyCounting, WindowedCounter

weighted_keys = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 30)), max_size=40)
shapes = st.tuples(st.integers(1, 40), st.integers(2, 5))


def counted(shape, pairs):
    sketch = WindowedCounter(*shape, epsilon=0.2)
    sketch.update_many([key for key, _ in pairs], [weight for _, weight in pairs])
    return sketch


def repeated(pairs):
    return [key for key, weight in pairs for _ in range(weight)]


def last(count, keys):
    return keys[len(keys) - count :]


def lossy(keys):
    sketch = LossyCounting(0.2)
    sketch.update_many(keys)
    return sketch


def bounds(sketch):
    return [(sketch.lower(key), sketch.upper(key)) for key in range(10)]


@pytest.mark.parametrize(
    ("seen", "age"), [(0, 0), (1, 1), (99, 99), (149, 149), (150, 100), (199, 149), (200, 100), (250, 100)]
)
def test_three_counters_answer_by_turns_as_published(seen, age):
    sketch = WindowedCounter(100)
    sketch.update_many(np.arange(seen))
    assert sketch.total == age


def test_four_counters_remember_at_most_a_third_more_than_the_window():
    sketch = WindowedCounter(120, counters=4)
    ages = []
    for key in range(600):
        sketch.update(key)
        ages.append(sketch.total)
    assert ages[:120] == list(range(1, 121))
    assert (min(ages[119:]), max(ages[119:])) == (120, 159)


@settings(max_examples=200)
@given(shapes, weighted_keys)
def test_it_answers_like_a_lossy_counter_over_the_last_of_the_input(shape, pairs):
    sketch, keys = counted(shape, pairs), repeated(pairs)
    recent = lossy(last(sketch.total, keys))
    assert bounds(sketch) == bounds(recent)
    assert sketch.top(10) == recent.top(10)
    assert sketch.histogram() == recent.histogram()


@settings(max_examples=200)
@given(shapes, weighted_keys)
def test_the_answer_covers_the_window_and_little_more(shape, pairs):
    window, counters = shape
    sketch, fed = counted(shape, pairs), len(repeated(pairs))
    step = -(-window // (counters - 1))
    assert min(fed, window) <= sketch.total < max(1, fed + 1 if fed < window else counters * step)


@settings(max_examples=200)
@given(shapes, weighted_keys)
def test_a_weight_counts_like_that_many_repetitions(shape, pairs):
    plain = WindowedCounter(*shape, epsilon=0.2)
    plain.update_many(repeated(pairs))
    assert counted(shape, pairs).to_bytes() == plain.to_bytes()


@settings(max_examples=200)
@given(shapes, weighted_keys, weighted_keys)
def test_a_merged_counter_answers_about_what_both_answering_counters_have_seen(shape, left, right):
    one, two = counted(shape, left), counted(shape, right)
    merged = one.merge(two)
    first, second = last(one.total, repeated(left)), last(two.total, repeated(right))
    assert merged.total == one.total + two.total
    assert bounds(merged) == bounds(lossy(first).merge(lossy(second)))


@settings(max_examples=200)
@given(shapes, weighted_keys, weighted_keys, st.lists(st.just((9, 1)), min_size=1, max_size=150))
def test_a_merged_counter_fed_further_still_covers_the_window_and_forgets_the_rest(shape, left, right, later):
    window, counters = shape
    step = -(-window // (counters - 1))
    merged = counted(shape, left).merge(counted(shape, right))
    merged.update_many([key for key, _ in later])
    fed = len(repeated(left)) + len(repeated(right)) + len(later)
    assert merged.total >= min(window, fed)
    assert merged.lower(9) <= len(later)
    assert merged.upper(9) >= min(window, len(later))
    if len(later) >= counters * step:
        assert merged.total < counters * step


def test_a_weight_of_many_windows_is_counted_at_once():
    sketch = WindowedCounter(100)
    sketch.update_many([1, 2, 3], [60, 10**15 + 7, 20])
    assert 100 <= sketch.total < 150
    assert sketch.lower(1) == 0
    assert sketch.lower(2) == sketch.total - 20


def test_a_window_that_the_counters_do_not_divide_is_rounded_up():
    sketch = WindowedCounter(100, counters=4)
    ages = []
    for key in range(500):
        sketch.update(key)
        ages.append(sketch.total)
    assert (min(ages[101:]), max(ages[101:])) == (102, 135)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"window": 0}, "window must be a whole number of at least 1"),
        ({"window": 2.5}, "window must be a whole number"),
        ({"window": 2**51 + 1}, "window must be at most"),
        ({"window": 10, "counters": 1}, "counters must be a whole number of at least 2"),
        ({"window": 10, "counters": 2.5}, "counters must be a whole number"),
        ({"window": 10, "epsilon": "much"}, "epsilon must be a finite number"),
        ({"window": 10, "hash_seed": 1.5}, "hash_seed must be a whole number"),
        ({"window": 10, "epsilon": 0}, "epsilon must lie between"),
    ],
)
def test_impossible_parameters_are_refused(arguments, complaint):
    with pytest.raises(InvalidArgumentError, match=complaint):
        WindowedCounter(**arguments)


@pytest.mark.parametrize(
    "other",
    [
        WindowedCounter(11),
        WindowedCounter(10, counters=4),
        WindowedCounter(10, epsilon=0.1),
        WindowedCounter(10, hash_seed=1),
    ],
)
def test_sketches_of_different_parameters_are_not_merged(other):
    with pytest.raises(MismatchError, match="make both with the same parameters"):
        WindowedCounter(10).merge(other)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("window", 0),
        ("counters", 1),
        ("counters", 2),
        ("epsilon", 0.1),
        ("hash_seed", 1),
        ("phase", -1),
        ("phase", 5),
        ("stored", []),
        ("stored", [b"nonsense"]),
        ("stored", "nonsense"),
        ("stored", [lossy([1]).to_bytes(), lossy([1, 2]).to_bytes()]),
    ],
)
def test_stored_contents_that_contradict_each_other_are_damage(field, value):
    sketch = counted((10, 3), [(1, 12), (2, 9)])
    payload = unseal("windowed", 1, sketch.to_bytes())
    with pytest.raises(DamagedError, match="stored"):
        WindowedCounter.from_bytes(seal("windowed", 1, {**payload, field: value}))
