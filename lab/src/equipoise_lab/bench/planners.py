"""All planners side by side: balance, migration over drifting batches, planning time."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.hashing import seeded_hashes
from equipoise.metrics import load_imbalance, lower_bound
from equipoise.microbatch.zipf import zipf_shares
from equipoise.plan import (
    KIP,
    Consistent,
    Costs,
    Mixed,
    Plan,
    Planner,
    Readj,
    Redist,
    Resource,
    Scan,
    Uniform,
    uniform_plan,
)
from equipoise.sketch import Histogram
from equipoise_lab.bench.harness import Context, Result, interleaved, median
from equipoise_lab.bench.planning_time import driver_milliseconds, planning_milliseconds
from equipoise_lab.simulate.replay import ReplayOptions, replay
from equipoise_lab.simulate.workloads import (
    drifting_batches,
    key_fingerprints,
    load_parquet_keys,
    shifted_power_law_shares,
)
from equipoise_lab.variants import KIPPrinted

_BATCHES = 20
_STREAM_PARTITIONS = 20
_CUT = 0.1  # Figure 2 of DR drops a tenth of the runs at either end


def contenders(partitions: int) -> dict[str, Planner]:
    """Every planner, with the settings of DR's section 5 where it gives any."""
    gedik: dict[str, Any] = {
        "state": Resource.LINEAR,
        "computation": Resource.LINEAR,
        "communication": Resource.LINEAR,
        "theta": 0.2,
        "tracked": 2 * partitions + 1,
        "replicas": 100,
    }
    planners = (
        Uniform(),
        Consistent(),
        KIP(),
        KIPPrinted(),
        Scan(**gedik),
        Redist(**gedik),
        Readj(**gedik),
        Mixed(),
    )
    return {planner.name: planner for planner in planners}


def run(context: Context) -> Result:
    """Measure Figure 2 and Figure 3 of DR, the distance from the bound, and the planning time."""
    figure2 = _figure2(context)
    bound = _over_bound(context)
    streams = {name: _over_batches(batches, context, name) for name, batches in _streams(context).items()}
    times = _planning_times(context)
    replans, driver = planning_milliseconds(context), driver_milliseconds(context)

    metrics = {
        "kip_printed_worst": max(by_planner["kip-printed"] for by_planner in figure2.values()),
        "kip_worst_over_bound": max(by_planner["kip"] for by_planner in bound.values()),
        "kip_imbalance_rank": float(max(_rank(stream, "kip") for stream in streams.values())),
        "kip_migration_over_readj": max(s["kip"]["migration"] / s["readj"]["migration"] for s in streams.values()),
        "kip_ms": 1000 * median(times["kip, 1024 partitions"]),
        "readj_s": median(times["readj, 500 items, 32 partitions"]),
        "redist_s": median(times["redist, 500 items, 32 partitions"]),
        "scan_s": median(times["scan, 500 items, 32 partitions"]),
        "mixed_s": median(times["mixed, 10000 items, 32 partitions"]),
        "kip_printed_ms": 1000 * median(times["kip-printed, 1024 partitions"]),
        **{f"plan_ms_{partitions}": median(ms.cpu) for partitions, ms in replans.items()},
        **{f"plan_wall_ms_{partitions}": median(ms.wall) for partitions, ms in replans.items()},
        **{f"{name}_wall_ms": median(ms.wall) for name, ms in driver.items()},
    }
    for name in contenders(1):
        label = name.replace("-", "_")
        metrics[f"{label}_figure2_worst"] = max(by_planner[name] for by_planner in figure2.values())
        metrics[f"{label}_over_bound"] = max(figures[name] for figures in bound.values() if name in figures)
        for stream, figures in streams.items():
            metrics[f"{label}_{stream}_imbalance"] = figures[name]["imbalance"]
            metrics[f"{label}_{stream}_migration"] = figures[name]["migration"]
            metrics[f"{label}_{stream}_later_migration"] = figures[name]["later_migration"]
    samples = {"figure2": figure2, "over_bound": bound, "streams": streams, "seconds": times}
    return Result(metrics, samples | {"replan_ms": replans, "driver_ms": driver})


def _rank(stream: dict[str, dict[str, float]], name: str) -> int:
    """Place of a planner by mean imbalance, 1 for the best."""
    return 1 + sum(figures["imbalance"] < stream[name]["imbalance"] for figures in stream.values())


def _figure2(context: Context) -> dict[str, dict[str, float]]:
    """Mean imbalance after one update, by number of partitions, over the power law of DR's Figure 2."""
    shares = shifted_power_law_shares(100_000, 1.0, 10)
    results: dict[str, dict[str, float]] = {}
    for partitions in context.track((4, 8, 16, 32, 64), "imbalance over partitions"):
        planners = contenders(partitions) | {"kip-printed, epsilon 0.001": KIPPrinted(slack=0.001)}
        values: dict[str, list[float]] = {name: [] for name in planners}
        for iteration in range(context.repeats(20, 10)):
            keys = key_fingerprints(np.arange(len(shares)), context.seed * 1000 + iteration)
            first = uniform_plan(partitions, 100 * partitions)
            for name, planner in planners.items():
                listed = len(shares) if name == "mixed" else 2 * partitions + 1
                histogram = Histogram(keys[:listed], shares[:listed])
                values[name].append(_actual(planner.plan(first, histogram), keys, shares))
        results[str(partitions)] = {name: _trimmed_mean(v) for name, v in values.items()}
    return results


