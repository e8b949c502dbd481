"""Runs a schedule: drivers that start, pause, die and take over, compactions, and an operator."""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from equipoise import failpoints, names
from equipoise.adapt import Policy, controller
from equipoise.errors import DamagedError, FencedError, LogBrokenError, StorageError
from equipoise.plan import Plan, Planner
from equipoise.plan.planner import Problem, Proposal
from equipoise.spark.stream import engine as engine_module
from equipoise.spark.stream import owned_groups, planning, sinks
from equipoise.spark.stream.delivery import Sink
from equipoise.spark.stream.engine import Engine
from equipoise.spark.stream.opening import Stage, open_query, release_all
from equipoise.spark.stream.options import StreamOptions
from equipoise.spark.stream.settings import QueryDefinition, Settings
from equipoise.spark.stream.transformed_files import TransformedFiles
from equipoise.state import catch_up, fencing, group_table
from equipoise.state.checkpoint import Checkpoint, Overrides
from equipoise.state.compaction import compact
from equipoise.state.halves import SparkHalf
from equipoise.state.log import CommitLog
from equipoise.state.stages import stage_folder
from equipoise.storage import Storage
from equipoise_lab.bench.protocol.actors import Actor, Actors, Stopped
from equipoise_lab.bench.protocol.checker import (
    ViolationError,
    check_batch,
    check_outputs,
    check_state,
    expected_outputs,
    later_outputs,
)
from equipoise_lab.bench.protocol.lost_half import lose_half
from equipoise_lab.bench.protocol.schedule import Schedule
from equipoise_lab.bench.protocol.spark_half import KEYS, ConcurrentUpdateError, Rows, SimulatedSpark, fingerprint_of
from equipoise_lab.bench.protocol.store import SimulatedStore
from equipoise_lab.bench.protocol.tasks import RandomTransformation, SimulatedJobs, SimulatedOutput, Tried

CHECKPOINT, SINK = "checkpoint", "sink"
TAIL_GROUPS = 4
RETAIN = 2
_EXTRA = 2  # batches that run undisturbed at the end
_MOST_DRIVERS = 60


@dataclass(frozen=True)
class Outcome:
    """Outcome of a schedule: the violation, if any, how often each path was taken, the trace, and its digest."""

    schedule: Schedule
    violation: str | None
    counts: Counter[str]
    trace: list[str]
    digest: str


class Restless(Planner):
    """Moves tail groups and isolates other keys in every plan; other loads give another plan."""

    name = "restless"

    def propose(self, problem: Problem) -> Proposal:
        """A plan that depends on the version before and on the loads, so a batch that is looked at again may differ."""
        seen = problem.histogram
        turn = problem.previous.version + 1 + int(seen.fingerprints.sum() % 5) + round(100 * float(seen.shares.sum()))
        tail = (np.arange(problem.previous.tail_groups) + turn) % problem.partitions
        chosen = [KEYS[(turn * 3 + step) % len(KEYS)] for step in range(turn % 3)]
        isolated = {fingerprint_of(key): (turn + place) % problem.partitions for place, key in enumerate(chosen)}
        return Proposal(tail.astype(np.int32), isolated, f"turn {turn}")


