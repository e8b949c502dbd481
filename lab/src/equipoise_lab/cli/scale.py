"""Planners and splitters at the size of a large cluster: ``equipoise-lab simulate --scale``."""

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from statistics import mean, median
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from equipoise.cli.output import write_json
from equipoise.readable import seconds_text, size_text
from equipoise_lab.simulate.scale import (
    HOURS,
    PlannerFigures,
    ScaleOptions,
    SplitterFigures,
    check_names,
    planners_at_scale,
    splitters_at_scale,
)

SHOWN = (
    "shuffle,key-grouping,partial-key,d-choices,w-choices,dynamic-key,"
    "uniform,consistent,kip,kip-printed,scan,redist,readj,mixed"
)

_EXPONENTS = (0.5, 1.0)
"""Of the planners' load: one where no key is larger than a partition, and one with keys that no plan can spread."""

_EXACT = (
    "splitters: every message is drawn from the Zipf law and routed, one by one",
    "planners: the messages of every key in an hour are one draw from their multinomial distribution, not a stream",
    "loads of plans and moved states are exact sums of those counts",
    "histograms given to planners are exact counts, not sketches",
)


def run(names: list[str], options: ScaleOptions, exponent: float | None, json: str | None) -> None:
    """Measure, and show tables or write JSON.

    Parameters
    ----------
    names
        Splitters and planners.
    options
        Size of the load.
    exponent
        Of the load; ``None``: the most skewed of the defaults for splitters, and all of them for planners.
    json
        Where the user wants JSON; ``None`` for tables.
    """
    splitters, planners = check_names(names)
    exponents = _EXPONENTS if exponent is None else (exponent,)
    loads = [replace(options, exponent=each) for each in exponents]
    start = time.perf_counter()
    columns = TextColumn("{task.description:<14}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks = {name: progress.add_task(name, total=options.messages) for name in splitters}
        if planners:
            tasks[HOURS] = progress.add_task(HOURS, total=len(loads) * (options.hours + 1))
        tasks |= {name: progress.add_task(name, total=len(loads) * options.hours) for name in planners}

        def advance(name: str, done: int) -> None:
            progress.advance(tasks[name], done)

        split = splitters_at_scale(splitters, loads[-1], advance) if splitters else {}
        planned = [planners_at_scale(planners, load, advance) for load in loads] if planners else []
    seconds = time.perf_counter() - start
    memory = _peak_memory()
    if json is None:
        _show(split, planned, loads, seconds, memory)
        return
    content = {
        "how": _EXACT,
        "splitters": {"load": loads[-1], "figures": split},
        "planners": [
            {"load": load, "figures": {name: _with_means(each) for name, each in found.items()}}
            for load, found in zip(loads, planned, strict=False)
        ],
        "seconds": seconds,
        "peak_memory_bytes": memory,
    }
    write_json(content, json)


def _with_means(figures: PlannerFigures) -> dict[str, object]:
    means = {"moved_per_replan": figures.moved_per_replan, "moved_per_hour": figures.moved_per_hour}
    return asdict(figures) | means


def _peak_memory() -> dict[str, int]:
    """Peak memory of this process, and of the largest process that it started, in bytes; empty if unknown.

    A child process inherits the mark of its parent, so the second figure is an upper bound.
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return {}
    unit = 1 if sys.platform == "darwin" else 1024
    who = {"this process": resource.RUSAGE_SELF, "a planning process, at most": resource.RUSAGE_CHILDREN}
    return {name: unit * resource.getrusage(which).ru_maxrss for name, which in who.items()}


_SPLITTERS: dict[str, Callable[[SplitterFigures], str]] = {
    "fullest": lambda f: f"{f.fullest:,.4g}",
    "average imbalance": lambda f: f"{f.average_imbalance:.2e}",
    "M messages": lambda f: f"{f.messages / 1e6:,.4g}",
    "M / s": lambda f: f"{f.messages / f.seconds / 1e6:,.1f}",
    "memory": lambda f: size_text(f.memory),
}

_PLANNERS: dict[str, Callable[[PlannerFigures], str]] = {
    "fullest": lambda f: f"{mean(f.fullest):,.4g}",
    "over bound": lambda f: f"{mean(f.over_bound):,.4g}",
    "planning": lambda f: seconds_text(median(f.planning)),
    "plan": lambda f: size_text(f.plan_bytes),
    "routing": lambda f: size_text(f.routing_bytes),
    "first": lambda f: _share(f.moved[0]),
    "replan": lambda f: _share(f.moved_per_replan),
    "hour": lambda f: _share(f.moved_per_hour),
}


def _show(
    split: dict[str, SplitterFigures],
    planned: list[dict[str, PlannerFigures]],
    loads: list[ScaleOptions],
    seconds: float,
    memory: dict[str, int],
) -> None:
    console = Console()
    if split:
        size, workers = _size(loads[-1]), f"{loads[-1].partitions:,} workers"
        title = f"{size}, {loads[-1].sources} sources, {workers}. Fullest worker over the mean"
        console.print(_table("splitter", title, split, _SPLITTERS))
    troubles = [(name, each.trouble) for name, each in split.items()]
    for load, found in zip(loads, planned, strict=False):
        troubles += [(f"{name}, Zipf {load.exponent:g}", each.trouble) for name, each in found.items()]
        title = (
            f"{_size(load)} an hour, {load.partitions:,} partitions; {load.drift:.0%} of the hot keys are new every "
            "hour. Fullest partition over the mean; state moved by the first plan, by a later one, in an hour"
        )
        console.print(_table("planner", title, found, _PLANNERS))
    for name, trouble in troubles:
        if trouble:
            console.print(f"{name}: {trouble}", soft_wrap=True, highlight=False)
    held = ", ".join(f"{size_text(size)} in {name}" for name, size in memory.items())
    console.print(f"{seconds_text(seconds)}; most memory: {held or 'unknown'}", soft_wrap=True, highlight=False)


def _size(load: ScaleOptions) -> str:
    return f"{load.messages:,} messages, {load.keys:,} keys of Zipf {load.exponent:g}"


def _table(heading: str, title: str, found: dict[str, Any], measures: dict[str, Callable[[Any], str]]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE)
    table.add_column(heading, no_wrap=True)
    for measure in measures:
        table.add_column(measure, justify="right")
    for name, figures in found.items():
        made = isinstance(figures, SplitterFigures) or figures.fullest
        cells = [measure(figures) for measure in measures.values()] if made else ["-"] * len(measures)
        table.add_row(name, *cells)
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"
