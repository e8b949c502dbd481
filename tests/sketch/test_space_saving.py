"""SpaceSaving counts as its plainest form does, keeps its bounds, and merges as proven."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import DamagedError, InvalidArgumentError, MismatchError
from equipoise.framing import pack_array, seal, unseal
from equipoise.sketch import SpaceSaving
from equipoise.sketch.space_saving import _rounded_up

weighted_keys = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=120)
capacities = st.integers(1, 10)  # from 8 on, several keys are dropped at once even if their counts differ


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
    """Count and error of each key by the method in its plainest form, without a hash table, and the floor."""
    held: dict[int, tuple[int, int]] = {}
    floor = 0
    for key, weight in pairs:
        if key not in held and len(held) == capacity + capacity // 8:
            floor = sorted((count for count, _ in held.values()), reverse=True)[capacity - 1]
            held = {other: (count, error) for other, (count, error) in held.items() if count > floor}
        count, error = held.get(key, (floor, floor))
        held[key] = count + weight, error
    return held, floor


def true_counts(pairs):
    counts: Counter[int] = Counter()
    for key, weight in pairs:
        counts[key] += weight
    return counts


def test_the_published_example_counts_as_published():
    sketch = letters(3, "ababcbdad")
    assert counters(sketch) == {"a": (3, 0), "b": (3, 0), "d": (3, 1)}
    assert (sketch.total, sketch.floor) == (9, 1)


def test_a_full_sketch_drops_all_keys_of_the_least_count_at_once():
    sketch = letters(4, "aaabbcde")
    assert (counters(sketch), sketch.floor) == ({"a": (3, 0), "b": (2, 0), "e": (2, 1)}, 1)


def test_merging_two_full_sketches_adds_what_the_other_side_may_have_missed():
    one, two = letters(2, "xxxyz"), letters(2, "yyyxxw")
    assert (counters(one), one.floor) == ({"x": (3, 0), "z": (2, 1)}, 1)
    assert (counters(two), two.floor) == ({"y": (3, 0), "w": (3, 2)}, 2)
    merged = one.merge(two)
    assert counters(merged) == {"x": (5, 2)}
    assert (merged.total, merged.floor) == (11, 4)


def test_merging_a_sketch_that_has_dropped_nothing_adds_nothing_for_it():
    merged = letters(3, "aaab").merge(letters(3, "ccccdde"))
    assert counters(merged) == {"c": (4, 0), "a": (3, 0)}
    assert merged.floor == 2


def test_merging_sketches_that_fit_together_is_exact():
    merged = letters(5, "aab").merge(letters(5, "bcc"))
    assert counters(merged) == {"a": (2, 0), "b": (2, 0), "c": (2, 0)}
    assert merged.floor == 0


@settings(max_examples=200)
@given(capacities, weighted_keys)
def test_it_counts_as_the_plainest_form_does(capacity, pairs):
    sketch = counted(capacity, pairs)
    found = {key: (int(count), int(count - sketch.lower(key))) for key, count in zip(*sketch.entries(), strict=True)}
    assert (found, sketch.floor) == by_hand(capacity, pairs)


@settings(max_examples=200)
@given(capacities, weighted_keys)
def test_what_exceeds_the_floor_and_the_floor_of_all_counters_stay_within_the_total(capacity, pairs):
    sketch = counted(capacity, pairs)
    keys, counts = sketch.entries()
    assert np.sum(counts - sketch.floor) + capacity * sketch.floor <= sketch.total
    assert all(sketch.upper(key) - sketch.lower(key) <= sketch.floor for key in keys.tolist())
    assert len(keys) <= capacity + capacity // 8


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
    assert merged.floor <= merged.total / capacity
    for key, weight in later:
        merged.update(key, weight)
    truth = true_counts([pair for part in [*parts, later] for pair in part])
    for key in range(22):
        assert merged.lower(key) <= truth[key] <= merged.upper(key)
        assert merged.upper(key) - merged.lower(key) <= merged.total / capacity


def test_a_histogram_states_what_is_certain():
    histogram = letters(3, "ababcbdad").histogram()
    assert [(chr(key), round(share * 9)) for key, share in histogram] == [("a", 3), ("b", 3), ("d", 2)]
    assert (histogram.error, histogram.unlisted) == pytest.approx((1 / 9, 1 / 9))


def test_a_histogram_of_few_keys_bounds_those_it_leaves_out():
    histogram = letters(4, "aaaabbbcc").histogram(1)
    assert (len(histogram), histogram.unlisted) == (1, pytest.approx(3 / 9))


def test_an_empty_sketch_has_an_empty_histogram():
    histogram = SpaceSaving(3, hash_seed=7).histogram()
    assert (len(histogram), histogram.total, histogram.unlisted, histogram.hash_seed) == (0, 0, 0, 7)


def test_memory_is_what_the_guarantee_says():
    for capacity in (64, 65, 1000, 4096):
        sketch = SpaceSaving(capacity)
        assert 25 * capacity <= sketch.nbytes <= 26 * capacity + 20
        before = sketch.nbytes
        sketch.update_many(np.arange(capacity + capacity // 8))
        assert len(sketch.entries()[0]) == capacity + capacity // 8
        assert sketch.nbytes == before <= 20 * (8 / 7 * len(sketch.entries()[0]) + 1)


def test_bounds_hold_where_errors_no_longer_fit_float32():
    sketch = SpaceSaving(1)
    for key, weight in [(1, 2**24 + 1), (2, 2**30 + 7), (3, 1), (4, 2)]:
        sketch.update(key, weight)
        assert sketch.lower(key) <= weight <= sketch.upper(key)
    merged = sketch.merge(sketch).merge(sketch)
    assert merged.lower(4) <= 6 <= merged.upper(4)
    assert SpaceSaving.from_bytes(merged.to_bytes()).to_bytes() == merged.to_bytes()


@settings(max_examples=200)
@given(st.integers(0, 2**53))
def test_errors_are_rounded_up_and_by_little(error):
    rounded = _rounded_up(error)
    assert type(rounded) is np.float32 or isinstance(rounded, float)
    assert error <= float(rounded) <= error * (1 + 2**-23)


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
        ("total", 8),
        ("floor", -1),
        ("floor", 3),
        ("keys", b"123"),
        ("keys", pack_array(np.array([1, 1, 2]))),
        ("keys", pack_array(np.array([1]))),
        ("counts", pack_array(np.array([3, 2, 1]))),
        ("counts", pack_array(np.array([3, 5, 3]))),
        ("errors", pack_array(np.array([-1, 0, 0], dtype=np.float32))),
        ("errors", pack_array(np.array([0, 0, 2], dtype=np.float32))),
        ("errors", pack_array(np.array([0, 0, np.nan], dtype=np.float32))),
        ("errors", pack_array(np.array([0, 0, 1]))),
    ],
)
def test_stored_contents_that_contradict_each_other_are_damage(field, value):
    payload = unseal("space-saving", 2, letters(3, "ababcbdad").to_bytes())
    with pytest.raises(DamagedError, match="stored space-saving"):
        SpaceSaving.from_bytes(seal("space-saving", 2, {**payload, field: value}))


def test_the_stored_fields_are_the_documented_ones():
    payload = unseal("space-saving", 2, letters(3, "ab").to_bytes())
    assert list(payload) == ["capacity", "hash_seed", "total", "floor", "keys", "counts", "errors"]
