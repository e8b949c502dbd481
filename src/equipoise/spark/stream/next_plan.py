"""Choose the plan of the next batch: overrides go first, then the load decides."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from equipoise.adapt import BatchLoads, Controller, StreamLoadRecord, split_widths
from equipoise.adapt.controller import DecisionRecord
from equipoise.plan import Plan, uniform_plan
from equipoise.spark.stream.settings import Settings
from equipoise.split.shards import shards_text
from equipoise.state.checkpoint import Checkpoint, Overrides
from equipoise.state.commit import Commit, Measures
from equipoise.state.log import CommitLog

HASH = "hash"
"""Value of the override ``hold`` that stands for plain hash."""

_LOOK_BACK = 20  # batches whose ``busy`` is read from the log at a start


@dataclass(frozen=True)
class Choice:
    """The plan of the next batch, the decision, the load record, and the bytes of state of each partition."""

    plan: Plan
    decision: DecisionRecord
    loads: bytes
    state_bytes: list[int]

    @classmethod
    def keep(cls, plan: Plan) -> "Choice":
        """Return the choice before the first batch: keep the plan."""
        decision: DecisionRecord = {"action": "keep", "applied": False, "reason": "initial state", "numbers": {}}
        return cls(plan, decision, b"", [0] * plan.partitions)


class NextPlan:
    """Decides after every batch which plan comes next.

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
        self._loads: StreamLoadRecord | None = None
        self._last_replan: int | None = None
        self._busy: list[float] = []

    def first(self) -> Plan:
        """Return the plan of the first batch: plain hash."""
        return uniform_plan(self._settings.partitions, self._settings.identity.tail_groups)

    def recover(self, plan: Plan, last: Commit, log: CommitLog) -> None:
        """Continue with the loads that earlier runs of the query have measured."""
        self._loads = self._controller.loads(plan, last.loads or None)
        for commit in log.latest(last.version - _LOOK_BACK, last.version):
            self._busy.append(commit.measures.get("busy", 0.0))
            if commit.plan != commit.next_plan:
                self._last_replan = commit.batch
                self._busy.clear()

    def choose(self, plan: Plan, loads: BatchLoads, batch: int, measures: Measures) -> Choice:
        """Choose the plan of the batch after ``batch``."""
        known = self._loads if self._loads is not None else self._controller.loads(plan)
        self._loads = known.add(loads)
        self._busy = [*self._busy[-_LOOK_BACK:], measures["busy"]]
        overrides = self._checkpoint.overrides()
        held = self._held(plan, overrides)
        if held is not None and not held.same_routing(plan):
            chosen, decision = held, self._obeyed(held)
        else:
            partitions = self._partitions(plan, overrides)
            asked_for = partitions != plan.partitions and (
                overrides.partitions is not None or not self._settings.options.elastic
            )
            controller = self._obeying if asked_for else self._controller  # the mode does not apply to overrides
            widths = self._widths(plan, partitions, batch, pinned=held is not None)
            made = controller.decide(
                plan,
                self._loads.without(widths) if widths else self._loads,
                batch=batch,
                batch_seconds=measures["seconds"],
                last_replan=self._last_replan,
                pinned=held is not None,
                partitions=None if partitions == plan.partitions else partitions,
            )
            chosen, decision = made.plan, made.to_dict()
            if widths != plan.widths or (widths and chosen is not plan):
                chosen, decision = self._split(plan, chosen, widths, decision)
        if chosen is not plan:
            self._last_replan = batch
            self._busy.clear()
        return Choice(chosen, decision, self._loads.to_bytes(), self._loads.state_bytes(plan))

    def _widths(self, plan: Plan, partitions: int, batch: int, *, pinned: bool) -> Mapping[int, int]:
        """Return the number of shards of each key to split in the next batch."""
        policy = self._settings.options.policy
        if self._settings.aggregator is None or self._loads is None:
            return {}
        recent = self._last_replan is not None and batch - self._last_replan < policy.minimum_interval
        if pinned or recent or policy.mode != "auto":
            return plan.widths
        tasks = min(partitions, self._settings.query.slots or partitions)
        return split_widths(self._loads.histogram(), tasks, plan.widths, rows=self._loads.effective_rows)

    def _split(
        self, before: Plan, chosen: Plan, widths: Mapping[int, int], decision: DecisionRecord
    ) -> tuple[Plan, DecisionRecord]:
        """Return the chosen plan with its split keys, which stay isolated where they are, and the decision."""
        isolated = {key: chosen.isolated.get(key, int(chosen.assign([key])[0])) for key in widths}
        split = shards_text(widths) if widths else "no key is split"
        reason = f"{split}; {decision['reason']}"
        plan = Plan(
            chosen.partitions,
            chosen.tail,
            {**chosen.isolated, **isolated},
            widths=widths,
            version=before.version + 1,
            planner=chosen.planner,
            reason=reason,
            parent=before.version,
            hash_seed=chosen.hash_seed,
        )
        if chosen is not before:  # a replan or a change of N, which keeps its name
            return plan, decision | {"plan": plan.version, "reason": reason}
        grown = any(width > before.widths.get(key, 1) for key, width in widths.items())
        return plan, decision | {
            "action": "split" if grown else "fold",
            "applied": True,
            "plan": plan.version,
            "reason": reason,
        }

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
            widths=wanted.widths,
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