class World:
    """One run of a schedule.

    Parameters
    ----------
    schedule
        What happens.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.actors = Actors(schedule, self._on_fault)
        self.store = SimulatedStore(schedule.model, self.actors, schedule.seed)
        self.storage = Storage(CHECKPOINT, store=self.store)
        self._target = Storage(SINK, store=self.store)
        self._draw = random.Random(f"world {schedule.seed}")  # noqa: S311 - the same seed must give the same run
        self._time_ms = 1_000_000
        self._drivers = 0
        self._upto = schedule.batches
        self._deliveries: dict[int, list[list[Any]]] = {}
        self._partitions: set[int] = set()
        self._copy: tuple[int, dict[str, bytes]] | None = None
        self._swapped: tuple[str, bytes] | None = None
        self._unswapped: dict[str, int] = {}  # plans that were swapped once, with the last driver that may have seen it
        self._lost: dict[str, bytes] | None = None  # the checkpoint before one of its halves was lost
        self._tried: Tried = {}

    def run(self) -> None:
        """Run until all batches are done and all actors have ended, then compare."""
        for upto in (self.schedule.batches, self.schedule.batches + _EXTRA):
            self._upto = upto
            while self._is_short():
                self._run_batches()
                self.actors.run_until_idle(wake=True)
                self._raise_failure()
        self._check()

    def clock(self) -> int:
        """Milliseconds; every look takes one."""
        self._time_ms += 1
        return self._time_ms

    def _run_batches(self) -> None:
        while self._is_short():
            if not self.actors.ready():
                self._start_somebody()
            self.actors.run_until_idle()
            self._raise_failure()

    def _is_short(self) -> bool:
        return SparkHalf(self.storage).last_finished() + 1 < self._upto

    def _raise_failure(self) -> None:
        if self.actors.failure is not None:
            raise self.actors.failure

    def _start_somebody(self) -> None:
        self._drivers += 1
        number = self._drivers
        if number > _MOST_DRIVERS:
            raise ViolationError(f"after {_MOST_DRIVERS} starts the batches are not done")
        if self._draw.random() < 0.15 and self.storage.exists("query"):
            self.actors.spawn(Actor(f"compaction {number}", lambda: self._compact(number)))
        else:
            self.actors.spawn(Actor(f"driver {number}", lambda: self._drive(number)))

    def _compact(self, number: int) -> None:
        try:
            folder = stage_folder(self.storage, self._draw.randint(1, self.schedule.stages))
            done = compact(folder if folder.exists("query") else self.storage, take_over=True)
            self.actors.count("compaction folds" if done.folded else "compaction finds nothing to fold")
        except (StorageError, FencedError, OSError) as error:
            self._end(error, number)

    def _drive(self, number: int) -> None:
        """One driver, from its start to its end."""
        assert self.actors.current is not None  # noqa: S101 - this tells the type checker
        actor, draw = self.actors.current, random.Random(f"driver {self.schedule.seed} {number}")  # noqa: S311 - as above
        try:
            stages: list[Stage[Any]] = [
                Stage(_query(), self._options(), lambda settings: self._jobs(settings, draw))
                for _ in range(self.schedule.stages)
            ]
            opened = open_query(
                self.storage,
                *(stages[0].query, stages[0].options, self._sink(), stages[0].make_jobs),
                shuffle_partitions=self.schedule.partitions,
                clock=self.clock,
                seconds=lambda: self.clock() / 1000,
                later=stages[1:],
            )
            engine = opened.engine
            session = _Session(self)
            spark = SimulatedSpark(self.store, CHECKPOINT, self.clock, draw)
            try:
                actor.may_stop = True
                spark.run(lambda rows, batch: self._batch(engine, rows, batch), session, self._upto, self._delivered)
                actor.may_stop = False
            except Stopped:
                actor.may_stop = False
                self.actors.count("stopped")
                if engine.deliver_last(Rows(range(0), session)):
                    self.actors.count("delivered on stop")
            release_all([opened.settings.epoch, *opened.later])
        except (StorageError, FencedError, ConcurrentUpdateError, DamagedError, LogBrokenError, OSError) as error:
            self._end(error, number)

    def _batch(self, engine: Engine[Any], rows: Rows, batch: int) -> None:
        with self._looking():
            is_replay = CommitLog(self.storage).head() == batch + 1
            present = set(self.store.copied(SINK))
        engine(rows, batch)
        if is_replay:
            self.actors.count("batch delivered again")
            if any(f"{batch:020d}" in path for path in present):
                self.actors.count("sink finds its file there")
        if self._draw.random() < 0.4:
            Checkpoint(self.storage).override(Overrides(partitions=self._draw.randint(1, 3)))

    def _end(self, error: Exception, number: int) -> None:
        """A driver ends loudly; only some reasons are good ones."""
        self.actors.note(f"ends: {type(error).__name__} {error}")
        if isinstance(error, DamagedError):
            if self._swapped is not None:
                self._unswap()
            elif not any(path in str(error) and number <= last for path, last in self._unswapped.items()):
                raise error  # else the driver paused after it had read the plan, which has been restored since
            self.actors.count("swapped plan refused")
        if isinstance(error, LogBrokenError):
            if self._lost is None:
                raise error
            self.actors.count("wrong half refused")
            self._regain()
        self.actors.count(f"ends with {type(error).__name__}")

    def _options(self) -> StreamOptions:
        return StreamOptions(
            numPartitions=self.schedule.partitions,
            policy=Policy(planner=Restless(), load="rows"),
            tailGroups=TAIL_GROUPS,
            retain=RETAIN,
            look="always",
        )

    def _jobs(self, settings: Settings, draw: random.Random) -> SimulatedJobs:
        return SimulatedJobs(settings.epoch.storage, self.actors, draw, self._tried)

    def _sink(self) -> Sink:
        if self.schedule.sink == "parquet":
            return sinks.ParquetFiles(self._target)
        if self.schedule.sink == "table":
            table = sinks.ParquetTable("t", None)
            table._target = self._target  # noqa: SLF001 - the catalog is simulated
            return table
        if self.schedule.sink == "transformed":
            return TransformedFiles(sinks.ParquetFiles(self._target), RandomTransformation(self._draw))
        return self._take

    def _take(self, rows: SimulatedOutput, batch: int) -> None:
        """A user's function as sink."""
        collected = rows.collect()
        self.actors.take_step(f"deliver {batch}")
        self._deliveries.setdefault(batch, []).append(collected)

    def _delivered(self, batch: int) -> None:
        """The engine says that a batch is delivered: it must have arrived."""
        with self._looking():
            *_, (_, expected) = self._expected(batch)
            check_batch(self.schedule.sink, batch, self._arrived().get(batch, []), expected)
            last = SparkHalf(self.storage).last_finished()
        if self._draw.random() < 0.3 and last == batch - 1:  # else this driver was taken over, and the others went on
            self._copy = (batch, self.store.copied(CHECKPOINT))

    def _arrived(self) -> dict[int, list[Any]]:
        """Rows that a reader of the sink sees, by batch."""
        if self.schedule.sink == "function":
            for batch, contents in self._deliveries.items():
                if any(content != contents[0] for content in contents):
                    raise ViolationError(f"batch {batch} was delivered with different rows: {contents}")
            return {batch: contents[0] for batch, contents in self._deliveries.items()}
        found: dict[int, list[Any]] = {}
        for data in self.store.copied(SINK).values():
            rows = [row[:4] for row in json.loads(data)]  # without what a transformation adds
            if self.schedule.sink != "table" or rows[0][0] in self._partitions:
                found.setdefault(rows[0][0], []).extend(rows)
        return found

    def _check(self) -> None:
        if self._swapped is not None:  # no query has started since: a reader of the plan must refuse it
            self._require_refused()
        if self._lost is not None:
            self._regain()
        last = SparkHalf(self.storage).last_finished()
        expected = self._expected(last)
        for number, (state, _) in enumerate(expected, 1):
            folder = stage_folder(self.storage, number)
            head = CommitLog(folder).head()
            if head != last + 1:
                raise ViolationError(f"Spark has finished batch {last}, and log {number} ends with version {head}")
            check_state(folder, head, state)
            epochs = folder.names("epochs")
            if len(epochs) > 6:
                raise ViolationError(f"claims are not cleaned away: {epochs}")
        check_outputs(self.schedule.sink, self._arrived(), expected[-1][1])

    def _expected(self, last: int) -> list[tuple[dict[str, list[int]], dict[int, list[Any]]]]:
        """State and outputs of each operator, after the batches up to ``last``: the model."""
        found = [expected_outputs(self.storage, last)]
        while len(found) < self.schedule.stages:
            found.append(later_outputs(found[-1][1]))
        return found

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Look at the store without taking steps."""
        actor, self.actors.current = self.actors.current, None
        try:
            yield
        finally:
            self.actors.current = actor

    def _on_fault(self, kind: str, span: int) -> None:
        """A fault that spans more than one operation."""
        if kind == "slow":
            self._time_ms += 60_000 * span
        elif kind == "power":
            self.actors.kill(self.actors.live() if self.store.abilities.sync else self.actors.ready())
            if self.store.abilities.sync and self.store.lose_power():
                self.actors.count("power cut loses files")
        elif kind == "restore" and self._copy is not None:
            self.actors.kill(self.actors.live())
            self._restore(*self._copy)
        elif kind == "swap":
            self._swap()
        elif kind == "lose half":
            self._lose_half()

    def _restore(self, batch: int, files: dict[str, bytes]) -> None:
        """Restore a copy, and move away later files of the sink, as documented."""
        self.actors.count("copy restored")
        self._tried.clear()
        if self._swapped is not None:
            self._unswapped[self._swapped[0]] = self._drivers
        self._swapped = self._lost = None
        self.store.restore(CHECKPOINT, files)
        self._deliveries = {each: rows for each, rows in self._deliveries.items() if each <= batch}
        self._partitions = {each for each in self._partitions if each <= batch}
        kept = {path: data for path, data in self.store.copied(SINK).items() if json.loads(data)[0][0] <= batch}
        self.store.restore(SINK, kept)

    def _swap(self) -> None:
        """Replace the plan in force by another one, and stop all drivers."""
        with self._looking():
            log = CommitLog(self.storage)
            head = log.head()
            plans = self.storage.names("plans")
            if head < 0 or self._swapped is not None or self._lost is not None:
                return
            used = f"{log.read(head).plan}.json"
            others = [name for name in plans if name != used]
            if not others or used not in plans:
                return
            self._swapped = (f"plans/{used}", self.storage.read(f"plans/{used}"))
            self.storage.write(f"plans/{used}", self.storage.read(f"plans/{self._draw.choice(others)}"))
        self.actors.count("plan swapped")
        self.actors.kill(self.actors.live())

    def _require_refused(self) -> None:
        assert self._swapped is not None  # noqa: S101 - this tells the type checker
        name = self._swapped[0].removeprefix("plans/").removesuffix(".json")
        try:
            Checkpoint(self.storage).plan(name)
        except DamagedError:
            self._unswap()
        else:
            raise ViolationError(f"another plan under the name {name} is accepted")

    def _unswap(self) -> None:
        """Restore the plan from a copy, as the error says."""
        assert self._swapped is not None  # noqa: S101 - this tells the type checker
        with self._looking():
            self.storage.write(*self._swapped)
        self._unswapped[self._swapped[0]] = self._drivers
        self._swapped = None

    def _lose_half(self) -> None:
        """Combine halves of different points in time, and stop all drivers."""
        if self._swapped is not None or self._lost is not None:
            return
        with self._looking():
            head, now = CommitLog(self.storage).head(), self.store.copied(CHECKPOINT)
        batch, copy = self._copy or (-2, {})  # no copy has the version -1, as an empty log has
        lost = lose_half(_below(now), head, _below(copy), batch + 1, self._draw)
        if lost is not None:
            self.actors.count(f"half lost: {lost[0]}")
            self.actors.kill(self.actors.live())
            self._lost = now
            self.store.restore(CHECKPOINT, {f"{CHECKPOINT}/{path}": data for path, data in lost[1].items()})

    def _regain(self) -> None:
        """Stop all other drivers, and restore the whole checkpoint from one copy, as the error says."""
        assert self._lost is not None  # noqa: S101 - this tells the type checker
        self.actors.kill([actor for actor in self.actors.live() if actor is not self.actors.current])
        self.store.restore(CHECKPOINT, self._lost)
        self._lost = None


class _Session:
    """The catalog, as far as the sink ``table`` speaks to it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def sql(self, text: str) -> None:
        """Add a partition."""
        self._world.actors.take_step(text)
        self._world._partitions.add(int(text.rpartition("=")[2].rstrip(" )")))  # noqa: SLF001 - a part of it


