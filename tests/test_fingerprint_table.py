"""The table is a dictionary, also with keys that collide."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.fingerprint_table import EMPTY, capacity_for, fill, find, get, home_slot, new_table, put

MASK = 15
CROWDED = [key for key in range(20_000) if home_slot(key, MASK) in (0, 1, MASK)][:12]  # these wrap around the end
KEYS = [*CROWDED, 0, -1, 2**63 - 1, -(2**63)]

steps = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 1000)), max_size=80)


@settings(max_examples=200)
@given(steps)
def test_the_table_holds_what_a_dictionary_holds(script):
    keys, values = new_table(8)
    assert len(keys) == MASK + 1
    expected: dict[int, int] = {}
    for key, value in script:
        if key in expected or len(expected) < 8:
            put(keys, values, key, value)
            expected[key] = value
        assert {k: get(keys, values, k) for k in KEYS} == {k: expected.get(k, EMPTY) for k in KEYS}
        assert np.count_nonzero(values != EMPTY) == len(expected)


def test_a_key_that_is_not_there_is_found_at_a_free_slot():
    keys, values = new_table(8)
    put(keys, values, CROWDED[0], 1)
    slot = find(keys, values, CROWDED[1])
    assert values[slot] == EMPTY


def test_fill_maps_every_key_to_its_index():
    keys, values = new_table(100)
    many = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 100)
    fill(keys, values, many)
    assert [get(keys, values, key) for key in many.tolist()] == list(range(100))


@pytest.mark.parametrize("count", [0, 1, 4, 5, 8, 9, 1000, 1024, 1025])
def test_capacity_is_a_power_of_two_at_a_load_of_at_most_one_half(count):
    capacity = capacity_for(count)
    assert capacity & (capacity - 1) == 0
    assert 2 * count <= capacity <= max(8, 4 * count)
