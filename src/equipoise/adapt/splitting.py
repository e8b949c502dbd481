"""Splitting of hot keys in a stream: keys with more load than a task should have are reduced in shards."""

from collections.abc import Mapping
from math import ceil, inf, sqrt

from equipoise.arguments import whole
from equipoise.sketch import Histogram

SPLIT_ABOVE, FOLD_BELOW = 1.2, 0.8
"""Loads, in units of a task's fair share, above which a key is split and below which it is no longer split."""

_CHANCE = 4.5  # standard deviations: one cold key in 300,000 appears that hot by chance


def split_widths(histogram: Histogram, tasks: int, current: Mapping[int, int], *, rows: float = inf) -> dict[int, int]:
    """Return the number of shards of each key that is to be split.

    Guarantees
    ----------
    - A shard has at most one task's fair share of the load, unless the key has as many shards as there are tasks.
    - A key is split only if its load exceeds the limit by more than chance explains.
    - Nothing changes while the load stays between the two limits, or the number of shards within a factor of two.

    Parameters
    ----------
    histogram
        Loads of the keys, all shards together.
    tasks
        Number of tasks that run at the same time: the smaller of N and the slots.
    current
        Number of shards of the keys that are split at present.
    rows
        Number of rows from which the loads were measured.

    Examples
    --------
    >>> split_widths(Histogram([1, 2, 3], [0.5, 0.1, 0.11]), 8, {2: 2, 3: 2})
    {1: 4, 3: 2}
    """
    widths = {}
    for key, share in histogram:
        worth = share * whole("tasks", tasks, 1)
        limit = FOLD_BELOW if key in current else SPLIT_ABOVE + _CHANCE * tasks * sqrt(share / max(rows, 1.0))
        if worth <= limit:
            continue
        wanted, width = ceil(worth), current.get(key, 0)
        fits = wanted <= width <= 2 * max(wanted, 2)
        wanted = min(width if fits else max(wanted, 2), tasks)
        if wanted > 1:
            widths[key] = wanted
    return widths
