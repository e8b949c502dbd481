"""CPU of a per-key processor in its tasks, in pandas and in Row form, over the same code with a dict for its state."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import equipoise.spark.stream.task as tasks
from equipoise.spark.stream.local import LocalQuery
from equipoise_lab.bench.contenders.streams import SCHEMA, RowTotals, Totals
from equipoise_lab.bench.harness import Context, Result, median, paired
from equipoise_lab.bench.stream import TOTALS

_WARM, _PARTITIONS = 2, 4
_run_partition = tasks.run_partition
_spent: list[float] = []  # CPU seconds of the tasks that have run

_FORMS: dict[Literal["pandas", "rows"], Callable[[], StatefulProcessor]] = {"pandas": Totals, "rows": RowTotals}


def run(context: Context) -> Result:
    """Run both forms over the same batches, without Spark, and the floor of each."""
    rows, keys, batches = (40_000, 3_400, 3) if context.quick else (200_000, 17_000, 9)
    rng = np.random.default_rng(context.seed)
    data = [{"key": rng.integers(0, keys, rows), "value": rng.integers(0, 100, rows)} for _ in range(_WARM + batches)]
    metrics: dict[str, float] = {}
    samples: dict[str, object] = {"rows": rows, "keys": keys}
    for form, make in context.track(_FORMS.items(), "processors"):
        ours, floor = _ours(form, make(), data), _floor(form, make(), data)
        ratio = paired(floor, ours)  # of one batch each
        metrics[f"floor_over_{form}"] = ratio.median
        metrics[f"{form}_microseconds_per_key"] = median(ours) / keys * 1e6
        metrics[f"{form}_floor_microseconds_per_key"] = median(floor) / keys * 1e6
        samples[form] = {"ours": ours, "floor": floor, "ratio": ratio._asdict()}
    return Result(metrics, samples)


def timed_partition(*given: Any) -> Any:
    """Run a task and add its CPU seconds; of this module, as tasks are pickled."""
    start = time.process_time()
    try:
        return _run_partition(*given)
    finally:
        _spent.append(time.process_time() - start)


def _ours(form: Literal["pandas", "rows"], processor: StatefulProcessor, data: list[dict[str, Any]]) -> list[float]:
    """Return the CPU seconds of the tasks of each batch."""
    found = []
    with (
        patch.object(tasks, "run_partition", timed_partition),
        LocalQuery(processor, "key", SCHEMA, TOTALS, numPartitions=_PARTITIONS, form=form) as query,
    ):
        for batch in data:
            _spent.clear()
            query.process_arrow(pa.table(batch))
            found.append(sum(_spent))
    return found[_WARM:]


def _floor(form: Literal["pandas", "rows"], processor: StatefulProcessor, data: list[dict[str, Any]]) -> list[float]:
    """Return the CPU seconds of the user's code over sorted rows: cut by key, results kept, state in a dict."""
    state = _DictState()
    processor.init(state)  # type: ignore[arg-type]  # the methods that it uses
    found = []
    for batch in data:
        frame = pd.DataFrame(batch).sort_values("key", ignore_index=True)
        keys, starts = np.unique(frame["key"].to_numpy(), return_index=True)
        bounds = np.append(starts, len(frame)).tolist()
        made, columns = Row(*frame.columns), [frame[name].tolist() for name in frame.columns]
        start, outputs = time.process_time(), []
        for place, key in enumerate(keys.tolist()):
            state.key, first, last = key, bounds[place], bounds[place + 1]
            part: Iterator[Any] = iter((frame.iloc[first:last],))
            if form == "rows":
                part = (made(*values) for values in zip(*[column[first:last] for column in columns], strict=True))
            outputs += list(processor.handleInputRows((key,), part, None))  # type: ignore[arg-type]  # no timers
        found.append(time.process_time() - start)
    return found[_WARM:]


class _DictState:
    """A handle and its one value state, kept in a dict."""

    def __init__(self) -> None:
        self.key = 0
        self._values: dict[int, Any] = {}

    def getValueState(self, name: str, schema: str) -> "_DictState":  # noqa: N802, ARG002 - Spark's own names
        return self

    def get(self) -> Any:
        return self._values.get(self.key)

    def update(self, value: Any) -> None:
        self._values[self.key] = value
