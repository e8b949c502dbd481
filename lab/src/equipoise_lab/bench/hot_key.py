"""An ``Aggregator`` on a stream with one hot key, on 8 emulated slots: reduced in the map tasks against whole keys.

The third contender deals the rows of the hot key to shards by a second exchange and persists the batch, as releases
before combining did; its shards are as many as they would have made. The time of the fullest task is printed twice:
of the service alone, and with the tasks that own the keys. The quick form has one round, the full form takes about
three quarters of an hour.
"""

import csv
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import BinaryType, StructField, StructType

from equipoise import fingerprint
from equipoise.adapt import Combine
from equipoise.errors import CheckError
from equipoise.spark import Aggregator, batch_log
from equipoise.spark.rows.columns import FINGERPRINT, PARTIAL_BUFFER
from equipoise.spark.rows.keys import Key
from equipoise.spark.rows.routing import next_shard
from equipoise.spark.stream import jobs
from equipoise.spark.stream.aggregator import STATE
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.partial_buffers import combiner
from equipoise.spark.stream.user_code import UserCode
from equipoise_lab.bench.harness import Context, Ratio, Result, median, paired
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import read_batches, run_stateful, scratch, write_batches

_SLOTS, _PARTITIONS, _ROWS = 8, 16, 40_000
_WARM = 2  # batches until plans and decisions have settled
_SCHEMA, _OUTPUT = "key long, value long", "key long, n long"
_CONTENDERS: dict[str, dict[str, Any]] = {"combined": {}, "whole": {"combine": "never"}, "dealt": {"combine": "never"}}
_CASES = {"p30": (30, 300), "p60": (60, 300), "p30_many_keys": (30, 6000)}
"""Share of the hot key in percent, and number of the others; with many of these, only the hot key is combined."""


