"""Highest rate that a micro-batch holds within its interval, by technique, over intervals and skews.

On 8 emulated slots, with a service time that waits for every tuple that is mapped and reduced, and for every merge of
two buffers of a key; all techniques combine in the map tasks. The rate is a sine wave between nothing and twice its
mean, as long as the shortest interval. The intervals of the paper, 1, 2 and 3 s, are stretched fourfold, because the
stages of a batch alone cost two cores more than a second; that cost is measured apart, with no service, so that the
rate that just fills the interval follows from one measured rate.

A technique whose largest block is not at least half as large again as the mean leaves no room to be 1.5 times faster:
``over_time_based`` and ``over_hash`` are the worst over the cases that have room, ``..._of_all`` the worst over all.
"""

import math

import numpy as np

from equipoise.errors import InvalidArgumentError
from equipoise_lab.bench.harness import Context, Result
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.prompt import FILL, METHODS, SLOTS, Taken, sinusoidal_arrivals, sustained_rate, taken_by_each

_ROWS = 6000
_WAVE_SECONDS = 4.0
_ROOM = 1.5
_OTHERS = ("pk2", "pk5", "cam", "shuffle")


def run(context: Context) -> Result:
    """Measure every technique in every case."""
    skews = [(8.0, exponent) for exponent in (0.1, 0.5, 1.5, 2.0)]
    cases = [(4.0, 1.0)] if context.quick else [(interval, 1.0) for interval in (4.0, 8.0, 12.0)] + skews
    rng = np.random.default_rng(context.seed)
    found: dict[str, dict[str, Taken]] = {}
    rates: dict[str, dict[str, float]] = {}
    with local_spark(SLOTS) as spark:
        for interval, exponent in context.track(cases, "prompt throughput"):
            arrivals = sinusoidal_arrivals(_ROWS, exponent, rng, waves=interval / _WAVE_SECONDS, swing=1.0)
            case = f"interval {interval:g} s, zipf {exponent}"
            service = FILL * interval * SLOTS / _ROWS
            found[case] = taken_by_each(spark, arrivals, METHODS, service, context.repeats(2, 1))
            rates[case] = {name: sustained_rate(each, interval) for name, each in found[case].items()}
    unmeasured = [case for case, each in rates.items() if any(math.isnan(rate) for rate in each.values())]
    over = {
        case: {name: each["prompt"] / each[name] for name in each}
        for case, each in rates.items()
        if case not in unmeasured
    }
    if not over:
        raise InvalidArgumentError(
            "batches without any work took longer than their interval; measure on an idle machine"
        )
    metrics = {}
    for name in ("time-based", "hash"):
        room = [case for case in over if found[case][name]["busy"][0].block_imbalance >= _ROOM]
        metric = f"over_{name.replace('-', '_')}"
        metrics[metric] = min((over[case][name] for case in room), default=math.nan)
        metrics[f"{metric}_of_all"] = min(each[name] for each in over.values())
        metrics[f"{metric}_cases_with_room"] = float(len(room))
    metrics["over_best_other"] = min(min(each[name] for name in _OTHERS) for each in over.values())
    metrics["cases"] = float(len(over))
    metrics["cases_too_slow_to_measure"] = float(len(unmeasured))
    return Result(metrics, {"rates": rates, "ratios": over, "processed": found, "slots": SLOTS})
