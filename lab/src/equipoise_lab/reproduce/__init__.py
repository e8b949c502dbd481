"""The tables and figures of five papers, run again on this code: one verdict for each claim."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from equipoise.errors import InvalidArgumentError
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.exhibit import SCALES, Claim, Exhibit, Scale, Setting
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, Verdict

__all__ = [
    "PAPERS",
    "SCALES",
    "Claim",
    "Context",
    "Exhibit",
    "Finding",
    "Paper",
    "Row",
    "Rows",
    "Scale",
    "Setting",
    "Verdict",
    "chosen",
    "exhibits",
]


@dataclass(frozen=True)
class Paper:
    """A paper, and the modules that have its tables and figures, each as ``EXHIBIT`` or ``EXHIBITS``."""

    title: str
    modules: tuple[str, ...]


PAPERS = {
    "dr": Paper(
        "Zvara et al., System-aware dynamic partitioning for batch and streaming workloads",
        ("figure_2", "figure_3", "samplers", "figure_4", "figure_5", "figure_6", "figures_7_8", "figure_8_entities"),
    ),
    "prompt": Paper(
        "Abdelhamid et al., Prompt: Dynamic Data-Partitioning for Distributed Micro-batch Stream Processing Systems",
        ("figure_10", "figure_11", "figure_12", "figure_13", "figure_14"),
    ),
    "pkg": Paper(
        "Nasir et al., Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams",
        (
            "table_2",
            "figure_4",
            "figure_5",
            "figure_6",
            "figure_7",
            "figure_8",
            "figure_9",
            "table_3",
            "figure_10",
            "figure_10_spark",
            "table_3_spark",
        ),
    ),
    "gedik": Paper(
        "Gedik, Partitioning Functions for Stateful Data Parallelism in Stream Processing",
        ("figure_3", "figure_4", "figure_5", "figure_6", "figure_7", "figure_8", "sizes", "times"),
    ),
    "dkg": Paper(
        "Dalabasmaz and Can, Dynamic Key Grouping: A Load Balancing Algorithm for Distributed Stream Processing "
        "Engines",
        ("table_1", "table_3", "figure_9", "figures_10_11", "figures_12_13"),
    ),
}
"""Papers by their short names."""


@cache
def exhibits() -> dict[str, Exhibit]:
    """Every table and figure by its name, in the order of the papers."""
    found: dict[str, Exhibit] = {}
    for short, paper in PAPERS.items():
        for name in paper.modules:
            module = import_module(f"equipoise_lab.reproduce.{short}.{name}")
            found |= {each.name: each for each in getattr(module, "EXHIBITS", None) or (module.EXHIBIT,)}
    return found


def chosen(names: Iterable[str]) -> list[Exhibit]:
    """The tables and figures of the given names: of papers, or single ones; all of them where none is given.

    Examples
    --------
    >>> [each.name for each in chosen(["pkg/table-2"])]
    ['pkg/table-2']
    """
    known = exhibits()
    wanted: dict[str, Exhibit] = {}
    for name in list(names) or list(PAPERS):
        found = [each for each in known.values() if name in {each.name, each.paper}]
        if not found:
            raise InvalidArgumentError(
                f"there is no paper, table or figure {name!r}; choose one of {', '.join([*PAPERS, *known])}"
            )
        wanted |= {each.name: each for each in found}
    return list(wanted.values())
