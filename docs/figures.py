"""The figures of the algorithm pages, computed anew whenever the documentation is built.

``python docs/figures.py FOLDER`` draws them into a folder. Every figure shows what the method really did to a seeded
stream, which is small, so that all of them take a few seconds.
"""

import io
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from equipoise.hashing import seeded_hashes
from equipoise.metrics import block_cardinality_imbalance, block_size_imbalance, key_split_ratio, load_imbalance
from equipoise.microbatch import (
    Accumulator,
    AutoScale,
    Batch,
    Blocks,
    Window,
    level_blocks,
    level_buckets,
    prompt_blocks,
    prompt_buckets,
)
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.plan import (
    KIP,
    PLANNERS,
    HashRing,
    Plan,
    Planner,
    Readj,
    Redist,
    Scan,
    Utility,
    uniform_plan,
)
from equipoise.sketch import DriftHistogram, Histogram, LossyCounting, Sketch, SpaceSaving, WindowedCounter
from equipoise.spark.batch.key_loads import KeyLoads
from equipoise.spark.batch.split_plan import plan_split
from equipoise.split import SPLITTERS, OffGreedy
from equipoise_lab.simulate.cluster import Cluster, ClusterOptions, ClusterResult, splitter_of
from equipoise_lab.simulate.replay import ReplayOptions, Step, replay
from equipoise_lab.simulate.streams import stream
from equipoise_lab.simulate.workloads import drifting_batches, key_fingerprints
from equipoise_lab.variants import BLOCKS, KIPPrinted, make_planner, time_blocks

PLAIN, OURS, THIRD, VIOLET, FAINT = "#4c9bd6", "#e0731d", "#2fa37c", "#b07aa1", "#999999"
"""Colours that colour-blind readers can tell apart, on light and on dark."""

INK = "#010203"
"""Stands for the colour of the text around a figure, which the page decides."""

PARTITIONS, WORKERS, BLOCK_COUNT = 16, 20, 16


def svg(name: str) -> str:
    """A figure by its name, as SVG that takes the colour of its text from the page."""
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 9,
        "axes.titlesize": 9,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "savefig.transparent": True,
    } | dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    with mpl.rc_context(style):
        buffer = io.StringIO()
        FIGURES[name]().savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    drawn = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), count=1, flags=re.DOTALL)
    drawn = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r' id="(?:figure|axes|patch|line2d|text|matplotlib\.axis|xtick|ytick|legend)[^"]*"', "", drawn)
    drawn = re.sub(r"font-family: [^;]*;", "font-family: inherit;", drawn)
    return drawn.replace(INK, "currentColor").replace("<svg", '<svg color="#808080" font-family="sans-serif"', 1)


def _panels(count: int = 2, height: float = 2.7) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(8.4, height), layout="constrained")
    made = figure.subplots(1, count)
    return figure, list(np.atleast_1d(made))


def _bars(axes: Axes, loads: Mapping[str, NDArray[Any]], colours: Mapping[str, str]) -> None:
    """Bars side by side, over the mean."""
    width = 0.8 / len(loads)
    for i, (name, values) in enumerate(loads.items()):
        places = np.arange(len(values)) + (i - (len(loads) - 1) / 2) * width
        axes.bar(places, np.asarray(values) / np.mean(values), width, color=colours[name], label=name)
    axes.axhline(1, color=INK, linestyle=":", linewidth=1)


# -- planners: a drifting Zipf stream, replanned after every batch -----------------------------------------------


@cache
def _batches() -> list[NDArray[np.int64]]:
    return list(drifting_batches(10_000, 0.9, 20_000, 12, drift=0.02, swaps=(6,), hot=50, seed=1))


@cache
def _replayed(planner: Planner) -> list[Step]:
    return list(replay(planner, _batches(), ReplayOptions(PARTITIONS)))


def _moved(steps: list[Step]) -> float:
    """State that an update moves, on average, in percent."""
    return 100 * float(np.mean([step.migration for step in steps[1:]]))


