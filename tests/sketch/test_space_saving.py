"""SpaceSaving counts as published, keeps its bounds, and merges as proven."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import DamagedError, InvalidArgumentError, MismatchError
from equipoise.framing import pack_array, seal, unseal
from equipoise.sketch import SpaceSaving

weighted_keys = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9)), max_size=120)
capacities = st.integers(1, 8)


def counted(capacity, pairs):
    sketch = SpaceSaving(capacity)
    sketch.update_many([key for key, _ in pairs], [weight for _, weight in pairs])
    return sketch


def letters(capacity, text):
    return counted(capacity, [(ord(letter), 1) for letter in text])


def counters(sketch):
    """Count and error of every tracked letter."""
    return {
        chr(key): (int(count), int(count - sketch.lower(key))) for key, count in zip(*sketch.entries(), strict=True)
    }


def by_hand(capacity, pairs):
    """The method in its plainest form: a list of [key, count, error], the last to change at the end."""
    held: list[list[int]] = []
    for key, weight in pairs:
        mine = next((entry for entry in held if entry[0] == key), None)
        if mine is None and len(held) < capacity:
            mine = [key, 0, 0]
        elif mine is None:
            mine = min(held, key=lambda entry: entry[1])  # of equal ones the first, which changed first
            held.remove(mine)
            mine = [key, mine[1], mine[1]]
        else:
            held.remove(mine)
        held.append([key, mine[1] + weight, mine[2]])
    return {key: (count, error) for key, count, error in held}


def true_counts(pairs):
    counts: Counter[int] = Counter()
    for key, weight in pairs:
        counts[key] += weight
    return counts


def test_the_published_example_counts_as_published():
    sketch = letters(3, "ababcbdad")
    assert counters(sketch) == {"a": (3, 0), "b": (3, 0), "d": (3, 1)}
    assert (sketch.total, sketch.smallest) == (9, 3)


def test_merging_two_full_sketches_adds_what_the_other_side_may_have_missed():
    one, two = letters(2, "xxxyz"), letters(2, "yyyxxw")
    assert (counters(one), one.smallest) == ({"x": (3, 0), "z": (2, 1)}, 2)
    assert (counters(two), two.smallest) == ({"y": (3, 0), "w": (3, 2)}, 3)
    merged = one.merge(two)
    assert counters(merged) == {"x": (6, 3), "y": (5, 2)}
    assert merged.total == 11
    assert merged.smallest <= 11 / 2


def test_merging_a_sketch_with_free_counters_adds_nothing_for_it():
    merged = letters(3, "aaab").merge(letters(3, "ccccdde"))
    assert counters(merged) == {"c": (4, 0), "a": (4, 1), "d": (2, 0)}


def test_merging_sketches_that_fit_together_is_exact():
    merged = letters(5, "aab").merge(letters(5, "bcc"))
    assert counters(merged) == {"a": (2, 0), "b": (2, 0), "c": (2, 0)}
    assert merged.smallest == 0


@settings(max_examples=200)
@given(capacities, weighted_keys)
def test_it_counts_as_the_plainest_form_does(capacity, pairs):
    sketch = counted(capacity, pairs)
    found = {key: (int(count), int(count - sketch.lower(key))) for key, count in zip(*sketch.entries(), strict=True)}
    assert found == by_hand(capacity, pairs)


@settings(max_examples=200)
@given(capacities, weighted_keys)
def test_counts_add_up_and_errors_stay_within_the_smallest_count(capacity, pairs):
    sketch = counted(capacity, pairs)
    keys, counts = sketch.entries()
    assert counts.sum() == sketch.total
    assert all(sketch.upper(key) - sketch.lower(key) <= sketch.smallest for key in keys.tolist())
    assert sketch.smallest <= sketch.total / capacity


@settings(max_examples=200)
@given(capacities, weighted_keys)
def test_every_key_above_its_fair_part_is_tracked(capacity, pairs):
    sketch = counted(capacity, pairs)
    tracked = set(sketch.entries()[0].tolist())
    hot = {key for key, count in true_counts(pairs).items() if count > sketch.total / capacity}
    assert hot <= tracked


@settings(max_examples=200)
@given(capacities, weighted_keys)
def test_a_weight_counts_like_that_many_repetitions(capacity, pairs):
    repeated = SpaceSaving(capacity)
    repeated.update_many([key for key, weight in pairs for _ in range(weight)])
    assert counted(capacity, pairs).to_bytes() == repeated.to_bytes()


@settings(max_examples=200)
@given(capacities, st.lists(weighted_keys, min_size=2, max_size=5), weighted_keys)
def test_bounds_hold_after_any_number_of_merges_and_later_updates(capacity, parts, later):
    merged = counted(capacity, parts[0])
    for part in parts[1:]:
        merged = merged.merge(counted(capacity, part))
    assert merged.smallest <= merged.total / capacity
    for key, weight in later:
        merged.update(key, weight)
    truth = true_counts([pair for part in [*parts, later] for pair in part])
    for key in range(14):
        assert merged.lower(key) <= truth[key] <= merged.upper(key)
        assert merged.upper(key) - merged.lower(key) <= merged.total / capacity


def test_a_histogram_states_what_is_certain():
    histogram = letters(3, "ababcbdad").histogram()
    assert [(chr(key), round(share * 9)) for key, share in histogram] == [("a", 3), ("b", 3), ("d", 2)]
    assert (histogram.error, histogram.unlisted) == pytest.approx((1 / 9, 3 / 9))


def test_a_histogram_of_few_keys_bounds_those_it_leaves_out():
    histogram = letters(4, "aaaabbbcc").histogram(1)
    assert (len(histogram), histogram.unlisted) == (1, pytest.approx(3 / 9))


def test_an_empty_sketch_has_an_empty_histogram():
    histogram = SpaceSaving(3, hash_seed=7).histogram()
    assert (len(histogram), histogram.total, histogram.unlisted, histogram.hash_seed) == (0, 0, 0, 7)


def test_memory_is_what_the_guarantee_says():
    for capacity in (64, 65, 1000, 4096):
        assert 64 * capacity <= SpaceSaving(capacity).nbytes <= 88 * capacity


@pytest.mark.parametrize("capacity", [0, -1, 2**28 + 1, 2.5, "2", None, True])
def test_an_impossible_capacity_is_refused(capacity):
    with pytest.raises(InvalidArgumentError, match=f"capacity must be .* got {capacity!r}"):
        SpaceSaving(capacity)


@pytest.mark.parametrize("other", [SpaceSaving(4), SpaceSaving(3, hash_seed=1)])
def test_sketches_of_different_parameters_are_not_merged(other):
    with pytest.raises(MismatchError, match="make both with the same parameters"):
        SpaceSaving(3).merge(other)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capacity", 2),
        ("capacity", 0),
        ("capacity", "three"),
        ("total", -1),
        ("total", 2),
        ("keys", b"123"),
        ("keys", pack_array(np.array([1, 1, 2]))),
        ("keys", pack_array(np.array([1]))),
        ("counts", pack_array(np.array([3, 2, 1]))),
        ("errors", pack_array(np.array([-1, 0, 0]))),
        ("errors", pack_array(np.array([9, 9, 9]))),
        ("since", pack_array(np.array([8, 8, 8]))),
        ("since", pack_array(np.array([7, 8, 10]))),
    ],
)
def test_stored_contents_that_contradict_each_other_are_damage(field, value):
    payload = unseal("space-saving", 1, letters(3, "ababcbdad").to_bytes())
    with pytest.raises(DamagedError, match="stored space-saving"):
        SpaceSaving.from_bytes(seal("space-saving", 1, {**payload, field: value}))


def test_the_stored_fields_are_the_documented_ones():
    payload = unseal("space-saving", 1, letters(3, "ab").to_bytes())
    assert list(payload) == ["capacity", "hash_seed", "total", "keys", "counts", "errors", "since"]
