"""The tasks of a batch: real key groups, handover, changes and snapshots; simulated rows, user code and caches.

The user's code keeps the numbers of all rows of a key, in order, so a row that is lost or counted twice shows.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from equipoise.adapt import Look
from equipoise.errors import EquipoiseError
from equipoise.failpoints import failpoint
from equipoise.names import unique_name
from equipoise.plan import Plan
from equipoise.spark.stream.batch_spec import BatchSpec, Manifest
from equipoise.spark.stream.delivery import Delivery
from equipoise.spark.stream.load_meter import LoadMeter
from equipoise.spark.stream.local_jobs import group_numbers
from equipoise.spark.stream.outputs import FOLDER
from equipoise.spark.stream.owned_groups import OwnedGroups
from equipoise.state.cached_entries import Record
from equipoise.state.commit import OutputFile
from equipoise.state.entries import entry_key, entry_prefix, split_value, with_expiry
from equipoise.state.ownership import Layout
from equipoise.storage import Storage
from equipoise_lab.bench.protocol.actors import Actor, Actors
from equipoise_lab.bench.protocol.spark_half import KEYS, Rows, fingerprint_of, later_key_of

EXECUTORS = 2
_SECONDS_A_ROW = 0.001


Pairs = list[tuple[str, int]]
"""Key and number of each row of a batch."""

Tried = dict[tuple[str, int], set[tuple[object, ...]]]
"""Routings of the attempts, by the location of the log and the version."""


class SimulatedJobs:
    """Runs the tasks of a batch, some twice, and leaves some behind that end late.

    Parameters
    ----------
    storage
        The checkpoint.
    actors
        Where tasks that outlive their driver run.
    draw
        Draws executors, and which attempts count.
    tried
        Plans under which the next version of each log was run so far; all drivers share it.
    """

    def __init__(self, storage: Storage, actors: Actors, draw: random.Random, tried: "Tried") -> None:
        self._storage, self._actors, self._draw, self._tried = storage, actors, draw, tried
        self._caches = [SimulatedCache() for _ in range(EXECUTORS)]

    def columns(self, rows: "Rows | SimulatedOutput") -> Sequence[str]:  # noqa: ARG002 - the name belongs to the protocol
        """Names of the columns."""
        return ("k",)

    def run(self, rows: "Rows | SimulatedOutput", plan: Plan, batch_spec: BatchSpec, *, late_ms: int) -> list[Manifest]:  # noqa: ARG002 - as above
        """Run a task for every partition."""
        pairs = rows.pairs()
        plans = self._tried.setdefault((self._storage.location, batch_spec.version), set())
        routing = (plan.partitions, tuple(plan.tail.tolist()), tuple(sorted(plan.isolated.items())))
        if plans - {routing}:
            self._actors.count("batch ran again under another plan")
        plans.add(routing)
        return [self._task(pairs, plan, batch_spec, partition) for partition in range(plan.partitions)]

    def look(self, rows: "Rows | SimulatedOutput", wanted: int, *, is_dear: bool, late_ms: int) -> Look | str:  # noqa: ARG002 - as above
        """Look at the batch, or at random keys: no result may depend on what a look finds."""
        drawn = self._draw.random()
        if drawn < 0.2:
            self._actors.count("look failed")
            raise OSError("simulated failure of a look")
        if drawn < 0.3:
            self._actors.count("look refused")
            return "simulated refusal"
        keys = [key for key, _ in rows.pairs()] if drawn < 0.6 else self._draw.choices(KEYS, k=self._draw.randint(0, 9))
        self._actors.count("look" if drawn < 0.6 else "look at random keys")
        return Look.of([fingerprint_of(key) for key in keys], seconds=0.001)

    def release(self) -> None:
        """Do nothing: a look keeps nothing."""

    def read(self, rows: "Rows | SimulatedOutput") -> None:
        """Do nothing: the simulation has no event time."""

    def outputs(self, rows: "Rows | SimulatedOutput", files: Sequence[str]) -> "SimulatedOutput":
        """The output files, for a sink that reads them."""
        return SimulatedOutput(self._storage, files, rows.sparkSession)

    def _task(self, rows: "Pairs", plan: Plan, batch_spec: BatchSpec, partition: int) -> Manifest:
        repeats = 2 if self._draw.random() < 0.1 else 1
        attempts = [self._attempt(rows, plan, batch_spec, partition)() for _ in range(repeats)]
        if len(attempts) == 2:
            self._actors.count("task runs twice")
        if self._draw.random() < 0.04:
            self._actors.count("task ends late")
            late = self._attempt(rows, plan, batch_spec, partition)
            actor = Actor(f"task {batch_spec.batch}.{partition}", lambda: _ignoring_failures(late))
            actor.paused_until = self._actors.step + self._draw.choice((10, 200, 600))
            self._actors.spawn(actor)
        return self._draw.choice(attempts)

    def _attempt(self, rows: "Pairs", plan: Plan, batch_spec: BatchSpec, partition: int) -> Callable[[], Manifest]:
        cache: Any = self._draw.choice(self._caches)
        return lambda: run_task(rows, plan, batch_spec, partition, self._storage, cache)


class SimulatedOutput:
    """Stand-in for the DataFrame of a sink."""

    def __init__(self, storage: Storage, files: Sequence[str], session: object) -> None:
        self._storage, self._files, self.sparkSession = storage, files, session

    def collect(self) -> list[Any]:
        """All rows."""
        read = [self._storage.read(file.removeprefix(self._storage.at(""))) for file in self._files]
        return sorted(row for data in read for row in json.loads(data))

    def pairs(self) -> "Pairs":
        """Key and number of each row, as the second operator sees them."""
        return sorted((later_key_of(last), last) for _batch, _key, _count, last in self.collect())


class RandomTransformation:
    """Writes the output of a batch with other bytes, in other files, each time; the stand-in for user code.

    Parameters
    ----------
    draw
        Draws the number of files.
    """

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def __call__(self, delivery: Delivery) -> list[OutputFile]:
        """Write the rows of a batch, with a name that is new each time in every row."""
        rows = [[*row, unique_name()] for row in delivery.rows().collect()]
        cut = self._draw.randint(0, len(rows))
        return [_write(delivery.storage, delivery.batch + 1, part) for part in (rows[:cut], rows[cut:]) if part]


def _write(storage: Storage, version: int, rows: list[list[Any]]) -> OutputFile:
    path = f"{FOLDER}/{version:020d}/{unique_name()}.parquet"
    with storage.writing(path) as file:
        file.write(json.dumps(rows).encode())
    return OutputFile(path, file.size, file.sha256, len(rows))


def _ignoring_failures(task: Callable[[], object]) -> None:
    """Run a task whose driver may be gone, with the files that it would read: it may fail, loudly."""
    try:
        task()
    except (EquipoiseError, OSError):
        return


def run_task(rows: Pairs, plan: Plan, batch_spec: BatchSpec, partition: int, storage: Storage, cache: Any) -> Manifest:
    """One attempt of one task."""
    failpoint("task.start")
    manifest = Manifest(partition=partition)
    meter = LoadMeter(len(batch_spec.groups), plan.tail_groups)
    outputs: list[list[Any]] = []
    with OwnedGroups(batch_spec, partition, storage, cache, meter, lambda _view: None) as groups:
        for number, key, numbers in _runs(rows, plan, partition):
            groups.finish_before(number, manifest)
            view, where = groups.view(number), _entry(key)
            known = view.get(where)
            seen = (json.loads(split_value(known)[1]) if known else []) + numbers
            view.put(where, with_expiry(json.dumps(seen).encode(), None))
            outputs.append([batch_spec.batch, key, len(seen), seen[-1]])
            count = np.array([len(numbers)])
            meter.add(np.array([number]), np.array([fingerprint_of(key)]), count, count * _SECONDS_A_ROW)
        groups.finish(manifest)
    if outputs:
        manifest.outputs = [_write(storage, batch_spec.version, outputs)]
    meter.report(manifest)
    failpoint("task.end")
    return manifest


def _runs(rows: Pairs, plan: Plan, partition: int) -> list[tuple[int, str, list[int]]]:
    """Key group, key and row numbers of each key of a partition, in the order of the key groups."""
    by_key: dict[str, list[int]] = {}
    for key, number in rows:
        by_key.setdefault(key, []).append(number)
    if not by_key:
        return []
    groups = group_numbers(plan, np.array([fingerprint_of(key) for key in by_key], dtype=np.int64))
    owners = Layout(plan).owners[groups]
    runs = zip(groups.tolist(), by_key, by_key.values(), owners.tolist(), strict=True)
    return sorted((group, key, numbers) for group, key, numbers, owner in runs if owner == partition)


@cache
def _entry(key: str) -> bytes:
    return entry_key(entry_prefix(fingerprint_of(key), key.encode()), 1)


class SimulatedCache:
    """The cache of one executor, in memory."""

    def __init__(self) -> None:
        self._groups: dict[str, SimulatedGroup] = {}

    def group(self, name: str) -> "SimulatedGroup":
        """The copy of a group."""
        return self._groups.setdefault(name, SimulatedGroup(name))

    def forget(self, name: str) -> None:
        """Delete the copy of a group."""
        self._groups.pop(name, None)


class SimulatedGroup:
    """The copy of one key group; it changes in one step, as a transaction of LMDB does."""

    tag: int | None = None
    """Entries are kept one by one, not in columns."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._reader = MemoryReader(-1, {})
        self._spent = 0

    @property
    def record(self) -> Record:
        """Version of the copy, and bytes that were read past it."""
        return Record(self._reader.version, spent=self._spent)

    def reserve(self, size: int) -> None:
        """Do nothing: memory grows by itself."""

    def spend(self, size: int) -> None:
        """Add bytes that were read past the copy."""
        self._spent += size

    @contextmanager
    def read(self) -> Iterator["MemoryReader"]:
        """The entries at the present version."""
        yield self._reader

    def replace(self, version: int, entries: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Replace all entries."""
        self._reader = MemoryReader(version, {key: value for key, value in entries if value is not None})
        return version

    def apply(self, changes: Sequence[tuple[int, bool, Iterable[tuple[bytes, bytes | None]]]], *, expected: int) -> int:
        """Apply changes that the copy lacks, unless it is older than expected."""
        is_reset = bool(changes) and changes[0][1]
        if self._reader.version >= expected or is_reset:
            version, entries = self._reader.version, dict(self._reader.content)
            for later, reset, changed in changes:
                if later <= version:
                    continue
                version = later
                if reset:
                    entries.clear()
                for key, value in changed:
                    if value is None:
                        entries.pop(key, None)
                    else:
                        entries[key] = value
            self._reader = MemoryReader(version, entries)
        return self._reader.version


class MemoryReader:
    """The entries of a key group at one version."""

    def __init__(self, version: int, content: dict[bytes, bytes]) -> None:
        self.version, self.content = version, content

    @property
    def size_bytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(len(key) + len(value) for key, value in self.content.items())

    def get(self, key: bytes) -> bytes | None:
        """Value of a key."""
        return self.content.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values of keys."""
        return [self.content.get(key) for key in keys]

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries by key."""
        return ((key, self.content[key]) for key in sorted(self.content) if key.startswith(prefix))

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries."""
        return self.scan(b"")
