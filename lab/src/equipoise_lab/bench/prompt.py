"""Shared by the Prompt benchmarks: a batch cut into blocks by any method, mapped and reduced with service times."""

import math
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.metrics import load_imbalance
from equipoise.microbatch import Accumulator
from equipoise.microbatch.rates import Rate
from equipoise.microbatch.receiver import cut_table
from equipoise.microbatch.spool import BUCKET, SPLIT, SealedBatch, Spool
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.spark.prompt.map_reduce import MapReduce
from equipoise.spark.rows.columns import PARTIAL_BUFFER
from equipoise.spark.rows.keyed_frames import PartialBuffer
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.state.codec import row_codec
from equipoise.state.ownership import Handover
from equipoise_lab.bench.contenders.grouped import SlowCount
from equipoise_lab.variants import BLOCKS, time_blocks

SLOTS = 8
KEYS = 1000
FILL = 0.8
"""Part of the interval that the service alone takes, with perfect balance."""


METHODS = {
    "prompt": ("level", "level"),
    "prompt as printed": ("prompt", "prompt"),
    "time-based": ("time", "hash"),
    "hash": ("hash", "hash"),
    "shuffle": ("shuffle", "hash"),
    "pk2": ("pk2", "hash"),
    "pk5": ("pk5", "hash"),
    "cam": ("cam", "hash"),
}
"""How each technique cuts a batch into blocks, and how it allocates clusters to buckets."""


@dataclass(frozen=True)
class Arrivals:
    """Tuples of one batch: their keys and when they came.

    Parameters
    ----------
    keys
        In the order of their arrival.
    times
        As a part of the interval, from 0 to 1.
    """

    keys: NDArray[np.int64]
    times: NDArray[np.float64]


def sinusoidal_arrivals(
    count: int, exponent: float, rng: np.random.Generator, *, waves: float, swing: float, number: int = 0
) -> Arrivals:
    """A batch of a stream whose rate is a sine wave.

    Parameters
    ----------
    count
        Tuples of the batch.
    exponent
        Of the Zipf distribution of their keys.
    rng
        Source of chance.
    waves
        Length of a batch, in waves.
    swing
        By how much of its mean the rate swings up and down.
    number
        Of the batch, from 0.
    """
    rate = Rate(count, "sinusoidal", swing=swing * count, period=1 / waves)
    sent = np.array([rate.sent(number + at) for at in np.linspace(0, 1, 200)])
    shares = (sent - sent[0]) / (sent[-1] - sent[0])
    times = np.interp((np.arange(count) + 0.5) / count, shares, np.linspace(0, 1, 200))
    return Arrivals(sample(zipf_shares(KEYS, exponent), count, rng), times)


def sealed(arrivals: Arrivals, method: str, blocks: int, folder: Path) -> SealedBatch:
    """A batch cut into blocks, on disk."""
    buffer = Accumulator(0.0, 1.0, expected=len(arrivals.keys), expected_keys=KEYS)
    buffer.add(arrivals.keys, arrivals.times)
    batch = buffer.close()
    cut = time_blocks(batch, blocks, arrivals.times, 0, 1) if method == "time" else BLOCKS[method](batch, blocks)
    spool = Spool(folder)
    return spool.seal(0, cut_table(pa.table({"key": arrivals.keys}), batch, cut, SLOTS), None, {})


@dataclass(frozen=True)
class Processed:
    """Cost of a batch: seconds in all, seconds of service of each reduce task, and tuples of each block."""

    seconds: float
    reduce_seconds: list[float]
    block_rows: list[int]

    @property
    def block_imbalance(self) -> float:
        """Largest block over the mean."""
        return load_imbalance(self.block_rows)


def process(
    spark: SparkSession, arrivals: Arrivals, technique: str, service: float, *, combine: bool = False
) -> Processed:
    """Map and reduce a batch; half of the service time of a tuple goes into mapping it, half into reducing it.

    With ``combine`` a map task reduces its own tuples, as Spark's own ``reduceByKey`` does, and merging two buffers of
    a key takes as long as reducing a tuple; without it the reduce tasks get the tuples themselves.
    """
    method, allocation = METHODS[technique]
    with tempfile.TemporaryDirectory() as folder:
        batch = sealed(arrivals, method, SLOTS, Path(folder))
        map_reduce = MapReduce(_TimedCount(service / 2), _BUFFER, serving(service / 2), combine, allocation)
        rows = _blocks(spark, folder, batch)
        start = time.perf_counter()
        reduced = map_reduce.reduced(rows, ["key"], SLOTS, _batch_spec())
        found = reduced.select(F.spark_partition_id().alias("task"), PARTIAL_BUFFER).toArrow()
        seconds = time.perf_counter() - start
    tasks, buffers = np.zeros(SLOTS), row_codec(_BUFFER)
    for task, encoded in zip(found["task"].to_pylist(), found[PARTIAL_BUFFER].to_pylist(), strict=True):
        tasks[task] += buffers.decode(msgspec.msgpack.decode(encoded, type=PartialBuffer).buffer)[1]
    return Processed(seconds, tasks.tolist(), [block.rows for block in batch.blocks])


