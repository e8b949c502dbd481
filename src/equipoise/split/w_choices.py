"""W-Choices: two choices for most keys, all workers for the hot keys."""

import numpy as np
from numpy.typing import NDArray

from equipoise.split.hot_keys import Head, HotKeySplitter


class WChoices(HotKeySplitter):
    """W-Choices: two choices for most keys, all workers for the hot keys (the head).

    Guarantees
    ----------
    - A message of a hot key goes to the least loaded worker, the first one on a tie.
    - A message of another key goes to the less loaded of its two workers, the first one on a tie.
    - At every refresh, each key whose share of the messages so far exceeds ``threshold`` is hot.

    Differs from the paper
    ----------------------
    The hot keys are updated every ``refresh`` messages instead of on every message; at that time the sketch counts the
    messages since the last update, key by key. The sketch has 10 / ``threshold`` counters; the code's 100 miss hot keys
    from 20 workers on.

    Parameters
    ----------
    workers
        n, number of workers.
    threshold
        theta, share above which a key is hot; default 1 / (5 n).
    capacity
        Counters of the sketch; default 10 / ``threshold``.
    refresh
        Messages between two updates of the hot keys.
    seed
        Seed of the hash functions.

    References
    ----------
    Nasir, De Francisci Morales, Kourtellis, Serafini: When two choices are not enough, ICDE 2016.

    Examples
    --------
    >>> WChoices(4, seed=1).route([7] * 6).tolist()
    [0, 1, 2, 3, 0, 1]
    """

    name = "w-choices"

    def __init__(
        self,
        workers: int,
        *,
        threshold: float | None = None,
        capacity: int | None = None,
        refresh: int = 10_000,
        seed: int = 0,
    ) -> None:
        super().__init__(workers, threshold=threshold, capacity=capacity, refresh=refresh, seed=seed)

    def _widen(self, keys: NDArray[np.int64], shares: NDArray[np.float64], before: NDArray[np.int64]) -> Head:  # noqa: ARG002 - all alike
        return self._head._replace(choices=self.workers, slots=np.zeros(len(keys), dtype=np.int32))
