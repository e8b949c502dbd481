"""A stream without skew on 8 emulated slots: what watching it costs, that nothing moves, and that looks stop."""

import time
from typing import Any

import numpy as np

from equipoise.spark import batch_log
from equipoise_lab.bench.harness import Context, Result, paired
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import TOTALS, VectorTotals, read_batches, run_stateful, scratch, write_batches

_SLOTS, _PARTITIONS, _KEYS, _ROWS = 8, 16, 20_000, 40_000
_SCHEMA = "key long, value long"
_SETTLED = 5  # batches after which a steady stream is not looked at any more


def run(context: Context) -> Result:
    """Run automatic planning and plain hash over the same batches, in turn."""
    batches, rounds, ideal_seconds = (8, 1, 0.5) if context.quick else (10, 10, 0.5)
    rng = np.random.default_rng(context.seed)
    keys = [rng.integers(0, _KEYS, _ROWS) for _ in range(batches)]
    contenders: dict[str, dict[str, Any]] = {"hash": {"placement": "hash"}, "auto": {}}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    moves = looks = late_looks = 0
    with local_spark(_SLOTS) as spark, scratch() as folder:
        write_batches(folder / "rows", [{"key": batch, "value": batch % 7} for batch in keys], _SLOTS)
        for number in context.track(range(rounds), "stream even"):
            for name in list(contenders)[:: -1 if number % 2 else 1]:
                stream, at = read_batches(spark, folder / "rows", _SCHEMA, _SLOTS), folder / f"{name}-{number}"
                processor = VectorTotals(time.sleep, ideal_seconds * _SLOTS / _ROWS)
                each = run_stateful(stream, processor, TOTALS, _PARTITIONS, at, **contenders[name])
                seconds[name].append(sum(each[1:]))
                if name == "auto":
                    rows = batch_log(str(at), spark=spark).dataframe().orderBy("batch").collect()
                    moves += sum(row.applied for row in rows)
                    looks += sum(bool(row.look_rows) for row in rows)
                    late_looks += sum(bool(row.look_rows) for row in rows[_SETTLED:])
    ratio = paired(seconds["auto"], seconds["hash"])
    metrics = {
        "over_hash": ratio.median,
        "over_hash_least": ratio.least,
        "over_hash_most": ratio.most,
        "moves": float(moves),
        "looks": looks / rounds,
        "looks_after_batch_5": float(late_looks),
    }
    return Result(metrics, {"seconds": seconds, "batches": batches, "rounds": rounds})
