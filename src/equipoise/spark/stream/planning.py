"""Choose the plan of a batch before it runs: overrides go first, then the load decides."""

from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Literal, NamedTuple, Protocol

from equipoise.adapt import (
    BatchLoads,
    Combine,
    Controller,
    Look,
    Looking,
    MoveLimit,
    Promises,
    StreamLoadRecord,
    rows_needed,
    saved_seconds,
)
from equipoise.adapt.controller import DecisionRecord
from equipoise.errors import FencedError
from equipoise.failpoints import failpoint
from equipoise.plan import Plan, uniform_plan
from equipoise.spark.stream.failures import is_cancelled
from equipoise.spark.stream.settings import Settings
from equipoise.state.checkpoint import Checkpoint, Overrides
from equipoise.state.commit import Commit, Measures, PlanningMemory
from equipoise.state.log import CommitLog

HASH = "hash"
"""Value of the override ``pinned`` that stands for plain hash."""


class TakeLook(Protocol):
    """Looks at a batch; see ``equipoise.spark.stream.jobs.Jobs.look``."""

    def __call__(self, wanted: int, *, is_dear: bool) -> Look | str:
        """Return the look, or why there is none."""


Basis = Literal["past", "look"]
"""What a plan follows from: loads of earlier batches, or rows that were seen of its own."""


@dataclass(frozen=True)
class Choice:
    """The plan of a batch, the decision that led to it, the keys to combine, and measures of the look at the batch."""

    plan: Plan
    decision: DecisionRecord
    combine: Combine = field(default_factory=Combine)
    measures: Measures = field(default_factory=Measures)

    @classmethod
    def keep(cls, plan: Plan, reason: str) -> "Choice":
        """Return the choice to keep a plan where there is nothing to decide by."""
        return cls(plan, {"action": "keep", "applied": False, "reason": reason, "numbers": {}})


@dataclass(frozen=True)
class _Promise:
    """What the plan of a batch promises, by the policy's measure of load.

    Parameters
    ----------
    before
        The plan of the batch before.
    basis
        What the plan follows from.
    unchanged, imbalance
        Predicted load of the fullest partition over the mean, under the plan before and under that of the batch;
        ``None`` if it was asked for and not made by the load.
    catch_up
        Predicted seconds by which receiving state lengthens the batch.
    """

    before: Plan
    basis: Basis = "past"
    unchanged: float | None = None
    imbalance: float | None = None
    catch_up: float = 0.0

    def of(self, choice: Choice) -> "_Promise":
        """Return the promise of a choice; if it keeps the plan, nothing changes."""
        numbers, plan = choice.decision["numbers"], choice.plan
        if plan is self.before or "imbalance_after" not in numbers:
            same = numbers.get("imbalance_before")
            return replace(self, unchanged=same, imbalance=same) if plan is self.before else self
        unchanged = numbers["imbalance_before"] * plan.partitions / self.before.partitions
        return replace(
            self, unchanged=unchanged, imbalance=numbers["imbalance_after"], catch_up=numbers["catch_up_seconds"]
        )


