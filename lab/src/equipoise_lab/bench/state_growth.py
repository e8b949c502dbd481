"""Cost of a batch that touches 10,000 keys, with few and with many keys in state, more than the page cache holds.

The queries run in a process of their own, in a memory cgroup that bounds the page cache (root only; without one the
result says so). It must hold the code of Spark and Python, about 200 MB. Few and many keys take turns, so that a slow
moment of the machine counts against both.
"""

import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from equipoise_lab.bench.harness import Context, Result, interleaved, median, paired
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.page_cache import memory_group
from equipoise_lab.bench.stream import TOTALS, VectorTotals, read_batches, run_stateful, scratch, write_batches

_TOUCHED, _PARTITIONS, _CORES, _FILLED = 10_000, 4, 2, 2_000_000
_BATCHES = 4  # of a round
_SCHEMA = "key long, value long"


def run(context: Context) -> Result:
    """Fill the states with large batches, then touch the same number of keys over and over."""
    sizes, rounds, page_cache = (
        ((20_000, 500_000), 3, 256 << 20) if context.quick else ((100_000, 20_000_000), 7, 384 << 20)
    )
    spawn = multiprocessing.get_context("spawn")
    with (
        memory_group() as group,
        group.bounding(page_cache),
        ProcessPoolExecutor(1, spawn, initializer=group.join) as pool,
    ):
        seconds = pool.submit(_measured, sizes, rounds, context.seed).result()
    small, large = (seconds[str(size)] for size in sizes)
    ratio = paired(large, small)
    metrics = {
        "cost_ratio": ratio.median,
        "small_seconds": median(small),
        "large_seconds": median(large),
        "page_cache_bounded": float(group.path is not None),
    }
    samples = {"seconds": seconds, "page_cache_bytes": page_cache, "memory": group.found}
    return Result(metrics, samples | {"cost_ratio": ratio._asdict()})


def _measured(sizes: Sequence[int], rounds: int, seed: int) -> dict[str, list[float]]:
    """Return the seconds of the batches that touch some keys, and of those that fill the states."""
    rng = np.random.default_rng(seed)
    with local_spark(_CORES) as spark, scratch() as folder:
        spark.conf.set("spark.sql.shuffle.partitions", _PARTITIONS)

        def run_batches(size: int, batches: Iterable[NDArray[np.int64]]) -> list[float]:
            at = folder / str(size)
            write_batches(at / "rows", [{"key": keys, "value": keys % 7} for keys in batches])
            stream = read_batches(spark, at / "rows", _SCHEMA)
            return run_stateful(stream, VectorTotals(), TOTALS, _PARTITIONS, at / "checkpoint")

        def touched(size: int) -> None:
            batches = [rng.choice(size, _TOUCHED, replace=False) for _ in range(_BATCHES)]
            found[str(size)].append(median(run_batches(size, batches)[1:]))  # the first starts the query

        found: dict[str, list[float]] = {str(size): [] for size in sizes}
        for size in sizes:
            filling = [np.arange(first, min(first + _FILLED, size)) for first in range(0, size, _FILLED)]
            found[f"{size}, filling"] = run_batches(size, filling)
        interleaved({str(size): partial(touched, size) for size in sizes}, rounds)
    return found | {str(size): found[str(size)][1:] for size in sizes}  # without the warm-up
