"""Prompt without Spark: time to plan a batch, tuples buffered a second, and the blocks of every method compared."""

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from equipoise.hashing import fingerprints
from equipoise.metrics import (
    block_cardinality_imbalance,
    block_size_imbalance,
    key_split_ratio,
    micropartitioning_imbalance,
)
from equipoise.microbatch import Accumulator, Batch, Blocks, level_blocks, post_sorted
from equipoise.microbatch.receiver import cut_table
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise_lab.bench.harness import Context, Result, median
from equipoise_lab.variants import BLOCKS, time_blocks

_TUPLES, _KEYS, _BLOCKS, _CHUNK = 1_000_000, 100_000, 32, 10_000
_EXPONENTS = (0.5, 1.0, 1.5)
_REAL = ("google_task_events.parquet", "wiki_pageviews_events.parquet")


def run(context: Context) -> Result:
    """Buffer and plan batches of every skew; the worst case is the metric."""
    rng = np.random.default_rng(context.seed)
    count = _TUPLES // 10 if context.quick else _TUPLES
    streams = {f"zipf {z}": sample(zipf_shares(_KEYS, z), count, rng) for z in _EXPONENTS}
    if context.data is not None:
        for name in _REAL:
            path = context.file(name)
            found = pq.read_table(path, columns=["key"]).column("key").slice(0, count).to_pylist()
            streams[name.removesuffix(".parquet")] = fingerprints(found)
    seconds: dict[str, dict[str, list[float]]] = {}
    compared: dict[str, dict[str, Any]] = {}
    _timed(streams["zipf 1.0"][:50_000])  # compiles
    for name, keys in context.track(streams.items(), "prompt core"):
        rounds = [_timed(keys) for _ in range(context.repeats(5, 2))]
        seconds[name] = {what: [each[what] for each in rounds] for what in rounds[0]}
        compared[name] = _compared(keys)
    plan = {name: median(found["plan"]) for name, found in seconds.items()}
    buffering = {name: len(streams[name]) / median(found["accumulate"]) for name, found in seconds.items()}
    ranks = {name: sorted(found, key=lambda each: found[each]["mpi"]) for name, found in compared.items()}
    metrics = {
        "plan_ms": 1000 * max(plan.values()),
        "plan_and_cut_ms": 1000 * max(plan[name] + median(found["cut"]) for name, found in seconds.items()),
        "accumulate_per_second": min(buffering.values()),
        "bsi_share": max(found["level"]["bsi"] / found["level"]["block_size"] for found in compared.values()),
        "mpi_rank": float(max(rank.index("level") + 1 for rank in ranks.values())),
        "mpi_rank_as_printed": float(max(rank.index("prompt") + 1 for rank in ranks.values())),
        "post_sort_ms": 1000 * max(median(found["post sort"]) for found in seconds.values()),
    }
    return Result(metrics, {"seconds": seconds, "blocks": compared, "mpi_ranks": ranks})


def _timed(keys: NDArray[np.int64]) -> dict[str, float]:
    """Seconds to buffer a batch, to plan it after it closed, to deal its keys and cut its rows, and to sort it instead.

    Cutting says again which block each tuple is in, which planning has said.
    """
    rows = pa.table({"key": keys})
    times = np.linspace(0, 1, len(keys), endpoint=False)
    buffer = Accumulator(0, 1, expected=len(keys), expected_keys=_KEYS)
    start = time.perf_counter()
    for at in range(0, len(keys), _CHUNK):
        buffer.add(keys[at : at + _CHUNK], times[at : at + _CHUNK])
    closed = time.perf_counter()
    batch = buffer.close()
    blocks = level_blocks(batch, _BLOCKS)
    blocks.of_tuples(batch)
    planned = time.perf_counter()
    cut_table(rows, batch, blocks, _BLOCKS)
    cut = time.perf_counter()
    post_sorted(keys)
    return {
        "accumulate": closed - start,
        "plan": planned - closed,
        "cut": cut - planned,
        "post sort": time.perf_counter() - cut,
    }


def _compared(keys: NDArray[np.int64]) -> dict[str, dict[str, float]]:
    buffer = Accumulator(0, 1, expected=len(keys), expected_keys=_KEYS)
    times = np.linspace(0, 1, len(keys), endpoint=False)
    buffer.add(keys, times)
    batch = buffer.close()
    found = {name: _measures(make(batch, _BLOCKS), batch) for name, make in BLOCKS.items()}
    return found | {"time": _measures(time_blocks(batch, _BLOCKS, times, 0, 1), batch)}


def _measures(blocks: Blocks, batch: Batch) -> dict[str, float]:
    sizes, cards, keys = blocks.block_sizes, blocks.cardinalities, len(batch.keys)
    return {
        "bsi": block_size_imbalance(sizes),
        "bci": block_cardinality_imbalance(cards),
        "ksr": key_split_ratio(cards, keys),
        "mpi": micropartitioning_imbalance(sizes, cards, keys),
        "block_size": batch.size / blocks.count,
    }
