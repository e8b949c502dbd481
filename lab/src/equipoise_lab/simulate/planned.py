"""Splitter that routes by the plans of a planner, for the comparison of planners with splitters."""

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import whole
from equipoise.plan import Planner, uniform_plan
from equipoise.sketch import SpaceSaving
from equipoise.split.base import Splitter


class Planned(Splitter):
    """Route by a plan, which is replaced at intervals by one made from the messages since the last.

    Guarantees
    ----------
    - Under one plan a key is never split.
    - The first plan is plain hash.

    Differs from the paper
    ----------------------
    It is not from a paper.

    Parameters
    ----------
    planner
        Planner that makes each next plan.
    workers
        W, number of workers, which is the number of partitions of the plan.
    every
        Messages between two plans.
    seed
        Not used; all splitters have this parameter.

    Examples
    --------
    >>> from equipoise.plan import KIP
    >>> router = Planned(KIP(), 4, every=1000)
    >>> stream = np.where(np.random.default_rng(1).random(2000) < 0.25, 7, np.arange(2000))
    >>> bool(router.loads.sum() == 0 and len(router.route(stream)) == 2000 and router.plan.version > 0)
    True
    """

    name = "planned"
    coordinated = True

    def __init__(self, planner: Planner, workers: int, *, every: int, seed: int = 0) -> None:
        super().__init__(workers, seed=seed)
        self.every = whole("every", every, 1)
        self.plan = uniform_plan(self.workers)
        self._planner = planner
        self._sketch = self._new_sketch()

    def _new_sketch(self) -> SpaceSaving:
        return SpaceSaving(max(1000, 20 * self.workers))

    def _route(self, keys: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        done = 0
        while done < len(keys):
            if self._sketch.total == self.every:
                histogram = self._sketch.histogram(2 * self.workers + 1)
                self.plan = self._planner.plan(self.plan, histogram)
                self._sketch = self._new_sketch()
            stop = min(len(keys), done + self.every - self._sketch.total)
            targets[done:stop] = self.plan.assign(keys[done:stop])
            self._sketch.update_many(keys[done:stop])
            done = stop
        self.loads += np.bincount(targets, minlength=self.workers)

    def candidates(self, key: int) -> NDArray[np.int32]:
        """Return the worker of the key under the present plan."""
        return np.asarray(self.plan.assign([key]), dtype=np.int32)

    @property
    def nbytes(self) -> int:
        """Memory of loads, sketch and plan, in bytes."""
        return super().nbytes + self._sketch.nbytes + self.plan.tail.nbytes
