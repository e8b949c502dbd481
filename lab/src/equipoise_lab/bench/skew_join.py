"""A join with a hot key on 8 emulated slots: against plain Spark, its adaptive skew join, and salting by hand.

Even keys are joined, too, without a service time: what looking at both sides and planning cost where nothing is to be
gained. The quick form has seven rounds, as the full one, but only the salts that are best here, and takes about three
minutes.
"""

from functools import partial

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from equipoise_lab.bench.batch import SLOTS
from equipoise_lab.bench.contenders.contender import Contender, timed
from equipoise_lab.bench.contenders.joins import join_contenders, sides
from equipoise_lab.bench.harness import Context, Result, median, paired
from equipoise_lab.bench.local_spark import local_spark

_ROWS, _KEYS, _PARTITIONS, _HOT = 40_000, 2000, 16, 0.4
_THICK = 4  # rows of the hot key on the other side where it is thick
_SALTS, _BEST_SALTS = (2, 4, 8, 16), (8, 16)
_EVEN_ROWS = 4_000_000
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
                shuffled = partial(_shuffled, left, right, _BEST_SALTS if context.quick else _SALTS)
                seconds[name] = timed(shuffled, ideal * SLOTS / rows, 7)
        even = _even(spark, _EVEN_ROWS // 4 if context.quick else _EVEN_ROWS, context)
    time_of = {name: {who: median(values) for who, values in found.items()} for name, found in seconds.items()}
    over_best = {
        name: paired(found["equipoise"], min((found[who] for who in found if who != "equipoise"), key=median))
        for name, found in seconds.items()
    }
    silent = [name for name, found in time_of.items() if found["adaptive"] > 0.9 * found["plain"]]
    over_plain = paired(even["equipoise"], even["plain"])
    metrics = {
        "join_even_over_plain": over_plain.median,
        "over_best_peer": max(ratio.median for ratio in over_best.values()),
        "wins_where_aqe_silent": float(sum(over_best[name].median < 1 for name in silent)),
        "cases_where_aqe_silent": float(len(silent)),
        "speedup_over_plain": min(paired(found["plain"], found["equipoise"]).median for found in seconds.values()),
    }
    return Result(
        metrics,
        {
            "seconds": seconds | {"even keys": even},
            "join_even_over_plain": over_plain._asdict(),
            "over_best_peer": {name: ratio._asdict() for name, ratio in over_best.items()},
            "ideal_seconds": ideal,
            "slots": SLOTS,
        },
    )


def _even(spark: SparkSession, rows: int, context: Context) -> dict[str, list[float]]:
    """Time a plain join and ours on even keys, without a service time."""
    keys = np.random.default_rng(context.seed).integers(0, _KEYS, rows)
    with sides(spark, keys, _KEYS, 1, 0, SLOTS, context.seed) as (left, right):

        def make(seconds_per_row: float) -> dict[str, Contender]:
            found = join_contenders(left, right, _PARTITIONS, SLOTS, (), seconds_per_row)
            return {name: found[name] for name in ("plain", "equipoise")}

        return timed(make, 0.0, 7)


def _shuffled(
    left: DataFrame, right: DataFrame, salts: tuple[int, ...], seconds_per_row: float
) -> dict[str, Contender]:
    """All contenders that shuffle both sides: where one can be broadcast, there is no skew to speak of."""
    contenders = join_contenders(left, right, _PARTITIONS, SLOTS, salts, seconds_per_row)
    return {name: each for name, each in contenders.items() if name != "broadcast"}
