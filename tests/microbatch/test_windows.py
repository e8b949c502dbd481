"""Windows over batches are what merging their batches gives, with and without an inverse."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise import InvalidArgumentError
from equipoise.microbatch import Window

BATCHES = st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(-5, 5)), max_size=20)


@given(BATCHES, st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_a_window_is_its_batches_merged(batches, length, slide, inverse):
    slide = min(slide, length)
    window = Window(length, slide, lambda a, b: a + b, (lambda a, b: a - b) if inverse else None)
    for number, batch in enumerate(batches):
        found = window.add(batch)
        if (number + 1) % slide:
            assert found is None
            continue
        expected, seen = Counter(), set()
        for each in batches[max(0, number + 1 - length) : number + 1]:
            expected.update(each)
            seen |= each.keys()
        assert found == {key: expected[key] for key in seen}


@given(BATCHES)
def test_what_has_no_inverse_is_merged_anew(batches):
    window = Window(3, 1, max)
    for number, batch in enumerate(batches):
        found = window.add(batch)
        recent = batches[max(0, number - 2) : number + 1]
        assert found == {key: max(each[key] for each in recent if key in each) for each in recent for key in each}


def test_a_slide_past_the_window_is_refused():
    with pytest.raises(InvalidArgumentError, match="a slide of 3 batches skips some: a window has 2"):
        Window(2, 3, max)
