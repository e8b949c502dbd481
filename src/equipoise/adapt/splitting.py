"""Which keys of a stream to reduce in pieces: those that carry more than a task should, while they do."""

from collections.abc import Mapping
from math import ceil, inf, sqrt

from equipoise.arguments import whole
from equipoise.sketch import Histogram

SPLIT_ABOVE, FOLD_BELOW = 1.2, 0.8
"""Tasks' worth of load above which a key is split, and below which it is made whole again."""

_CHANCE = 4.5  # standard deviations: one even key in 300,000 looks that hot by chance


def split_widths(histogram: Histogram, tasks: int, current: Mapping[int, int], *, rows: float = inf) -> dict[int, int]:
    """Number of pieces of each key that is to be split.

    Guarantees
    ----------
    - A key in pieces has at most one task's worth of load in each, up to as many pieces as there are tasks.
    - A key is split only if its load exceeds the limit by more than chance explains.
    - A load that stays within the two limits, or a width within a factor of two, changes nothing.

    Parameters
    ----------
    histogram
        Loads of the keys, pieces added up.
    tasks
        Tasks that run at a time: the smaller of N and the slots.
    current
        Pieces of the keys that are split at present.
    rows
        Rows that the loads rest on.

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
