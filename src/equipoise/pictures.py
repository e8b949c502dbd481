"""Pictures of balance, drawn with matplotlib (the extra ``equipoise[plot]``)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import MissingPackage
from equipoise.metrics import load_imbalance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OURS = "#D55E00"
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#555555", "#A0A000")
"""Okabe and Ito's palette: told apart by the colour-blind and in grey."""


def stream_figure(runs: Mapping[str, Sequence[Mapping[str, Any]]], bounds: Sequence[float]) -> "Figure":
    """Time and imbalance of every batch of a stream, a line for each run; new plans are marked.

    Parameters
    ----------
    runs
        Rows of the history of each run, by its name.
    bounds
        Imbalance that no plan can beat, by batch.
    """
    figure = _matplotlib().figure.Figure(figsize=(10, 6.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for (name, history), colour in zip(runs.items(), (_COLOURS[0], _OURS, *_COLOURS[1:]), strict=False):
        batches = [row["batch"] for row in history]
        new = [row["batch"] + 1 for row in history if row["applied"]]
        style: dict[str, Any] = {"color": colour, "label": name, "linewidth": 2.2, "marker": "o", "markersize": 4}
        upper.plot(batches, [row["seconds"] for row in history], **style)
        lower.plot(batches, [row["imbalance_rows"] for row in history], **style)
        for axes in (upper, lower):
            for batch in new:
                axes.axvline(batch - 0.5, color=colour, alpha=0.35, linestyle="--")
    lower.plot(range(len(bounds)), bounds, color="black", linestyle=":", label="bound: no plan can do better")
    upper.set_title("Seconds a batch; dashed where a new plan takes effect", loc="left", fontweight="bold")
    lower.set_title("Rows of the fullest task over the mean", loc="left", fontweight="bold")
    lower.set_xlabel("batch")
    lower.xaxis.get_major_locator().set_params(integer=True)
    for axes in (upper, lower):
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize="small")
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
