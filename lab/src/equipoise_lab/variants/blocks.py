"""Methods of cutting a batch into blocks with which the paper compares Prompt."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise import microbatch
from equipoise.arguments import whole
from equipoise.kernels import kernel
from equipoise.microbatch.accumulator import Batch
from equipoise.microbatch.blocks import Blocks, blocks_of, room_for
from equipoise.split import Affinity, KeyGrouping, PartialKey, Shuffle, Splitter


def blocks_of_tuples(batch: Batch, targets: NDArray[np.generic], count: int) -> Blocks:
    """Return blocks from the block of each tuple, by position of the tuple."""
    keys = np.repeat(np.arange(len(batch.keys)), np.diff(batch.starts))
    sizes = np.ones(len(keys), dtype=np.int64) if batch.tuple_sizes is None else batch.tuple_sizes[batch.tuples]
    return blocks_of(count, keys, np.asarray(targets)[batch.tuples], sizes)


def time_blocks(batch: Batch, count: int, times: ArrayLike, start: float, end: float) -> Blocks:
    """Cut the interval into equal parts of time, as Spark Streaming does.

    Parameters
    ----------
    batch, count
        The batch and P.
    times
        Time of arrival of each tuple, by position of the tuple.
    start, end
        Start and end of the interval.
    """
    position = (np.asarray(times, dtype=np.float64) - start) / (end - start) * whole("count", count, 1)
    return blocks_of_tuples(batch, np.clip(np.floor(position).astype(np.int64), 0, count - 1), count)


def routed_blocks(batch: Batch, splitter: Splitter) -> Blocks:
    """Assign tuples to blocks by a splitter, in order of arrival."""
    arrival = np.empty(len(batch.tuples), dtype=np.int64)
    arrival[batch.tuples] = np.repeat(batch.keys, np.diff(batch.starts))
    return blocks_of_tuples(batch, splitter.route(arrival), splitter.workers)


@kernel
def _first_fit(sizes: Any, capacities: Any, keys: Any, blocks: Any, fragments: Any) -> int:
    made, block = 0, 0
    room = capacities[0]
    for key in range(len(sizes)):
        left = sizes[key]
        while left > 0:
            if room == 0:
                block += 1
                room = capacities[block]
            fragment = min(left, room)
            keys[made], blocks[made], fragments[made] = key, block, fragment
            made += 1
            left -= fragment
            room -= fragment
    return made


@kernel
def _few_fragments(sizes: Any, capacities: Any, keys: Any, blocks: Any, fragments: Any) -> int:
    room = capacities.copy()
    made = 0
    for key in range(len(sizes)):
        left = sizes[key]
        while left > 0:
            block = room_for(room, left)
            fragment = min(left, room[block])
            keys[made], blocks[made], fragments[made] = key, block, fragment
            made += 1
            left -= fragment
            room[block] -= fragment
    return made


def _packed(kernel: Callable[..., int], batch: Batch, count: int) -> Blocks:
    capacities = np.full(whole("count", count, 1), batch.size // count, dtype=np.int64)
    capacities[: batch.size % count] += 1
    order = np.argsort(-batch.sizes, kind="stable")
    most = len(order) + count * min(count, len(order)) + count
    keys, blocks, fragments = (np.empty(most, dtype=np.int64) for _ in range(3))
    made = kernel(batch.sizes[order], capacities, keys, blocks, fragments)
    return blocks_of(count, order[keys[:made]], blocks[:made], fragments[:made])


def first_fit_blocks(batch: Batch, count: int) -> Blocks:
    """First-fit decreasing with fragments: fill block after block, and split the key at the edge (Figure 6a)."""
    return _packed(_first_fit, batch, count)


def few_fragments_blocks(batch: Batch, count: int) -> Blocks:
    """Fragmentation minimisation: split a key only if no block has room for it (Figure 6b)."""
    return _packed(_few_fragments, batch, count)


BLOCKS: dict[str, Callable[[Batch, int], Blocks]] = {
    **microbatch.BLOCKS,
    "shuffle": lambda batch, count: routed_blocks(batch, Shuffle(count)),
    "hash": lambda batch, count: routed_blocks(batch, KeyGrouping(count)),
    "pk2": lambda batch, count: routed_blocks(batch, PartialKey(count)),
    "pk5": lambda batch, count: routed_blocks(batch, PartialKey(count, choices=min(5, count))),
    "cam": lambda batch, count: routed_blocks(batch, Affinity(count)),
    "first-fit": first_fit_blocks,
    "few-fragments": few_fragments_blocks,
}
"""Block methods of the library and of the laboratory by name, except ``time_blocks``, which needs the times."""
