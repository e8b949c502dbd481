"""A Python aggregate with a hot key on 8 emulated slots: in shards against key-grouped, and on even keys.

The quick form has seven rounds, too, and takes about three minutes.
"""

from functools import partial

import numpy as np
from pyspark.sql import DataFrame

from equipoise_lab.bench.batch import SLOTS
from equipoise_lab.bench.contenders.contender import Contender, timed
from equipoise_lab.bench.contenders.grouped import by_aggregate, by_hash, waiting
from equipoise_lab.bench.harness import Context, Result, median, paired
from equipoise_lab.bench.local_spark import as_parquet, local_spark

_ROWS, _KEYS, _PARTITIONS = 40_000, 300, 16


def run(context: Context) -> Result:
    """Time both on a hot key of 30 % and of 60 %, and on even keys; sampling and planning included."""
    rng = np.random.default_rng(context.seed)
    even = rng.integers(1, _KEYS, _ROWS)
    cases = {f"p{share:.0%}".rstrip("%"): np.where(rng.random(_ROWS) < share, 0, even) for share in (0.3, 0.6)}
    cases["even"] = even
    ideal = 2.0 if context.quick else 8.0
    seconds: dict[str, dict[str, list[float]]] = {}
    with local_spark(SLOTS) as spark:
        for name, keys in context.track(cases.items(), "split aggregate"):
            with as_parquet(spark, {"key": keys}, SLOTS) as df:
                seconds[name] = timed(partial(_contenders, df, context.quick), ideal * SLOTS / _ROWS, 7)
    metrics = {
        f"speedup_{name}": paired(seconds[name]["key-grouped"], seconds[name]["split"]).median
        for name in ("p30", "p60")
    }
    metrics["even_over_grouped"] = paired(seconds["even"]["split"], seconds["even"]["key-grouped"]).median
    metrics |= {f"over_ideal_{name}": median(found["split"]) / ideal for name, found in seconds.items()}
    metrics["over_ideal"] = max(metrics[f"over_ideal_{name}"] for name in seconds)
    return Result(metrics, {"seconds": seconds, "ideal_seconds": ideal, "slots": SLOTS, "partitions": _PARTITIONS})


def _contenders(df: DataFrame, quick: bool, seconds_per_row: float) -> dict[str, Contender]:
    contenders = {
        "key-grouped": Contender(lambda: by_hash(df, _PARTITIONS, waiting(seconds_per_row))),
        "split": Contender(lambda: by_aggregate(df, _PARTITIONS, seconds_per_row, SLOTS)),
    }
    if not quick:  # it takes as long as "key-grouped", and no metric needs it
        contenders["whole"] = Contender(lambda: by_aggregate(df, _PARTITIONS, seconds_per_row, SLOTS, split=None))
    return contenders
