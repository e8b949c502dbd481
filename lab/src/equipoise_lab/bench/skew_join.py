"""A join with a hot key on 8 emulated slots: against plain Spark, its adaptive skew join, and salting by hand."""

from functools import partial

import numpy as np
from pyspark.sql import DataFrame

from equipoise_lab.bench.batch import SLOTS
from equipoise_lab.bench.contenders.contender import Contender, timed
from equipoise_lab.bench.contenders.joins import join_contenders, sides
from equipoise_lab.bench.harness import Context, Result, median, paired
from equipoise_lab.bench.local_spark import local_spark

_ROWS, _KEYS, _PARTITIONS, _HOT = 40_000, 2000, 16, 0.4
_THICK = 4  # rows of the hot key on the other side where it is thick
_SALTS = (2, 4, 8, 16)
_PAYLOAD = 3000  # bytes of a row where partitions are to be large enough for the adaptive skew join


def run(context: Context) -> Result:
    """Time every contender with the other side thin and thick, and with rows large enough for Spark to see the skew."""
    rng = np.random.default_rng(context.seed)
    keys = np.where(rng.random(_ROWS) < _HOT, 0, rng.integers(1, _KEYS, _ROWS))
    ideal = 2.0 if context.quick else 15.0
    cases = [("thin", 1, 0), ("thick", _THICK, 0), ("thin, large rows", 1, _PAYLOAD)]
    seconds: dict[str, dict[str, list[float]]] = {}
    with local_spark(SLOTS) as spark:
        for name, matches, payload in context.track(cases[:1] if context.quick else cases, "skew join"):
            with sides(spark, keys, _KEYS, matches, payload, SLOTS, context.seed) as (left, right):
                rows = _ROWS * (1 + _HOT * (matches - 1))
                shuffled = partial(_shuffled, left, right)
                seconds[name] = timed(shuffled, ideal * SLOTS / rows, context.repeats(7, 3))
    time_of = {name: {who: median(values) for who, values in found.items()} for name, found in seconds.items()}
    over_best = {
        name: paired(found["equipoise"], min((found[who] for who in found if who != "equipoise"), key=median))
        for name, found in seconds.items()
    }
    silent = [name for name, found in time_of.items() if found["adaptive"] > 0.9 * found["plain"]]
    metrics = {
        "over_best_peer": max(ratio.median for ratio in over_best.values()),
        "wins_where_aqe_silent": float(sum(over_best[name].median < 1 for name in silent)),
        "cases_where_aqe_silent": float(len(silent)),
        "speedup_over_plain": min(paired(found["plain"], found["equipoise"]).median for found in seconds.values()),
    }
    return Result(
        metrics,
        {
            "seconds": seconds,
            "over_best_peer": {name: ratio._asdict() for name, ratio in over_best.items()},
            "ideal_seconds": ideal,
            "slots": SLOTS,
        },
    )


def _shuffled(left: DataFrame, right: DataFrame, seconds_per_row: float) -> dict[str, Contender]:
    """All contenders that shuffle both sides: where one can be broadcast, there is no skew to speak of."""
    contenders = join_contenders(left, right, _PARTITIONS, SLOTS, _SALTS, seconds_per_row)
    return {name: each for name, each in contenders.items() if name != "broadcast"}
