"""Figures of balance, drawn with matplotlib (the extra ``equipoise[plot]``)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import InvalidArgumentError, MissingPackageError, StorageError
from equipoise.metrics import load_imbalance
from equipoise.requirements import missing_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OURS = "#D55E00"
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#555555", "#A0A000")
"""Okabe and Ito's palette, distinguishable by colour-blind readers and in grey."""

_LINE: dict[str, Any] = {"linewidth": 2.2, "marker": "o", "markersize": 4}


def stream_figure(runs: Mapping[str, Sequence[Mapping[str, Any]]], bounds: Sequence[float]) -> "Figure":
    """Draw time and imbalance of every batch of a stream, one line for each run; new plans are marked.

    Parameters
    ----------
    runs
        Rows of the batch log of each run, by its name.
    bounds
        Smallest imbalance that any plan can reach, by batch.
    """
    figure = _figure(6.4)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for (name, log), colour in zip(runs.items(), (_COLOURS[0], _OURS, *_COLOURS[1:]), strict=False):
        batches = [row["batch"] for row in log]
        new = [row["batch"] + 1 for row in log if row["applied"]]
        upper.plot(batches, [row["seconds"] for row in log], color=colour, label=name, **_LINE)
        lower.plot(batches, [row["imbalance_rows"] for row in log], color=colour, label=name, **_LINE)
        for axes in (upper, lower):
            _mark(axes, new, colour)
    lower.plot(range(len(bounds)), bounds, color="black", linestyle=":", label="bound: no plan can do better")
    _finish(upper, "Seconds a batch; dashed where a new plan takes effect")
    _finish(lower, "Rows of the fullest task over the mean")
    _by_batch(lower)
    return figure


