"""Pictures of balance, drawn with matplotlib (the extra ``equipoise[plot]``)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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


_MOST_MARKS = 9


class Panel(NamedTuple):
    """One of several pictures side by side: its heading, what its vertical axis shows, and its lines by their names."""

    heading: str
    measure: str
    lines: Mapping[str, tuple[Sequence[Any], Sequence[float]]]


def line_panels(
    panels: Sequence[Panel], x: str, *, log_x: bool = False, log_y: bool = False, limit: float | None = None
) -> "Figure":
    """Lines over a common axis, in as many panels as there are.

    Parameters
    ----------
    panels
        What is drawn.
    x
        What the horizontal axis shows.
    log_x, log_y
        Logarithmic axes.
    limit
        Draw a level to stay below.
    """
    figure, places = _grid(len(panels))
    for axes, panel in zip(places, panels, strict=True):
        for (name, (along, values)), (colour, marker) in zip(panel.lines.items(), _styles(), strict=False):
            axes.plot(along, values, color=colour, marker=marker, markersize=4, linewidth=1.6, label=name)
        if limit is not None:
            axes.axhline(limit, color="black", linestyle=":", linewidth=1)
        if log_x:
            _mark_logarithmic(axes, panel)
        if log_y:
            axes.set_yscale("log")
        axes.set_xlabel(x)
        _finish(axes, panel)
    return figure


def bar_panels(panels: Sequence[Panel], *, log_y: bool = False) -> "Figure":
    """Groups of bars, in as many panels as there are.

    Parameters
    ----------
    panels
        What is drawn: the places of the lines are the groups.
    log_y
        Logarithmic vertical axis.
    """
    figure, places = _grid(len(panels))
    for axes, panel in zip(places, panels, strict=True):
        groups = list(dict.fromkeys(str(each) for along, _ in panel.lines.values() for each in along))
        width = 0.8 / len(panel.lines)
        for i, ((name, (along, values)), (colour, _)) in enumerate(zip(panel.lines.items(), _styles(), strict=False)):
            at = [groups.index(str(each)) + (i - (len(panel.lines) - 1) / 2) * width for each in along]
            axes.bar(at, values, width, color=colour, label=name)
        axes.set_xticks(range(len(groups)), groups)
        if log_y:
            axes.set_yscale("log")
        _finish(axes, panel)
    return figure


def _grid(count: int) -> tuple["Figure", list[Any]]:
    """A figure with two panels in a row, or one."""
    across = min(2, count)
    down = -(-count // across)
    figure = _matplotlib().figure.Figure(figsize=(10, 3.4 * down), layout="constrained")
    places = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for axes in places[count:]:
        axes.set_visible(False)
    return figure, places[:count]


def _styles() -> list[tuple[str, str]]:
    """Colour and marker of each line: twice as many as there are colours."""
    return [(colour, marker) for marker in ("o", "s", "^") for colour in (_OURS, *_COLOURS)]


def _mark_logarithmic(axes: Any, panel: Panel) -> None:
    """A logarithmic axis that is marked at places of the lines, as many as can be read."""
    marks = sorted({place for along, _ in panel.lines.values() for place in along})
    marks = marks[:: -(-len(marks) // _MOST_MARKS)]
    axes.set_xscale("log")
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()


def _finish(axes: Any, panel: Panel) -> None:
    axes.set_title(panel.heading, loc="left", fontsize="medium", fontweight="bold")
    axes.set_ylabel(panel.measure)
    axes.legend(frameon=False, fontsize="x-small")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


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
