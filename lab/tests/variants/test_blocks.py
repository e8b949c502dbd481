"""The methods that Prompt is compared with: every tuple once, capacities, and the golden numbers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.metrics import block_cardinality_imbalance, block_size_imbalance, key_split_ratio
from equipoise.microbatch import post_sorted
from equipoise_lab.variants import BLOCKS, first_fit_blocks, time_blocks

FIGURE = {"K1": 120, "K2": 90, "K3": 45, "K4": 42, "K5": 33, "K6": 30, "K7": 15, "K8": 10}


def test_first_fit_comes_out_as_in_the_figure():
    names = list(FIGURE)
    blocks = first_fit_blocks(post_sorted(np.repeat(np.arange(len(names)), list(FIGURE.values()))), 4)
    found = [{} for _ in range(blocks.count)]
    for key, block, size in zip(blocks.keys, blocks.blocks, blocks.sizes, strict=True):
        found[block][names[key]] = int(size)
    assert found == [
        {"K1": 97},
        {"K1": 23, "K2": 73},
        {"K2": 17, "K3": 45, "K4": 34},
        {"K4": 8, "K5": 33, "K6": 30, "K7": 15, "K8": 10},
    ]
    assert block_cardinality_imbalance(blocks.cardinalities) == 2.25
    assert key_split_ratio(blocks.cardinalities, 8) == 1.375


@given(st.lists(st.integers(0, 25), min_size=1, max_size=200), st.integers(1, 12), st.booleans())
@settings(max_examples=60)
def test_every_tuple_is_in_one_block_whatever_the_method(keys, count, weighted):
    sizes = np.random.default_rng(len(keys)).integers(1, 6, len(keys)) if weighted else None
    batch = post_sorted(keys, sizes)
    count = min(count, batch.size)
    made = {name: make(batch, count) for name, make in BLOCKS.items()}
    made["time"] = time_blocks(batch, count, np.linspace(0, 1, len(keys), endpoint=False), 0, 1)
    for name, blocks in made.items():
        assert np.bincount(blocks.keys, blocks.sizes, len(batch.keys)).tolist() == batch.sizes.tolist(), name
        assert blocks.block_sizes.sum() == batch.size
        assert len(np.unique(blocks.keys * count + blocks.blocks)) == len(blocks.keys)
        targets = blocks.of_tuples(batch)
        if not weighted:
            assert np.bincount(targets, minlength=count).tolist() == blocks.block_sizes.tolist(), name
        for key, block in zip(keys, targets, strict=True):
            assert block in blocks.blocks[blocks.keys == batch.keys.tolist().index(key)]
    capacity = -(-batch.size // count)
    assert made["first-fit"].block_sizes.max() <= capacity
    assert made["few-fragments"].block_sizes.max() <= capacity
    assert len(made["hash"].split) == 0


def test_hashing_a_skewed_batch_leaves_blocks_of_very_different_sizes():
    batch = post_sorted(np.random.default_rng(1).zipf(1.3, 50_000) % 5000)
    assert block_size_imbalance(BLOCKS["hash"](batch, 16).block_sizes) > 1000
