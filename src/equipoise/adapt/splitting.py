"""Which keys of a stream to reduce in pieces: those that carry more than a partition can, while they do."""

from collections.abc import Mapping
from math import ceil

from equipoise.arguments import whole
from equipoise.sketch import Histogram

SPLIT_ABOVE, FOLD_BELOW = 1.2, 0.8
"""Partitions' worth of load above which a key is split, and below which it is made whole again."""


def split_widths(histogram: Histogram, partitions: int, current: Mapping[int, int]) -> dict[int, int]:
    """Number of pieces of each key that is to be split.

    Guarantees
    ----------
    - A key in pieces has at most one partition's worth of load in each, up to N pieces.
    - A load that stays within the two limits, or a width within a factor of two, changes nothing.

    Parameters
    ----------
    histogram
        Loads of the keys, pieces added up.
    partitions
        N, number of partitions.
    current
        Pieces of the keys that are split at present.

    Examples
    --------
    >>> split_widths(Histogram([1, 2, 3], [0.5, 0.1, 0.11]), 8, {2: 2, 3: 2})
    {1: 4, 3: 2}
    """
    widths = {}
    for key, share in histogram:
        worth = share * whole("partitions", partitions, 1)
        if worth <= (FOLD_BELOW if key in current else SPLIT_ABOVE):
            continue
        wanted, width = ceil(worth), current.get(key, 0)
        fits = wanted <= width <= 2 * max(wanted, 2)
        wanted = min(width if fits else max(wanted, 2), partitions)
        if wanted > 1:
            widths[key] = wanted
    return widths
