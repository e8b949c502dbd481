"""Other ways to cut a batch into blocks, which Prompt is compared with."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import whole
from equipoise.microbatch.accumulator import Batch
from equipoise.microbatch.blocks import Blocks, blocks_of, prompt_blocks, room_for
from equipoise.microbatch.levelled_blocks import level_blocks
from equipoise.split import Affinity, KeyGrouping, PartialKey, Shuffle, Splitter


def blocks_of_tuples(batch: Batch, targets: NDArray[np.generic], count: int) -> Blocks:
    """Blocks from the block of each tuple, by its position."""
    keys = np.repeat(np.arange(len(batch.keys)), np.diff(batch.starts))
    sizes = np.ones(len(keys), dtype=np.int64) if batch.tuple_sizes is None else batch.tuple_sizes[batch.tuples]
    return blocks_of(count, keys, np.asarray(targets)[batch.tuples], sizes)


def time_blocks(batch: Batch, count: int, times: ArrayLike, start: float, end: float) -> Blocks:
    """What Spark Streaming does: the interval is cut into equal parts of time.

    Parameters
    ----------
    batch, count
        The batch and P.
    times
        Time of arrival of each tuple, by its position.
    start, end
        The interval.
    """
    part = (np.asarray(times, dtype=np.float64) - start) / (end - start) * whole("count", count, 1)
    return blocks_of_tuples(batch, np.clip(np.floor(part).astype(np.int64), 0, count - 1), count)


def routed_blocks(batch: Batch, splitter: Splitter) -> Blocks:
    """Blocks by a splitter that sees the tuples in the order of their arrival."""
    arrival = np.empty(len(batch.tuples), dtype=np.int64)
    arrival[batch.tuples] = np.repeat(batch.keys, np.diff(batch.starts))
    return blocks_of_tuples(batch, splitter.route(arrival), splitter.workers)


@njit(cache=True)
def _first_fit(sizes: Any, capacities: Any, keys: Any, blocks: Any, parts: Any) -> int:
    made, block = 0, 0
    room = capacities[0]
    for key in range(len(sizes)):
        left = sizes[key]
        while left > 0:
            if room == 0:
                block += 1
                room = capacities[block]
            part = min(left, room)
            keys[made], blocks[made], parts[made] = key, block, part
            made += 1
            left -= part
            room -= part
    return made


@njit(cache=True)
def _few_fragments(sizes: Any, capacities: Any, keys: Any, blocks: Any, parts: Any) -> int:
    room = capacities.copy()
    made = 0
    for key in range(len(sizes)):
        left = sizes[key]
        while left > 0:
            block = room_for(room, left)
            part = min(left, room[block])
            keys[made], blocks[made], parts[made] = key, block, part
            made += 1
            left -= part
            room[block] -= part
    return made


def _packed(kernel: Callable[..., int], batch: Batch, count: int) -> Blocks:
    capacities = np.full(whole("count", count, 1), batch.size // count, dtype=np.int64)
    capacities[: batch.size % count] += 1
    order = np.argsort(-batch.sizes, kind="stable")
    most = len(order) + count * min(count, len(order)) + count
    keys, blocks, parts = (np.empty(most, dtype=np.int64) for _ in range(3))
    made = kernel(batch.sizes[order], capacities, keys, blocks, parts)
    return blocks_of(count, order[keys[:made]], blocks[:made], parts[:made])


def first_fit_blocks(batch: Batch, count: int) -> Blocks:
    """First-fit decreasing with fragments: block after block is filled, and the key at its edge split (Figure 6a)."""
    return _packed(_first_fit, batch, count)


def few_fragments_blocks(batch: Batch, count: int) -> Blocks:
    """Fragmentation minimisation: a key is split only if no block holds it whole (Figure 6b)."""
    return _packed(_few_fragments, batch, count)


BLOCKS: dict[str, Callable[[Batch, int], Blocks]] = {
    "level": level_blocks,
    "prompt": prompt_blocks,
    "shuffle": lambda batch, count: routed_blocks(batch, Shuffle(count)),
    "hash": lambda batch, count: routed_blocks(batch, KeyGrouping(count)),
    "pk2": lambda batch, count: routed_blocks(batch, PartialKey(count)),
    "pk5": lambda batch, count: routed_blocks(batch, PartialKey(count, choices=min(5, count))),
    "cam": lambda batch, count: routed_blocks(batch, Affinity(count)),
    "first-fit": first_fit_blocks,
    "few-fragments": few_fragments_blocks,
}
"""Every way that needs nothing but the batch; ``time_blocks`` needs the times too."""
