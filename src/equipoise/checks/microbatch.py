"""Conformance checks for methods that cut a batch into blocks or assign clusters to buckets."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import CheckError
from equipoise.microbatch import Batch, Blocks, post_sorted
from equipoise.readable import fingerprint_text

BlockMethod = Callable[[Batch, int], Blocks]
"""Function that cuts a batch into a number of blocks."""

BucketMethod = Callable[[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_], int], NDArray[np.int32]]
"""Function from keys, sizes and flags of split keys of a map task, and a number of buckets, to the buckets."""


def batches() -> Iterator[tuple[str, Batch]]:
    """Yield batches of unusual shapes, with a name for messages."""
    rng = np.random.default_rng(5)
    skewed = np.minimum(rng.zipf(1.2, 4000), 10**6).astype(np.int64)
    yield "one tuple", post_sorted([7])
    yield "one key only", post_sorted(np.full(100, -3))
    yield "fewer keys than blocks", post_sorted([1] * 90 + [2] * 10)
    yield "every tuple a new key", post_sorted(np.arange(500))
    yield "a skewed batch", post_sorted(skewed)
    yield "an even batch", post_sorted(np.tile(np.arange(40), 25))
    yield "tuples of several sizes", post_sorted(skewed, rng.integers(1, 50, len(skewed)))
    yield "the extreme fingerprints", post_sorted(np.tile(np.array([-(2**63), 2**63 - 1, 0, -1]), 50))


def check_blocks(make: BlockMethod, *, capacity: bool = False, whole_keys: bool = False) -> None:
    """Check a method that cuts batches into blocks; raise ``CheckError`` if a check fails.

    Parameters
    ----------
    make
        Method to check.
    capacity
        Whether no block may exceed ``ceil(N / P)``, if all tuples have the size 1.
    whole_keys
        Whether no key may be in several blocks.

    Examples
    --------
    >>> from equipoise.microbatch import level_blocks
    >>> check_blocks(level_blocks)
    """
    for name, batch in batches():
        for count in (1, 2, 7, 32):
            if count > batch.size:
                continue
            blocks, where = make(batch, count), f"{name}, {count} blocks"
            _check_fragments(blocks, batch, count, where)
            targets = blocks.of_tuples(batch)
            if targets.shape != batch.tuples.shape or targets.min() < 0 or targets.max() >= count:
                raise CheckError(f"{where}: a tuple has no block, or a block outside 0..{count - 1}")
            plain = batch.tuple_sizes is None
            if plain and not np.array_equal(np.bincount(targets, minlength=count), blocks.block_sizes):
                raise CheckError(f"{where}: the stated sizes of the blocks are not their numbers of tuples")
            if plain and capacity and blocks.block_sizes.max() > -(-batch.size // count):
                raise CheckError(f"{where}: a block of {blocks.block_sizes.max()} exceeds its capacity")
            if whole_keys and len(blocks.split):
                raise CheckError(
                    f"{where}: key {fingerprint_text(int(batch.keys[blocks.split[0]]))} is in several blocks"
                )


def check_buckets(make: BucketMethod) -> None:
    """Check a method that assigns clusters to buckets; raise ``CheckError`` if a check fails.

    Parameters
    ----------
    make
        Method to check.

    Examples
    --------
    >>> from equipoise.microbatch import prompt_buckets
    >>> check_buckets(prompt_buckets)
    """
    rng = np.random.default_rng(6)
    shared = rng.integers(-(2**62), 2**62, 20)
    for buckets in (1, 2, 5, 16):
        seen: dict[int, int] = {}
        for task in range(4):
            own = rng.integers(-(2**62), 2**62, 50) * 4 + task  # keys of this task alone
            keys = np.concatenate([shared, own])
            split = np.arange(len(keys)) < len(shared)
            order = rng.permutation(len(keys))
            sizes = np.minimum(rng.zipf(1.5, len(keys)), 1000).astype(np.float64)
            found = make(keys[order], sizes, split[order], buckets)
            if found.shape != keys.shape or found.min() < 0 or found.max() >= buckets:
                raise CheckError(f"{buckets} buckets: a cluster has no bucket, or a bucket outside 0..{buckets - 1}")
            for key, bucket in zip(keys[order][split[order]].tolist(), found[split[order]].tolist(), strict=True):
                if seen.setdefault(key, bucket) != bucket:
                    name = fingerprint_text(key)
                    raise CheckError(f"{buckets} buckets: split key {name} is in bucket {seen[key]} and in {bucket}")
        empty = make(shared[:0], np.empty(0), np.empty(0, dtype=bool), buckets)
        if len(empty):
            raise CheckError(f"{buckets} buckets: without clusters, {len(empty)} buckets were returned")


def _check_fragments(blocks: Blocks, batch: Batch, count: int, where: str) -> None:
    if blocks.count != count:
        raise CheckError(f"{where}: {blocks.count} blocks were returned")
    if len(blocks.sizes) and blocks.sizes.min() < 1:
        raise CheckError(f"{where}: a fragment has the size {blocks.sizes.min()}")
    sizes = np.bincount(blocks.keys, blocks.sizes, len(batch.keys)).astype(np.int64)
    if not np.array_equal(sizes, batch.sizes):
        at = int(np.flatnonzero(sizes != batch.sizes)[0])
        name = fingerprint_text(int(batch.keys[at]))
        raise CheckError(f"{where}: key {name} of size {batch.sizes[at]} has fragments of {sizes[at]}")
    if len(np.unique(blocks.keys * count + blocks.blocks)) != len(blocks.keys):
        raise CheckError(f"{where}: two fragments of one key are in one block")
