"""Keys counted per second by every sketch, and hot keys found in equal memory, beside Apache DataSketches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.sketch import DriftHistogram, LossyCounting, Sketch, SpaceSaving, WindowedCounter
from equipoise_lab.bench.harness import Context, Result, interleaved, median
from equipoise_lab.simulate.workloads import drifting_batches, key_fingerprints

_KEYS = 1_000_000
_EXPONENT = 1.1
_HOT = 100  # keys to be found
_BATCHES = 8  # of the drifting stream, which gets a new hot set before each
_DATASKETCHES_LOG_SLOTS = 11
_DATASKETCHES_SLOT = 18  # bytes: item, count and state; the Python integers it points to are left out, in its favour
_BUDGET = (1 << _DATASKETCHES_LOG_SLOTS) * _DATASKETCHES_SLOT  # bytes, for everyone
_SIZES = np.geomspace(16, 65_536, 97).astype(int).tolist()  # to choose from, each 9 % above the one before


@dataclass(frozen=True)
class Found:
    """The hottest keys as a contender names them, and the most memory it took."""

    keys: list[int]
    peak_bytes: int
    size: int


def run(context: Context) -> Result:
    """Measure speed at sensible sizes, then recall in equal memory on a steady and on a drifting stream."""
    rows = 1_000_000 if context.quick else 4_000_000
    window = rows // _BATCHES
    steady = _zipf(rows, context.seed)
    batches = list(drifting_batches(_KEYS, _EXPONENT, window, _BATCHES, swaps=range(1, _BATCHES), seed=context.seed))
    seconds = _seconds(steady, window, context.repeats(9, 5))
    figures = {
        "recall": (_found(steady, window), steady),
        "recall_drift": (_found(np.concatenate(batches), window), batches[-1]),
    }
    metrics = {f"{name}_per_second": rows / median(times) for name, times in seconds.items()}
    samples: dict[str, object] = {"rows": rows, "seconds": seconds, "budget_bytes": _BUDGET}
    for figure, (found, truth) in figures.items():
        metrics |= {f"{name}_{figure}": _recall(each.keys, truth) for name, each in found.items()}
        samples[figure] = {name: {"size": each.size, "peak_bytes": each.peak_bytes} for name, each in found.items()}
    metrics |= {f"{name}_bytes": float(each.peak_bytes) for name, each in figures["recall"][0].items()}
    return Result(metrics, samples)


def _zipf(rows: int, seed: int) -> NDArray[np.int64]:
    keys = sample(zipf_shares(_KEYS, _EXPONENT), rows, np.random.default_rng(seed))
    return key_fingerprints(keys, seed)


def _seconds(stream: NDArray[np.int64], window: int, repeats: int) -> dict[str, list[float]]:
    """Seconds to count the stream from empty, at sizes that suit a histogram of some hundred keys."""
    sketches: dict[str, Callable[[], Sketch]] = {
        "space_saving": partial(SpaceSaving, 4096),
        "lossy_counting": partial(LossyCounting, 1 / 4096),
        "windowed": partial(WindowedCounter, window, epsilon=1 / 4096),
        "drift_histogram": DriftHistogram,
    }

    def count(make: Callable[[], Sketch]) -> None:
        make().update_many(stream)

    return interleaved({name: partial(count, make) for name, make in sketches.items()}, repeats)


def _found(stream: NDArray[np.int64], window: int) -> dict[str, Found]:
    """Hot keys that every contender finds in a stream within the budget."""
    sized: dict[str, Callable[[int], Sketch]] = {
        "space_saving": SpaceSaving,
        "lossy_counting": lambda size: LossyCounting(1 / size),
        "windowed": lambda size: WindowedCounter(window, epsilon=1 / size),
        "drift_histogram": lambda size: DriftHistogram(size // 5, soft_boundary=size),
    }
    found = {name: _largest(make, stream) for name, make in sized.items()}
    if find_spec("datasketches") is not None:
        found["datasketches"] = _datasketches(stream)
    return found


def _largest(make: Callable[[int], Sketch], stream: NDArray[np.int64]) -> Found:
    """Result of the largest size that stays within the budget over the whole stream (bisection over the sizes)."""
    low, high = 0, len(_SIZES)
    best = _count(make, _SIZES[0], stream)
    while high - low > 1:
        middle = (low + high) // 2
        found = _count(make, _SIZES[middle], stream)
        if found.peak_bytes <= _BUDGET:
            low, best = middle, found
        else:
            high = middle
    return best


def _count(make: Callable[[int], Sketch], size: int, stream: NDArray[np.int64]) -> Found:
    sketch, peak = make(size), 0
    edges = np.concatenate([np.arange(10, 10_000, 10), np.arange(10_000, len(stream), 1000)])
    for piece in np.split(stream, edges):  # short pieces, the first ones most of all, not to overlook the peak
        sketch.update_many(piece)
        peak = max(peak, sketch.nbytes)
    return Found([key for key, _ in sketch.top(_HOT)], peak, size)


def _datasketches(stream: NDArray[np.int64]) -> Found:
    """The frequent-items sketch of Apache DataSketches, at the size that sets the budget."""
    library = import_module("datasketches")
    sketch = library.frequent_items_sketch(_DATASKETCHES_LOG_SLOTS)
    for key in stream.tolist():
        sketch.update(key)
    items = sketch.get_frequent_items(library.frequent_items_error_type.NO_FALSE_NEGATIVES)
    by_estimate = sorted(items, key=lambda item: -item[1])
    return Found([item[0] for item in by_estimate[:_HOT]], _BUDGET, 1 << _DATASKETCHES_LOG_SLOTS)


def _recall(keys: list[int], stream: NDArray[np.int64]) -> float:
    """Part of the hottest keys of a stream that is among the given ones."""
    distinct, counts = np.unique(stream, return_counts=True)
    least = np.sort(counts)[-_HOT]  # keys that tie with the last of the hottest are as good
    return float(np.isin(keys, distinct[counts >= least]).sum()) / _HOT
