"""Even keys on 8 emulated slots: what balancing costs where it cannot help."""

import numpy as np

from equipoise_lab.bench.batch import SLOTS, Case, compare, warm_up
from equipoise_lab.bench.harness import Context, Result
from equipoise_lab.bench.local_spark import as_parquet, local_spark

_ROWS, _KEYS, _PARTITIONS = 60_000, 1000, 16


def run(context: Context) -> Result:
    """Time hash and balance on uniform keys, sampling and planning included."""
    keys = np.random.default_rng(context.seed).integers(0, _KEYS, _ROWS)
    with local_spark(SLOTS) as spark, as_parquet(spark, {"key": keys}, SLOTS) as df:
        warm_up(df)
        outcome = compare(Case("uniform", df, _PARTITIONS), 4.0 if context.quick else 10.0, context, factors=())
    return Result({"over_hash": 1 / outcome.speedup_over_hash, "over_ideal": outcome.over_ideal}, outcome.sample())
