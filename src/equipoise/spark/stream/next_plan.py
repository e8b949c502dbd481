"""Chooses the plan of the next batch: what users wish goes first, then the load decides."""

from dataclasses import dataclass, replace
from typing import Any

from equipoise.adapt import BatchLoads, Controller, MeasuredLoads
from equipoise.plan import Plan, uniform_plan
from equipoise.spark.stream.settings import Settings
from equipoise.state.checkpoint import Checkpoint, Wishes
from equipoise.state.log import Commit, CommitLog

HASH = "hash"
"""What to hold for plain hash."""

_LOOK_BACK = 20  # batches that are read again at a start, for how busy they were


@dataclass(frozen=True)
class Choice:
    """The plan of the next batch, why, what is known of the load, and the bytes of all state before this batch."""

    plan: Plan
    decision: dict[str, Any]
    loads: bytes
    state_bytes: int = 0

    @classmethod
    def keep(cls, plan: Plan) -> "Choice":
        """Before the first batch there is nothing to decide."""
        return cls(plan, {"action": "keep", "applied": False, "reason": "initial state", "numbers": {}}, b"")


class NextPlan:
    """Decides after every batch.

    Parameters
    ----------
    settings
        How the query was started.
    checkpoint
        Where plans and wishes are.
    """

    def __init__(self, settings: Settings, checkpoint: Checkpoint) -> None:
        self._settings = settings
        self._checkpoint = checkpoint
        self._controller = Controller(settings.policy)
        self._obeying = Controller(replace(settings.policy, mode="auto"))
        self._loads: MeasuredLoads | None = None
        self._last_replan: int | None = None
        self._busy: list[float] = []

    def first(self) -> Plan:
        """The plan of the first batch: plain hash."""
        return uniform_plan(self._settings.partitions, self._settings.identity.tail_groups)

    def recover(self, plan: Plan, last: Commit, log: CommitLog) -> None:
        """Go on from what earlier runs of the query have measured."""
        self._loads = self._controller.loads(plan, last.loads or None)
        for commit in log.commits(max(log.oldest(), last.version - _LOOK_BACK, 0), last.version):
            self._busy.append(float(commit.measures.get("busy", 0.0)))
            if commit.plan != commit.next_plan:
                self._last_replan = commit.batch
                self._busy.clear()

    def choose(self, plan: Plan, loads: BatchLoads, batch: int, measures: dict[str, Any]) -> Choice:
        """Choose the plan of the batch after ``batch``."""
        known = self._loads if self._loads is not None else self._controller.loads(plan)
        self._loads = known.add(loads)
        self._busy.append(measures["busy"])
        wishes = self._checkpoint.wishes()
        held = self._held(plan, wishes)
        if held is not None and not held.same_routing(plan):
            chosen, decision = held, self._obeyed(held)
        else:
            partitions = self._partitions(plan, wishes)
            asked_for = partitions != plan.partitions and (wishes.partitions is not None or not self._settings.elastic)
            controller = self._obeying if asked_for else self._controller  # a mode is about what nobody asked for
            made = controller.decide(
                plan,
                self._loads,
                batch=batch,
                batch_seconds=measures["seconds"],
                last_replan=self._last_replan,
                pinned=held is not None,
                partitions=None if partitions == plan.partitions else partitions,
            )
            chosen, decision = made.plan, made.to_dict()
        if chosen is not plan:
            self._last_replan = batch
            self._busy.clear()
        measured = self._loads.costs().group_state
        state_bytes = 0 if measured is None else int(measured.sum())
        return Choice(chosen, decision, self._loads.to_bytes(), state_bytes)

    def _held(self, plan: Plan, wishes: Wishes) -> Plan | None:
        """The plan that is to be kept, as the next version; ``None`` where the load decides."""
        hold = HASH if self._settings.plain_hash else wishes.hold
        if hold is None:
            return None
        if hold == HASH:
            wanted = uniform_plan(self._partitions(plan, wishes), plan.tail_groups)
            reason = "plain hash was asked for"
        else:
            wanted = self._checkpoint.plan_of_version(int(hold))
            reason = f"plan {hold} was asked for"
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

    def _partitions(self, plan: Plan, wishes: Wishes) -> int:
        if wishes.partitions is not None:
            return wishes.partitions
        if self._settings.elastic is None:
            return self._settings.partitions
        return min(self._settings.elastic.propose(self._busy, plan.partitions), plan.tail_groups)

    def _obeyed(self, plan: Plan) -> dict[str, Any]:
        return {"action": "hold", "applied": True, "plan": plan.version, "reason": plan.reason, "numbers": {}}
