"""Blocks that are level in size and in number of keys: the hottest keys are split over all blocks and even them out.

In algorithm 2 of Prompt the rests of large keys fill the few blocks that fit best, so that these blocks end up with few
keys and the others with many. Here a few keys are split over every block instead, in fragments that compensate the
differences between the blocks after the whole keys were assigned in zigzag order. A key in every block costs one
fragment a block, and there are few of them.
"""

import numpy as np
from numpy.typing import NDArray

from equipoise.metrics import micropartitioning_imbalance
from equipoise.microbatch.accumulator import Batch
from equipoise.microbatch.blocks import Blocks, prompt_blocks

_LEAST = 2  # mean size of a fragment from which no fragment is rounded to 0


def level_blocks(batch: Batch, count: int) -> Blocks:
    """Blocks of a quasi-sorted batch, no worse in MPI than those of algorithm 2.

    Guarantees
    ----------
    - Every unit of size is in exactly one block.
    - MPI, with equal weights, is at most that of ``prompt_blocks``.
    - Where enough of the batch is in its hottest keys to level the others, blocks differ by at most 1 in size and by at
      most 1 in keys.

    Parameters
    ----------
    batch
        A closed batch.
    count
        P, number of blocks.

    Examples
    --------
    >>> from equipoise.microbatch import post_sorted
    >>> blocks = level_blocks(post_sorted([1] * 20 + [2] * 6 + [3] * 4 + [4] * 2), 2)
    >>> blocks.block_sizes.tolist(), blocks.cardinalities.tolist(), blocks.split.tolist()
    ([16, 16], [2, 3], [0])
    """
    printed = prompt_blocks(batch, count)
    levelled = _levelled(batch, count)
    if levelled is None or _imbalance(printed, batch) <= _imbalance(levelled, batch):
        return printed
    return levelled


def _imbalance(blocks: Blocks, batch: Batch) -> float:
    return micropartitioning_imbalance(blocks.block_sizes, blocks.cardinalities, len(batch.keys))


def _levelled(batch: Batch, count: int) -> Blocks | None:
    """Split the fewest hot keys, up to a factor of two, that can level the others; ``None`` if they cannot."""
    sizes, keys = batch.sizes, len(batch.keys)
    turn = np.arange(keys) % (2 * count)
    dealt = np.where(turn < count, turn, 2 * count - 1 - turn)
    target = np.full(count, batch.size // count, dtype=np.int64)
    target[: batch.size % count] += 1
    hot = 1
    while hot <= keys:
        tail = dealt[: keys - hot]
        room = target - np.bincount(tail, sizes[hot:], count).astype(np.int64)
        if room.min() > 0 and int(sizes[:hot].min()) * int(room.min()) >= _LEAST * int(room.sum()):
            parts = _parts(sizes[:hot], room)
            split = np.repeat(np.arange(hot), count), np.tile(np.arange(count), hot), parts.reshape(-1)
            whole = np.arange(hot, keys), tail, sizes[hot:]
            return Blocks(count, *(np.concatenate(pair) for pair in zip(split, whole, strict=True)))
        hot *= 2
    return None


def _parts(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integer matrix with the given row and column sums, nearly proportional; the totals must be equal."""
    # products of sizes in bytes exceed 64 bits
    down, across = (np.concatenate([[0], np.cumsum(each)]).astype(object) for each in (rows, columns))
    upto = np.outer(down, across) // down[-1]
    return np.asarray(np.diff(np.diff(upto, axis=0), axis=1), dtype=np.int64)
