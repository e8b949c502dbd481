"""Tasks that count rows and keep sizes of state, without user code: the engine around them is the real one."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.adapt import Look
from equipoise.plan import Plan
from equipoise.spark.stream.batch_spec import BatchSpec, GroupLoad, Manifest
from equipoise.spark.stream.load_meter import LoadMeter
from equipoise.spark.stream.local_jobs import group_numbers
from equipoise.spark.stream.opening import open_query
from equipoise.spark.stream.options import StreamOptions
from equipoise.spark.stream.settings import QueryDefinition, Settings
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.commit import Commit
from equipoise.state.halves import COMMITS, OFFSETS
from equipoise.state.log import CommitLog
from equipoise.state.ownership import Layout
from equipoise.storage import Storage

Keys = NDArray[np.int64]
"""Fingerprints of the rows of a batch."""

_BYTES = 100  # of the state of a key
_ROW = 1e-5  # seconds that a row takes


class CountedTasks:
    """Runs the tasks of a batch by counting; a look sees a random sample, and costs no time.

    Parameters
    ----------
    settings
        The open query.
    seed
        Seed of the samples.
    """

    def __init__(self, settings: Settings, seed: int) -> None:
        self._settings = settings
        self._draw = np.random.default_rng(seed)
        self._known: Keys = np.empty(0, dtype=np.int64)

    def columns(self, rows: Keys) -> Sequence[str]:  # noqa: ARG002 - the name belongs to the protocol
        """Names of the columns."""
        return ("k",)

    def look(self, rows: Keys, wanted: int, *, is_dear: bool, late_ms: int) -> Look | str:  # noqa: ARG002 - as above
        """Look at a random sample, or at all rows of a smaller batch."""
        start = time.perf_counter()
        if len(rows) <= wanted:
            return Look.of(rows, seconds=time.perf_counter() - start)
        seen = self._draw.choice(rows, wanted, replace=False)
        return Look.of(seen, seconds=time.perf_counter() - start, chances=wanted / len(rows))

    def run(self, rows: Keys, plan: Plan, batch_spec: BatchSpec, *, late_ms: int) -> list[Manifest]:  # noqa: ARG002 - as above
        """Count the rows of every group and key of every partition."""
        keys, counts = np.unique(rows, return_counts=True)
        self._known = np.union1d(self._known, keys)
        state = np.bincount(group_numbers(plan, self._known), minlength=len(batch_spec.groups)) * _BYTES
        groups = group_numbers(plan, keys)
        owners = Layout(plan).owners
        manifests = []
        for partition in range(plan.partitions):
            manifest, meter = Manifest(partition=partition), LoadMeter(len(batch_spec.groups), plan.tail_groups)
            mine = owners[groups] == partition
            meter.add(groups[mine], keys[mine], counts[mine], counts[mine] * _ROW)
            for number in np.flatnonzero(owners == partition).tolist():
                load: GroupLoad = meter.load(number, int(state[number]))
                manifest.loads[batch_spec.groups[number]] = load
            meter.report(manifest)
            manifest.seconds = float(counts[mine].sum()) * _ROW
            manifests.append(manifest)
        return manifests

    def release(self) -> None:
        """Do nothing: a look keeps nothing."""

    def read(self, rows: Keys) -> None:
        """Do nothing: there is no event time."""

    def outputs(self, rows: Keys, files: Sequence[str]) -> Keys:  # noqa: ARG002 - the name belongs to the protocol
        """No rows."""
        return rows[:0]


def run_counted(batches: Sequence[Keys], options: StreamOptions, seed: int = 1) -> Iterator[tuple[Commit, Plan]]:
    """Run batches of fingerprints through the engine; yield the commit of each and the plan that placed it."""
    with tempfile.TemporaryDirectory() as folder:
        storage, clock = Storage(folder), iter(range(1, 10**9))
        code: Any = SimpleNamespace(
            state_arrow=None,
            variables={},
            removed=set(),
            uncombined="no tasks",
            buffer_cost=1.0,
            hot_only=False,
        )
        query = QueryDefinition(
            key=("k",), key_schema={}, code=code, time_mode="none", output_schema=None, output_arrow=None
        )
        opened = open_query(
            storage,
            query,
            replace(options, retain=2),
            lambda _rows, _batch: None,
            lambda settings: CountedTasks(settings, seed),
            shuffle_partitions=options.numPartitions or 1,
            clock=lambda: next(clock),
        )
        for number, rows in enumerate(batches):
            storage.write(f"{OFFSETS}/{number}", b"rows of batch %d" % number)
            opened.engine(rows, number)
            storage.write(f"{COMMITS}/{number}", b"done")
            commit = CommitLog(storage).read(number + 1)
            yield commit, Checkpoint(storage).plan(commit.plan)
        opened.settings.epoch.release()
