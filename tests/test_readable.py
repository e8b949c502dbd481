"""Numbers and fingerprints as people read them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.readable import fingerprint_text, seconds_text, size_text


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_fingerprint_is_sixteen_hexadecimal_digits_and_can_be_read_back(fingerprint):
    text = fingerprint_text(fingerprint)
    assert re.fullmatch(r"[0-9a-f]{16}", text)
    assert (int(text, 16) + 2**63) % 2**64 - 2**63 == fingerprint


@pytest.mark.parametrize(
    ("size", "text"),
    [(1000, "1 KB"), (9_990, "10 KB"), (999_499, "999 KB"), (999_500, "1 MB"), (-2e6, "-2 MB")],
)
def test_sizes_change_their_unit_at_a_thousand(size, text):
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-12.9, "-13 s"), (0.9994, "999 ms"), (0.9996, "1 s"), (59.6, "1 min"), (3599.6, "1 h"), (86_400, "24 h")],
)
def test_durations_change_their_unit_without_showing_sixty_or_a_thousand(seconds, text):
    assert seconds_text(seconds) == text


@given(st.floats(1e-7, 1e6))
def test_a_duration_is_never_far_from_its_text(seconds):
    units = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
    words = seconds_text(seconds).split()
    read = sum(float(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))
    assert read == pytest.approx(seconds, rel=0.06)
