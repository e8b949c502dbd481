"""A ramp up and down of the rate and of the keys: map and reduce tasks follow, and batches stay within the interval.

A live query on 8 emulated slots with a service time that waits. Counted are the batches that were cut after the first
change of the number of tasks. A short query before it warms Spark up.
"""

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from equipoise.microbatch.feeds import CHUNK_ROWS
from equipoise.microbatch.rates import Rate
from equipoise.microbatch.spool import Spool
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.spark import microbatch, register
from equipoise_lab.bench.contenders.grouped import SlowCount
from equipoise_lab.bench.harness import Context, Result
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.prompt import serving
from equipoise_lab.bench.stream import discard, scratch

_SLOTS, _TASKS, _INTERVAL = 8, 4, 20.0
_SERVICE = 0.035  # seconds a tuple: at the first rate the tasks of the start fill most of the interval


def run(context: Context) -> Result:
    """Run the ramp and look at what the source and the query recorded."""
    ramp, rest = (40.0, 40.0) if context.quick else (360.0, 240.0)
    rate = Rate(75, "ramp", swing=50, period=ramp)
    with local_spark(_SLOTS) as spark:
        _watched(spark, "warming", Rate(rate.rate), range(int(3 * _INTERVAL)), context.seed)
        seconds = context.track(range(int(2 * ramp + rest)), "prompt elastic")
        lines = _watched(spark, "ramping", rate, seconds, context.seed)
    return Result(_metrics(lines), {"batches": lines, "slots": _SLOTS, "service_seconds": _SERVICE})


def _watched(spark: SparkSession, name: str, rate: Rate, seconds: Iterable[int], seed: int) -> list[dict[str, Any]]:
    """Run a query for so many seconds; what its source recorded of its batches."""
    with scratch() as folder:
        register(spark, **{name: _growing(rate, seed)})
        spool = str(folder / "spool")
        stream = spark.readStream.format("equipoise").options(
            schema="key bigint", key="key", spool=spool, feed=name, interval=_INTERVAL,
            blocks=_TASKS, buckets=_TASKS, least=2, most=_SLOTS,
        )  # fmt: skip
        spark.conf.set("spark.sql.shuffle.partitions", _TASKS)
        counts = microbatch(
            stream.load(),
            "key",
            reduce=SlowCount(_SERVICE / 2),
            outputStructType="key bigint, n bigint",
            numPartitions=_TASKS,
            spool=spool,
            interval=_INTERVAL,
            map=serving(_SERVICE / 2),
            combine=False,
        )
        writer = counts.writeStream.foreachBatch(discard)
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        try:
            for _ in seconds:
                time.sleep(1)
                if (failure := query.exception()) is not None:
                    raise failure
        finally:
            query.stop()
        return Spool(folder / "spool").batch_lines()


def _metrics(lines: list[dict[str, Any]]) -> dict[str, float]:
    changes = [at for at, line in enumerate(lines) if line["action"] != "keep"]
    loads = {batch: load for line in lines for batch, load in zip(line["processed"], line["loads"], strict=True)}
    after = [load for batch, load in loads.items() if changes and batch > changes[0]]
    tasks = [line["blocks"] + line["buckets"] for line in lines if line["rows"]]
    return {
        "on_time_share": float(np.mean([load <= 1 for load in after])) if after else float("nan"),
        "tasks_back_ratio": tasks[-1] / tasks[0],
        "most_tasks_ratio": max(tasks) / tasks[0],
        "changes": float(len(changes)),
        "most_waiting": float(max(line["waiting"] for line in lines[len(lines) // 4 :])),
        "batches": float(len(lines)),
    }


def _growing(rate: Rate, seed: int) -> Any:
    """A feed whose keys grow in number with its rate; its position is the number of tuples sent."""
    began: list[float] = []

    def feed(position: int | None) -> tuple[Any, int] | None:
        now = time.time()
        if not began:
            began.append(now - rate.when(position or 0))
        sent, seconds = position or 0, now - began[0]
        due = min(int(rate.sent(seconds)), sent + CHUNK_ROWS)
        if due <= sent:
            return None
        keys = max(100, int(rate.sent(seconds + 1) - rate.sent(seconds)))
        found = sample(zipf_shares(keys, 0.8), due - sent, np.random.default_rng([seed, sent]))
        return pa.table({"key": found}), due

    return feed