def run(schedule: Schedule) -> Outcome:
    """Run a schedule; a violation is part of the outcome."""
    world = World(schedule)
    violation = None
    with _patched(world):
        try:
            world.run()
        except Exception as error:  # noqa: BLE001 - any failure of the code under test is a violation
            violation = f"{type(error).__name__}: {error}"
        finally:
            world.actors.end()
    trace = world.actors.trace
    contents = sorted(world.store.copied(CHECKPOINT).items())
    digest = hashlib.sha256("\n".join(trace).encode())
    for path, data in contents:
        digest.update(f"{path} {hashlib.sha256(data).hexdigest()}\n".encode())
    return Outcome(schedule, violation, world.actors.counts, trace, digest.hexdigest())


def _query() -> QueryDefinition:
    nothing: Any = SimpleNamespace(
        state_arrow=None, variables={}, removed=set(), uncombined="tasks are simulated", buffer_cost=1.0, hot_only=False
    )
    return QueryDefinition(
        key=("k",), key_schema={}, code=nothing, time_mode="none", output_schema=None, output_arrow=None
    )


def _no_load(_self: object, case: Any, *_: object) -> str | None:
    """Plan every batch with a load: balance does not count here."""
    return None if case.loads.total else "no load measured yet"


def _no_change(_self: object, case: Any, proposed: Plan, *_: object) -> str | None:
    """Apply every plan that changes something."""
    return "the same routing" if proposed.same_routing(case.plan) else None


