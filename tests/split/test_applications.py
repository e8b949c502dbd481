"""The applications among the examples give what one process gives."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.split import DChoices, KeyGrouping, PartialKey, Shuffle

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(f"equipoise_example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "splitter", [KeyGrouping(7), PartialKey(7), PartialKey(7, choices=3)], ids=lambda each: each.name
)
def test_naive_bayes_counts_and_predicts_as_one_process(splitter):
    bayes = example("naive_bayes")
    alone, split = bayes.NaiveBayes(), bayes.SplitNaiveBayes(splitter)
    for document, label in bayes.stream(400, seed=3):
        alone.learn(document, label)
        split.learn(document, label)
    for word in alone.vocabulary:
        assert split.count(word).tolist() == alone.count(word).tolist()
    for document, _ in bayes.stream(50, seed=4):
        assert split.predict(document) == alone.predict(document)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=300), st.integers(1, 6), st.integers(0, 2**31))
@settings(max_examples=50)
def test_histograms_with_room_for_every_value_are_exact_in_any_number_of_parts(values, parts, seed):
    tree = example("decision_tree_histograms")
    chosen = np.random.default_rng(seed).integers(0, parts, len(values))
    histograms = [tree.Histogram(31) for _ in range(parts)]
    for value, part in zip(values, chosen, strict=True):
        histograms[part].update(float(value))
    merged = tree.Histogram(31)
    for histogram in histograms:
        merged = merged.merge(histogram)
    assert dict(merged.points) == {float(value): count for value, count in Counter(values).items()}
    assert merged.total == len(values)
    assert merged.below(30.0) == len(values)


def test_the_split_of_a_tree_is_that_of_one_process():
    tree = example("decision_tree_histograms")
    values, labels = tree.examples(3000, seed=5)
    points = np.linspace(0.05, 0.95, 19)
    alone, _ = tree.in_parts(values, labels, Shuffle(1), bins=64)
    split, parts = tree.in_parts(values, labels, PartialKey(8), bins=64)
    assert tree.best_split(alone, points) == tree.best_split(split, points) == (2, pytest.approx(0.6))
    assert parts <= 2 * tree.FEATURES * tree.CLASSES
    for key, histogram in split.items():
        mine = values[labels == key[1], key[0]]
        for point in points:
            assert histogram.below(point) == pytest.approx((mine <= point).sum(), abs=0.03 * len(mine) + 1)


@pytest.mark.parametrize("splitter", [KeyGrouping(10), PartialKey(10), Shuffle(10)], ids=lambda each: each.name)
def test_counts_of_heavy_hitters_are_within_the_error_of_their_summaries(splitter):
    hitters = example("heavy_hitters").HeavyHitters(splitter, counters=100)
    keys = np.random.default_rng(6).zipf(1.3, 50_000) % 10_000
    for chunk in np.array_split(keys, 9):
        hitters.add(chunk)
    true = np.bincount(keys, minlength=10_000)
    for key in range(0, 10_000, 7):
        lower, upper = hitters.bounds(key)
        assert lower <= true[key] <= upper
        assert upper - lower <= hitters.error_bound(key)
        assert len(hitters.seen_by(key)) <= {"key-grouping": 1, "partial-key": 2}.get(splitter.name, 10)
    hottest = set(np.argsort(-true, kind="stable")[:10].tolist())
    assert {key for key, _ in hitters.top(10)} == hottest


@given(
    st.lists(st.integers(0, 40), max_size=400),
    st.integers(1, 120),
    st.sampled_from([KeyGrouping, PartialKey, DChoices, Shuffle]),
    st.integers(1, 9),
)
@settings(max_examples=50)
def test_word_counts_are_exact_after_a_flush_whatever_the_period(words, period, splitter, chunks):
    counting = example("word_count").WordCount(splitter(5), period)
    for chunk in np.array_split(np.array(words, dtype=np.int64), chunks):
        counting.add(chunk)
    done = len(words) // period * period
    assert counting.total == Counter(words[:done])
    counting.flush()
    assert counting.total == Counter(words)
    assert counting.messages >= len(set(words))
