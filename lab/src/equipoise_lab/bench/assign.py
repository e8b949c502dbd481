"""Rows routed by a plan per second, on one core."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from equipoise.plan import Plan, uniform_plan
from equipoise_lab.bench.harness import Context, Result, interleaved, median

_PARTITIONS = 64
_ISOLATED = 128


def run(context: Context) -> Result:
    """Route random fingerprints by a plan of 64 partitions with 128 isolated keys."""
    rng = np.random.default_rng(context.seed)
    rows = 4_000_000 if context.quick else 20_000_000
    fingerprints = rng.integers(-(2**63), 2**63 - 1, rows)
    plans = {f"{groups} groups": _plan(fingerprints, groups) for groups in (4096, 6400, 65_536)}
    seconds = interleaved(
        {name: partial(plan.assign, fingerprints) for name, plan in plans.items()}, context.repeats(9, 5)
    )
    rates = {name: rows / median(times) for name, times in seconds.items()}
    return Result({"per_second": min(rates.values())}, {"per_second": rates, "seconds": seconds, "rows": rows})


def _plan(fingerprints: NDArray[np.int64], groups: int) -> Plan:
    tail = uniform_plan(_PARTITIONS, groups).tail
    hot = fingerprints[:_ISOLATED].tolist()
    return Plan(_PARTITIONS, tail, {key: i % _PARTITIONS for i, key in enumerate(hot)})
