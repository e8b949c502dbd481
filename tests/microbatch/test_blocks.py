"""Blocks of a batch: every tuple once, capacities, few splits; and the golden numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import InvalidArgumentError
from equipoise.metrics import (
    block_cardinality_imbalance,
    block_size_imbalance,
    key_split_ratio,
    micropartitioning_imbalance,
)
from equipoise.microbatch import BLOCKS, level_blocks, post_sorted, prompt_blocks


def batch_of(**sizes):
    """A batch with keys of these sizes, in this order, which must fall."""
    return post_sorted(np.repeat(np.arange(len(sizes)), list(sizes.values())))


def table(blocks, names):
    found = [{} for _ in range(blocks.count)]
    for key, block, size in zip(blocks.keys, blocks.blocks, blocks.sizes, strict=True):
        found[block][names[key]] = int(size)
    return found


FIGURE = {"K1": 120, "K2": 90, "K3": 45, "K4": 42, "K5": 33, "K6": 30, "K7": 15, "K8": 10}


def test_the_figure_of_the_paper():
    batch, names = batch_of(**FIGURE), list(FIGURE)
    blocks = prompt_blocks(batch, 4)
    assert table(blocks, names) == [
        {"K1": 87, "K8": 10},
        {"K2": 49, "K7": 15, "K1": 33},
        {"K3": 45, "K6": 30, "K2": 22},
        {"K4": 42, "K5": 33, "K2": 19},
    ]
    cards = blocks.cardinalities
    assert block_size_imbalance(blocks.block_sizes) == 0.75
    assert block_cardinality_imbalance(cards) == 0.25
    assert key_split_ratio(cards, 8) == 1.375
    assert micropartitioning_imbalance(blocks.block_sizes, cards, 8) == pytest.approx(0.7917, abs=1e-4)
    assert [names[key] for key in blocks.split] == ["K1", "K2"]
    assert table(prompt_blocks(batch, 4, resume=False), names) == [
        {"K1": 52, "K3": 45},
        {"K2": 55, "K4": 42},
        {"K5": 33, "K8": 10, "K1": 54},
        {"K6": 30, "K7": 15, "K1": 14, "K2": 35},
    ]


def test_small_goldens():
    names = list("abcde")
    five = batch_of(a=12, b=6, c=3, d=2, e=1)
    literal, resumed = prompt_blocks(five, 3, resume=False), prompt_blocks(five, 3)
    assert table(literal, names) == [{"a": 5, "c": 3}, {"b": 6, "d": 2}, {"e": 1, "a": 7}]
    assert table(resumed, names) == [{"a": 8}, {"b": 4, "e": 1, "a": 3}, {"c": 3, "d": 2, "a": 1, "b": 2}]
    six = batch_of(u0=6, u1=6, u2=6, u3=6, u4=6, u5=6)
    found = table(prompt_blocks(six, 3), [f"u{i}" for i in range(6)])
    assert found == [{"u0": 6, "u5": 6}, {"u1": 6, "u4": 6}, {"u2": 6, "u3": 6}]
    few = batch_of(a=90, b=10)
    assert table(prompt_blocks(few, 4), names) == [{"a": 25}, {"b": 10, "a": 15}, {"a": 25}, {"a": 25}]
    four = batch_of(a=9, b=1, c=1, d=1)
    literal, resumed = prompt_blocks(four, 4, resume=False), prompt_blocks(four, 4)
    assert table(literal, names) == [{"a": 3, "b": 1}, {"c": 1, "a": 2}, {"d": 1, "a": 1}, {"a": 3}]
    assert table(resumed, names) == [{"a": 3}, {"b": 1, "a": 2}, {"c": 1, "a": 2}, {"d": 1, "a": 2}]


@given(st.lists(st.integers(0, 25), min_size=1, max_size=200), st.integers(1, 12), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_every_tuple_is_in_one_block_whatever_the_method(keys, count, resume, weighted):
    sizes = np.random.default_rng(len(keys)).integers(1, 6, len(keys)) if weighted else None
    batch = post_sorted(keys, sizes)
    count = min(count, batch.size)
    made = {name: make(batch, count) for name, make in BLOCKS.items()}
    made["resume"] = prompt_blocks(batch, count, resume=resume)
    for name, blocks in made.items():
        assert np.bincount(blocks.keys, blocks.sizes, len(batch.keys)).tolist() == batch.sizes.tolist(), name
        assert blocks.block_sizes.sum() == batch.size
        assert len(np.unique(blocks.keys * count + blocks.blocks)) == len(blocks.keys)
        targets = blocks.of_tuples(batch)
        if not weighted:
            assert np.bincount(targets, minlength=count).tolist() == blocks.block_sizes.tolist(), name
        for key, block in zip(keys, targets, strict=True):
            assert block in blocks.blocks[blocks.keys == batch.keys.tolist().index(key)]
    split = made["resume"].split
    assert np.all(batch.sizes[split] > min(batch.size / len(batch.keys), batch.size / count))


def test_blocks_of_a_skewed_batch_are_even_and_split_few_keys():
    keys = np.random.default_rng(1).zipf(1.3, 50_000) % 5000
    batch = post_sorted(keys)
    blocks = prompt_blocks(batch, 16)
    assert block_size_imbalance(blocks.block_sizes) <= 1
    assert key_split_ratio(blocks.cardinalities, len(batch.keys)) < 1.1


@pytest.mark.parametrize("exponent", [1.1, 1.3, 2.0])
@pytest.mark.parametrize("unit", [1, 10**9])
def test_level_blocks_are_level_in_size_and_in_keys(exponent, unit):
    keys = np.random.default_rng(2).zipf(exponent, 30_000) % 3000
    batch = post_sorted(keys, None if unit == 1 else np.full(len(keys), unit))
    blocks = level_blocks(batch, 16)
    assert np.ptp(blocks.block_sizes) <= 1
    assert np.ptp(blocks.cardinalities) <= 1
    assert np.bincount(blocks.keys, blocks.sizes, len(batch.keys)).tolist() == batch.sizes.tolist()
    assert key_split_ratio(blocks.cardinalities, len(batch.keys)) < 1.6


@given(st.lists(st.integers(0, 25), min_size=1, max_size=300), st.integers(1, 12))
@settings(max_examples=60)
def test_level_blocks_are_no_worse_than_those_of_the_paper(keys, count):
    batch = post_sorted(keys)
    count = min(count, batch.size)
    mine, printed = (
        micropartitioning_imbalance(blocks.block_sizes, blocks.cardinalities, len(batch.keys))
        for blocks in (level_blocks(batch, count), prompt_blocks(batch, count))
    )
    assert mine <= printed


def test_wrong_arguments_are_reported():
    with pytest.raises(InvalidArgumentError, match="4 blocks for a batch of size 3"):
        prompt_blocks(post_sorted([1, 2, 3]), 4)
    assert len(prompt_blocks(post_sorted([]), 1).keys) == 0
