"""Algorithm 2 of Prompt: cut a batch into blocks of equal size and equal numbers of keys, splitting few keys.

A block is a task's input. Keys above the mean size are split: a fragment of the mean size is assigned at once, the rest
is deferred. The other keys are assigned to the blocks in zigzag order, the largest first. Then the deferred rests fill
the remaining room, in the block of their first fragment if possible.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError
from equipoise.kernels import kernel
from equipoise.microbatch.accumulator import Batch


@dataclass(frozen=True, eq=False)
class Blocks:
    """Assignment of key fragments to blocks.

    Parameters
    ----------
    count
        P, number of blocks.
    keys
        Number of the key of each fragment, in the order of the batch.
    blocks
        Block of each fragment.
    sizes
        Size of each fragment.
    """

    count: int
    keys: NDArray[np.int64]
    blocks: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @cached_property
    def block_sizes(self) -> NDArray[np.int64]:
        """Size of each block."""
        return np.bincount(self.blocks, self.sizes, self.count).astype(np.int64)

    @cached_property
    def cardinalities(self) -> NDArray[np.int64]:
        """Number of keys in each block."""
        return np.bincount(self.blocks, minlength=self.count)

    @cached_property
    def split(self) -> NDArray[np.int64]:
        """Keys with fragments in several blocks: the reference table that travels with every block."""
        keys, fragments = np.unique(self.keys, return_counts=True)
        return keys[fragments > 1]

    def of_tuples(self, batch: Batch) -> NDArray[np.int64]:
        """Block of each tuple of the batch, by its position; a tuple is in the block of its first unit of size."""
        order = np.argsort(self.keys, kind="stable")
        blocks, sizes = self.blocks[order], self.sizes[order]
        if batch.tuple_sizes is None:
            of_ordered = np.repeat(blocks, sizes)
        else:
            tuple_sizes = batch.tuple_sizes[batch.tuples]
            of_ordered = blocks[np.searchsorted(np.cumsum(sizes), np.cumsum(tuple_sizes) - tuple_sizes, side="right")]
        out = np.empty(len(batch.tuples), dtype=np.int64)
        out[batch.tuples] = of_ordered
        return out


def blocks_of(count: int, keys: Any, blocks: Any, sizes: Any) -> Blocks:
    """Build blocks from fragments; fragments of one key in one block are merged."""
    keys, blocks = np.asarray(keys, dtype=np.int64), np.asarray(blocks, dtype=np.int64)
    pairs, inverse = np.unique(keys * count + blocks, return_inverse=True)
    added = np.bincount(inverse, np.asarray(sizes, dtype=np.float64), len(pairs)).astype(np.int64)
    return Blocks(count, pairs // count, pairs % count, added)


@kernel
def _partition(sizes: Any, count: int, resume: bool, keys: Any, blocks: Any, parts: Any) -> int:
    """Write fragments to the arrays; return their number."""
    total = sizes.sum()
    cutoff = total / count / max(1.0, len(sizes) / count)
    fragment = max(1, int(np.floor(cutoff)))
    capacity = -(-total // count)
    filled = np.zeros(count, dtype=np.int64)
    home = np.full(len(sizes), -1, dtype=np.int64)
    made, at = 0, 0
    for key in range(len(sizes)):  # fragments of the large keys, dealt round
        if sizes[key] > cutoff:
            keys[made], blocks[made], parts[made] = key, at, fragment
            made += 1
            home[key] = at
            filled[at] += fragment
            at = (at + 1) % count
    at, step = (at, 1) if resume else (0, 1)
    for key in range(len(sizes)):  # the others, to and fro
        if home[key] < 0:
            keys[made], blocks[made], parts[made] = key, at, sizes[key]
            made += 1
            filled[at] += sizes[key]
            if 0 <= at + step < count:
                at += step
            else:
                step = -step
    for key in range(len(sizes)):  # what is left of the large keys
        left = sizes[key] - fragment if home[key] >= 0 else 0
        block = home[key]
        first = True
        while left > 0:
            if not first:
                block = room_for(capacity - filled, left)
            part = min(left, max(0, capacity - filled[block]))
            first = False
            if part > 0:
                keys[made], blocks[made], parts[made] = key, block, part
                made += 1
                filled[block] += part
                left -= part
    return made


@kernel
def room_for(room: Any, size: int) -> int:
    """The block with the least room that holds ``size``, or the one with the most room."""
    best, most = -1, 0
    for block in range(len(room)):
        if room[block] >= size and (best < 0 or room[block] < room[best]):
            best = block
        if room[block] > room[most]:
            most = block
    return best if best >= 0 else most


def prompt_blocks(batch: Batch, count: int, *, resume: bool = True) -> Blocks:
    """Blocks of a quasi-sorted batch by algorithm 2.

    Guarantees
    ----------
    - Every unit of size is in exactly one block.
    - No key of at most the mean size is split. A block exceeds ``ceil(N / P)`` only by keys of at most the mean size,
      which are assigned without regard to the room.

    Differs from the paper
    ----------------------
    The block capacity is rounded up, so that all tuples fit. With fewer keys than blocks the cut-off is the block size
    (the print divides by a cardinality below 1). What fits in no block is spread over those with most room, one after
    the other, where the print does not say. ``resume`` lets the dealing of whole keys begin where that of the fragments
    ended; ``False`` begins at the first block, as printed.

    Parameters
    ----------
    batch
        A closed batch.
    count
        P, number of blocks.
    resume
        Whether the dealing goes on at the block after the last fragment.

    References
    ----------
    Abdelhamid, Mahmood, Daghistani, Aref: Prompt, SIGMOD 2020, algorithm 2.

    Examples
    --------
    >>> from equipoise.microbatch import post_sorted
    >>> blocks = prompt_blocks(post_sorted([1] * 9 + [2, 3, 4]), 4)
    >>> blocks.block_sizes.tolist(), blocks.split.tolist()
    ([3, 3, 3, 3], [0])
    """
    if whole("count", count, 1) > max(1, batch.size):
        raise InvalidArgumentError(f"{count} blocks for a batch of size {batch.size}; use fewer blocks than tuples")
    if not len(batch.keys):
        nothing = np.empty(0, dtype=np.int64)
        return Blocks(count, nothing, nothing, nothing)
    most = 2 * len(batch.keys) + 2 * count * min(len(batch.keys), count) + count
    keys, blocks, parts = (np.empty(most, dtype=np.int64) for _ in range(3))
    made = _partition(batch.sizes, count, resume, keys, blocks, parts)
    return blocks_of(count, keys[:made], blocks[:made], parts[:made])