def _actual(plan: Plan, keys: NDArray[np.int64], shares: NDArray[np.float64]) -> float:
    return load_imbalance(np.bincount(plan.assign(keys), shares, plan.partitions))


def _trimmed_mean(values: list[float]) -> float:
    cut = int(len(values) * _CUT)
    return float(np.mean(sorted(values)[cut : len(values) - cut]))


def _over_bound(context: Context) -> dict[str, dict[str, float]]:
    """Imbalance over the bound with measured group loads, for each exponent and number of partitions."""
    keys = key_fingerprints(np.arange(1_000_000), context.seed)
    sizes = (8, 20, 64) if context.quick else (8, 20, 64, 256, 1024)
    results: dict[str, dict[str, float]] = {}
    for exponent, partitions in context.track(
        [(e, n) for e in (1.0, 1.2, 1.5, 2.0) for n in sizes], "distance from the bound"
    ):
        shares = zipf_shares(len(keys), exponent)
        first = uniform_plan(partitions)
        costs = Costs(group_load=np.bincount(first.tail_group_of(keys), shares, first.tail_groups))
        histogram = Histogram(keys[: 2 * partitions + 1], shares[: 2 * partitions + 1])
        bound = lower_bound(partitions, float(shares[0]))
        planners = contenders(partitions)
        if partitions > 64:  # the quadratic ones take minutes at this size
            planners = {name: planners[name] for name in ("uniform", "consistent", "kip", "kip-printed", "scan")}
        results[f"zipf {exponent}, {partitions} partitions"] = {
            name: _actual(planner.plan(first, histogram, costs=costs), keys, shares) / bound
            for name, planner in planners.items()
        }
    return results


def _streams(context: Context) -> dict[str, list[NDArray[np.int64]]]:
    """Twenty batches of each stream; the real one only where its file is at hand."""
    size = 20_000 if context.quick else 100_000
    generated = drifting_batches(
        keys=100_000, exponent=1.0, batch_size=size, batches=_BATCHES, drift=0.1, seed=context.seed
    )
    streams = {"generated": list(generated)}
    path = context.file("lfm_tags.parquet")
    if path is not None:
        streams["lfm_tags"] = _real_batches(path)
    return streams


def _real_batches(path: Path) -> list[NDArray[np.int64]]:
    return np.array_split(load_parquet_keys(path), _BATCHES)


def _over_batches(batches: Iterable[NDArray[np.int64]], context: Context, stream: str) -> dict[str, dict[str, float]]:
    """Mean imbalance and migration of every planner over a stream, averaged over ways to hash its keys."""
    results: dict[str, dict[str, float]] = {}
    rehashed = [[seeded_hashes(batch, i) for batch in batches] for i in range(context.repeats(10, 4))]
    for name, planner in context.track(contenders(_STREAM_PARTITIONS).items(), f"batches of {stream}"):
        # Mixed knows every key in DR's runs, the others the hottest 2N + 1
        options = ReplayOptions(_STREAM_PARTITIONS, listed=0 if name == "mixed" else None)
        steps = [list(replay(planner, one, options)) for one in rehashed]
        # batch 0 runs under plain hash for all of them; the first update is part of the migration, as in Figure 3
        results[name] = {
            "imbalance": float(np.mean([step.imbalance for run in steps for step in run[1:]])),
            "migration": float(np.mean([step.migration for run in steps for step in run[1:]])),
            "later_migration": float(np.mean([step.migration for run in steps for step in run[2:]])),
        }
    return results


def _timed(planner: Planner, partitions: int, groups: int, listed: int, seed: int) -> Callable[[], Plan]:
    """One update from plain hash, over a mildly skewed load with every group measured."""
    shares = zipf_shares(1_000_000, 0.9)
    keys = key_fingerprints(np.arange(len(shares)), seed)
    first = uniform_plan(partitions, groups)
    costs = Costs(group_load=np.bincount(first.tail_group_of(keys), shares, groups))
    histogram = Histogram(keys[:listed], shares[:listed])
    return lambda: planner.plan(first, histogram, costs=costs)


def _planning_times(context: Context) -> dict[str, list[float]]:
    """Seconds of one update, compiled."""
    seed = context.seed
    return interleaved(
        {
            "kip, 1024 partitions": _timed(KIP(histogram_scale=4), 1024, 65_536, 4096, seed),
            "readj, 500 items, 32 partitions": _timed(Readj(tracked=500), 32, 4096, 500, seed),
            "redist, 500 items, 32 partitions": _timed(Redist(tracked=500), 32, 4096, 500, seed),
            "scan, 500 items, 32 partitions": _timed(Scan(tracked=500), 32, 4096, 500, seed),
            "mixed, 10000 items, 32 partitions": _timed(Mixed(), 32, 4096, 10_000, seed),
            "kip-printed, 1024 partitions": _timed(KIPPrinted(histogram_scale=4), 1024, 65_536, 4096, seed),
        },
        context.repeats(9, 3),
    )
