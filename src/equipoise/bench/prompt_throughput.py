"""Highest rate that a micro-batch holds within its interval, by technique, over intervals and skews.

On 8 emulated slots, with a service time that waits: half of it in the map stage, half in the reduce stage, where tuples
are reduced as they are (no map-side combining, as in the paper). The intervals of the paper, 1, 2 and 3 s, are
stretched tenfold: the stages of a batch cost two cores more than a second, which is no part of the comparison. The
processing time grows linearly with the rate, so the rate that just fills the interval is read off a line through two
measured rates. ``combined`` is Prompt with map-side combining, for comparison.
"""

import numpy as np

from equipoise.bench.harness import Context, Result, median
from equipoise.bench.local_spark import local_spark
from equipoise.bench.prompt import METHODS, SLOTS, process, sinusoidal_arrivals

_ROWS = (3000, 6000)
_FILL = 0.5  # part of the interval that the service alone takes, with perfect balance, at the higher rate
_OTHERS = ("pk2", "pk5", "cam", "shuffle")


def run(context: Context) -> Result:
    """Measure every technique in every case; the worst ratio over the cases is the metric."""
    skews = [(10.0, exponent) for exponent in (0.1, 0.5, 1.5, 2.0)]
    cases = [(10.0, 1.0)] if context.quick else [(interval, 1.0) for interval in (10.0, 20.0, 30.0)] + skews
    rng = np.random.default_rng(context.seed)
    rates: dict[str, dict[str, float]] = {}
    seconds: dict[str, dict[str, dict[int, list[float]]]] = {}
    names = [*METHODS, "combined"]
    with local_spark(SLOTS) as spark:
        warm = sinusoidal_arrivals(500, 1.0, 1.0, 0, rng)
        for _ in range(2):
            process(spark, warm, "prompt", 0.0)
        for interval, exponent in context.track(cases, "prompt throughput"):
            service = _FILL * interval * SLOTS / _ROWS[1]
            found: dict[str, dict[int, list[float]]] = {name: {rows: [] for rows in _ROWS} for name in names}
            for rows in _ROWS:
                arrivals = sinusoidal_arrivals(rows, exponent, interval, 0, rng)
                for name in names:
                    technique, combine = ("prompt", True) if name == "combined" else (name, False)
                    taken = process(spark, arrivals, technique, service, combine=combine)
                    found[name][rows].append(taken.seconds)
            case = f"interval {interval:g} s, zipf {exponent}"
            seconds[case] = found
            rates[case] = {name: _sustained(found[name], interval) for name in names}
    over = {case: {name: found["prompt"] / found[name] for name in found} for case, found in rates.items()}
    metrics = {
        "over_time_based": min(found["time-based"] for found in over.values()),
        "over_hash": min(found["hash"] for found in over.values()),
        "over_best_other": min(min(found[name] for name in _OTHERS) for found in over.values()),
        "over_time_based_median": median(found["time-based"] for found in over.values()),
        "over_hash_median": median(found["hash"] for found in over.values()),
        "combined_over_prompt": median(found["combined"] / found["prompt"] for found in rates.values()),
    }
    return Result(metrics, {"rates": rates, "ratios": over, "seconds": seconds, "slots": SLOTS})


def _sustained(seconds: dict[int, list[float]], interval: float) -> float:
    """Tuples a second at which a batch takes as long as its interval."""
    low, high = (median(seconds[rows]) for rows in _ROWS)
    per_row = max((high - low) / (_ROWS[1] - _ROWS[0]), 1e-9)
    return max(1.0, _ROWS[0] + (interval - low) / per_row) / interval