def _below(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files by their paths below the checkpoint."""
    return {path.removeprefix(f"{CHECKPOINT}/"): data for path, data in files.items()}


@contextmanager
def _patched(world: World) -> Iterator[None]:
    """Patch small limits, so that a few batches take all paths of a long run; names and machines follow the seed."""
    draw = random.Random(f"names {world.schedule.seed}")  # noqa: S311 - the same seed must give the same names
    actors = world.actors

    def reached(point: str) -> None:
        if actors.current is not None:
            actors.counts[f"failpoint {point}"] += 1
            fault = actors.take_step(point)
            if fault == "crash after":
                actors.die()
            if fault is not None:
                raise OSError(f"simulated failure at {point}")

    def name() -> str:
        return f"{draw.getrandbits(128):032x}"

    def seconds() -> float:
        return world.clock() / 1000

    def process() -> list[str | int]:
        return [actors.current.name if actors.current else "world", 1, 1]

    with (
        mock.patch.object(names, "_source", name),
        mock.patch.object(fencing, "_this_process", process),
        mock.patch.object(engine_module, "SUMMARY_EVERY", 3),
        mock.patch.object(group_table, "MOST_VERSIONS", 3),
        mock.patch.object(group_table, "_GROUPS_A_BATCH", 3),
        mock.patch.object(catch_up, "RECENT", 2),
        mock.patch.object(catch_up, "SPARSE_BYTES", 0),
        mock.patch.object(sinks, "_COPIES", 1),
        mock.patch.object(owned_groups, "perf_counter", seconds),
        mock.patch.object(planning, "perf_counter", seconds),
        mock.patch.object(controller.Controller, "_reason_to_wait", _no_load),
        mock.patch.object(controller.Controller, "_objection", _no_change),
        mock.patch.object(failpoints, "watchers", [reached]),
    ):
        yield
