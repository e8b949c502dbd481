"""First commit after a restart whose caches are gone, with little and with much state.

The batch after the restart touches as many keys in both cases, which take turns. The ratio says how much of the state
it has to read.
"""

import shutil
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from equipoise.spark import KeyBatch, VectorProcessor
from equipoise_lab.bench.harness import Context, Result, interleaved, median, paired
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import read_batches, run_stateful, scratch, write_batches

_VALUE_BYTES, _TOUCHED, _PARTITIONS, _CORES = 1_000, 1_000, 4, 2
_FILLED = 200_000  # keys of a batch that fills the state
_SCHEMA, _OUTPUT = "key long, value long", "key long, n long"


class Payloads(VectorProcessor):
    """Counts the rows of each key, and keeps bytes that cannot be compressed."""

    stateSchema = "n long, payload binary"  # noqa: N815 - as Spark names schemas

    def process(self, batch: KeyBatch) -> pa.Table:
        """Count, and make the bytes of new keys."""
        n = np.diff(batch.offsets) + batch.state["n"].fill_null(0).to_numpy()
        payload = batch.state["payload"].combine_chunks()
        if not batch.exists.all():
            ends = np.arange(len(batch) + 1, dtype=np.int32) * _VALUE_BYTES
            made = [None, pa.py_buffer(ends), pa.py_buffer(np.random.default_rng().bytes(int(ends[-1])))]
            payload = pc.coalesce(payload, pa.Array.from_buffers(pa.binary(), len(batch), made))
        batch.update(pa.table({"n": n, "payload": payload}))
        return pa.table({"key": batch.keys["key"], "n": n})


def run(context: Context) -> Result:
    """Fill both states, then restart again and again with new rows and without caches."""
    sizes = (5, 50) if context.quick else (5, 5_000)  # megabytes
    rng = np.random.default_rng(context.seed)
    with local_spark(_CORES) as spark, scratch() as folder:
        spark.conf.set("spark.sql.shuffle.partitions", _PARTITIONS)

        def restarted(size: int) -> None:
            keys = size * 1_000_000 // _VALUE_BYTES
            shutil.rmtree(folder / str(size) / "cache")
            seconds[f"{size} MB"].append(_run(spark, folder / str(size), rng.choice(keys, _TOUCHED, replace=False)))

        seconds: dict[str, list[float]] = {f"{size} MB": [] for size in sizes}
        for size in context.track(sizes, "filling the state"):
            keys = size * 1_000_000 // _VALUE_BYTES
            for first in range(0, keys, _FILLED):
                _run(spark, folder / str(size), np.arange(first, min(first + _FILLED, keys)))
        interleaved({str(size): partial(restarted, size) for size in sizes}, 7)
    measured = {name: found[1:] for name, found in seconds.items()}  # the first restart warms up
    small, large = (measured[f"{size} MB"] for size in sizes)
    ratio = paired(large, small)
    metrics = {"restart_ratio": ratio.median, "small_seconds": median(small), "large_seconds": median(large)}
    return Result(metrics, {"seconds": measured, "restart_ratio": ratio._asdict()})


def _run(spark: SparkSession, folder: Path, keys: NDArray[np.int64]) -> float:
    """Run the query over one new batch; return the seconds from its start to its end."""
    write_batches(folder / "rows", [{"key": keys, "value": keys % 7}])
    stream = read_batches(spark, folder / "rows", _SCHEMA)
    start = time.perf_counter()
    run_stateful(stream, Payloads(), _OUTPUT, _PARTITIONS, folder / "checkpoint", cache=str(folder / "cache"))
    return time.perf_counter() - start