class Planning:
    """Decides before every batch which plan places it.

    Parameters
    ----------
    settings
        How the query was started.
    checkpoint
        Holds plans and overrides.
    """

    def __init__(self, settings: Settings, checkpoint: Checkpoint) -> None:
        self._settings = settings
        self._checkpoint = checkpoint
        policy, way_out = settings.options.policy, settings.way_out
        self._controllers: dict[Basis, Controller] = {
            "past": Controller(policy, way_out=way_out),
            "look": Controller(policy, seen=True, way_out=way_out),
        }
        self._obeying = Controller(replace(policy, mode="auto"), way_out=way_out)
        self._looking = Looking(settings.options.look)
        self._combining = settings.combining()
        self._loads: StreamLoadRecord | None = None
        self._last_replan: int | None = None
        self._busy: list[float] = []
        self._batch_seconds = 0.0
        self._rows = 0
        self._promises: dict[Basis, Promises] = {"past": Promises(), "look": Promises()}
        self._promise: _Promise | None = None  # of the batch that runs
        self._move_rate: float | None = None  # as measured

    def first(self) -> Plan:
        """Return the plan of the first batch: plain hash."""
        return uniform_plan(self._settings.partitions, self._settings.identity.tail_groups)

    def recover(self, plan: Plan, last: Commit, log: CommitLog) -> None:
        """Continue with the loads that earlier runs of the query have measured."""
        if last.version == 0:
            return  # no batch has run
        self._loads = self._controllers["past"].loads(plan, last.loads or None)
        known = last.measures["planning"]
        self._last_replan = known["last_replan"]
        self._rows, self._batch_seconds = known["rows"], known["batch_seconds"]
        self._looking = Looking(self._settings.options.look, known["look"])
        self._combining = self._settings.combining(known["combine"])
        self._promises = {basis: Promises(trust) for basis, trust in known["trust"].items()}
        self._move_rate = known["move_rate"]
        for commit in log.latest(max(1, last.version + 1 - self._patience), last.version):
            if self._last_replan is None or commit.batch >= self._last_replan:
                self._busy.append(commit.measures["busy"])

    def note(self, plan: Plan, loads: BatchLoads, measures: Measures) -> bytes:
        """Add what the tasks of a batch measured, and return the load record; ``plan`` has placed the batch.

        What came of the plan, and what a restart needs to know of the batches so far, is added to the measures.
        """
        known = self._known_loads(plan)
        self._loads = known.add(loads)
        self._busy = [*self._busy, measures["busy"]][-self._patience :]
        self._compare(plan, known.add(loads, alone=True), loads, measures)
        self._combining.note(measures)
        rate = measures["move_rate"]
        if rate is not None:
            self._move_rate = rate if self._move_rate is None else (self._move_rate + rate) / 2
        if measures["rows"]:
            self._rows, self._batch_seconds = measures["rows"], measures["seconds"]
        measures["planning"] = self._memory()
        return self._loads.to_bytes()

    def state_bytes(self, plan: Plan) -> list[int]:
        """Return the last known state of each partition in bytes, for the plan of the last batch."""
        return [0] * plan.partitions if self._loads is None else self._loads.state_bytes(plan)

    def choose(self, plan: Plan, batch: int, look: TakeLook) -> Choice:
        """Choose the plan of a batch.

        Parameters
        ----------
        plan
            The plan of the batch before.
        batch
            Number of the batch.
        look
            Looks at the batch.
        """
        found, loads, combine, seen = self._looked(plan, look)
        if seen["look_seconds"] is not None:
            failpoint("driver.after-look")
        basis = _basis(found)
        choice = self._choice(plan, batch, loads, basis)
        if choice.plan is not plan:
            self._last_replan = batch
            self._busy.clear()
        self._promise = _Promise(plan, basis).of(choice)
        return replace(choice, combine=combine, measures=seen | self._promised(plan, choice, loads, found))

    def _looked(self, plan: Plan, look: TakeLook) -> "_Evidence":
        """Look at the batch, if it is worth its time, and return what follows from it; if that fails, from the past."""
        wanted, reason = self._looking.decide()
        known = self._looking.numbers
        measures: Measures = {
            "look": reason,
            "look_rows": None,
            "look_seconds": None,
            "look_cost": known["look_cost"],
            "look_gain": known["look_gain"],
            "look_stake": known["look_stake"],
            "look_chance": known["look_chance"],
        }
        if not wanted:
            return self._evidence(plan, None, measures)
        if self._settings.options.plain_hash:
            return self._evidence(plan, None, measures | {"look": "plain hash was asked for"})
        failpoint("driver.before-look")
        start = perf_counter()
        try:
            found = look(rows_needed(plan.partitions), is_dear=self._looking.is_dear(self._batch_seconds))
            if isinstance(found, str):
                return self._evidence(plan, None, measures | {"look": found})
            return self._evidence(plan, found, measures | {"look_rows": found.seen, "look_seconds": found.seconds})
        except FencedError:
            raise
        except Exception as error:
            if is_cancelled(error):
                raise  # the query was stopped
            reason = f"the look failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            return self._evidence(plan, None, measures | {"look": reason, "look_seconds": perf_counter() - start})

    def _evidence(self, plan: Plan, found: Look | None, measures: Measures) -> "_Evidence":
        """Return the keys to combine, and the loads: those of the look if there is one, else those on record."""
        combine = self._combining.decide(min(plan.partitions, self._settings.query.slots or plan.partitions), found)
        loads = self._known_loads(plan)
        if found is not None and combine.scope != "none":
            found = found.combined(None if combine.scope == "all" else combine.keys)
        if found is not None and _basis(found) == "look":
            loads = loads.seen(found)
        return _Evidence(found, loads, combine, measures)

    def _promised(self, plan: Plan, choice: Choice, loads: StreamLoadRecord, found: Look | None) -> Measures:
        """Return the balance in rows that the chosen plan promises, beside that of the plan before."""
        if found is not None and found.seen:
            unchanged, promised = found.imbalance(plan), found.imbalance(choice.plan)
        elif loads.total:
            unchanged, promised, _ = loads.by_rows().imbalances(plan, choice.plan)
        else:
            return {"unchanged_rows": None, "promised_rows": None}
        # over the mean of as many partitions as the new plan has
        return {"unchanged_rows": unchanged * choice.plan.partitions / plan.partitions, "promised_rows": promised}

    def _compare(self, plan: Plan, alone: StreamLoadRecord, loads: BatchLoads, measures: Measures) -> None:
        """Compare the promise of a batch with what came of it, and learn from both.

        Parameters
        ----------
        plan
            The plan of the batch.
        alone
            Record of the loads of this batch, by the policy's measure.
        loads
            The same, as measured.
        measures
            Measures of the batch, to which the comparison is added.
        """
        promise = self._promise or _Promise(plan)
        before, scale = promise.before, plan.partitions / promise.before.partitions
        by_hash = uniform_plan(plan.partitions, plan.tail_groups, hash_seed=plan.hash_seed)
        got, unchanged, hashed, least = alone.imbalances(plan, before, by_hash)
        unchanged *= scale
        rows = StreamLoadRecord(plan.tail_groups, load="rows", hash_seed=plan.hash_seed).add(loads)
        measures["imbalance_load"], measures["imbalance_load_unchanged"] = got, unchanged
        measures["imbalance_rows_unchanged"] = rows.imbalances(before)[0] * scale
        measures["promised_seconds"] = measures["got_seconds"] = promised_gain = 0.0
        if plan is not before and promise.unchanged is not None and promise.imbalance is not None:
            work, promised_gain = measures["work_seconds"], promise.unchanged - promise.imbalance
            saved = self._saved(promise.unchanged, promise.imbalance, work, plan)
            measures["promised_seconds"] = saved - promise.catch_up
            measures["got_seconds"] = self._saved(unchanged, got, work, plan) - measures["caught_up_seconds"]
        self._promises[promise.basis].note(promised_gain, unchanged - got)
        self._looking.note(
            measures
            | {
                "imbalance_rows": got,
                "imbalance_rows_hash": hashed,
                "bound_rows": least,
                "promised_rows": measures["promised_rows"] if promise.imbalance is None else promise.imbalance,
                "promised_seconds": max(0.0, measures["promised_seconds"]),
            },
            self._settings.query.slots,
        )

    def _saved(self, before: float, after: float, work: float, plan: Plan) -> float:
        """Return the seconds that an imbalance saves of a batch, against another one; may be below 0."""
        slots = self._settings.query.slots
        better, worse = (
            saved_seconds(*pair, work, plan.partitions, slots) for pair in ((before, after), (after, before))
        )
        return better - worse

    def _known_loads(self, plan: Plan) -> StreamLoadRecord:
        """Return the loads of the batches so far."""
        return self._controllers["past"].loads(plan) if self._loads is None else self._loads

    def _at_once(self, partitions: int, *, pinned: bool) -> MoveLimit | None:
        """Return what the next batch should move at most; ``None`` if no later batch would move the rest."""
        policy = self._settings.options.policy
        if policy.mode != "auto" or pinned or self._batch_seconds == 0:
            return None
        received = policy.move_share * self._batch_seconds * (self._move_rate or policy.move_rate)
        return MoveLimit(received * min(partitions, self._settings.query.slots or partitions), received)

    @property
    def _patience(self) -> int:
        """Number of batches whose busy fractions decide on N."""
        elastic = self._settings.options.elastic
        return 1 if elastic is None else elastic.patience

    def _memory(self) -> PlanningMemory:
        return {
            "last_replan": self._last_replan,
            "rows": self._rows,
            "batch_seconds": self._batch_seconds,
            "trust": {basis: promises.trust for basis, promises in self._promises.items()},
            "move_rate": self._move_rate,
            "look": self._looking.experience,
            "combine": self._combining.experience,
        }

    def _choice(self, plan: Plan, batch: int, loads: StreamLoadRecord, basis: Basis) -> Choice:
        """Choose the plan of a batch by its loads."""
        overrides = self._checkpoint.overrides()
        pinned = self._pinned(plan, overrides)
        if pinned is not None and not pinned.same_routing(plan):
            chosen, decision = pinned, self._obeyed(pinned)
        else:
            partitions = self._partitions(plan, overrides)
            asked_for = partitions != plan.partitions and (
                overrides.partitions is not None or not self._settings.options.elastic
            )
            controller = self._obeying if asked_for else self._controllers[basis]  # overrides apply in each mode
            made = controller.decide(
                plan,
                loads,
                batch=batch,
                batch_seconds=self._batch_seconds,
                last_replan=self._last_replan,
                pinned=pinned is not None,
                partitions=None if partitions == plan.partitions else partitions,
                move_rate=self._move_rate,
                at_once=self._at_once(partitions, pinned=pinned is not None),
                trust=self._promises[basis].trust,
            )
            chosen, decision = made.plan, made.to_dict()
        return Choice(chosen, decision)

    def _pinned(self, plan: Plan, overrides: Overrides) -> Plan | None:
        """Return the pinned plan, as the next version; ``None`` if the load decides."""
        pinned = HASH if self._settings.options.plain_hash else overrides.pinned
        if pinned is None:
            return None
        if pinned == HASH:
            wanted = uniform_plan(self._partitions(plan, overrides), plan.tail_groups)
            reason = "plain hash was asked for"
        else:
            wanted = self._checkpoint.pinned_plan(pinned)
            reason = f"plan {wanted.version} was asked for"
        return Plan(
            wanted.partitions,
            wanted.tail,
            wanted.isolated,
            version=plan.version + 1,
            planner=wanted.planner,
            reason=reason,
            parent=plan.version,
            hash_seed=wanted.hash_seed,
        )

    def _partitions(self, plan: Plan, overrides: Overrides) -> int:
        if overrides.partitions is not None:
            return overrides.partitions
        elastic = self._settings.options.elastic
        if elastic is None:
            return self._settings.partitions
        return min(elastic.propose(self._busy, plan.partitions), plan.tail_groups)

    def _obeyed(self, plan: Plan) -> DecisionRecord:
        return {"action": "pin", "applied": True, "plan": plan.version, "reason": plan.reason, "numbers": {}}


class _Evidence(NamedTuple):
    """The look at a batch, the loads that its plan rests on, the keys to combine, and measures of the look."""

    look: Look | None
    loads: StreamLoadRecord
    combine: Combine
    measures: Measures


def _basis(found: Look | None) -> Basis:
    return "look" if found is not None and found.seen else "past"
