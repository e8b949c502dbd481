"""Keys counted per second by every sketch, and hot keys found in equal memory, beside Apache DataSketches.

Streams are steady (Zipf 1.1 and 1.3) or drift: in each twentieth either all hot keys are new (``swapped``) or a tenth
of them (``drifting``). The hot keys to be found are those of a steady stream, or of the last twentieth of a stream that
drifts.

- ``NAME_per_second``: keys counted, at sizes that suit a histogram of some hundred keys.
- ``NAME_recall``, ``NAME_recall_drift``: part of the hottest 100 keys found in 36 KiB, on Zipf 1.1 and ``swapped``.
- ``recall_gap_steady_worst``, ``recall_gap_drift_worst``: by how much SpaceSaving finds less than the frequent-items
  sketch of DataSketches in as many bytes, the worst of two budgets (4.5 KiB for the hottest 50 keys, 36 KiB for 100)
  and two streams; on streams that drift also of the hottest keys of the whole stream.
- ``drift_recall``: part of the hottest 50 keys of the last twentieth that DriftHistogram finds with its defaults, the
  worse of ``swapped`` and ``drifting``; ``space_saving_drift_recall`` and ``windowed_drift_recall`` likewise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.sketch import DriftHistogram, LossyCounting, Sketch, SpaceSaving, WindowedCounter
from equipoise_lab.bench.harness import Context, Result, interleaved, median
from equipoise_lab.simulate.workloads import drifting_batches, key_fingerprints

_KEYS = 1_000_000
_EXPONENT = 1.1
_PARTS = 20  # of a stream that drifts
_DATASKETCHES_SLOT = 18  # bytes: item, count and state; the Python integers it points to are left out, in its favour
_SIZES = np.geomspace(16, 65_536, 385).astype(int).tolist()  # to choose from, each 2 % above the one before


class _Budget(NamedTuple):
    """Size of the frequent-items sketch of DataSketches, and the number of hottest keys to be found."""

    log_slots: int
    hot: int

    @property
    def bytes(self) -> int:
        """Memory for everyone."""
        return (1 << self.log_slots) * _DATASKETCHES_SLOT


_SMALL, _LARGE = _Budget(8, 50), _Budget(11, 100)


@dataclass(frozen=True)
class Stream:
    """Keys of a stream, and its parts, if it drifts."""

    keys: NDArray[np.int64]
    parts: list[NDArray[np.int64]]

    @classmethod
    def steady(cls, rows: int, exponent: float, seed: int) -> "Stream":
        """Return a Zipf stream."""
        keys = sample(zipf_shares(_KEYS, exponent), rows, np.random.default_rng(seed))
        return cls(key_fingerprints(keys, seed), [])

    @classmethod
    def drifting(cls, rows: int, seed: int, *, share: float) -> "Stream":
        """Return a Zipf stream of which a share of the hot keys, or all, are new in each part."""
        swaps = range(1, _PARTS) if share == 1 else ()
        drift = 0 if share == 1 else share
        parts = drifting_batches(_KEYS, _EXPONENT, rows // _PARTS, _PARTS, drift=drift, swaps=swaps, seed=seed)
        listed = list(parts)
        return cls(np.concatenate(listed), listed)

    @property
    def present(self) -> NDArray[np.int64]:
        """The last part of a stream that drifts; all of a steady one."""
        return self.parts[-1] if self.parts else self.keys


@dataclass(frozen=True)
class Found:
    """The hottest keys as a contender names them, and the most memory it took."""

    keys: list[int]
    peak_bytes: int
    size: int


def run(context: Context) -> Result:
    """Measure speed at sensible sizes, then recall in equal memory and on streams that drift."""
    rows = 1_000_000 if context.quick else 4_000_000
    steady = {f"zipf {exponent}": Stream.steady(rows, exponent, context.seed) for exponent in (_EXPONENT, 1.3)}
    drifting = {
        name: Stream.drifting(rows, context.seed, share=share) for name, share in (("swapped", 1.0), ("drifting", 0.1))
    }
    seconds = _seconds(steady["zipf 1.1"].keys, rows // _PARTS, context.repeats(9, 5))
    metrics = {f"{name}_per_second": rows / median(times) for name, times in seconds.items()}
    samples: dict[str, object] = {"rows": rows, "seconds": seconds}
    for figure, stream in (("recall", steady["zipf 1.1"]), ("recall_drift", drifting["swapped"])):
        found = _found(stream, rows // _PARTS)
        metrics |= {f"{name}_{figure}": _recall(each.keys, stream.present, _LARGE.hot) for name, each in found.items()}
        samples[figure] = {name: {"size": each.size, "peak_bytes": each.peak_bytes} for name, each in found.items()}
    if find_spec("datasketches") is not None:
        for name, streams in (("steady", steady), ("drift", drifting)):
            gaps = {
                f"{stream} {budget.bytes} bytes": _gap(streams[stream], budget)
                for stream in streams
                for budget in (_SMALL, _LARGE)
            }
            metrics[f"recall_gap_{name}_worst"] = max(max(gap) for gap in gaps.values())
            samples[f"recall_gap_{name}"] = gaps
    follows = {name: _follows(stream, rows // _PARTS) for name, stream in drifting.items()}
    samples["drift_recall"] = follows
    for prefix, name in (("", "drift_histogram"), ("space_saving_", "space_saving"), ("windowed_", "windowed")):
        metrics[f"{prefix}drift_recall"] = min(found[name][0] for found in follows.values())
    return Result(metrics, samples)


def _sensible(window: int) -> dict[str, Callable[[], Sketch]]:
    """Sketches at sizes that suit a histogram of some hundred keys."""
    return {
        "space_saving": partial(SpaceSaving, 4096),
        "lossy_counting": partial(LossyCounting, 1 / 4096),
        "windowed": partial(WindowedCounter, window, epsilon=1 / 4096),
        "drift_histogram": DriftHistogram,
    }


def _seconds(stream: NDArray[np.int64], window: int, repeats: int) -> dict[str, list[float]]:
    """Seconds to count the stream from empty."""

    def count(make: Callable[[], Sketch]) -> None:
        make().update_many(stream)

    return interleaved({name: partial(count, make) for name, make in _sensible(window).items()}, repeats)


def _follows(stream: Stream, window: int) -> dict[str, tuple[float, int]]:
    """Return the part of the present hottest keys that each sketch finds at a sensible size, and its bytes."""
    found = {}
    for name, make in _sensible(window).items():
        sketch = make()
        sketch.update_many(stream.keys)
        found[name] = _recall(_top(sketch, _SMALL.hot), stream.present, _SMALL.hot), sketch.nbytes
    return found


def _gap(stream: Stream, budget: _Budget) -> list[float]:
    """Return by how much SpaceSaving finds less than DataSketches, of the present hottest keys and of all the time."""
    ours, theirs = _largest(SpaceSaving, stream.keys, budget), _datasketches(stream.keys, budget)
    truths = [stream.present, stream.keys] if stream.parts else [stream.keys]
    return [_recall(theirs.keys, truth, budget.hot) - _recall(ours.keys, truth, budget.hot) for truth in truths]


def _found(stream: Stream, window: int) -> dict[str, Found]:
    """Hot keys that every contender finds in a stream within the large budget."""
    sized: dict[str, Callable[[int], Sketch]] = {
        "space_saving": SpaceSaving,
        "lossy_counting": lambda size: LossyCounting(1 / size),
        "windowed": lambda size: WindowedCounter(window, epsilon=1 / size),
        "drift_histogram": lambda size: DriftHistogram(size // 5, soft_boundary=size),
    }
    found = {name: _largest(make, stream.keys, _LARGE) for name, make in sized.items()}
    if find_spec("datasketches") is not None:
        found["datasketches"] = _datasketches(stream.keys, _LARGE)
    return found


def _largest(make: Callable[[int], Sketch], stream: NDArray[np.int64], budget: _Budget) -> Found:
    """Result of the largest size that stays within the budget over the whole stream (bisection over the sizes)."""
    low, high = 0, len(_SIZES)
    best = _count(make, _SIZES[0], stream, budget.hot)
    while high - low > 1:
        middle = (low + high) // 2
        found = _count(make, _SIZES[middle], stream, budget.hot)
        if found.peak_bytes <= budget.bytes:
            low, best = middle, found
        else:
            high = middle
    return best


def _count(make: Callable[[int], Sketch], size: int, stream: NDArray[np.int64], hot: int) -> Found:
    sketch, peak = make(size), 0
    edges = np.concatenate([np.arange(10, 10_000, 10), np.arange(10_000, len(stream), 1000)])
    for piece in np.split(stream, edges):  # short pieces, the first ones most of all, not to overlook the peak
        sketch.update_many(piece)
        peak = max(peak, sketch.nbytes)
    return Found(_top(sketch, hot), peak, size)


def _top(sketch: Sketch, hot: int) -> list[int]:
    return [key for key, _ in sketch.top(hot)]


def _datasketches(stream: NDArray[np.int64], budget: _Budget) -> Found:
    """The frequent-items sketch of Apache DataSketches, at the size that sets the budget."""
    library = import_module("datasketches")
    sketch = library.frequent_items_sketch(budget.log_slots)
    for key in stream.tolist():
        sketch.update(key)
    items = sketch.get_frequent_items(library.frequent_items_error_type.NO_FALSE_NEGATIVES)
    by_estimate = sorted(items, key=lambda item: -item[1])
    return Found([item[0] for item in by_estimate[: budget.hot]], budget.bytes, 1 << budget.log_slots)


def _recall(found: list[int], stream: NDArray[np.int64], hot: int) -> float:
    """Part of the hottest keys of a stream that is among the found ones."""
    distinct, counts = np.unique(stream, return_counts=True)
    least = np.sort(counts)[-hot]  # keys that tie with the last of the hottest are as good
    return float(np.isin(found, distinct[counts >= least]).sum()) / hot
