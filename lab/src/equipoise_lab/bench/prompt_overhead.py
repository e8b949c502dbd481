"""Cost of planning to a receiver: part of the interval, and whether early release hides it."""

import tempfile
import time

import numpy as np
import pyarrow as pa

from equipoise.microbatch.feeds import GeneratedFeed
from equipoise.microbatch.rates import Rate
from equipoise.microbatch.receiver import Cutting, Receiver
from equipoise.microbatch.spool import Spool
from equipoise_lab.bench.harness import Context, Result, median

_RATE, _KEYS, _BLOCKS, _INTERVAL = 100_000, 50_000, 32, 1.0


def run(context: Context) -> Result:
    """Let a receiver plan batches of a steady stream and read the record of its batches."""
    schema = pa.schema({"key": pa.int64(), "value": pa.int64()})
    seconds = context.repeats(30, 6)
    with tempfile.TemporaryDirectory() as folder:
        feed = GeneratedFeed(schema, Rate(_RATE), keys=_KEYS, exponent=1.0, seed=context.seed)
        receiver = Receiver(Spool(folder), feed, schema, Cutting(("key",), _INTERVAL, blocks=_BLOCKS))
        receiver.start()
        try:
            for _ in context.track(range(seconds), "prompt overhead"):
                time.sleep(_INTERVAL)
                receiver.forget(receiver.sealed)  # raises what the receiver failed with
        finally:
            receiver.stop()
        lines = Spool(folder).batch_lines()[2:]  # the first ones compile
    planning = [line["plan_seconds"] for line in lines]
    metrics = {
        "share_of_interval": median(planning) / _INTERVAL,
        "share_of_interval_p95": float(np.percentile(planning, 95)) / _INTERVAL,
        "ready_in_time_share": float(np.mean([line["ready_before_wanted"] >= 0 for line in lines])),
        "seal_seconds": median(line["seal_seconds"] for line in lines),
        "tuples_per_second": median(line["rows"] for line in lines) / _INTERVAL,
        "batches": float(len(lines)),
    }
    return Result(metrics, {"batches": lines})
