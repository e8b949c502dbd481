"""Gedik's Scan: places the frequent keys one by one, most frequent first."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from equipoise.kernels import kernel
from equipoise.plan.gedik import Adaptation, Gedik, best_target, extremes_besides_each


@kernel
def _scan(step: Any) -> Any:
    """Return the partition of each item, placed by decreasing share."""
    loads = np.zeros((len(step.loads), step.partitions))
    placement = np.empty(len(step.keys), dtype=np.int64)
    moved = step.forgotten
    for item in range(len(step.keys)):
        largest, smallest = extremes_besides_each(loads)
        target, _ = best_target(step, item, loads, largest, smallest, moved)
        placement[item] = target
        loads[:, target] += step.loads[:, item]
        moved += step.state[item] if target != step.old[item] else 0.0
    return placement


@dataclass(frozen=True)
class Scan(Gedik):
    """Gedik's Scan: each frequent key, by decreasing share, goes to the partition of best utility.

    Guarantees
    ----------
    - Those of :class:`Gedik`.
    - R tracked keys take O(R N log N) time.

    Differs from the paper
    ----------------------
    Only the differences listed for :class:`Gedik`.

    Parameters
    ----------
    state, computation, communication, utility, alpha, theta, sigma, domain_size, tracked, replicas, as_printed
        See :class:`Gedik`.

    References
    ----------
    Gedik, "Partitioning functions for stateful data parallelism in stream processing", algorithm 2.

    Examples
    --------
    >>> from equipoise.plan.uniform import uniform_plan
    >>> from equipoise.sketch.histogram import Histogram
    >>> hot = Histogram([1, 2, 3, 4], [0.3, 0.3, 0.2, 0.2])
    >>> plan = Scan().plan(uniform_plan(1), hot, partitions=2)
    >>> sorted(plan.isolated.values())
    [0, 0, 1, 1]
    """

    name: ClassVar[str] = "scan"

    def place(self, step: Adaptation) -> NDArray[np.int64]:
        """Run algorithm 2."""
        return np.asarray(_scan(step))
