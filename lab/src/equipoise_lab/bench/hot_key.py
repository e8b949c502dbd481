"""An ``Aggregator`` on a stream with one hot key, on 8 emulated slots: reduced in the map tasks against whole keys."""

import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark import TaskContext

from equipoise.spark import Aggregator, batch_log
from equipoise_lab.bench.harness import Context, Result, median
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import read_batches, run_stateful, scratch, write_batches

_SLOTS, _PARTITIONS, _KEYS, _ROWS = 8, 16, 300, 40_000
_WARM = 2  # batches until plans and decisions have settled
_SCHEMA, _OUTPUT = "key long, value long", "key long, n long"
_CONTENDERS: dict[str, dict[str, Any]] = {"combined": {}, "whole": {"combine": "never"}}


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
    """Run both over the same batches, with a key of 30 % and of 60 % of the rows."""
    batches, ideal, rounds = (5, 0.5, 1) if context.quick else (8, 2.0, 3)
    rng = np.random.default_rng(context.seed)
    metrics: dict[str, float] = {}
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with local_spark(_SLOTS) as spark:
        for share in (30, 60):
            with scratch() as folder:
                rows = [
                    {"key": np.where(rng.random(_ROWS) * 100 < share, 0, keys), "value": keys}
                    for keys in rng.integers(1, _KEYS, (batches, _ROWS))
                ]
                write_batches(folder / "rows", rows, _SLOTS)
                outcomes: dict[str, list[dict[str, Any]]] = {name: [] for name in _CONTENDERS}
                for number in context.track(range(rounds), f"hot key of {share} %"):
                    for name, options in _CONTENDERS.items():
                        at, served = folder / f"{name}-{number}", folder / f"{name}-{number}-served"
                        served.mkdir()
                        stream = read_batches(spark, folder / "rows", _SCHEMA, _SLOTS)
                        counter = ServedCount(str(served), ideal * _SLOTS / _ROWS)
                        seconds = run_stateful(stream, counter, _OUTPUT, _PARTITIONS, at, **options)
                        outcomes[name].append(_outcome(seconds, served, batch_log(str(at), spark=spark).rows))
            found[f"p{share}"] = outcomes
            for name in _CONTENDERS:
                fullest = median(each["fullest"] for each in outcomes[name])
                metrics[f"fullest_p{share}" if name == "combined" else f"{name}_fullest_p{share}"] = fullest
            typical = {name: median(median(each["seconds"]) for each in outcomes[name]) for name in _CONTENDERS}
            metrics[f"speedup_p{share}"] = typical["whole"] / typical["combined"]
            metrics[f"over_ideal_p{share}"] = typical["combined"] / ideal
    return Result(metrics, {"outcomes": found, "ideal_seconds": ideal, "slots": _SLOTS, "partitions": _PARTITIONS})


def _outcome(seconds: list[float], served: Path, log: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the seconds of the settled batches, and the service time of the fullest task over the mean.

    A batch may serve in several stages, one after the other: then it is the sum of their fullest tasks over the sum of
    their means. The tasks that own keys are as many as there are partitions; other stages have the tasks that served.
    """
    stages: dict[int, dict[int, float]] = {}
    for path in served.iterdir():
        with path.open(encoding="ascii") as file:
            for stage, task, taken in csv.reader(file):
                tasks = stages.setdefault(int(stage), {})
                tasks[int(task)] = tasks.get(int(task), 0.0) + float(taken)
    settled = [np.array(list(tasks.values())) for _, tasks in sorted(stages.items())]
    settled = settled[len(settled) * _WARM // len(seconds) :]
    fullest = sum(each.max() for each in settled)
    mean = sum(each.sum() / (_SLOTS if len(each) <= _SLOTS else _PARTITIONS) for each in settled)
    return {
        "seconds": seconds[_WARM:],
        "fullest": float(fullest / mean),
        "imbalance_rows": [row["imbalance_rows"] for row in log],
        "reasons": [row["reason"] for row in log],
    }
