"""Cost of a batch that touches 10,000 keys, with few and with many keys in state."""

import numpy as np

from equipoise_lab.bench.harness import Context, Result, median
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import TOTALS, VectorTotals, read_batches, run_stateful, scratch, write_batches

_TOUCHED, _PARTITIONS, _CORES = 10_000, 4, 2
_SCHEMA = "key long, value long"


def run(context: Context) -> Result:
    """Fill the state with one large batch, then touch the same number of keys over and over."""
    sizes, batches = ((20_000, 200_000), 4) if context.quick else ((100_000, 10_000_000), 12)
    rng = np.random.default_rng(context.seed)
    seconds: dict[str, list[float]] = {}
    with local_spark(_CORES) as spark, scratch() as folder:
        spark.conf.set("spark.sql.shuffle.partitions", _PARTITIONS)
        for size in context.track(sizes, "state growth"):
            touched = [rng.choice(size, _TOUCHED, replace=False) for _ in range(batches)]
            keys = [np.arange(size), *touched]
            write_batches(folder / f"rows-{size}", [{"key": batch, "value": batch % 7} for batch in keys])
            stream = read_batches(spark, folder / f"rows-{size}", _SCHEMA)
            all_seconds = run_stateful(stream, VectorTotals(), TOTALS, _PARTITIONS, folder / f"at-{size}")
            # the first batch fills the state, the second brings the cache up to it
            seconds[str(size)] = all_seconds[2:]
            seconds[f"{size}, filling"] = all_seconds[:2]
    small, large = (median(seconds[str(size)]) for size in sizes)
    return Result({"cost_ratio": large / small, "small_seconds": small, "large_seconds": large}, {"seconds": seconds})
