"""A stream without skew on 8 emulated slots: what watching it costs, and that nothing moves."""

import time
from typing import Any

import numpy as np

from equipoise.spark import batch_log
from equipoise_lab.bench.harness import Context, Result, median
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import TOTALS, VectorTotals, read_batches, run_stateful, scratch, write_batches

_SLOTS, _PARTITIONS, _KEYS, _ROWS = 8, 16, 20_000, 40_000
_SCHEMA = "key long, value long"


def run(context: Context) -> Result:
    """Run automatic planning and plain hash over the same batches, in turn."""
    batches, rounds, ideal_seconds = (4, 1, 0.5) if context.quick else (10, 3, 1.0)
    rng = np.random.default_rng(context.seed)
    keys = [rng.integers(0, _KEYS, _ROWS) for _ in range(batches)]
    contenders: dict[str, dict[str, Any]] = {"hash": {"placement": "hash"}, "auto": {}}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    moves = 0
    with local_spark(_SLOTS) as spark, scratch() as folder:
        write_batches(folder / "rows", [{"key": batch, "value": batch % 7} for batch in keys], _SLOTS)
        for number in context.track(range(rounds), "stream even"):
            for name, options in contenders.items():
                stream, at = read_batches(spark, folder / "rows", _SCHEMA, _SLOTS), folder / f"{name}-{number}"
                processor = VectorTotals(time.sleep, ideal_seconds * _SLOTS / _ROWS)
                seconds[name] += run_stateful(stream, processor, TOTALS, _PARTITIONS, at, **options)[1:]
                if name == "auto":
                    moves += batch_log(str(at), spark=spark).dataframe().where("applied").count()
    metrics = {"over_hash": median(seconds["auto"]) / median(seconds["hash"]), "moves": float(moves)}
    return Result(metrics, {"seconds": seconds, "batches": batches, "rounds": rounds})
