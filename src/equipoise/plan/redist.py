"""Gedik's Redist: at each step, places the frequent key with the lowest utility value for its share."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from equipoise.kernels import kernel
from equipoise.plan.gedik import Adaptation, Gedik, best_target, clearly_less, extremes_besides_each


@kernel
def _best_item(step: Any, loads: Any, placed: Any, moved: float) -> Any:
    """Return the first unplaced item of lowest utility for its share, and its partition."""
    largest, smallest = extremes_besides_each(loads)
    best, best_partition, lowest = 0, 0, np.inf
    for item in range(len(step.keys)):
        if placed[item]:
            continue
        target, value = best_target(step, item, loads, largest, smallest, moved)
        if clearly_less(value, lowest * step.shares[item]):
            best, best_partition, lowest = item, target, value / step.shares[item]
    return best, best_partition


@kernel
def _redist(step: Any) -> Any:
    """Return the partition of each item, placed by lowest utility for the share."""
    loads = np.zeros((len(step.loads), step.partitions))
    placement = np.empty(len(step.keys), dtype=np.int64)
    placed = np.zeros(len(step.keys), dtype=np.bool_)
    moved = step.forgotten
    for _ in range(len(step.keys)):
        item, target = _best_item(step, loads, placed, moved)
        placed[item] = True
        placement[item] = target
        loads[:, target] += step.loads[:, item]
        moved += step.state[item] if target != step.old[item] else 0.0
    return placement


@dataclass(frozen=True)
class Redist(Gedik):
    """Gedik's Redist: like Scan, but the order of the keys is chosen, too, by lowest utility for the share.

    Guarantees
    ----------
    - Those of :class:`Gedik`.
    - R tracked keys take O(R^2 N) time.

    Differs from the paper
    ----------------------
    - Algorithm 3 neither fills nor empties its set of candidates, and charges migration by the old place of the last
      candidate instead of the chosen one; both are corrected.
    - The differences listed for :class:`Gedik`.

    Parameters
    ----------
    state, computation, communication, utility, alpha, theta, sigma, domain_size, tracked, replicas, as_printed
        See :class:`Gedik`.

    References
    ----------
    Gedik, "Partitioning functions for stateful data parallelism in stream processing", algorithm 3.

    Examples
    --------
    >>> from equipoise.plan.uniform import uniform_plan
    >>> from equipoise.sketch.histogram import Histogram
    >>> hot = Histogram([1, 2, 3, 4], [0.3, 0.3, 0.2, 0.2])
    >>> plan = Redist().plan(uniform_plan(1), hot, partitions=2)
    >>> sorted(plan.isolated.values())
    [0, 0, 1, 1]
    """

    name: ClassVar[str] = "redist"

    def place(self, step: Adaptation) -> NDArray[np.int64]:
        """Run algorithm 3."""
        return np.asarray(_redist(step))
