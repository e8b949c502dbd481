"""Cost of a batch that touches 10,000 keys, with few and with many keys in state, more than the page cache holds.

The queries run in a process of their own, in a memory cgroup that bounds the page cache (root only; without one the
result says so). It must hold the code of Spark and Python, about 200 MB.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from equipoise_lab.bench.harness import Context, Result, median
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.page_cache import memory_group
from equipoise_lab.bench.stream import TOTALS, VectorTotals, read_batches, run_stateful, scratch, write_batches

_TOUCHED, _PARTITIONS, _CORES, _FILLED = 10_000, 4, 2, 2_000_000
_SCHEMA = "key long, value long"


def run(context: Context) -> Result:
    """Fill the state with large batches, then touch the same number of keys over and over."""
    sizes, batches, page_cache = (
        ((20_000, 500_000), 4, 256 << 20) if context.quick else ((100_000, 20_000_000), 12, 384 << 20)
    )
    seconds: dict[str, list[float]] = {}
    spawn = multiprocessing.get_context("spawn")
    with (
        memory_group() as group,
        group.bounding(page_cache),
        ProcessPoolExecutor(1, spawn, initializer=group.join) as pool,
    ):
        for size in context.track(sizes, "state growth"):
            seconds |= pool.submit(_measured, size, batches, context.seed).result()
    small, large = (median(seconds[str(size)]) for size in sizes)
    metrics = {
        "cost_ratio": large / small,
        "small_seconds": small,
        "large_seconds": large,
        "page_cache_bounded": float(group.path is not None),
    }
    return Result(metrics, {"seconds": seconds, "page_cache_bytes": page_cache, "memory": group.found})


def _measured(size: int, batches: int, seed: int) -> dict[str, list[float]]:
    """Return the seconds of the batches that touch some keys, and of those that fill the state."""
    rng = np.random.default_rng(seed)
    filling = [np.arange(first, min(first + _FILLED, size)) for first in range(0, size, _FILLED)]
    keys = [*filling, *(rng.choice(size, _TOUCHED, replace=False) for _ in range(batches + 1))]
    with local_spark(_CORES) as spark, scratch() as folder:
        spark.conf.set("spark.sql.shuffle.partitions", _PARTITIONS)
        write_batches(folder / "rows", [{"key": batch, "value": batch % 7} for batch in keys])
        stream = read_batches(spark, folder / "rows", _SCHEMA)
        found = run_stateful(stream, VectorTotals(), TOTALS, _PARTITIONS, folder / "checkpoint")
    until = len(filling) + 1  # the batch after the last one that fills the state brings the cache up to it
    return {str(size): found[until:], f"{size}, filling": found[:until]}
