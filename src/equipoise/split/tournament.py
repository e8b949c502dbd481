"""Tournament tree that finds the least loaded of all workers: in each match the lower load wins.

Node 1 of the tree is the final. The children of node i are 2 i and 2 i + 1. The leaves are the workers, in order. On a
tie, the lower number wins. Loads only grow, so a worker that gets a message can only lose matches that it had won;
above a match that it had lost, nothing changes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.kernels import kernel

_NOBODY = -1


def new_tree(workers: int) -> NDArray[np.int32]:
    """Return an empty tree for ``workers`` workers; fill it with :func:`grow`."""
    return np.zeros(2 << max(0, workers - 1).bit_length(), dtype=np.int32)


@kernel(inline="always")
def _winner(tree: Any, loads: Any, node: int) -> int:
    left, right = tree[2 * node], tree[2 * node + 1]
    if right == _NOBODY or loads[left] <= loads[right]:
        return left  # type: ignore[no-any-return]
    return right  # type: ignore[no-any-return]


@kernel(nogil=True)
def grow(tree: Any, loads: Any) -> None:
    """Play every match."""
    leaves = len(tree) // 2
    for leaf in range(leaves):
        tree[leaves + leaf] = leaf if leaf < len(loads) else _NOBODY
    for node in range(leaves - 1, 0, -1):
        tree[node] = _winner(tree, loads, node)


@kernel(inline="always")
def play_again(tree: Any, loads: Any, worker: int) -> None:
    """Play again the matches that a worker, whose load has grown, had won."""
    node = (len(tree) // 2 + worker) >> 1
    while node > 0 and tree[node] == worker:
        tree[node] = _winner(tree, loads, node)
        node >>= 1
