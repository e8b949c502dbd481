"""D-Choices: two choices for most keys, as many as their load needs for the hot keys."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.fingerprint_table import EMPTY
from equipoise.kernels import kernel
from equipoise.split.base import hash_starts
from equipoise.split.hot_keys import Head, HotKeySplitter
from equipoise.split.hot_rows import HotRows


@kernel(inline="always")
def _fits(choices: int, prefix: int, inside: Any, tail: float, workers: int, slack: float) -> bool:
    """Return whether the workers that a prefix of the hot keys can reach are not expected to be overloaded."""
    reached = 1.0 - ((workers - 1) / workers) ** (prefix * choices)  # expected fraction of the workers
    carried = inside[prefix - 1] + reached**choices * (inside[-1] - inside[prefix - 1]) + reached**2 * tail
    return carried <= workers * reached * (1 / workers + slack)  # type: ignore[no-any-return]


@kernel(nogil=True)
def _find_choices(shares: Any, workers: int, slack: float) -> int:
    """Return the smallest number of choices with which every prefix fits.

    A prefix that did not fit is tested first with one more choice: it decides nearly all numbers that are too small.
    """
    if len(shares) == 0:
        return min(2, workers)
    choices = max(2, int(np.ceil(shares[0] * workers)))
    inside = np.cumsum(shares)
    tail = max(0.0, 1.0 - inside[-1])
    suspect, checked = 1, 0  # ``checked`` prefixes, the suspect one first, fit the present number of choices
    while choices < workers and checked < len(shares):
        if _fits(choices, suspect, inside, tail, workers, slack):
            checked += 1
            suspect = suspect % len(shares) + 1
        else:
            checked = 0
            choices += 1
    return min(choices, workers)


def find_choices(shares: ArrayLike, workers: int, *, slack: float = 1e-4) -> int:
    """Return d, the smallest number of choices with which hot keys should not overload the workers they reach.

    Parameters
    ----------
    shares
        p_1 >= p_2 >= ..., shares of the hot keys in the whole load; the rest is tail.
    workers
        n, number of workers.
    slack
        epsilon, tolerated excess of a worker over its fair share, as a fraction of the whole load.

    Returns
    -------
    int
        Between 2 and ``workers``; ``workers`` means all workers.

    Examples
    --------
    >>> find_choices([0.2, 0.1, 0.05], workers=10)
    3
    """
    hot = np.asarray(shares, dtype=np.float64)
    if hot.ndim != 1 or not np.all(np.isfinite(hot) & (hot >= 0)) or np.any(np.diff(hot) > 0):
        raise InvalidArgumentError("shares must be finite numbers of at least 0 in decreasing order; sort them first")
    return int(_find_choices(hot, whole("workers", workers, 1), at_least("slack", slack, 0)))


class DChoices(HotKeySplitter):
    """D-Choices: two choices for most keys, d for the hot keys (the head), with d computed from their shares.

    Guarantees
    ----------
    - A message goes to the least loaded of the choices of its key, the first one on a tie.
    - The two workers of a key before it is hot are among its workers while it is hot.
    - At every refresh, each key whose share of the messages so far exceeds ``threshold`` is hot.
    - d is the smallest number of at least 2 and p_1 W with which every prefix of the hot keys is expected to load the
      workers it reaches by at most 1/W + ``slack`` each; W, that is all workers, if there is no smaller one.

    Differs from the paper
    ----------------------
    The hot keys and d are updated every ``refresh`` messages instead of on every message of a hot key; at that time the
    sketch counts the messages since the last update, key by key. All prefixes are tested, as in the text; the authors'
    code tests the first and the last. d is at least 2; in the code it can be smaller. The sketch has 10 /
    ``threshold`` counters; the code's 100 miss hot keys from 20 workers on. SpaceSaving's count is used as the upper
    bound it is; the code adds its error to it.

    Parameters
    ----------
    workers
        n, number of workers.
    threshold
        theta, share above which a key is hot; default 1 / (5 n).
    slack
        epsilon, tolerated excess of a worker over its fair share, as a fraction of the whole load.
    choices
        d for all hot keys, at least 2; ``None``: computed from their shares.
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
    >>> import numpy as np
    >>> stream = np.where(np.random.default_rng(1).random(20_000) < 0.5, 7, np.arange(20_000))
    >>> splitter = DChoices(10, seed=1)
    >>> np.bincount(splitter.route(stream)).max() / 20_000
    np.float64(0.10005)
    >>> splitter.hot_keys().tolist()
    [7]
    """

    name = "d-choices"

    def __init__(
        self,
        workers: int,
        *,
        threshold: float | None = None,
        slack: float = 1e-4,
        choices: int | None = None,
        capacity: int | None = None,
        refresh: int = 10_000,
        seed: int = 0,
    ) -> None:
        self.slack = at_least("slack", slack, 0)
        self.choices = None if choices is None else whole("choices", choices, 2)
        super().__init__(workers, threshold=threshold, capacity=capacity, refresh=refresh, seed=seed)

    def _widen(self, keys: NDArray[np.int64], shares: NDArray[np.float64], before: NDArray[np.int64]) -> Head:
        choices = _find_choices(shares, self.workers, self.slack) if self.choices is None else self.choices
        head, known = self._head, before != EMPTY
        slots = np.full(len(keys), EMPTY, dtype=np.int32)
        slots[known] = head.slots[before[known]]
        if choices >= self.workers:
            return head._replace(choices=self.workers, slots=slots)
        height, width = head.rows.workers.shape
        if choices > width:
            width = min(self.workers, _roomy(choices))
            rows = HotRows.empty(max(height, len(keys)), width, self.workers)
            head, slots = Head(choices, slots, hash_starts(self.seed, width), rows), np.full_like(slots, EMPTY)
        elif len(keys) > height:
            rows = HotRows.empty(_roomy(len(keys)), width, self.workers)
            for field in HotRows._fields:
                getattr(rows, field)[:height] = getattr(head.rows, field)
            head = head._replace(rows=rows)
        new = np.flatnonzero(slots == EMPTY)
        free = np.ones(len(head.rows.workers), dtype=np.bool_)
        free[slots[slots != EMPTY]] = False
        slots[new] = np.flatnonzero(free)[: len(new)]
        head.rows.clear(slots[new])
        return head._replace(choices=choices, slots=slots)


def _roomy(size: int) -> int:
    """Return a size with room for fluctuations, so that tables are seldom made anew."""
    return size + size // 4