def _planner(name: str) -> Figure:
    plain, ours = _replayed(make_planner("uniform")), _replayed(make_planner(name))
    figure, (left, right) = _panels()
    colours = {"plain hash": PLAIN, name: OURS}
    shown = {"plain hash": plain[-1].loads} | ({} if name == "uniform" else {name: ours[-1].loads})
    _bars(left, shown, colours)
    left.set(title="Rows of each partition over the mean, last batch", xlabel="partition")
    right.plot([step.imbalance for step in plain], color=PLAIN, marker="o", markersize=3, label="plain hash")
    if name != "uniform":
        label = f"{name}: moves {_moved(ours):.1f} % of the state a batch"
        right.plot([step.imbalance for step in ours], color=OURS, marker="o", markersize=3, label=label)
    right.plot([step.bound for step in ours], color=INK, linestyle=":", label="bound")
    top = max(step.imbalance for step in [*plain, *ours])
    right.set(title="Fullest partition over the mean", xlabel="batch", ylim=(0.9, 1.4 * top))
    right.legend(loc="upper right")
    left.legend(loc="upper right")
    return figure


def _consistent() -> Figure:
    """What growing from N to N + 1 moves, on the ring and by plain hash."""
    keys = key_fingerprints(np.arange(20_000), seed=1)
    sizes = [4, 8, 16, 32, 64]
    figure, (left, right) = _panels()

    def moved(name: str, count: int) -> float:
        planner = make_planner(name)
        start = planner.plan(uniform_plan(count, 4096), Histogram([], []))
        return float(
            np.mean(start.assign(keys) != planner.plan(start, Histogram([], []), partitions=count + 1).assign(keys))
        )

    for name, colour in (("uniform", PLAIN), ("consistent", OURS)):
        left.plot(sizes, [100 * moved(name, count) for count in sizes], color=colour, marker="o", label=name)
    left.plot(sizes, [100 / (count + 1) for count in sizes], color=INK, linestyle=":", label="1 / (N + 1)")
    left.set(title="Keys that one more partition moves, %", xlabel="N", xscale="log", ylim=(0, None))
    left.set_xticks(sizes, [str(size) for size in sizes])
    left.legend()
    hashes = seeded_hashes(np.arange(20_000), 1)
    for replicas, colour in ((10, FAINT), (100, PLAIN), (1000, OURS)):
        loads = np.sort(np.bincount(HashRing(PARTITIONS, replicas=replicas).lookup(hashes), minlength=PARTITIONS))[::-1]
        right.plot(loads / loads.mean(), color=colour, marker="o", markersize=3, label=f"{replicas} points a partition")
    right.axhline(1, color=INK, linestyle=":", linewidth=1)
    right.set(title="Keys of each partition over the mean, sorted", xlabel="partition", ylim=(0, None))
    right.legend()
    return figure


def _gedik() -> Figure:
    """Balance against migration, for the three constructions and every utility."""
    figure, (axes,) = _panels(1, 3.2)
    for kind, colour in ((Scan, PLAIN), (Redist, THIRD), (Readj, OURS)):
        runs = {utility.name: _replayed(kind(utility=utility)) for utility in Utility}
        places = {name: (_moved(steps), _mean_imbalance(steps)) for name, steps in runs.items()}
        marker = {"Scan": "x", "Redist": "s", "Readj": "o"}[kind.__name__]
        axes.scatter(*zip(*places.values(), strict=True), color=colour, marker=marker, label=kind.__name__)
        for name, place in places.items():
            axes.annotate(name, place, textcoords="offset points", xytext=(4, 3), fontsize=7, color=colour)
    axes.set(title="Each utility on the drifting stream", xlabel="state moved by an update, %")
    axes.set_ylabel("mean imbalance")
    axes.legend()
    return figure


def _mean_imbalance(steps: list[Step]) -> float:
    return float(np.mean([step.imbalance for step in steps[1:]]))


def _all_planners() -> Figure:
    figure, (left, right) = _panels(height=3.0)
    runs = {name: _replayed(make_planner(name)) for name in PLANNERS}
    colours = [OURS if name == "kip" else PLAIN for name in runs]
    bound = float(np.mean([step.bound for step in runs["kip"][1:]]))
    left.barh(list(runs), [_mean_imbalance(steps) for steps in runs.values()], color=colours)
    left.axvline(bound, color=INK, linestyle=":", label="bound")
    left.set(title="Mean imbalance", xlim=(0.9, None))
    left.legend()
    right.barh(list(runs), [_moved(steps) for steps in runs.values()], color=colours)
    right.set(title="State moved by an update, %")
    for axes in (left, right):
        axes.invert_yaxis()
    return figure


