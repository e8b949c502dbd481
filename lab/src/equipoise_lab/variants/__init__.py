"""Variants of planners, splitters and block methods for the comparison with papers, and registries of all by name.

The commands and experiments of the laboratory accept these names.
"""

from typing import Any

from equipoise import plan, split
from equipoise.arguments import make_by_name
from equipoise.plan import Planner
from equipoise.split import Splitter
from equipoise_lab.variants.blocks import (
    BLOCKS,
    blocks_of_tuples,
    few_fragments_blocks,
    first_fit_blocks,
    routed_blocks,
    time_blocks,
)
from equipoise_lab.variants.dynamic_key import DynamicKeyCoded, DynamicKeyPrinted
from equipoise_lab.variants.kip_printed import KIPPrinted

__all__ = [
    "BLOCKS",
    "PLANNERS",
    "SPLITTERS",
    "DynamicKeyCoded",
    "DynamicKeyPrinted",
    "KIPPrinted",
    "blocks_of_tuples",
    "few_fragments_blocks",
    "first_fit_blocks",
    "make_planner",
    "make_splitter",
    "routed_blocks",
    "time_blocks",
]

PLANNERS: dict[str, type[Planner]] = {**plan.PLANNERS, KIPPrinted.name: KIPPrinted}
"""Planners of the library and of the laboratory by name."""

SPLITTERS: dict[str, type[Splitter]] = {
    **split.SPLITTERS,
    **{each.name: each for each in (DynamicKeyCoded, DynamicKeyPrinted)},
}
"""Splitters of the library and of the laboratory by name."""


def make_planner(name: str, **options: Any) -> Planner:
    """Make a planner of the library or of the laboratory by its name, with options of its class.

    Examples
    --------
    >>> make_planner("kip-printed", slack=0.001)
    KIPPrinted(histogram_scale=2.0, slack=0.001)
    """
    return make_by_name("planner", PLANNERS, name, options)


def make_splitter(name: str, **options: Any) -> Splitter:
    """Make a splitter of the library or of the laboratory by its name, with options of its class.

    Examples
    --------
    >>> make_splitter("dynamic-key-coded", workers=4, seed=1).route([7, 7, 7]).tolist()
    [0, 1, 0]
    """
    return make_by_name("splitter", SPLITTERS, name, options)