class ServedCount(Aggregator):
    """Counts rows with a service time for each, and writes down which task has served how long.

    Parameters
    ----------
    folder
        Folder with one file for each task that has served.
    seconds_per_row
        Service time of a row.
    """

    bufferSchema = "n long"  # noqa: N815 - as Spark names schemas

    def __init__(self, folder: str, seconds_per_row: float) -> None:
        self._folder = folder
        self._seconds_per_row = seconds_per_row

    def zero(self) -> tuple[Any, ...]:
        """No rows."""
        return (0,)

    def reduce(self, buffer: tuple[Any, ...], rows: pd.DataFrame) -> tuple[Any, ...]:
        """Wait, note the time and count."""
        start = time.perf_counter()
        time.sleep(self._seconds_per_row * len(rows))
        taken = time.perf_counter() - start  # without the time to write it down
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - it runs in a task
        name = f"{context.stageId():06d}-{context.partitionId():04d}.csv"
        with Path(self._folder, name).open("a", encoding="ascii") as file:
            file.write(f"{context.stageId()},{context.partitionId()},{taken}\n")
        return (buffer[0] + len(rows),)

    def merge(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add up."""
        return (one[0] + other[0],)

    def finish(self, key: tuple[Any, ...], buffer: tuple[Any, ...]) -> tuple[Any, ...]:
        """The count."""
        return (*key, *buffer)


def run(context: Context) -> Result:
    """Run all contenders over the same batches, in turn."""
    batches, ideal, rounds = (5, 0.5, 1) if context.quick else (8, 2.0, 7)
    rng = np.random.default_rng(context.seed)
    metrics: dict[str, float] = {}
    ratios: dict[str, Ratio] = {}
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with local_spark(_SLOTS) as spark:
        for case, (share, others) in _CASES.items():
            with scratch() as folder:
                rows = [
                    {"key": np.where(rng.random(_ROWS) * 100 < share, 0, keys), "value": keys}
                    for keys in rng.integers(1, others, (batches, _ROWS))
                ]
                write_batches(folder / "rows", rows, _SLOTS)
                outcomes: dict[str, list[dict[str, Any]]] = {name: [] for name in _CONTENDERS}
                for number in context.track(range(rounds), f"hot key, {case}"):
                    for name in rng.permutation(list(_CONTENDERS)).tolist():
                        at, served = folder / f"{name}-{number}", folder / f"{name}-{number}-served"
                        served.mkdir()
                        stream = read_batches(spark, folder / "rows", _SCHEMA, _SLOTS)
                        counter = ServedCount(str(served), ideal * _SLOTS / _ROWS)
                        with _dealt(math.ceil(share * _SLOTS / 100)) if name == "dealt" else nullcontext():
                            seconds = run_stateful(stream, counter, _OUTPUT, _PARTITIONS, at, **_CONTENDERS[name])
                        log = batch_log(str(at), spark=spark).rows
                        outcomes[name].append(_outcome(seconds, served, log))
            found[case] = outcomes
            for name, each in outcomes.items():
                label = "" if name == "combined" else f"{name}_"
                metrics[f"{label}fullest_{case}"] = median(one["fullest"] for one in each)
                metrics[f"{label}fullest_with_owners_{case}"] = median(one["fullest_with_owners"] for one in each)
            typical = {name: [median(one["seconds"]) for one in each] for name, each in outcomes.items()}
            ratios[f"speedup_{case}"] = paired(typical["whole"], typical["combined"])
            ratios[f"speedup_over_dealt_{case}"] = paired(typical["dealt"], typical["combined"])
            metrics[f"over_ideal_{case}"] = median(typical["combined"]) / ideal
    metrics |= {name: ratio.median for name, ratio in ratios.items()}
    spread = {name: ratio._asdict() for name, ratio in ratios.items()}
    samples = {"ideal_seconds": ideal, "slots": _SLOTS, "partitions": _PARTITIONS}
    return Result(metrics, {"outcomes": found, "ratios": spread, **samples})


@contextmanager
def _dealt(width: int) -> Iterator[None]:
    """Deal the rows of key 0 to shards, which tasks reduce, by an exchange of their own; the batch is persisted."""
    persisted: list[DataFrame] = []

    def dealing(rows: DataFrame, code: UserCode, batch_spec: BatchSpec) -> tuple[DataFrame, BatchSpec, None]:
        for before in persisted:
            before.unpersist()
        persisted[:] = [rows.persist()]
        assert code.aggregator is not None  # noqa: S101 - this tells the type checker
        hot = rows.where("key = 0").withColumn(FINGERPRINT, Key.of(rows, ["key"]).fingerprint)
        dealt = hot.repartitionById(width, next_shard(F.lit(width)))
        schema = StructType([*rows.schema.fields, StructField(PARTIAL_BUFFER, BinaryType())])
        spec = replace(batch_spec, combine=Combine("hot", keys=(fingerprint(0),)))
        reduce_rows = combiner(spec, code.aggregator, batch_spec.variables[STATE].schema)
        reduced = dealt.mapInArrow(reduce_rows, schema)
        others = rows.where("key <> 0").withColumn(PARTIAL_BUFFER, F.lit(None).cast("binary"))
        return others.union(reduced), batch_spec, None

    try:
        with mock.patch.object(jobs, "combined", dealing):
            yield
    finally:
        for rows in persisted:
            rows.unpersist()


def _outcome(seconds: list[float], served: Path, log: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the seconds of the settled batches, and the time of the fullest task over the mean.

    A batch may serve in two stages, one after the other: in tasks that reduce rows before the exchange that places
    them, and in the tasks that own the keys. The ratio is that of the sum of their fullest tasks to the sum of their
    means. With the owners, the seconds of their tasks in the batch log take the place of their service, so that
    merging, state and files count.

    Parameters
    ----------
    seconds
        Of each batch.
    served
        Files of the tasks.
    log
        Rows of the batch log; ``combined_rows`` are those that were reduced before the exchange.
    """
    stages: dict[int, dict[int, float]] = {}
    for path in served.iterdir():
        with path.open(encoding="ascii") as file:
            for stage, task, taken in csv.reader(file):
                tasks = stages.setdefault(int(stage), {})
                tasks[int(task)] = tasks.get(int(task), 0.0) + float(taken)
    waiting = [tasks for _, tasks in sorted(stages.items())][::-1]
    service: list[tuple[float, float]] = []  # fullest task and mean of each stage
    with_owners: list[tuple[float, float]] = []
    for number, row in enumerate(log):
        before = [_loads(waiting.pop(), _SLOTS)] if row["combined_rows"] else []
        owners = [_loads(waiting.pop(), _PARTITIONS)] if row["combined_rows"] < row["rows"] else []
        if number >= _WARM:
            service += [*before, *owners]
            owned = row["partition_seconds"]
            with_owners += [*before, (max(owned), sum(owned) / len(owned))]
    if waiting:
        raise CheckError(f"{len(waiting)} stages more than expected have served, so tasks were repeated; run it again")
    return {
        "seconds": seconds[_WARM:],
        "fullest": _over_mean(service),
        "fullest_with_owners": _over_mean(with_owners),
        "combine_scope": [row["combine_scope"] for row in log],
        "imbalance_rows": [row["imbalance_rows"] for row in log],
        "reasons": [row["reason"] for row in log],
    }


def _loads(served: dict[int, float], tasks: int) -> tuple[float, float]:
    """Return the service of the fullest task of a stage, and the mean of all tasks."""
    return max(served.values()), sum(served.values()) / tasks


def _over_mean(stages: list[tuple[float, float]]) -> float:
    return sum(fullest for fullest, _ in stages) / sum(mean for _, mean in stages)
