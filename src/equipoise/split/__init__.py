"""Splitters, which route the messages of one key to several workers, for work whose results can be merged."""

from typing import Any

from equipoise.arguments import make_by_name
from equipoise.split.affinity import Affinity
from equipoise.split.base import Splitter
from equipoise.split.d_choices import DChoices, find_choices
from equipoise.split.dynamic_key import DynamicKey
from equipoise.split.key_grouping import KeyGrouping
from equipoise.split.off_greedy import OffGreedy
from equipoise.split.on_greedy import OnGreedy
from equipoise.split.partial_key import PartialKey
from equipoise.split.shuffle import Shuffle
from equipoise.split.static_potc import StaticPoTC
from equipoise.split.w_choices import WChoices

__all__ = [
    "SPLITTERS",
    "Affinity",
    "DChoices",
    "DynamicKey",
    "KeyGrouping",
    "OffGreedy",
    "OnGreedy",
    "PartialKey",
    "Shuffle",
    "Splitter",
    "StaticPoTC",
    "WChoices",
    "find_choices",
    "make_splitter",
]

SPLITTERS: dict[str, type[Splitter]] = {
    each.name: each
    for each in (
        Shuffle,
        KeyGrouping,
        StaticPoTC,
        OnGreedy,
        OffGreedy,
        PartialKey,
        DChoices,
        WChoices,
        Affinity,
        DynamicKey,
    )
}
"""Splitters by name."""


def make_splitter(name: str, **options: Any) -> Splitter:
    """Make a splitter by its name, with options of its class.

    Examples
    --------
    >>> make_splitter("partial-key", workers=4, choices=3, seed=1).route([7, 7, 7, 7]).tolist()
    [0, 1, 0, 1]
    """
    return make_by_name("splitter", SPLITTERS, name, options)
