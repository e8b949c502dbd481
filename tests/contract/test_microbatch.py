"""Every way to cut a batch passes the checks, and the checks find what they are for."""

import numpy as np
import pytest

from equipoise import CheckError
from equipoise.checks import check_blocks, check_buckets
from equipoise.microbatch import BLOCKS, level_buckets, prompt_blocks, prompt_buckets
from equipoise.microbatch.blocks import Blocks


@pytest.mark.parametrize("name", BLOCKS)
def test_methods_pass(name):
    check_blocks(BLOCKS[name])


@pytest.mark.parametrize("turns", [True, False])
def test_buckets_pass(turns):
    check_buckets(lambda keys, sizes, split, count: prompt_buckets(keys, sizes, split, count, turns=turns))


def lost(batch, count):
    blocks = prompt_blocks(batch, count)
    return Blocks(count, blocks.keys[1:], blocks.blocks[1:], blocks.sizes[1:])


def twice(batch, count):
    blocks = prompt_blocks(batch, count)
    halves = np.repeat(blocks.keys, 2), np.repeat(blocks.blocks, 2)
    sizes = np.stack([blocks.sizes - blocks.sizes // 2, blocks.sizes // 2], axis=1).reshape(-1)
    kept = sizes > 0
    return Blocks(count, halves[0][kept], halves[1][kept], sizes[kept])


def in_one_block(batch, count):
    keys = np.arange(len(batch.keys))
    return Blocks(count, keys, np.zeros_like(keys), batch.sizes)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lost, "has fragments of"),
        (twice, "two fragments of one key"),
        (lambda batch, count: prompt_blocks(batch, max(1, count - 1)), "blocks were returned"),
        (lambda batch, _: in_one_block(batch, 2), "2 blocks were returned"),
    ],
)
def test_broken_methods_are_found(make, complaint):
    with pytest.raises(CheckError, match=complaint):
        check_blocks(make)


def test_broken_promises_are_found():
    with pytest.raises(CheckError, match="exceeds its capacity"):
        check_blocks(in_one_block, capacity=True)
    with pytest.raises(CheckError, match="is in several blocks"):
        check_blocks(BLOCKS["prompt"], whole_keys=True)
    with pytest.raises(CheckError, match=r"split key .* is in bucket"):
        check_buckets(lambda keys, *_: (np.arange(len(keys)) % _[-1]).astype(np.int32))
    with pytest.raises(CheckError, match="outside 0"):
        check_buckets(lambda keys, *_: np.full(len(keys), 99, dtype=np.int32))


def test_buckets_by_all_sizes_are_level():
    shares = 1 / np.arange(1, 1001)
    loads = np.bincount(level_buckets(shares, 16), shares, 16)
    assert np.sort(loads)[-2:].tolist() == [0.5, 1.0]  # the two hottest keys, alone
    assert np.ptp(np.sort(loads)[:-2]) <= 2 * shares[-1]