Taken = dict[str, list[Processed]]
"""Batches of one technique: ``idle`` ones without service, ``busy`` ones with it."""


def taken_by_each(
    spark: SparkSession,
    arrivals: Arrivals,
    techniques: Iterable[str],
    service: float,
    repeats: int,
    *,
    warm_up: bool = True,
) -> dict[str, Taken]:
    """Process a batch by each technique in turn, without service and with so many seconds of it for each tuple.

    With ``warm_up`` a first round without service is not counted; each round after it has an order of its own, in
    which ours comes twice, since every figure is a ratio to it. All techniques combine in the map tasks.
    """
    services = {"idle": 0.0, "busy": service}
    taken: dict[str, Taken] = {name: {each: [] for each in services} for name in techniques}
    for name in taken if warm_up else ():
        process(spark, arrivals, name, 0.0, combine=True)
    turns = [*taken, *(name for name in taken if name == "prompt")]
    batch_spec = random.Random(0)  # noqa: S311 - shuffles measurements
    for _ in range(repeats):
        for name in batch_spec.sample(turns, len(turns)):
            for each, seconds in services.items():
                taken[name][each].append(process(spark, arrivals, name, seconds, combine=True))
    return taken


def sustained_rate(taken: Taken, interval: float) -> float:
    """Tuples a second at which a batch would take as long as its interval; NaN where an idle one takes longer."""
    idle, busy = (median(each.seconds for each in taken[service]) for service in ("idle", "busy"))
    if not idle < min(interval, busy):
        return math.nan
    return (interval - idle) / (busy - idle) * sum(taken["busy"][0].block_rows) / interval


class _TimedCount(SlowCount):
    """Counts rows, with a service time for each and for each merge, and adds up the seconds that this took."""

    bufferSchema = "n long, seconds double"  # noqa: N815 - as Spark names schemas

    def zero(self) -> tuple[Any, ...]:
        """No rows, no time."""
        return (0, 0.0)

    def reduce(self, buffer: tuple[Any, ...], rows: pd.DataFrame) -> tuple[Any, ...]:
        """Wait and count."""
        start = time.perf_counter()
        (count,) = super().reduce(buffer, rows)
        return (count, buffer[1] + time.perf_counter() - start)

    def merge(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        """Wait and add up."""
        start = time.perf_counter()
        time.sleep(self.seconds_per_row)
        return (one[0] + other[0], one[1] + other[1] + time.perf_counter() - start)


def _blocks(spark: SparkSession, folder: str, batch: SealedBatch) -> DataFrame:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in batches:
            for number in each.column(0).to_pylist():
                yield from Spool(folder).block(0, batch.blocks[number]).to_batches()

    numbers = spark.range(0, len(batch.blocks), 1, len(batch.blocks))
    return numbers.mapInArrow(read, f"key bigint, {BUCKET} int, {SPLIT} boolean")


def serving(seconds_per_row: float) -> Callable[[DataFrame], DataFrame]:
    """A map stage that takes a service time for each row."""

    def serve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(seconds_per_row * batch.num_rows)
            yield batch

    return lambda rows: rows.mapInArrow(serve, rows.schema)


def _batch_spec() -> BatchSpec:
    nothing = Handover({}, {})
    return BatchSpec(
        location="", query="", run="", version=1, time_ms=0, watermark_ms=0, time_mode="none", groups=[], owners=[],
        recent={}, handover=nothing, snapshots=frozenset(), dropped=[], variables={}, removed_tags=frozenset(),
        key_fields=[0], key_schema=_struct(key="long"), event_time=None, output_schema=pa.schema([]), timezone="UTC",
        cache=None,
    )  # fmt: skip


def _struct(**types: str) -> dict[str, object]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return {"type": "struct", "fields": fields}


_BUFFER = _struct(n="long", seconds="double")
