"""Spread of reduce-task times, p95 - p5, of planned micro-batches against time-based ones, on 8 emulated slots."""

import numpy as np

from equipoise_lab.bench.harness import Context, Result, median
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.prompt import SLOTS, process, sinusoidal_arrivals

_ROWS, _INTERVAL, _EXPONENT = 6000, 2.0, 1.0
_WAVES, _SWING = 0.2, 0.5  # half up and half down, over five batches
_TECHNIQUES = ("prompt", "time-based", "hash")


def run(context: Context) -> Result:
    """Run some batches of each technique; spreads are of the tasks of a batch, and the median over batches counts."""
    rng = np.random.default_rng(context.seed)
    service = 0.5 * _INTERVAL * SLOTS / _ROWS
    tasks: dict[str, list[list[float]]] = {name: [] for name in _TECHNIQUES}
    with local_spark(SLOTS) as spark:
        process(spark, sinusoidal_arrivals(500, _EXPONENT, rng, waves=_WAVES, swing=_SWING), "prompt", 0.0)
        for number in context.track(range(context.repeats(8, 2)), "prompt latency"):
            arrivals = sinusoidal_arrivals(_ROWS, _EXPONENT, rng, waves=_WAVES, swing=_SWING, number=number)
            for name in _TECHNIQUES:
                tasks[name].append(process(spark, arrivals, name, service).reduce_seconds)
    spread = {name: median(_spread(each) for each in found) for name, found in tasks.items()}
    metrics = {
        "spread_over_time_based": spread["prompt"] / spread["time-based"],
        "prompt_spread_seconds": spread["prompt"],
        "time_based_spread_seconds": spread["time-based"],
        "hash_spread_seconds": spread["hash"],
    }
    return Result(metrics, {"reduce_seconds": tasks, "slots": SLOTS})


def _spread(seconds: list[float]) -> float:
    early, late = np.percentile(seconds, [5, 95])
    return float(late - early)
