"""Grouped Python functions on 8 emulated slots: balance against hash and over-partitioning, over Zipf exponents."""

import numpy as np

from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise_lab.bench.batch import SLOTS, Case, Outcome, compare, warm_up
from equipoise_lab.bench.harness import Context, Result
from equipoise_lab.bench.local_spark import as_parquet, local_spark

_ROWS, _KEYS = 30_000, 1000
_IDEAL_SECONDS = 12.0  # long beside what a thousand groups cost the two real cores, which no cluster would share
_ROOM_HASH, _ROOM_OVERPARTITIONING = 1.5, 1.15  # gains that the bound must leave possible for a case to count


def run(context: Context) -> Result:
    """Time every case; the worst over the cases with room is the metric."""
    exponents, sizes = ((1.0,), (16,)) if context.quick else ((1.0, 1.2, 1.5), (16, 32))
    outcomes: dict[str, Outcome] = {}
    with local_spark(SLOTS) as spark:
        cases = [(exponent, partitions) for exponent in exponents for partitions in sizes]
        for exponent, partitions in context.track(cases, "batch groups"):
            keys = sample(zipf_shares(_KEYS, exponent), _ROWS, np.random.default_rng(context.seed))
            with as_parquet(spark, {"key": keys}, SLOTS) as df:
                if not outcomes:
                    warm_up(df)
                case = Case(f"zipf {exponent}, {partitions} partitions", df, partitions)
                outcomes[case.name] = compare(case, 2.0 if context.quick else _IDEAL_SECONDS, context, rounds=7)
    return Result(_metrics(outcomes), {name: outcome.sample() for name, outcome in outcomes.items()})


def _metrics(outcomes: dict[str, Outcome]) -> dict[str, float]:
    room_hash = [o for o in outcomes.values() if o.predicted_hash_over_ideal >= _ROOM_HASH]
    room_over = [o for o in outcomes.values() if o.predicted_overpartitioned_over_ideal >= _ROOM_OVERPARTITIONING]
    return {
        "speedup_over_hash": min((o.speedup_over_hash for o in room_hash), default=float("nan")),
        "speedup_over_overpartitioning": min(
            (o.speedup_over_overpartitioning for o in room_over), default=float("nan")
        ),
        "over_ideal": max(o.over_ideal for o in outcomes.values()),
        "cases": float(len(outcomes)),
        "cases_with_room_over_hash": float(len(room_hash)),
        "cases_with_room_over_overpartitioning": float(len(room_over)),
        "worst_speedup_over_hash_of_all": min(o.speedup_over_hash for o in outcomes.values()),
        "worst_speedup_over_overpartitioning_of_all": min(o.speedup_over_overpartitioning for o in outcomes.values()),
    }
