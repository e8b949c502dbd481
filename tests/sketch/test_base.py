"""What all sketches share: one form of a key, a limit of weight, and no merging of unlike things."""

import numpy as np
import pytest

from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.sketch import DriftHistogram, LossyCounting, SpaceSaving, WindowedCounter
from equipoise.sketch.base import MAX_TOTAL

MAKE = {
    "SpaceSaving": lambda: SpaceSaving(2),
    "LossyCounting": lambda: LossyCounting(0.1),
    "WindowedCounter": lambda: WindowedCounter(2**51),
    "DriftHistogram": lambda: DriftHistogram(2, soft_boundary=4),
}
every_sketch = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
sketches_that_never_forget = pytest.mark.parametrize(
    "make", [make for name, make in MAKE.items() if name != "WindowedCounter"]
)


@every_sketch
@pytest.mark.parametrize("key", [0, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 1])
def test_an_unsigned_fingerprint_is_found_in_every_form(make, key):
    sketch = make()
    sketch.update_many(np.array([key], dtype=np.uint64))
    sketch.update(key)
    signed = key - 2**64 if key >= 2**63 else key
    for form in (key, signed, np.uint64(key), np.int64(signed)):
        assert (sketch.lower(form), sketch.upper(form)) == (2, 2)


@every_sketch
@pytest.mark.parametrize("key", ["a", 2**64, -(2**63) - 1, 1.0, None, True, [1]])
def test_what_is_no_fingerprint_is_refused(make, key):
    sketch = make()
    for ask in (sketch.lower, sketch.upper, sketch.update):
        with pytest.raises(InvalidArgumentError, match="64-bit fingerprint"):
            ask(key)


@sketches_that_never_forget
def test_the_largest_total_is_counted_exactly_and_nothing_is_taken_in_beyond_it(make):
    sketch = make()
    sketch.update(1, MAX_TOTAL - 1)
    sketch.update(1)
    stored = sketch.to_bytes()
    assert (sketch.lower(1), sketch.upper(1)) == (MAX_TOTAL, MAX_TOTAL)
    assert type(sketch).from_bytes(stored).upper(1) == MAX_TOTAL
    for attempt in (lambda: sketch.update(1), lambda: sketch.update_many([1, 2]), lambda: sketch.merge(sketch)):
        with pytest.raises(InvalidArgumentError, match=r"would exceed 2\*\*53; use a coarser unit"):
            attempt()
    assert sketch.to_bytes() == stored


@every_sketch
@pytest.mark.parametrize(
    "weights", [[MAX_TOTAL + 1], [MAX_TOTAL, 1], [MAX_TOTAL // 2, 1, MAX_TOTAL // 2], [2**63 - 1] * 2, [2**64 - 1]]
)
def test_weights_beyond_the_limit_are_refused_to_the_last_unit(make, weights):
    with pytest.raises(InvalidArgumentError, match=r"would exceed 2\*\*53"):
        make().update_many(np.ones(len(weights), dtype=np.int64), np.array(weights, dtype=np.uint64))


def test_repeated_merging_ends_with_an_error_instead_of_wrong_bounds():
    sketch = SpaceSaving(2)
    sketch.update(1, 2**52)
    doubled = sketch.merge(sketch)
    assert doubled.upper(1) == 2**53
    with pytest.raises(InvalidArgumentError, match=r"would exceed 2\*\*53"):
        doubled.merge(sketch)


def test_windows_that_are_merged_too_often_are_refused_too():
    sketch = WindowedCounter(2**51)
    sketch.update(1, 2**51)
    merged = sketch.merge(sketch).merge(sketch).merge(sketch)
    assert merged.total == 2**53
    with pytest.raises(InvalidArgumentError, match=r"would exceed 2\*\*53"):
        merged.merge(sketch)


@every_sketch
@pytest.mark.parametrize("other", [*(make() for make in MAKE.values()), "a sketch", None])
def test_unlike_things_are_not_merged_and_both_are_named(make, other):
    sketch = make()
    if type(sketch) is type(other):
        return
    with pytest.raises(MismatchError, match=f"cannot merge {type(sketch).__name__} with {type(other).__name__}"):
        sketch.merge(other)


@every_sketch
@pytest.mark.parametrize("k", [1.5, -1, "1", True])
def test_sizes_of_lists_are_whole_numbers(make, k):
    for ask in (make().top, make().histogram):
        with pytest.raises(InvalidArgumentError, match="k must be a whole number of at least 0"):
            ask(k)
