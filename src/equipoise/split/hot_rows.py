"""Choices of the hot keys, hashed when they are needed, and the search for the least loaded of them.

Loads only grow. So what a search has found stays true: no choice of the key has less than ``floor`` messages, and none
before ``cursor`` has just as many. A key with many messages goes on from there. For a key with few messages there are
mostly many workers with the lowest load, one of which is among its first choices.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from equipoise.kernels import kernel
from equipoise.split.base import worker_of

SCANNED = 64
"""Number of choices up to which looking at all of them is cheaper than keeping the workers in order."""


class HotRows(NamedTuple):
    """A row for each hot key."""

    workers: NDArray[np.int32]  # choices of each row, the first ``filled`` of them
    bits: NDArray[np.uint64]  # one for each worker: those of the first ``marked`` choices are set, if there are any
    filled: NDArray[np.int32]
    marked: NDArray[np.int32]
    reach: NDArray[np.int32]  # number of choices that ``floor`` and ``cursor`` hold for
    floor: NDArray[np.int64]
    cursor: NDArray[np.int32]

    @classmethod
    def empty(cls, height: int, width: int, workers: int) -> Self:
        """Return ``height`` rows with room for ``width`` choices."""
        bits = np.empty((height, -(-workers // 64)), dtype=np.uint64)
        filled, marked, reach, cursor = np.zeros((4, height), dtype=np.int32)
        floor = np.zeros(height, dtype=np.int64)
        return cls(np.empty((height, width), dtype=np.int32), bits, filled, marked, reach, floor, cursor)

    def clear(self, rows: NDArray[np.int32]) -> None:
        """Give the rows to other keys."""
        for array in self[2:]:
            array[rows] = 0

    def forget_loads(self) -> None:
        """Forget what was found about the loads, some of which have fallen."""
        self.reach[:] = 0


@kernel
def _fill(rows: Any, row: int, key: int, starts: Any, choices: int, count: int) -> None:
    """Hash the first ``choices`` choices of a key, as far as that was not done before."""
    for choice in range(rows.filled[row], choices):
        rows.workers[row, choice] = worker_of(key, starts[choice], count)
    rows.filled[row] = max(rows.filled[row], choices)


@kernel
def _mark(rows: Any, row: int, choices: int) -> None:
    """Set the bits of the first ``choices`` choices, and no others."""
    if rows.marked[row] > choices:
        rows.marked[row] = 0
    if rows.marked[row] == 0:
        rows.bits[row] = 0
    for choice in range(rows.marked[row], choices):
        worker = rows.workers[row, choice]
        rows.bits[row, worker >> 6] |= np.uint64(1) << np.uint64(worker & 63)
    rows.marked[row] = choices


@kernel
def _first_with(load: int, rows: Any, row: int, key: int, starts: Any, choices: int, loads: Any) -> int:
    """Return the first choice from the cursor on with the given load; -1 if there is none."""
    for choice in range(rows.cursor[row], choices):
        if choice >= rows.filled[row]:
            rows.workers[row, choice] = worker_of(key, starts[choice], len(loads))
            rows.filled[row] = choice + 1
        worker = rows.workers[row, choice]
        if loads[worker] == load:
            rows.cursor[row] = choice
            return worker  # type: ignore[no-any-return]
    return -1


@kernel
def _marked_at(rows: Any, row: int, order: Any, start: int, stop: int) -> bool:
    """Return whether any worker of a part of the order has its bit set."""
    for i in range(start, stop):  # noqa: SIM110 - numba compiles no generators
        if rows.bits[row, order[i] >> 6] >> np.uint64(order[i] & 63) & np.uint64(1):
            return True
    return False


@kernel
def least_of_few(rows: Any, row: int, key: int, starts: Any, choices: int, loads: Any) -> int:
    """Return the first of the least loaded choices of a key, by looking at all."""
    if rows.filled[row] < choices:
        _fill(rows, row, key, starts, choices, len(loads))
    best = rows.workers[row, 0]
    for worker in rows.workers[row, 1:choices]:
        if loads[worker] < loads[best]:
            best = worker
    return best  # type: ignore[no-any-return]


@kernel
def least_of_many(rows: Any, row: int, key: int, starts: Any, choices: int, levels: Any, loads: Any) -> int:
    """Return the first of the least loaded choices of a key, by going through the levels from its floor.

    In a level of b of the n workers, the first of them is expected after n / b choices. So a small level is first
    compared with the bits, and a large one is looked for at once.
    """
    if choices > rows.reach[row]:
        rows.floor[row], rows.cursor[row] = 0, 0
    rows.reach[row] = choices
    order, workers = levels.order, len(loads)
    low, high = 0, workers - 1
    while low < high:  # bisection for the first worker that is not below the floor
        middle = (low + high) // 2
        if loads[order[middle]] < rows.floor[row]:
            low = middle + 1
        else:
            high = middle
    while True:
        load, stop = loads[order[low]], levels.stop[levels.level[order[low]]]
        if load > rows.floor[row]:
            rows.floor[row], rows.cursor[row] = load, 0
        possible = True
        if (stop - low) ** 2 < workers:
            _fill(rows, row, key, starts, choices, workers)
            _mark(rows, row, choices)
            possible = _marked_at(rows, row, order, low, stop)
        if possible:
            worker = _first_with(load, rows, row, key, starts, choices, loads)
            if worker >= 0:
                return worker
        low = stop
