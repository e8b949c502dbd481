"""Workers in order of their loads; those of equal load form a level.

A worker that gets a message moves to the end of its level and from there to the next one, in constant time.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.kernels import kernel


class LoadLevels(NamedTuple):
    """Order of the workers by load, and their levels; level numbers are reused and say nothing about the load."""

    order: NDArray[np.int32]  # workers by increasing load
    place: NDArray[np.int32]  # position of each worker in ``order``
    level: NDArray[np.int32]  # number of the level of each worker
    start: NDArray[np.int32]  # of each level in ``order``
    stop: NDArray[np.int32]
    unused: NDArray[np.int32]  # numbers of levels, as a stack
    height: NDArray[np.int32]  # of the stack, one element


def new_levels(workers: int) -> LoadLevels:
    """Return empty levels; fill them with :func:`arrange`."""
    order, place, level, start, stop, unused = np.zeros((6, workers), dtype=np.int32)
    return LoadLevels(order, place, level, start, stop, unused, np.zeros(1, dtype=np.int32))


@kernel(nogil=True)
def arrange(levels: Any, loads: Any) -> None:
    """Group the workers by their loads."""
    workers = len(loads)
    levels.order[:] = np.argsort(loads, kind="mergesort")
    used = 0
    for i in range(workers):
        worker = levels.order[i]
        levels.place[worker] = i
        if i == 0 or loads[worker] != loads[levels.order[i - 1]]:
            levels.start[used] = i
            used += 1
        levels.level[worker] = used - 1
        levels.stop[used - 1] = i + 1
    levels.height[0] = workers - used
    for i in range(workers - used):
        levels.unused[i] = used + i


@kernel
def rise(levels: Any, loads: Any, worker: int) -> None:
    """Move a worker whose load has grown by 1 to the next level."""
    level = levels.level[worker]
    last = levels.stop[level] - 1
    other, here = levels.order[last], levels.place[worker]
    levels.order[here], levels.order[last] = other, worker
    levels.place[other], levels.place[worker] = here, last
    alone = levels.start[level] == last
    if last + 1 < len(loads) and loads[levels.order[last + 1]] == loads[worker]:
        following = levels.level[levels.order[last + 1]]
        levels.start[following] = last
        levels.level[worker] = following
        if alone:
            levels.unused[levels.height[0]] = level
            levels.height[0] += 1
    elif not alone:
        levels.height[0] -= 1
        new = levels.unused[levels.height[0]]
        levels.start[new], levels.stop[new] = last, last + 1
        levels.level[worker] = new
    if not alone:
        levels.stop[level] = last
