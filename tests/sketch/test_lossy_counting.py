"""Lossy Counting counts as published, whatever it does to its memory meanwhile."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import DamagedError, InvalidArgumentError, MismatchError
from equipoise.framing import pack_array, seal, unseal
from equipoise.sketch import LossyCounting

weighted_keys = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), max_size=120)
epsilons = st.sampled_from([0.9, 0.5, 0.25, 0.2, 0.1, 0.03])


def counted(epsilon, pairs):
    sketch = LossyCounting(epsilon)
    sketch.update_many([key for key, _ in pairs], [weight for _, weight in pairs])
    return sketch


def letters(epsilon, text):
    return counted(epsilon, [(ord(letter), 1) for letter in text])


def entries(sketch):
    """Count and possible miss of every tracked key."""
    return {
        key: (int(sketch.lower(key)), int(sketch.upper(key) - sketch.lower(key)))
        for key in sketch.entries()[0].tolist()
    }


def letter_entries(sketch):
    return {chr(key): entry for key, entry in entries(sketch).items()}


def by_hand(width, keys):
    """The method as printed: every entry is looked at whenever a window ends."""
    held: dict[int, tuple[int, int]] = {}
    for n, key in enumerate(keys, 1):
        bucket = math.ceil(n / width)
        count, missed = held.get(key, (0, bucket - 1))
        held[key] = (count + 1, missed)
        if n % width == 0:
            held = {k: (f, d) for k, (f, d) in held.items() if f + d > bucket}
    return held


def repeated(pairs):
    return [key for key, weight in pairs for _ in range(weight)]


def test_the_published_examples_count_as_published():
    assert letter_entries(letters(0.25, "aabcaadeaafg")) == {"a": (6, 0)}
    assert letter_entries(letters(0.2, "aaabc")) == {"a": (3, 0)}
    assert letter_entries(letters(0.2, "aaabcbbbda")) == {"a": (4, 0), "b": (3, 1)}


def test_merging_at_the_ends_of_windows_adds_what_either_side_may_have_missed():
    one, two = letters(0.25, "aabcaade"), letters(0.25, "bbab")
    assert (letter_entries(one), letter_entries(two)) == ({"a": (4, 0)}, {"b": (3, 0)})
    merged = one.merge(two)
    assert letter_entries(merged) == {"a": (4, 1), "b": (3, 2)}
    assert merged.total == 12


@settings(max_examples=200)
@given(epsilons, weighted_keys)
def test_it_counts_as_the_printed_form_does(epsilon, pairs):
    keys = repeated(pairs)
    sketch = LossyCounting(epsilon)
    sketch.update_many(keys)
    assert entries(sketch) == by_hand(math.ceil(1 / epsilon), keys)


@settings(max_examples=200)
@given(epsilons, weighted_keys)
def test_a_weight_counts_like_that_many_repetitions(epsilon, pairs):
    plain = LossyCounting(epsilon)
    plain.update_many(repeated(pairs))
    assert counted(epsilon, pairs).to_bytes() == plain.to_bytes()


@settings(max_examples=200)
@given(epsilons, weighted_keys, st.floats(0.05, 1))
def test_keys_above_a_share_are_found_and_none_far_below_it(epsilon, pairs, support):
    sketch, truth = counted(epsilon, pairs), Counter(repeated(pairs))
    threshold = (support - epsilon) * sketch.total
    found = {key for key, (count, _) in entries(sketch).items() if count >= threshold}
    if threshold > 0:
        assert {key for key, count in truth.items() if count >= support * sketch.total} <= found
    assert all(truth[key] >= threshold for key in found)


@settings(max_examples=200)
@given(epsilons, st.lists(weighted_keys, min_size=2, max_size=5), weighted_keys)
def test_bounds_hold_after_merges_at_any_point_of_a_window_and_later_updates(epsilon, parts, later):
    merged = counted(epsilon, parts[0])
    for part in parts[1:]:
        merged = merged.merge(counted(epsilon, part))
    for key, weight in later:
        merged.update(key, weight)
    truth = Counter(repeated([pair for part in [*parts, later] for pair in part]))
    for key in range(32):
        assert merged.lower(key) <= truth[key] <= merged.upper(key)
        assert merged.upper(key) - merged.lower(key) <= epsilon * merged.total + 1e-6


def test_memory_stays_bounded_while_new_keys_keep_coming():
    sketch = LossyCounting(0.01)
    sketch.update_many(np.arange(1_000_000))
    assert len(sketch.entries()[0]) <= math.log(0.01 * sketch.total) / 0.01
    assert sketch.nbytes < 100_000


def test_an_enormous_weight_costs_no_more_than_a_small_one():
    sketch = LossyCounting(0.5)
    sketch.update(7, 2**52)
    sketch.update(8, 2**51)
    assert sketch.lower(7) == 2**52
    assert sketch.upper(9) == (2**52 + 2**51) // 2


def test_a_histogram_states_what_is_certain():
    histogram = letters(0.2, "aaabcbbbda").histogram()
    assert [(chr(key), round(share * 10)) for key, share in histogram] == [("a", 4), ("b", 3)]
    assert (histogram.error, histogram.unlisted) == pytest.approx((1 / 10, 2 / 10))


def test_the_reciprocal_of_a_whole_number_gives_a_window_of_that_number():
    for width in (2, 3, 49, 98, 103, 4096):  # 1 / (1 / 49) is above 49
        sketch = LossyCounting(1 / width)
        sketch.update_many(np.arange(width - 1))
        assert sketch.completed == 0
        sketch.update(-1)
        assert sketch.completed == 1


@pytest.mark.parametrize("epsilon", [0, -0.1, 1, 2, 1e-9, math.nan, math.inf, "much", None])
def test_an_impossible_epsilon_is_refused(epsilon):
    with pytest.raises(InvalidArgumentError, match=f"epsilon must .* got {epsilon!r}"):
        LossyCounting(epsilon)


@pytest.mark.parametrize("other", [LossyCounting(0.2), LossyCounting(0.1, hash_seed=1)])
def test_sketches_of_different_parameters_are_not_merged(other):
    with pytest.raises(MismatchError, match="make both with the same parameters"):
        LossyCounting(0.1).merge(other)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", 5.0),
        ("epsilon", None),
        ("total", -3),
        ("total", 6),
        ("total", 100),
        ("keys", b"123"),
        ("keys", pack_array(np.array([98, 97]))),
        ("keys", pack_array(np.array([97]))),
        ("counts", pack_array(np.array([0, 3]))),
        ("missed", pack_array(np.array([-1, 1]))),
        ("missed", pack_array(np.array([0, 3]))),
    ],
)
def test_stored_contents_that_contradict_each_other_are_damage(field, value):
    payload = unseal("lossy-counting", 1, letters(0.2, "aaabcbbbda").to_bytes())
    with pytest.raises(DamagedError, match="stored lossy-counting"):
        LossyCounting.from_bytes(seal("lossy-counting", 1, {**payload, field: value}))