# -- sketches: memory against error, on a steady and on a drifting stream ----------------------------------------

_ROWS, _HOT = 120_000, 50
_SIZES = (64, 128, 256, 512, 1024)
_SKETCHES: dict[str, Callable[[int], Sketch]] = {
    "space-saving": SpaceSaving,
    "lossy-counting": lambda size: LossyCounting(1 / size),
    "windowed": lambda size: WindowedCounter(_ROWS // 6, epsilon=1 / size),
    "drift-histogram": lambda size: DriftHistogram(size // 4, soft_boundary=size),
}


@cache
def _sketch_streams() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """A steady stream, a drifting one, and the last part of the drifting one."""
    steady = key_fingerprints(sample(zipf_shares(100_000, 1.1), _ROWS, np.random.default_rng(1)), 1)
    parts = list(drifting_batches(100_000, 1.1, _ROWS // 6, 6, swaps=range(1, 6), hot=_HOT, seed=1))
    return steady, np.concatenate(parts), parts[-1]


def _hottest(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    found, counts = np.unique(keys, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_HOT]
    return found[order], counts[order] / len(keys)


@cache
def _sketch_points(name: str) -> list[tuple[int, float, float]]:
    """Bytes, mean error of the hottest shares of the steady stream, hot keys of the present found when it drifts."""
    steady, drifting, last = _sketch_streams()
    points = []
    for size in _SIZES:
        one, two = _SKETCHES[name](size), _SKETCHES[name](size)
        one.update_many(steady)
        two.update_many(drifting)
        keys, shares = _hottest(steady)
        found = dict(one.histogram())
        error = float(
            np.mean([abs(found.get(key, 0.0) - share) for key, share in zip(keys.tolist(), shares, strict=True)])
        )
        now = set(_hottest(last)[0].tolist())
        points.append((one.nbytes, error, len(now & {key for key, _ in two.top(_HOT)}) / _HOT))
    return points


def _sketch(name: str) -> Figure:
    figure, (left, right) = _panels(height=2.9)
    colours = dict(zip(_SKETCHES, (OURS, PLAIN, THIRD, VIOLET), strict=True))
    for other in sorted(_SKETCHES, key=lambda each: each == name):
        size, error, recall = zip(*_sketch_points(other), strict=True)
        style: dict[str, Any] = {"color": colours[other]} | (
            {"linewidth": 2.4, "marker": "o"} if other == name else {"linewidth": 0.9}
        )
        left.plot([each / 1024 for each in size], [100 * each for each in error], label=other, **style)
        right.plot([each / 1024 for each in size], [100 * each for each in recall], label=other, **style)
    left.set_yscale("symlog", linthresh=0.001)
    left.set_yticks([0, 0.001, 0.01, 0.1, 1])
    left.set(title=f"Steady: mean error of the {_HOT} hottest, % of all rows", ylim=(0, 1))
    right.set(title=f"Hot keys swapped five times: % of the last {_HOT} found", ylim=(0, 103))
    for axes in (left, right):
        axes.set(xlabel="memory, KiB", xscale="log")
        axes.set_xticks([4, 8, 16, 32, 64], ["4", "8", "16", "32", "64"])
        axes.xaxis.set_minor_formatter("")
        axes.yaxis.set_major_formatter("{x:g}")
    right.legend()
    return figure


# -- splitters: workers' loads, and what splitting costs ---------------------------------------------------------


@cache
def _split_run(name: str) -> ClusterResult:
    """The hottest key has a fifth of the messages: four times what a worker can carry."""
    chunks = list(stream(zipf_shares(10_000, 1.2), 200_000, seed=1, chunk=50_000))
    cluster = Cluster(splitter_of(name, WORKERS, seed=1), ClusterOptions(sources=5, rate=2000))
    for splitter in cluster.splitters:
        if isinstance(splitter, OffGreedy):
            splitter.learn(np.concatenate(chunks))
    for chunk in chunks:
        cluster.feed(chunk)
    return cluster.result()


def _splitter(name: str, *variants: str) -> Figure:
    figure, (left, right) = _panels(height=2.9)
    shown = {"key-grouping": PLAIN, name: OURS} | dict(zip(variants, (THIRD, VIOLET), strict=False))
    for each, colour in shown.items():
        loads = np.sort(_split_run(each).loads)[::-1]
        style: dict[str, Any] = {"drawstyle": "steps-mid", "linewidth": 2 if each == name else 1.4}
        left.plot(loads / loads.mean(), color=colour, label=f"{each}: {load_imbalance(loads):.2f}", **style)
    left.axhline(1, color=INK, linestyle=":", linewidth=1)
    left.set(title="Messages of each worker over the mean, sorted", xlabel="worker", ylim=(0, None))
    left.legend(title="fullest over the mean", title_fontsize=8)
    for each in dict.fromkeys([*SPLITTERS, *shown]):
        result = _split_run(each)
        place = (result.distribution_cost or 0.0, load_imbalance(result.loads))
        right.scatter(*place, color=shown.get(each, FAINT), zorder=3 if each == name else 2)
    right.set(title="What it costs, beside the others", xlabel="workers that hold a key, on average")
    right.set(ylabel="fullest over the mean", xscale="log", yscale="log")
    right.set_xticks([1, 2, 3, 4], ["1", "2", "3", "4"])
    right.set_yticks([1, 2, 3, 4, 5], ["1", "2", "3", "4", "5"])
    right.minorticks_off()
    return figure


def _shards() -> Figure:
    """Predicted loads with whole keys and with hot keys in shards, as ``aggregate`` plans them."""
    keys = key_fingerprints(np.arange(2000), seed=3)
    shares = 0.6 * zipf_shares(2000, 0.8)
    shares[0] += 0.4
    loads = KeyLoads.of(Histogram(keys, shares), keys, shares, rows=100_000, load=100_000)
    figure, (axes,) = _panels(1)
    shown: dict[str, NDArray[np.float64]] = {}
    for label, split in (("whole keys", None), ("hot keys in shards", "auto")):
        plan = plan_split(loads, PARTITIONS, KIP(repack=True), PARTITIONS, split)
        shards = f", {sum(plan.widths.values())} shards" if plan.widths else ""
        shown[f"{label}: fullest {load_imbalance(plan.loads):.2f}{shards}"] = np.sort(plan.loads)[::-1]
    _bars(axes, shown, dict(zip(shown, (PLAIN, OURS), strict=True)))
    axes.set(title="A key of 40 %: predicted load of each partition over the mean, sorted", xlabel="partition")
    axes.legend()
    return figure


# -- Prompt: one batch of Zipf keys ------------------------------------------------------------------------------


@cache
def _batch() -> tuple[Batch, NDArray[np.float64]]:
    """A batch whose rate rises while it is gathered, and the times of its tuples."""
    keys = sample(zipf_shares(3000, 1.0), 40_000, np.random.default_rng(1))
    times = np.sqrt(np.linspace(0, 1, len(keys), endpoint=False))
    buffer = Accumulator(0, 1, expected=len(keys), expected_keys=3000)
    for part in np.array_split(np.arange(len(keys)), 40):
        buffer.add(seeded_hashes(keys[part], 1), times[part])
    return buffer.close(), times


def _accumulator() -> Figure:
    batch, _ = _batch()
    figure, (axes,) = _panels(1)
    axes.plot(np.sort(batch.sizes)[::-1], color=INK, linestyle=":", linewidth=1.2, label="exact order")
    axes.plot(batch.sizes, color=OURS, linewidth=1, label="order kept while tuples arrived")
    axes.set(xscale="symlog", yscale="log", xlabel="place in the order", ylabel="tuples of the key")
    axes.set_title("Keys of a closed batch: counts are exact, the order is slightly old")
    axes.legend()
    return figure


def _blocks(ours: Mapping[str, Callable[[Batch, int], Blocks]], *others: str) -> Figure:
    batch, times = _batch()
    made = {name: make(batch, BLOCK_COUNT) for name, make in ours.items()}
    made |= {
        name: time_blocks(batch, BLOCK_COUNT, times, 0, 1) if name == "time" else BLOCKS[name](batch, BLOCK_COUNT)
        for name in others
    }
    colours = dict(zip(made, (OURS, PLAIN, THIRD), strict=False))
    figure, (left, right) = _panels()
    _bars(left, {name: blocks.block_sizes for name, blocks in made.items()}, colours)
    _bars(right, {name: blocks.cardinalities for name, blocks in made.items()}, colours)
    left.set(title="Tuples of each block over the mean", xlabel="block")
    right.set(title="Keys of each block over the mean", xlabel="block")
    right.legend(loc="lower right")
    return figure


def _buckets() -> Figure:
    """Reduce buckets when every map task deals out its own clusters."""
    batch, _ = _batch()
    blocks = prompt_blocks(batch, BLOCK_COUNT)
    by_hash = np.bincount(np.mod(batch.keys, BLOCK_COUNT), batch.sizes, BLOCK_COUNT)
    dealt = np.zeros(BLOCK_COUNT)
    for task in range(BLOCK_COUNT):
        mine = blocks.blocks == task
        split = np.isin(blocks.keys[mine], blocks.split)
        buckets = prompt_buckets(batch.keys[blocks.keys[mine]], blocks.sizes[mine], split, BLOCK_COUNT)
        dealt += np.bincount(buckets, blocks.sizes[mine], BLOCK_COUNT)
    level = np.bincount(level_buckets(batch.sizes, BLOCK_COUNT), batch.sizes, BLOCK_COUNT)
    figure, (axes,) = _panels(1)
    _bars(
        axes,
        {"hash": by_hash, "algorithm 3": dealt, "level": level},
        {"hash": PLAIN, "algorithm 3": THIRD, "level": OURS},
    )
    axes.set(title="Tuples of each reduce bucket over the mean", xlabel="bucket")
    axes.legend()
    return figure


def _scaling() -> Figure:
    """A ramp up and down; a batch takes its tuples over the number of tasks, a task does 1000 tuples an interval."""
    scale = AutoScale(4, 4, least=2, most=16, patience=3)
    rates = np.concatenate(
        [
            np.full(8, 3000),
            np.linspace(3000, 12_000, 24),
            np.full(8, 12_000),
            np.linspace(12_000, 3000, 24),
            np.full(12, 3000),
        ]
    )
    tasks, loads = [], []
    for rate in rates:
        load = rate / (1000 * min(scale.maps, scale.reduces))
        tasks.append(scale.maps)
        loads.append(load)
        scale.next(load, rate, keys=rate / 10)
    figure, (left, right) = _panels()
    left.plot(rates / 1000, color=PLAIN, label="thousand tuples a batch")
    left.step(range(len(tasks)), tasks, color=OURS, where="mid", label="map tasks")
    left.set(title="Tasks follow the rate", xlabel="batch", ylim=(0, None))
    right.plot(loads, color=OURS, label="time of a batch over its interval")
    right.axhspan(0.8, 0.9, color=FAINT, alpha=0.3, label="nothing is done here")
    right.set(title="Load W of each batch in this model", xlabel="batch", ylim=(0, None))
    for axes in (left, right):
        axes.legend()
    return figure


def _windows() -> Figure:
    """Calls of merge and inverse that a batch costs."""
    rng = np.random.default_rng(1)
    batches = [dict.fromkeys(sample(zipf_shares(500, 1.0), 2000, rng).tolist(), 1) for _ in range(60)]
    figure, (axes,) = _panels(1)
    for length, style in ((10, "-"), (20, "--")):
        for name, colour in (("with an inverse", OURS), ("merged anew", PLAIN)):
            calls = [0]

            def counted(one: int, other: int, sign: int = 1, calls: list[int] = calls) -> int:
                calls[0] += 1
                return one + sign * other

            inverse = partial(counted, sign=-1) if name == "with an inverse" else None
            window: Window[int, int] = Window(length, 1, counted, inverse)
            costs = []
            for batch in batches:
                before = calls[0]
                window.add(batch)
                costs.append(calls[0] - before)
            axes.plot(costs, style, color=colour, label=f"{name}, {length} batches long")
    axes.set(title="Calls of merge and inverse for each batch", xlabel="batch", ylim=(0, None))
    axes.legend()
    return figure


def _baselines() -> Figure:
    batch, times = _batch()
    made = {name: make(batch, BLOCK_COUNT) for name, make in BLOCKS.items()}
    made["time"] = time_blocks(batch, BLOCK_COUNT, times, 0, 1)
    figure, panels = _panels(3, 3.0)
    measures: dict[str, Callable[[Blocks], float]] = {
        "size imbalance BSI, % of a block": lambda each: (
            100 * block_size_imbalance(each.block_sizes) * BLOCK_COUNT / batch.size
        ),
        "key imbalance BCI, % of a block": lambda each: (
            100 * block_cardinality_imbalance(each.cardinalities) / each.cardinalities.mean()
        ),
        "blocks of a key KSR": lambda each: key_split_ratio(each.cardinalities, len(batch.keys)),
    }
    for axes, (title, measure) in zip(panels, measures.items(), strict=True):
        colours = [OURS if name == "level" else THIRD if name == "prompt" else PLAIN for name in made]
        axes.barh(list(made), [measure(each) for each in made.values()], color=colours)
        axes.set_title(title)
        axes.invert_yaxis()
    return figure


def _plan() -> Figure:
    """What a plan is: tail groups by owner, and the isolated keys."""
    histogram = Histogram(key_fingerprints(np.arange(2000), 1), zipf_shares(2000, 1.1))
    before = uniform_plan(8, 64)
    after = KIP(histogram_scale=1).plan(before, histogram)
    figure, panels = _panels(2, 2.6)
    for axes, plan, title in zip(panels, (before, after), ("plain hash", "KIP"), strict=True):
        _draw_plan(axes, plan, histogram, title)
    return figure


def _draw_plan(axes: Axes, plan: Plan, histogram: Histogram, title: str) -> None:
    """Stacked: the tail groups of each partition, and its isolated keys on top."""
    owners, isolated = plan.assign(histogram.fingerprints), np.isin(histogram.fingerprints, plan.isolated_keys)
    tail = np.bincount(owners[~isolated], histogram.shares[~isolated], plan.partitions)
    top = np.zeros(plan.partitions)
    axes.bar(range(plan.partitions), 100 * tail, color=PLAIN, label="tail groups")
    for at in np.flatnonzero(isolated):
        share, owner = histogram.shares[at], owners[at]
        label = None if top.any() else "isolated keys"
        axes.bar(
            owner, 100 * share, bottom=100 * (tail + top)[owner], color=OURS, edgecolor=INK, linewidth=0.6, label=label
        )
        top[owner] += share
    axes.axhline(100 / plan.partitions, color=INK, linestyle=":", linewidth=1, label="mean")
    axes.set(title=f"{title}: share of the load, %", xlabel="partition", ylim=(0, 32))
    axes.legend()


FIGURES: dict[str, Callable[[], Figure]] = (
    {name: partial(_planner, name) for name in (*PLANNERS, KIPPrinted.name) if name != "consistent"}
    | {name: partial(_sketch, name) for name in _SKETCHES}
    | {name: partial(_splitter, name) for name in SPLITTERS}
    | {
        "all-planners": _all_planners,
        "consistent": _consistent,
        "gedik": _gedik,
        "dynamic-key-variants": partial(_splitter, "dynamic-key", "dynamic-key-coded", "dynamic-key-printed"),
        "shards": _shards,
        "plan": _plan,
        "accumulator": _accumulator,
        "prompt-blocks": partial(_blocks, {"prompt": prompt_blocks}, "time", "hash"),
        "level-blocks": partial(_blocks, {"level": level_blocks}, "prompt"),
        "buckets": _buckets,
        "scaling": _scaling,
        "windows": _windows,
        "baselines": _baselines,
    }
)
"""What draws each figure, by its name."""


if __name__ == "__main__":
    for each in FIGURES:
        Path(sys.argv[1], f"{each}.svg").write_text(svg(each), encoding="utf-8")
