"""Pictures of balance, drawn with matplotlib (the extra ``equipoise[plot]``)."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import MissingPackage
from equipoise.metrics import load_imbalance
from equipoise.simulate.replay import Step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OURS = "#D55E00"
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#555555", "#A0A000")
"""Okabe and Ito's palette: told apart by the colour-blind and in grey."""


def replay_figure(runs: Mapping[str, Sequence[Step]], *, title: str) -> "Figure":
    """Imbalance and migrated state over the batches of a stream, a line for each planner.

    Parameters
    ----------
    runs
        Steps of each planner, by its name.
    title
        Heading of the picture.
    """
    figure_class = _matplotlib().figure.Figure
    figure = figure_class(figsize=(10, 6.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for (name, steps), colour in zip(runs.items(), cycle(_COLOURS), strict=False):
        batches = [step.batch for step in steps]
        ours = name == "kip"
        style: dict[str, Any] = {
            "color": _OURS if ours else colour,
            "label": name,
            "linewidth": 2.6 if ours else 1.3,
        }
        upper.plot(batches, [step.imbalance for step in steps], **style)
        lower.plot(batches, [100 * step.migration for step in steps], **style)
    first = next(iter(runs.values()))
    upper.plot(
        [step.batch for step in first],
        [step.bound for step in first],
        color="black",
        linestyle=":",
        label="bound: no plan can do better",
    )
    upper.set_title(title, loc="left", fontweight="bold")
    upper.set_ylabel("fullest partition over the mean")
    upper.legend(ncols=3, frameon=False, fontsize="small")
    lower.set_ylabel("state that moved, %")
    lower.set_xlabel("batch")
    lower.xaxis.get_major_locator().set_params(integer=True)
    for axes in (upper, lower):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure  # type: ignore[no-any-return]


def partition_bars(loads: Mapping[str, NDArray[np.float64]], *, title: str) -> "Figure":
    """One bar for each partition and strategy, against the mean.

    Parameters
    ----------
    loads
        Share of the load in each partition, by the name of the strategy.
    title
        Heading of the picture.
    """
    figure = _matplotlib().figure.Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(loads)
    for i, (name, shares) in enumerate(loads.items()):
        places = np.arange(len(shares)) + (i - (len(loads) - 1) / 2) * width
        label = f"{name}: fullest {load_imbalance(shares):.2f} x the mean"
        axes.bar(places, 100 * shares, width, color=_COLOURS[0] if name == "hash" else _OURS, label=label)
    count = len(next(iter(loads.values())))
    axes.axhline(100 / count, color="black", linestyle=":", label="mean")
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel("partition")
    axes.set_ylabel("share of the load, %")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure  # type: ignore[no-any-return]


def require_matplotlib() -> None:
    """Raise ``MissingPackage``, saying how to install it, before work whose picture could not be drawn."""
    _matplotlib()


def _matplotlib() -> Any:
    """Load matplotlib late: only those who draw need it."""
    try:
        import matplotlib.figure  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingPackage("pictures need matplotlib; install it with: pip install 'equipoise[plot]'") from error
    return matplotlib
