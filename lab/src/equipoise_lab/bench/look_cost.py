"""Time to look at a micro-batch of 2 million rows and to place it by a new plan, as a part of its whole time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from equipoise.adapt import Policy
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.spark import batch_log
from equipoise.spark.stream import jobs
from equipoise.spark.stream.placement import Placement
from equipoise_lab.bench.harness import Context, Result, median
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import TOTALS, VectorTotals, read_batches, run_stateful, scratch, write_batches

_CORES, _PARTITIONS, _KEYS, _EXPONENT, _SETTLED = 2, 16, 17_000, 1.1, 2
_SCHEMA = "key long, value long"


def run(context: Context) -> Result:
    """Run a stream whose keys get other names with each batch, so that each has a look and a plan of its own."""
    rows, batches = (200_000, 5) if context.quick else (2_000_000, 9)
    rng = np.random.default_rng(context.seed)
    shares = zipf_shares(_KEYS, _EXPONENT)
    keys = [rng.permutation(_KEYS)[sample(shares, rows, rng)] for _ in range(batches)]
    policy = Policy(load="rows", move_rate=1e12)
    with local_spark(_CORES) as spark, scratch() as folder, _placements() as made:
        write_batches(folder / "rows", [{"key": batch, "value": batch % 7} for batch in keys], _CORES)
        stream, at = read_batches(spark, folder / "rows", _SCHEMA, _CORES), folder / "query"
        run_stateful(stream, VectorTotals(), TOTALS, _PARTITIONS, at, policy=policy, look="always")
        log = batch_log(str(at), spark=spark).dataframe().orderBy("batch").collect()[_SETTLED:]
    looks, placements = [row.look_seconds for row in log], made[_SETTLED:]
    over = [(look + placement) / row.seconds for look, placement, row in zip(looks, placements, log, strict=True)]
    metrics = {
        "look_over_batch": median(over),
        "look_over_batch_worst": max(over),
        "look_seconds": median(looks),
        "placement_seconds": median(placements),
        "batch_seconds": median(row.seconds for row in log),
        "rows_seen": median(row.look_rows for row in log),
        "new_plans": float(sum(row.applied for row in log)),
    }
    return Result(metrics, {"over": over, "looks": looks, "placements": placements, "rows": rows})


@contextmanager
def _placements() -> Iterator[list[float]]:
    """Time the making of every placement within the block."""
    seconds: list[float] = []

    def timed(*given: Any, **named: Any) -> Placement:
        start = time.perf_counter()
        made = Placement(*given, **named)
        seconds.append(time.perf_counter() - start)
        return made

    with mock.patch.object(jobs, "Placement", timed):
        yield seconds
