"""The driver's part of a micro-batch, called by ``foreachBatch``.

1. The driver chooses the plan of the batch. An attempt that was not committed may have used another one: nothing of it
   exists, and state is handed over from the plan of the previous commit to that of this one.
2. Rows are routed, placed, sorted and handed to tasks, in one job.
3. Tasks read the state as of the previous commit, and write files with unique names.
4. The driver commits: the plan, the files of the new version, and the digest of Spark's offsets. From this moment the
   batch counts.
5. The sink receives the committed output files, unless another query has taken over; the driver checks that before and
   after. A batch that is replayed after its commit is only delivered again.

The time and the watermark of a batch are those that Spark has recorded with its offsets. Spark keeps the watermark over
all columns and inputs of the query. Without Spark the clock and the latest event time give them.

A restart needs only the checkpoint; everything in memory can be read from it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic

import msgspec

from equipoise.adapt import BatchLoads, Work, task_slowness
from equipoise.errors import DamagedError, LogBrokenError, MismatchError, UserFunctionError
from equipoise.failpoints import failpoint
from equipoise.spark.stream.batch_spec import BatchSpec, Manifest
from equipoise.spark.stream.delivery import Delivery, deliver
from equipoise.spark.stream.jobs import Jobs, Rows
from equipoise.spark.stream.measures import batch_measures
from equipoise.spark.stream.planning import Choice, Planning, TakeLook
from equipoise.spark.stream.settings import Settings
from equipoise.state import batch_log
from equipoise.state.catch_up import Recent
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.commit import Commit
from equipoise.state.evolution import same_layout
from equipoise.state.garbage import GarbageCollector
from equipoise.state.group_table import PATIENCE, GroupTable, due_snapshots
from equipoise.state.halves import PlannedBatch
from equipoise.state.handle import VariableSpec, removed_tags
from equipoise.state.log import SUMMARY_EVERY, CommitLog
from equipoise.state.ownership import Handover, Layout, arrivals, fingerprint_of
from equipoise.state.stages import half_of, undelivered_batch
from equipoise.storage import Storage

_PATIENCE = 60.0  # seconds that a stopped query waits for its sink


class Engine(Generic[Rows]):
    """Runs micro-batches one after the other.

    Parameters
    ----------
    settings
        How the query was started.
    jobs
        Runs the tasks.
    clock
        Returns the time in milliseconds since 1970.
    seconds
        Returns the seconds of a clock with any origin, for measuring.
    """

    def __init__(
        self,
        settings: Settings,
        jobs: Jobs[Rows],
        clock: Callable[[], int],
        seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._settings = settings
        self._jobs = jobs
        self._clock = clock
        self._seconds = seconds
        self._progress: _Progress | None = None
        self._has_committed = False
        self._delivered = -1  # last version that the sink took from this process
        self._running = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_progress", "_has_committed", "_delivered", "_running"}
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._progress, self._has_committed, self._delivered = None, False, -1
        self._running = threading.Lock()

    def __call__(self, rows: Rows, batch: int) -> None:
        """Run a micro-batch, or deliver it again."""
        with self._running, self._settings.epoch.reported_first():
            progress = self._recovered()
            version = batch + 1
            planned, is_replay = progress.half.planned(batch), version == progress.head
            if version == progress.head + 1:
                self._commit_next(progress, rows, version, planned)
            elif not is_replay:
                raise LogBrokenError(
                    f"{progress.half.caller} asks for batch {batch} but the log in {progress.storage.location} ends "
                    f"with batch {progress.head - 1}; the two halves of the checkpoint are of different times: restore "
                    "both from one copy"
                )
            progress.half.require_same(batch, progress.last.offsets, planned.digest)
            if is_replay:
                if self._settings.query.has_event_time and self._settings.identity.stage == 1:
                    self._jobs.read(rows)  # so that Spark's watermark counts them
                self._deliver_again(progress, rows)
            else:
                self._deliver(progress, rows)
            self._delivered = version
            progress.tidy()

    def initialise(self, rows: Rows | None) -> None:
        """Commit version 0, the initial state, unless it exists; refuse a log that does not match its other half."""
        with self._settings.epoch.reported_first():
            progress = self._recovered()
            progress.half.require(progress.head, progress.last.offsets if progress.head >= 0 else "")
            if progress.head >= 0:
                return
            self._commit_next(progress, rows, 0, PlannedBatch(""))

    def deliver_last(self, rows: Rows) -> bool:
        """Deliver the last batch unless Spark has recorded that it was delivered; return whether it was due.

        Called when a query has been stopped; otherwise the next start would deliver the batch. A batch that the sink
        received before Spark was interrupted is only marked as delivered.

        Parameters
        ----------
        rows
            Any rows of the session.
        """
        if not self._running.acquire(timeout=_PATIENCE):
            raise UserFunctionError(
                f"the sink is still busy {_PATIENCE:g} seconds after the query was stopped; let it end, and start the "
                "query again: it delivers the last batch if that is due"
            )
        try:
            with self._settings.epoch.reported_first():
                storage = self._settings.epoch.storage
                if undelivered_batch(storage, CommitLog(storage).head()) is None:
                    return False
                progress = self._recovered()
                if self._delivered != progress.head:
                    self._deliver_again(progress, rows)
                progress.checkpoint.mark_delivered(progress.last)
            return True
        finally:
            self._running.release()

    def _deliver_again(self, progress: "_Progress", rows: Rows) -> None:
        """Deliver the last batch again, unless ``deliver_last`` has marked it as delivered."""
        if not progress.checkpoint.is_delivered(progress.last):
            verify_outputs(progress.storage, progress.last)
            self._deliver(progress, rows)

    def _deliver(self, progress: "_Progress", rows: Rows) -> None:
        """Give the last committed batch to the sink, unless another query has taken over."""
        commit, storage, epoch = progress.last, progress.storage, self._settings.epoch
        transformed = self._settings.query.transformed
        failpoint("driver.before-sink")
        files = [storage.at(file.path) for file in commit.outputs]

        def output() -> Any:
            made = transformed(self._jobs.outputs(rows, files))
            epoch.check()  # reading takes time, and the sink comes next
            return made

        delivery = Delivery(
            commit.batch,
            epoch.number,
            storage,
            commit.outputs,
            output,
            empty=lambda: transformed(self._jobs.outputs(rows, [])),
            check=epoch.check,
        )
        deliver(self._settings.sink, delivery)
        failpoint("driver.after-sink")
        epoch.check()

    def _recovered(self) -> "_Progress":
        if self._progress is None:
            self._progress = _Progress(self._settings)
        return self._progress

    def _commit_next(self, progress: "_Progress", rows: Rows | None, version: int, planned: PlannedBatch) -> None:
        """Run the next batch, without rows if there are none, and commit it.

        If that fails, the log is read again: what is in memory may be ahead of it, and a commit may have taken effect.
        """
        self._progress = None
        if rows is None:
            choice = progress.initial()
            spec = self._batch_spec(progress, choice, version)
            progress.commit(self._commit(progress, choice, spec, [], 0.0, planned.digest))
        else:
            try:
                commit = self._run(progress, rows, version, planned)
            finally:
                self._jobs.release()
            progress.commit(commit)
            self._has_committed = True
        self._progress = progress

    def _run(self, progress: "_Progress", rows: Rows, version: int, planned: PlannedBatch) -> Commit:
        start = self._seconds()
        if planned.watermark_ms is not None:
            progress.watermark_ms = planned.watermark_ms
        choice = progress.choose(version, partial(self._jobs.look, rows, late_ms=progress.late_ms))
        plan = choice.plan
        batch_spec = self._batch_spec(progress, choice, version, self._jobs.columns(rows), planned.time_ms)
        manifests = self._jobs.run(rows, plan, batch_spec, late_ms=progress.late_ms)
        found = sorted(manifest.partition for manifest in manifests)
        if found != list(range(plan.partitions)):
            raise LogBrokenError(
                f"batch {batch_spec.batch} ran partitions {found} instead of 0 to {plan.partitions - 1}; "
                "a setting of Spark changes the number of partitions of a shuffle; unset it for this query"
            )
        return self._commit(progress, choice, batch_spec, manifests, self._seconds() - start, planned.digest)

    def _batch_spec(
        self,
        progress: "_Progress",
        choice: Choice,
        version: int,
        columns: Sequence[str] = (),
        time_ms: int | None = None,
    ) -> BatchSpec:
        settings, plan = self._settings, choice.plan
        layout = Layout(plan)
        identity = settings.identity
        watermark, output_time = settings.query.watermark, settings.query.output_event_time
        event_time = columns.index(watermark.column) if watermark and version else None
        return BatchSpec(
            location=progress.storage.location,
            query=identity.name,
            epoch=settings.epoch.number,
            run=settings.epoch.owner,
            version=version,
            time_ms=self._clock() if time_ms is None else time_ms,
            watermark_ms=progress.watermark_ms,
            time_mode=identity.time_mode,
            groups=layout.names,
            owners=layout.owners.tolist(),
            recent={group: Recent.of(chain).to_bytes() for group, chain in progress.table.chains.items()},
            handover=Handover.between(progress.plan, plan),
            arrivals=arrivals(progress.plan, plan),
            snapshots=due_snapshots(progress.table, 1 if self._has_committed else PATIENCE) if version else frozenset(),
            dropped=progress.last.dropped if version else [],
            variables=settings.variables,
            removed_tags=settings.removed - progress.removed,
            key_fields=[columns.index(name) for name in identity.key] if columns else [],
            key_schema=identity.key_schema,
            event_time=event_time,
            output_schema=settings.query.output_arrow,
            timezone=settings.query.timezone,
            worker=settings.query.worker,
            cache=settings.options.cache,
            cache_bytes=settings.options.cacheBytes,
            state_schema=settings.query.code.state_arrow,
            initial=not version,
            visits_all=bool(version and settings.query.visit_every and version % settings.query.visit_every == 0),
            combine=choice.combine,
            not_late=(output_time, progress.late_ms) if output_time and version else None,
        )

    def _commit(
        self,
        progress: "_Progress",
        choice: Choice,
        batch_spec: BatchSpec,
        manifests: list[Manifest],
        seconds: float,
        offsets: str,
    ) -> Commit:
        settings, plan, planning = self._settings, choice.plan, progress.planning
        by_speed = settings.options.policy.load == "auto"
        loads = _batch_loads(manifests, plan.tail_groups, plan.isolated.keys(), by_speed=by_speed)
        measures = batch_measures(manifests, plan, choice.combine, seconds, settings.options.targetSeconds)
        measures |= choice.measures
        record = planning.note(plan, loads, measures) if batch_spec.version else b""
        state = planning.state_bytes(plan)
        measures["state_bytes"], measures["partition_state"] = sum(state), state
        dropped = [group for groups in batch_spec.handover.folded.values() for group in groups]
        return Commit(
            version=batch_spec.version,
            epoch=settings.epoch.number,
            time_ms=batch_spec.time_ms,
            watermark_ms=progress.watermark_ms,
            next_watermark_ms=_watermark(progress.watermark_ms, manifests, settings),
            plan=progress.chosen_name,
            offsets=offsets,
            sections={group: section for manifest in manifests for group, section in manifest.sections.items()},
            snapshots={group: each for manifest in manifests for group, each in manifest.snapshots.items()},
            dropped=[group for group in dropped if group in progress.table.chains],
            files=[file for manifest in manifests for file in manifest.files],
            outputs=[file for manifest in manifests for file in manifest.outputs],
            variables={name: msgspec.to_builtins(spec) for name, spec in settings.variables.items()},
            loads=record,
            decision=choice.decision,
            measures=measures,
        )


class _Progress:
    """The last commit of a query and what follows from it; read from the log."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.storage: Storage = settings.epoch.storage
        self.checkpoint = Checkpoint(self.storage)
        self.log = CommitLog(self.storage)
        self.half = half_of(self.storage, settings.identity.stage)
        last = self.log.adopt(settings.epoch)
        self.head = -1 if last is None else last.version
        self.table = self.log.table(self.head) if self.head >= 0 else GroupTable()
        self._garbage = GarbageCollector(settings.epoch, settings.options.retain)
        self.removed: frozenset[int] = frozenset()
        self.planning = Planning(settings, self.checkpoint)
        if last is None:
            self.plan = self._chosen = self.planning.first()
            self.chosen_name = self.checkpoint.keep_plan(self.plan)
            self.watermark_ms = self.late_ms = 0
            return
        self.last = last
        stored = _variables(last)
        if not _same_places(stored, settings.variables):
            raise _changed_meanwhile(last)
        self.removed = removed_tags(stored)  # their entries were deleted with the commit that removed them
        self._garbage.sweep(self.log, self.table)
        self.plan = self._chosen = self.checkpoint.plan(last.plan)
        self.chosen_name = last.plan
        self._take_up(last)
        self.planning.recover(self.plan, last, self.log)

    def initial(self) -> Choice:
        """Return the plan of the initial state."""
        return Choice.keep(self.plan, "initial state")

    def choose(self, version: int, look: TakeLook) -> Choice:
        """Choose the plan of a batch and store it; a commit names it."""
        if version == 0:
            return self.initial()
        choice = self.planning.choose(self.plan, version - 1, look)
        failpoint("driver.before-plan")
        if choice.plan is not self._chosen:
            self.chosen_name = self.checkpoint.keep_plan(choice.plan)
            self._chosen = choice.plan
        failpoint("driver.after-plan")
        return choice

    def commit(self, commit: Commit) -> None:
        """Append the commit to the log; from then on the batch counts."""
        if commit.version:
            self.half.sync(commit.batch)
        failpoint("driver.before-commit")
        own = _variables(commit)
        commit = self.log.append(commit, self._settings.epoch)
        failpoint("driver.after-commit")
        if _variables(commit) != own:  # a query that this one took over has committed this version
            raise _changed_meanwhile(commit)
        idle = self.table.advance(commit)
        self.head, self.last = commit.version, commit
        self._garbage.retire(commit.version, idle)
        self.removed = self._settings.removed
        self._take_up(commit)

    def tidy(self) -> None:
        """Summarise the log from time to time, and delete files that no version needs."""
        if self.head % SUMMARY_EVERY == 0:
            failpoint("driver.before-summary")
            oldest = self.log.summarise(self.table, self._settings.epoch, self.head - self._settings.options.retain)
            failpoint("driver.in-summary")
            batch_log.write(self.log, self.head)
            failpoint("driver.after-summary")
            self.log.forget_before(oldest)
            self.checkpoint.forget_plans({commit.plan for commit in self.log.kept()})
        failpoint("driver.before-garbage")
        self._garbage.collect(self.table)
        failpoint("driver.after-garbage")

    def _take_up(self, commit: Commit) -> None:
        """Continue after a commit; a query that this one took over may have made it, with another plan."""
        self.watermark_ms, self.late_ms = commit.next_watermark_ms, commit.watermark_ms
        if commit.plan != self.chosen_name:
            self._chosen, self.chosen_name = self.checkpoint.plan(commit.plan), commit.plan
        self.plan = self._chosen


