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
    Policy,
    Promises,
    StreamLoadRecord,
    rows_needed,
    saved_seconds,
)
from equipoise.adapt.controller import DecisionRecord
from equipoise.errors import FencedError
from equipoise.plan import Plan, uniform_plan
from equipoise.spark.stream.failures import is_cancelled
from equipoise.spark.stream.settings import Settings
from equipoise.state.checkpoint import Checkpoint, Overrides
from equipoise.state.commit import Commit, Measures, PlanningMemory
from equipoise.state.log import CommitLog

HASH = "hash"
"""Value of the override ``hold`` that stands for plain hash."""


class TakeLook(Protocol):
    """Looks at a batch; see ``equipoise.spark.stream.jobs.Jobs.look``."""

    def __call__(self, wanted: int, *, is_dear: bool) -> Look | str:
        """Return the look, or why there is none."""


_TRIGGER, _LEAST_GAIN = 0.02, 0.01  # defaults of the policy where rows of the very batch were seen: nothing has drifted


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
        self._controller = Controller(settings.options.policy)
        self._obeying = Controller(replace(settings.options.policy, mode="auto"))
        self._by_look = Controller(_by_look(settings.options.policy))
        self._looking = Looking(settings.options.look)
        self._combining = settings.combining()
        self._loads: StreamLoadRecord | None = None
        self._last_replan: int | None = None
        self._busy: list[float] = []
        self._batch_seconds = 0.0
        self._rows = 0
        self._promises = Promises()
        self._move_rate: float | None = None  # as measured
        self._changed = False  # whether the plan of the batch that runs is a new one

    def first(self) -> Plan:
        """Return the plan of the first batch: plain hash."""
        return uniform_plan(self._settings.partitions, self._settings.identity.tail_groups)

    def recover(self, plan: Plan, last: Commit, log: CommitLog) -> None:
        """Continue with the loads that earlier runs of the query have measured."""
        if last.version == 0:
            return  # no batch has run
        self._loads = self._controller.loads(plan, last.loads or None)
        known = last.measures["planning"]
        self._last_replan = known["last_replan"]
        self._rows, self._batch_seconds = known["rows"], known["batch_seconds"]
        self._looking = Looking(self._settings.options.look, known["look"])
        self._combining = self._settings.combining(known["combine"])
        self._promises, self._move_rate = Promises(known["trust"]), known["move_rate"]
        for commit in log.latest(max(1, last.version + 1 - self._patience), last.version):
            if self._last_replan is None or commit.batch >= self._last_replan:
                self._busy.append(commit.measures["busy"])

    def note(self, plan: Plan, loads: BatchLoads, measures: Measures) -> bytes:
        """Add what the tasks of a batch measured, and return the load record; ``plan`` has placed the batch.

        What came of the plan, and what a restart needs to know of the batches so far, is added to the measures.
        """
        known = self._loads if self._loads is not None else self._controller.loads(plan)
        self._loads = known.add(loads)
        self._busy = [*self._busy, measures["busy"]][-self._patience :]
        work, promised = measures["work_seconds"], self._promised_measure(measures)
        measures["promised_seconds"] = self._saved(measures, measures["promised_rows"], work, plan)
        measures["got_seconds"] = self._saved(measures, measures[promised], work, plan)
        self._looking.note(measures, self._settings.query.slots)
        self._combining.note(measures)
        self._promises.note(measures, changed=self._changed, measured=promised)
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
        choice = self._choice(plan, batch, loads, self._controller if found is None else self._by_look)
        if choice.plan is not plan:
            self._last_replan = batch
            self._busy.clear()
        self._changed = choice.plan is not plan
        return replace(choice, combine=combine, measures=seen | self._promised(plan, choice, found))

    def _looked(self, plan: Plan, look: TakeLook) -> "_Basis":
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
            return self._basis(plan, None, measures)
        if self._settings.options.plain_hash:
            return self._basis(plan, None, measures | {"look": "plain hash was asked for"})
        start = perf_counter()
        try:
            found = look(rows_needed(plan.partitions), is_dear=self._looking.is_dear(self._batch_seconds))
            if isinstance(found, str):
                return self._basis(plan, None, measures | {"look": found})
            return self._basis(plan, found, measures | {"look_rows": found.seen, "look_seconds": found.seconds})
        except FencedError:
            raise
        except Exception as error:
            if is_cancelled(error):
                raise  # the query was stopped
            reason = f"the look failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            return self._basis(plan, None, measures | {"look": reason, "look_seconds": perf_counter() - start})

    def _basis(self, plan: Plan, found: Look | None, measures: Measures) -> "_Basis":
        """Return the keys to combine, and the loads: those of the look if there is one, else those on record."""
        combine = self._combining.decide(min(plan.partitions, self._settings.query.slots or plan.partitions), found)
        loads = self._controller.loads(plan) if self._loads is None else self._loads
        if found is not None and combine.scope != "none":
            found = found.combined(None if combine.scope == "all" else combine.keys)
        if found is not None and found.seen:
            loads = loads.seen(found)
        return _Basis(found, loads, combine, measures)

    def _promised(self, plan: Plan, choice: Choice, found: Look | None) -> Measures:
        """Return the balance that the chosen plan promises, beside that of the plan before."""
        if found is None:
            numbers = choice.decision["numbers"]
            unchanged = numbers.get("imbalance_before")
            promised = numbers.get("imbalance_after") if choice.decision["applied"] else unchanged
        else:
            unchanged, promised = found.imbalance(plan), found.imbalance(choice.plan)
        if unchanged is not None:  # over the mean of as many partitions as the new plan has
            unchanged *= choice.plan.partitions / plan.partitions
        return {"unchanged_rows": unchanged, "promised_rows": promised}

    def _promised_measure(self, measures: Measures) -> Literal["imbalance_rows", "imbalance_seconds"]:
        """Return the name of the measure that the plan of a batch promised: rows, unless only seconds were known."""
        by_time = self._settings.options.policy.load == "seconds" and measures["look_rows"] is None
        return "imbalance_seconds" if by_time else "imbalance_rows"

    def _saved(self, measures: Measures, imbalance: float | None, work: float, plan: Plan) -> float:
        """Return the seconds that an imbalance saves of a batch, against that of the plan before; may be below 0."""
        unchanged, slots = measures["unchanged_rows"], self._settings.query.slots
        if unchanged is None or imbalance is None:
            return 0.0
        better, worse = (
            saved_seconds(*pair, work, plan.partitions, slots)
            for pair in ((unchanged, imbalance), (imbalance, unchanged))
        )
        return better - worse

    def _at_once(self, partitions: int, *, pinned: bool) -> float | None:
        """Return the bytes that the next batch should move at most; ``None`` if no later batch would move the rest."""
        policy = self._settings.options.policy
        if policy.mode != "auto" or pinned or self._batch_seconds == 0:
            return None
        tasks = min(partitions, self._settings.query.slots or partitions)
        return policy.move_share * self._batch_seconds * (self._move_rate or policy.move_rate) * tasks

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
            "trust": self._promises.trust,
            "move_rate": self._move_rate,
            "look": self._looking.experience,
            "combine": self._combining.experience,
        }

    def _choice(self, plan: Plan, batch: int, loads: StreamLoadRecord, controller: Controller) -> Choice:
        """Choose the plan of a batch by its loads."""
        overrides = self._checkpoint.overrides()
        held = self._held(plan, overrides)
        if held is not None and not held.same_routing(plan):
            chosen, decision = held, self._obeyed(held)
        else:
            partitions = self._partitions(plan, overrides)
            asked_for = partitions != plan.partitions and (
                overrides.partitions is not None or not self._settings.options.elastic
            )
            made = (self._obeying if asked_for else controller).decide(  # the mode does not apply to overrides
                plan,
                loads,
                batch=batch,
                batch_seconds=self._batch_seconds,
                last_replan=self._last_replan,
                pinned=held is not None,
                partitions=None if partitions == plan.partitions else partitions,
                move_rate=self._move_rate,
                at_once=self._at_once(partitions, pinned=held is not None),
                trust=self._promises.trust,
            )
            chosen, decision = made.plan, made.to_dict()
        return Choice(chosen, decision)

    def _held(self, plan: Plan, overrides: Overrides) -> Plan | None:
        """Return the plan to hold, as the next version; ``None`` if the load decides."""
        hold = HASH if self._settings.options.plain_hash else overrides.hold
        if hold is None:
            return None
        if hold == HASH:
            wanted = uniform_plan(self._partitions(plan, overrides), plan.tail_groups)
            reason = "plain hash was asked for"
        else:
            wanted = self._checkpoint.held_plan(hold)
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
        return {"action": "hold", "applied": True, "plan": plan.version, "reason": plan.reason, "numbers": {}}


class _Basis(NamedTuple):
    """The look at a batch, the loads that its plan rests on, the keys to combine, and measures of the look."""

    look: Look | None
    loads: StreamLoadRecord
    combine: Combine
    measures: Measures


def _by_look(policy: Policy) -> Policy:
    """Return the policy for a batch that was seen: limits that the user has not set are lower.

    The error of the sample counts beside them, as chance.
    """
    usual = Policy()
    return replace(
        policy,
        trigger=_TRIGGER if policy.trigger == usual.trigger else policy.trigger,
        minimum_gain=_LEAST_GAIN if policy.minimum_gain == usual.minimum_gain else policy.minimum_gain,
    )
