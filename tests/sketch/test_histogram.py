"""Histograms are valid or refused; merging and blending keep their bounds true."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.sketch import Histogram

counts_of_keys = st.dictionaries(st.integers(0, 30), st.integers(1, 100), min_size=1, max_size=12)


@st.composite
def observed(draw):
    """True counts of keys, and an honest histogram of them: some keys listed, each a little wrong."""
    counts = draw(counts_of_keys)
    total = sum(counts.values())
    listed = draw(st.lists(st.sampled_from(sorted(counts)), unique=True))
    stated = {key: draw(st.integers(0, counts[key])) / total for key in listed}
    error = max((counts[key] / total - share for key, share in stated.items()), default=0.0)
    unlisted = max((count / total for key, count in counts.items() if key not in stated), default=0.0)
    histogram = Histogram(list(stated), list(stated.values()), error=error, unlisted=unlisted, total=total)
    return counts, histogram


def assert_honest(histogram, truth):
    for key, share in truth.items():
        if key in histogram.fingerprints:
            assert abs(histogram.share_of(key) - share) <= histogram.error + 1e-9
        else:
            assert share <= histogram.unlisted + 1e-9


def shares(counts):
    total = sum(counts.values())
    return {key: count / total for key, count in counts.items()}


def test_merging_workers_weights_them_by_their_records():
    x, y, z, w = 24, 25, 26, 23
    one = Histogram([x, y, z], [0.6, 0.3, 0.1], total=10)
    two = Histogram([x, y, w], [0.1, 0.4, 0.5], total=20)
    merged = Histogram.merge(one, two)
    assert merged.fingerprints.tolist() == [y, w, x, z]
    assert merged.shares.round(5).tolist() == [0.36667, 0.33333, 0.26667, 0.03333]
    assert merged.total == 30


def test_retention_weights_the_past_and_counts_missing_keys_as_zero():
    a, b, c = 1, 2, 3
    blended = Histogram([a, b], [0.5, 0.3]).blend(Histogram([a, c], [0.1, 0.6]), weight=0.8)
    assert blended.fingerprints.tolist() == [a, b, c]
    assert blended.shares.round(9).tolist() == [0.42, 0.24, 0.12]


@given(st.lists(observed(), min_size=1, max_size=4))
def test_a_merged_histogram_is_honest_about_all_parts_together(parts):
    together: dict[int, int] = {}
    for counts, _ in parts:
        for key, count in counts.items():
            together[key] = together.get(key, 0) + count
    merged = Histogram.merge(*(histogram for _, histogram in parts))
    assert merged.total == sum(together.values())
    assert_honest(merged, shares(together))


@given(observed(), observed(), st.floats(0, 1))
def test_a_blended_histogram_is_honest_about_the_blended_truth(past, present, weight):
    blended = past[1].blend(present[1], weight)
    old, new = shares(past[0]), shares(present[0])
    truth = {key: weight * old.get(key, 0) + (1 - weight) * new.get(key, 0) for key in old.keys() | new.keys()}
    assert_honest(blended, truth)


@given(observed(), st.integers(0, 12))
def test_a_shortened_histogram_is_honest_about_the_keys_it_dropped(part, k):
    counts, histogram = part
    assert len(histogram.top(k)) == min(k, len(histogram))
    assert_honest(histogram.top(k), shares(counts))


@given(st.lists(observed(), min_size=2, max_size=4), st.randoms())
def test_the_order_of_merging_does_not_matter(parts, random):
    histograms = [histogram for _, histogram in parts]
    shuffled = random.sample(histograms, len(histograms))
    one, other = Histogram.merge(*histograms), Histogram.merge(*shuffled)
    assert set(one.fingerprints.tolist()) == set(other.fingerprints.tolist())
    for key in one.fingerprints.tolist():
        assert one.share_of(key) == pytest.approx(other.share_of(key))
    assert (one.error, one.unlisted) == pytest.approx((other.error, other.unlisted))


def test_keys_are_ordered_by_share_then_fingerprint():
    histogram = Histogram([5, -3, 9, 1], [0.1, 0.2, 0.2, 0.3])
    assert list(histogram) == [(1, 0.3), (-3, 0.2), (9, 0.2), (5, 0.1)]


def test_merging_histograms_of_nothing_gives_one_of_nothing():
    merged = Histogram.merge(Histogram([], [], total=0), Histogram([], [], total=0))
    assert (len(merged), merged.total) == (0, 0)


def test_a_histogram_cannot_be_changed():
    histogram = Histogram([1], [0.5])
    with pytest.raises(ValueError, match="read-only"):
        histogram.shares[0] = 0.7
    with pytest.raises(AttributeError):
        histogram.total = 5


def test_equal_histograms_are_equal_and_unhashable():
    assert Histogram([1, 2], [0.1, 0.2]) == Histogram([2, 1], [0.2, 0.1])
    assert Histogram([1], [0.1]) != Histogram([1], [0.1], error=0.01)
    assert Histogram([1], [0.1]) != "something else"
    with pytest.raises(TypeError):
        hash(Histogram([1], [0.1]))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Histogram([1, 2], [0.5]), "2 keys but 1 shares"),
        (lambda: Histogram([1], [1.5]), r"share 1\.5 is not in \[0, 1\]"),
        (lambda: Histogram([1], [-0.1]), r"share -0\.1 is not in"),
        (lambda: Histogram([1], [np.nan]), "share nan is not in"),
        (lambda: Histogram([1, 2], [0.6, 0.6]), r"add up to 1\.2"),
        (lambda: Histogram([1, 1], [0.1, 0.1]), "listed twice"),
        (lambda: Histogram([1], [0.1], error=-1), "error must be"),
        (lambda: Histogram([1], [0.1], unlisted=np.nan), "unlisted must be"),
        (lambda: Histogram([1], [0.1], total=np.inf), "total must be"),
        (lambda: Histogram([0.5], [0.1]), "64-bit integers"),
        (lambda: Histogram([1], [0.1]).top(-1), "number of keys must be a whole number"),
        (lambda: Histogram([1], [0.1]).blend(Histogram([1], [0.1]), weight=1.1), "weight of the past"),
        (Histogram.merge, "no histogram"),
    ],
)
def test_an_impossible_histogram_is_refused(make, complaint):
    with pytest.raises(InvalidArgumentError, match=complaint):
        make()


def test_histograms_of_different_hash_seeds_are_never_mixed():
    with pytest.raises(MismatchError, match=r"hash seeds \[42, 43\]"):
        Histogram.merge(Histogram([1], [0.1]), Histogram([1], [0.1], hash_seed=43))


def test_a_key_that_is_not_listed_may_have_what_the_error_hides():
    assert Histogram([1], [0.6], error=0.1).unlisted == pytest.approx(0.5)


def test_a_blend_lists_no_more_keys_than_asked():
    blended = Histogram([1, 2], [0.5, 0.3]).blend(Histogram([1, 3], [0.1, 0.6]), weight=0.8, keep=2)
    assert blended.fingerprints.tolist() == [1, 2]
    assert blended.unlisted >= 0.12