def _variables(commit: Commit) -> dict[str, VariableSpec]:
    return {name: msgspec.convert(spec, VariableSpec) for name, spec in commit.variables.items()}


def _same_places(stored: dict[str, VariableSpec], declared: dict[str, VariableSpec]) -> bool:
    """Whether no entry of the state would be read as that of another variable, or with another schema of its own."""
    by_tag = {spec.tag: spec for spec in stored.values()}
    return all(spec.tag not in by_tag or _same_history(by_tag[spec.tag], spec) for spec in declared.values())


def _same_history(stored: VariableSpec, declared: VariableSpec) -> bool:
    if stored.name != declared.name or len(stored.schemas) > len(declared.schemas):
        return False
    pairs = zip(stored.schemas, declared.schemas, strict=False)
    return all(old == new or same_layout(old, new) for old, new in pairs)


def _changed_meanwhile(commit: Commit) -> MismatchError:
    """The error for a commit by a query with other state variables, while this one was starting."""
    return MismatchError(
        f"batch {commit.batch} was committed by the query that this one takes over, with the state variables "
        f"{', '.join(sorted(commit.variables)) or 'none'}, after this query had read the list of variables; start "
        "this query again, it continues from that commit"
    )


def wall_clock() -> int:
    """Return the time of this machine in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _batch_loads(manifests: list[Manifest], tail_groups: int, isolated: Any, *, by_speed: bool) -> BatchLoads:
    """Return the loads of a batch, in rows received; with ``by_speed``, seconds are those of a task of usual speed."""
    tails = [
        [Work(load.received, load.seconds) for name, load in manifest.loads.items() if fingerprint_of(name) is None]
        for manifest in manifests
    ]
    slowness = task_slowness(tails) if by_speed else [1.0] * len(manifests)
    groups: dict[int, Work] = {}
    keys = {fingerprint: Work(0, 0.0) for fingerprint in isolated}
    listed: dict[int, Work] = {}
    for manifest, slow in zip(manifests, slowness, strict=True):
        for name, load in manifest.loads.items():
            fingerprint = fingerprint_of(name)
            work = Work(load.received, load.seconds / slow, load.state)
            if fingerprint is None:
                groups[int(name[1:])] = work
            else:
                keys[fingerprint] = work
        for key, rows, seconds in zip(manifest.hot_keys, manifest.hot_received, manifest.hot_seconds, strict=True):
            listed[key] = Work(rows, seconds / slow)
    return BatchLoads(tail_groups, groups, keys, listed)


def _watermark(now: int, manifests: list[Manifest], settings: Settings) -> int:
    latest = [each.latest_event_ms for each in manifests if each.latest_event_ms is not None]
    watermark = settings.query.watermark
    if watermark is None or not latest:
        return now
    return max(now, max(latest) - watermark.delay_ms)


def verify_outputs(storage: Storage, commit: Commit) -> None:
    """Check the output files of a batch before they are delivered again: files can be lost or damaged."""
    for file in commit.outputs:
        try:
            storage.verify(file.stored)
        except DamagedError as error:
            raise DamagedError(f"{error}; batch {commit.batch} must be delivered from it") from error