def batch_log_figure(log: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw time, balance and state of every batch of one query; new plans are marked.

    Parameters
    ----------
    log
        Rows of the batch log, oldest first.
    """
    figure = _figure(8.0)
    times, balance, state = figure.subplots(3, 1, sharex=True)
    batches = [row["batch"] for row in log]
    new = [row["batch"] + 1 for row in log if row["applied"]]
    times.plot(batches, [row["seconds"] for row in log], color=_COLOURS[0], label="seconds", **_LINE)
    balance.plot(batches, [row["imbalance_rows"] for row in log], color=_COLOURS[0], label="in rows", **_LINE)
    seconds = [row["imbalance_seconds"] for row in log]
    balance.plot(batches, seconds, color=_OURS, label="in seconds", linestyle="--", **_LINE)
    bounded = [(row["batch"], row["bound"]) for row in log if row["bound"] is not None]
    if bounded:
        balance.plot(*zip(*bounded, strict=True), color="black", linestyle=":", label="bound: no plan can do better")
    state.plot(batches, [(row["state_bytes"] or 0) / 1e6 for row in log], color=_COLOURS[2], label="MB", **_LINE)
    for axes in (times, balance, state):
        _mark(axes, new, "#555555")
    _finish(times, "Seconds a batch; dashed where a new plan takes effect", legend=False)
    _finish(balance, "Fullest task over the mean")
    _finish(state, "State, MB", legend=False)
    _by_batch(state)
    return figure


def plan_figure(
    tail: NDArray[Any], keys: Sequence[tuple[int, float]], *, title: str, unit: str, mean: float | None = None
) -> "Figure":
    """Draw what each partition of a plan gets: tail groups, and isolated keys stacked on them.

    Parameters
    ----------
    tail
        Total of the tail groups of each partition.
    keys
        Partition and amount of each isolated key.
    title
        Heading of the picture.
    unit
        Unit of the amounts.
    mean
        Mean amount of a partition; drawn as a line if given.
    """
    figure = _figure(4.2)
    axes = figure.subplots()
    axes.bar(np.arange(len(tail)), tail, color=_COLOURS[0], label="tail groups")
    tops = np.array(tail, dtype=np.float64)
    for number, (partition, amount) in enumerate(sorted(keys, key=lambda key: -key[1])):
        label = "isolated keys" if number == 0 else None
        axes.bar(partition, amount, bottom=tops[partition], color=_OURS, edgecolor="white", linewidth=0.6, label=label)
        tops[partition] += amount
    if mean is not None:
        axes.axhline(mean, color="black", linestyle=":", label="mean")
    _finish(axes, title)
    _by_partition(axes, unit, len(tail))
    return figure


def moves_figure(
    groups: Sequence[tuple[int, int]], keys: Sequence[tuple[int, int]], partitions: int, *, title: str
) -> "Figure":
    """Draw the arrivals of each partition as bars upwards and its departures as bars downwards.

    Parameters
    ----------
    groups, keys
        Source and target partition of each tail group and of each isolated key that moves.
    partitions
        Number of partitions of the larger plan.
    title
        Heading of the picture.
    """
    figure = _figure(4.2)
    axes = figure.subplots()
    places, up, down = np.arange(partitions), np.zeros(partitions), np.zeros(partitions)
    for moves, name, colour, hatch in ((groups, "tail groups", _COLOURS[0], ""), (keys, "isolated keys", _OURS, "//")):
        gone, come = (np.bincount([move[side] for move in moves], minlength=partitions) for side in (0, 1))
        style: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white"}
        axes.bar(places, come, bottom=up, label=f"{len(moves)} {name}", **style)
        axes.bar(places, -gone, bottom=down, alpha=0.55, **style)
        up, down = up + come, down - gone
    axes.axhline(0, color="black", linewidth=0.8)
    highest = max(1.0, float(up.max()), float(-down.min()))
    axes.set_ylim(-1.15 * highest, 1.15 * highest)
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    _whole_numbers(axes.yaxis)
    _finish(axes, title, from_zero=False)
    _by_partition(axes, "leave (below)  |  arrive (above)", partitions)
    return figure


def partition_bars(loads: Mapping[str, NDArray[np.float64]], *, title: str) -> "Figure":
    """Draw one bar for each partition and strategy, with the mean.

    Parameters
    ----------
    loads
        Share of the load in each partition, by the name of the strategy.
    title
        Heading of the picture.
    """
    figure = _figure(4.2)
    axes = figure.subplots()
    width = 0.8 / len(loads)
    for i, (name, shares) in enumerate(loads.items()):
        places = np.arange(len(shares)) + (i - (len(loads) - 1) / 2) * width
        label = f"{name}: fullest {load_imbalance(shares):.2f} x the mean"
        axes.bar(places, 100 * shares, width, color=_COLOURS[0] if name == "hash" else _OURS, label=label)
    count = len(next(iter(loads.values())))
    axes.axhline(100 / count, color="black", linestyle=":", label="mean")
    _finish(axes, title)
    _by_partition(axes, "share of the load, %", count)
    return figure


def save(figure: "Figure", path: str) -> None:
    """Write a figure to a file, in the format of its suffix."""
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise StorageError(f"cannot write the picture {path}: {error}; choose another path") from error


def require_picture(path: str) -> None:
    """Raise if a picture could not be written to ``path``: no matplotlib, no such folder, or an unknown format."""
    formats = _matplotlib().figure.Figure().canvas.get_supported_filetypes()
    if Path(path).suffix.removeprefix(".").lower() not in formats:
        raise InvalidArgumentError(f"unknown picture format {path}; use one of .{', .'.join(sorted(formats))}")
    if not Path(path).parent.is_dir():
        raise InvalidArgumentError(f"the folder of {path} does not exist; create it first")


_MOST_MARKS = 9


class Panel(NamedTuple):
    """One of several plots side by side: heading, label of the vertical axis, and lines by name."""

    heading: str
    measure: str
    lines: Mapping[str, tuple[Sequence[Any], Sequence[float]]]


def line_panels(
    panels: Sequence[Panel], x: str, *, log_x: bool = False, log_y: bool = False, limit: float | None = None
) -> "Figure":
    """Draw lines over a common horizontal axis, one plot for each panel.

    Parameters
    ----------
    panels
        Plots to draw.
    x
        Label of the horizontal axis.
    log_x, log_y
        Whether the axes are logarithmic.
    limit
        Level to draw as a dotted line.
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
        _finish_panel(axes, panel)
    return figure


def bar_panels(panels: Sequence[Panel], *, log_y: bool = False) -> "Figure":
    """Draw groups of bars, one plot for each panel.

    Parameters
    ----------
    panels
        Plots to draw; the horizontal positions of the lines are the groups.
    log_y
        Whether the vertical axis is logarithmic.
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
        _finish_panel(axes, panel)
    return figure


def _grid(count: int) -> tuple["Figure", list[Any]]:
    """Return a figure with at most two plots in a row, and its axes."""
    across = min(2, count)
    down = -(-count // across)
    figure = _matplotlib().figure.Figure(figsize=(10, 3.4 * down), layout="constrained")
    places = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for axes in places[count:]:
        axes.set_visible(False)
    return figure, places[:count]


def _styles() -> list[tuple[str, str]]:
    """Return colour and marker of each line; markers change when the colours are used up."""
    return [(colour, marker) for marker in ("o", "s", "^") for colour in (_OURS, *_COLOURS)]


def _mark_logarithmic(axes: Any, panel: Panel) -> None:
    """Make the horizontal axis logarithmic, with a readable number of ticks at points of the lines."""
    marks = sorted({place for along, _ in panel.lines.values() for place in along})
    marks = marks[:: -(-len(marks) // _MOST_MARKS)]
    axes.set_xscale("log")
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()


def _finish_panel(axes: Any, panel: Panel) -> None:
    _finish(axes, panel.heading, legend=False, from_zero=False)
    axes.title.set_fontsize("medium")
    axes.set_ylabel(panel.measure)
    axes.legend(frameon=False, fontsize="x-small")


def require_matplotlib() -> None:
    """Raise ``MissingPackageError`` with the command to install matplotlib, if it is missing."""
    _matplotlib()


def _figure(height: float) -> "Figure":
    figure: Figure = _matplotlib().figure.Figure(figsize=(10, height), layout="constrained")
    return figure


def _mark(axes: Any, batches: Sequence[int], colour: str) -> None:
    """Draw dashed lines where new plans take effect."""
    for batch in batches:
        axes.axvline(batch - 0.5, color=colour, alpha=0.35, linestyle="--")


def _finish(axes: Any, title: str, *, legend: bool = True, from_zero: bool = True) -> None:
    """Set title, legend, grid and frame, alike in all figures."""
    axes.set_title(title, loc="left", fontweight="bold")
    if from_zero:
        axes.set_ylim(bottom=0)
    if legend:
        axes.legend(frameon=False, fontsize="small")
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _whole_numbers(axis: Any) -> None:
    axis.get_major_locator().set_params(integer=True)


def _by_batch(axes: Any) -> None:
    axes.set_xlabel("batch")
    _whole_numbers(axes.xaxis)


def _by_partition(axes: Any, unit: str, partitions: int) -> None:
    axes.set_xlabel("partition")
    axes.set_xlim(-0.7, partitions - 0.3)
    axes.set_ylabel(unit)
    _whole_numbers(axes.xaxis)


def _matplotlib() -> Any:
    """Import matplotlib when a figure is first drawn."""
    try:
        import matplotlib.figure  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingPackageError(missing_text("a picture", "matplotlib", "plot")) from error
    return matplotlib
