"""First commit after a restart whose caches are gone, with little and with much state.

The batch after the restart touches as many keys in both cases. The ratio says how much of the state it has to read.
"""

import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from equipoise.spark import KeyBatch, VectorProcessor
from equipoise_lab.bench.harness import Context, Result, median
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
    """Fill the state, then restart again and again with new rows and without caches."""
    sizes, rounds = ((5, 50), 3) if context.quick else ((5, 5_000), 7)  # megabytes
    seconds: dict[str, list[float]] = {}
    with local_spark(_CORES) as spark:
        spark.conf.set("spark.sql.shuffle.partitions", _PARTITIONS)
        for size in context.track(sizes, "restart"):
            with scratch() as folder:
                seconds[f"{size} MB"] = _restarts(spark, folder, size * 1_000_000 // _VALUE_BYTES, rounds, context.seed)
    small, large = (median(seconds[f"{size} MB"]) for size in sizes)
    return Result(
        {"restart_ratio": large / small, "small_seconds": small, "large_seconds": large}, {"seconds": seconds}
    )


def _restarts(spark: SparkSession, folder: Path, keys: int, rounds: int, seed: int) -> list[float]:
    """Return the seconds from the start of the query to its first commit, of each restart."""
    rng = np.random.default_rng(seed)
    for first in range(0, keys, _FILLED):
        _run(spark, folder, np.arange(first, min(first + _FILLED, keys)))
    seconds = []
    for _ in range(rounds + 1):
        shutil.rmtree(folder / "cache")
        seconds.append(_run(spark, folder, rng.choice(keys, min(keys, _TOUCHED), replace=False)))
    return seconds[1:]


def _run(spark: SparkSession, folder: Path, keys: NDArray[np.int64]) -> float:
    """Run the query over one new batch; return the seconds."""
    number = len(list(folder.glob("rows-*")))
    rows = folder / f"rows-{number:05d}"
    write_batches(rows, [{"key": keys, "value": keys % 7}])
    (folder / "rows").mkdir(exist_ok=True)
    for path in sorted(rows.iterdir()):
        path.rename(folder / "rows" / f"{number:05d}-{path.name}")
    stream = read_batches(spark, folder / "rows", _SCHEMA)
    start = time.perf_counter()
    run_stateful(stream, Payloads(), _OUTPUT, _PARTITIONS, folder / "checkpoint", cache=str(folder / "cache"))
    return time.perf_counter() - start
