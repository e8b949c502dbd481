"""A stream whose hot keys are swapped at once in mid-run, on 8 emulated slots: state that moves against static hash.

What a planner migrates is the state that its plan for the new hot keys moves, whether the controller applies it or
finds that it saves too little.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.adapt import Policy
from equipoise.metrics import lower_bound
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.spark import batch_log
from equipoise_lab.bench.harness import Context, Result, median
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import TOTALS, VectorTotals, read_batches, run_stateful, scratch, write_batches

_SLOTS, _PARTITIONS, _KEYS, _ROWS = 8, 16, 2000, 20_000
_EXPONENT = 1.2
_SCHEMA = "key long, value long"
_CONTENDERS: dict[str, dict[str, Any]] = {
    "hash": {"placement": "hash"},
    "kip": {"policy": Policy(planner="kip")},
    "readj": {"policy": Policy(planner="readj")},
    "scan": {"policy": Policy(planner="scan")},
}


def run(context: Context) -> Result:
    """Run every contender over the same batches."""
    batches, ideal_seconds, rounds = (6, 1.0, 1) if context.quick else (12, 3.0, 2)
    keys = drifting_keys(batches, _KEYS, _ROWS, context.seed)
    per_row = ideal_seconds * _SLOTS / _ROWS
    outcomes: dict[str, list[dict[str, Any]]] = {name: [] for name in _CONTENDERS}
    with local_spark(_SLOTS) as spark, scratch() as folder:
        write_batches(folder / "rows", [{"key": batch, "value": batch % 7} for batch in keys], _SLOTS)
        for number in context.track(range(rounds), "stream drift"):
            for name, options in _CONTENDERS.items():
                stream, at = read_batches(spark, folder / "rows", _SCHEMA, _SLOTS), folder / f"{name}-{number}"
                processor = VectorTotals(time.sleep, per_row)
                seconds = run_stateful(stream, processor, TOTALS, _PARTITIONS, at, **options)
                outcomes[name].append(_outcome(seconds, at, spark, keys))
    swap = batches // 2
    total = {name: median(sum(each["seconds"][1:]) for each in outcomes[name]) for name in _CONTENDERS}
    moved = {name: median(each["planned_bytes"][swap] for each in outcomes[name]) for name in _CONTENDERS}
    metrics = {
        "over_bound_after_two": median(each["over_bound"][swap + 2] for each in outcomes["kip"]),
        "speedup_over_hash": total["hash"] / total["kip"],
        "migrated_over_readj": moved["kip"] / moved["readj"] if moved["readj"] else float("nan"),
        "migrated_over_scan": moved["kip"] / moved["scan"] if moved["scan"] else float("nan"),
        "kip_moved_bytes": moved["kip"],
        **{f"{name}_replans": median(each["replans"] for each in outcomes[name]) for name in _CONTENDERS},
    }
    return Result(metrics, {"outcomes": outcomes, "ideal_seconds": ideal_seconds, "swap": swap})


def drifting_keys(
    batches: int, keys: int, rows: int, seed: int, exponent: float = _EXPONENT
) -> list[NDArray[np.int64]]:
    """Zipf keys of each batch; from the middle on the ranks belong to other keys."""
    rng = np.random.default_rng(seed)
    shares = zipf_shares(keys, exponent)
    before, after = rng.permutation(keys), rng.permutation(keys)
    return [(before if number < batches // 2 else after)[sample(shares, rows, rng)] for number in range(batches)]


def _outcome(seconds: list[float], at: Path, spark: Any, keys: list[NDArray[np.int64]]) -> dict[str, Any]:
    rows = batch_log(str(at), spark=spark).dataframe().orderBy("batch").collect()
    bounds = [lower_bound(_PARTITIONS, np.unique(batch, return_counts=True)[1].max() / len(batch)) for batch in keys]
    return {
        "seconds": seconds,
        "imbalance": [row.imbalance_rows for row in rows],
        "over_bound": [row.imbalance_rows / bound for row, bound in zip(rows, bounds, strict=True)],
        "replans": sum(row.applied for row in rows),
        "planned_bytes": [row.move_bytes or 0.0 for row in rows],  # of the plan that was made, applied or not
        "reasons": [row.reason for row in rows],
    }
