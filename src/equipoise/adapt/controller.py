"""Decision before each micro-batch: keep the plan, replan, or change the number of partitions."""

from math import hypot, log, sqrt
from typing import Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import numpy as np

from equipoise.adapt.load_record import StreamLoadRecord
from equipoise.adapt.policy import Policy
from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.metrics import load_imbalance, lower_bound
from equipoise.plan import Plan, Planner, make_planner
from equipoise.plan.cost import Priced, price
from equipoise.plan.plan_diff import check_comparable
from equipoise.plan.planner import Problem, Proposal, within_budget
from equipoise.readable import fingerprint_text, seconds_text, size_text

Action = Literal["keep", "replan", "rescale"]
"""The decision; ``"replan"`` and ``"rescale"`` are proposals unless the decision was applied."""

_FALSE_ALARM = 1e-5  # probability, for each decision, of mistaking an even load for skew
_ROUNDING = 1e-6  # relative rounding error by which sums may exceed a budget
_HIGH_BOUND = 1.05  # bound above which a message names the key that sets it
_BELIEVED = 0.995  # trust from which on a message does not speak of it


class DecisionRecord(TypedDict):
    """A decision as it is stored; plans are given by their version."""

    action: str
    applied: bool
    reason: str
    numbers: dict[str, float]
    plan: NotRequired[int]
    proposed: NotRequired[int | None]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Decision before a batch, with its reason.

    Attributes
    ----------
    action
        The decision.
    applied
        Whether ``plan`` is a new plan; proposals in the mode ``"advise"`` are not applied.
    plan
        The plan of the batch.
    proposed
        The plan that was made, applied or not; ``None`` if none was made.
    reason
        One sentence, with numbers. Values after a change are predictions.
    numbers
        Inputs of the decision: ``imbalance_before``, ``bound``, and ``noise`` (imbalance that chance may cause). With a
        proposal also the predictions ``imbalance_after``, ``gain_seconds`` (over the horizon), ``move_bytes``,
        ``copy_bytes`` (state of keys that become isolated, or stop being so, without moving), ``move_seconds`` (of the
        partition that moves and copies most), ``catch_up_seconds`` (by which receiving state lengthens the longest task
        of this batch), ``keys_moved`` and ``groups_moved``.
    """

    action: Action
    applied: bool
    plan: Plan
    proposed: Plan | None
    reason: str
    numbers: dict[str, float]

    def to_dict(self) -> DecisionRecord:
        """Return the decision as plain values for the log; plans are given by their version."""
        return {
            "action": self.action,
            "applied": self.applied,
            "plan": self.plan.version,
            "proposed": None if self.proposed is None else self.proposed.version,
            "reason": self.reason,
            "numbers": self.numbers,
        }


class MoveLimit(NamedTuple):
    """State in bytes that one batch should move at most.

    Attributes
    ----------
    total
        Of all partitions.
    partition
        That one partition receives.
    """

    total: float
    partition: float


class Controller:
    """Decide before each batch whether to replan.

    Guarantees
    ----------
    - Pure and deterministic: equal arguments give equal decisions.
    - Errors of a planner do not propagate: if it raises or returns an invalid plan, the plan is kept and the reason
      says so.
    - A replan is applied only if the imbalance exceeds its bound by more than the policy's ``threshold`` and chance
      explain together (the root of the sum of their squares, because they are independent), the new plan saves more
      than ``minimum_gain`` and chance explain together, the time saved over the horizon exceeds the time by which
      receiving state lengthens this batch, the state that moves is within the budget, and ``minimum_interval`` batches
      have passed.
    - So an even load moves nothing, however noisy its measurement.
    - A requested change of N is made at once. Of the limits only the budget applies, and not to the state of partitions
      that are removed.
    - A change that moves more than ``at_once`` is judged as a whole and made in part: the part moves the state with
      most load for its size. The next decisions go on from there.

    Parameters
    ----------
    policy
        When to replan.
    seen
        Whether the loads are rows that were seen of the batch, by which the limits of the policy are lower.
    way_out
        What helps against a key that alone has more than the load of a partition, for messages.

    Examples
    --------
    >>> from equipoise.adapt import BatchLoads, Work
    >>> from equipoise.plan import Plan
    >>> controller, plan = Controller(Policy()), Plan(2, [0, 1, 0, 1])
    >>> loads = controller.loads(plan).add(BatchLoads(4, {0: Work(5000, 5), 1: Work(500, 0.5), 2: Work(4500, 4.5)}))
    >>> decision = controller.decide(plan, loads, batch=0, batch_seconds=10)
    >>> print(decision.action, decision.plan.tail.tolist())
    replan [0, 1, 1, 1]
    >>> print(decision.reason)
    predicted imbalance 1.900 -> 1.000, bound 1.000; saves 45 s in 10 batches, moving 0 bytes takes 0 s
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        seen: bool = False,
        way_out: str = "an operator that merges would combine its rows before the exchange",
    ) -> None:
        self.policy = Policy() if policy is None else policy
        self._threshold, self._minimum_gain = self.policy.limits(seen=seen)
        self._way_out = way_out
        self._planner = (
            self.policy.planner if isinstance(self.policy.planner, Planner) else make_planner(self.policy.planner)
        )

    def loads(self, plan: Plan, stored: bytes | None = None) -> StreamLoadRecord:
        """Return the stored load record, or an empty one if there is none or its settings differ from the policy."""
        empty = StreamLoadRecord(
            plan.tail_groups, load=self.policy.load, decay=self.policy.decay, hash_seed=plan.hash_seed
        )
        if stored is None:
            return empty
        found = StreamLoadRecord.from_bytes(stored)
        _check(plan, found)
        return found if (found.load, found.decay) == (empty.load, empty.decay) else empty

    def decide(
        self,
        plan: Plan,
        loads: StreamLoadRecord,
        *,
        batch: int,
        batch_seconds: float,
        last_replan: int | None = None,
        pinned: bool = False,
        partitions: int | None = None,
        move_rate: float | None = None,
        at_once: MoveLimit | None = None,
        trust: float = 1.0,
    ) -> Decision:
        """Decide on the plan of a batch.

        Parameters
        ----------
        plan
            The present plan.
        loads
            Loads of the batch as far as it was seen, else of the batches before it.
        batch
            Number of the batch.
        batch_seconds
            Duration of the batch before.
        last_replan
            Number of the first batch of the present plan; ``None``: it never changed.
        pinned
            Whether the plan must be kept.
        partitions
            Requested number of partitions; ``None``: no change.
        move_rate
            Measured rate at which a partition receives state, in bytes per second; ``None``: the rate of the policy.
        at_once
            State that one batch should move at most; ``None``: no limit.
        trust
            Part of the promised gain that earlier plans have brought, from 0 to 1.
        """
        _check(plan, loads)
        at_least("batch_seconds", batch_seconds, 0)
        rate = self.policy.move_rate if move_rate is None else at_least("move_rate", move_rate, 0)
        if rate == 0:
            raise InvalidArgumentError("move_rate must be above 0 bytes per second, got 0")
        case = _Case(plan, loads, batch_seconds, rate, self.policy.horizon, trust, self._way_out)
        count = plan.partitions if partitions is None else whole("partitions", partitions, 1)
        waiting = self._reason_to_wait(case, whole("batch", batch, 0), last_replan, pinned, count)
        if waiting is not None:
            return case.kept(waiting)
        objection = None
        try:
            proposed = self._planner.plan(
                plan, case.histogram, partitions=count, costs=case.costs, budget=self.policy.budget(rate)
            )
            case.weigh(proposed, count)
            aim = case.numbers
            if count == plan.partitions:
                objection = self._objection(case, proposed, batch, last_replan)
            if objection is None and at_once is not None:
                proposed = self._part(case, proposed, at_once)
        except Exception as error:  # noqa: BLE001 - planners are plug-ins; the stream continues whatever they raise
            return case.kept(f"planner {self._planner.name!r} failed ({type(error).__name__}: {error})")
        if objection is not None:
            return case.kept(objection, None if proposed is plan else proposed)
        action: Action = "replan" if count == plan.partitions else "rescale"
        return case.taken(action, proposed, applied=self.policy.mode == "auto", aim=aim)

    def _part(self, case: "_Case", aim: Plan, at_once: MoveLimit) -> Plan:
        """Return a plan on the way to ``aim`` that moves up to ``at_once`` bytes; more if a single item has more."""
        total, partition = at_once
        incoming = _incoming(case.priced, case.plan, aim)
        while total < incoming.sum() or partition < incoming.max():
            problem = Problem(case.plan, aim.partitions, case.priced, total)
            cut = within_budget(problem, Proposal(aim.tail, dict(aim.isolated), aim.reason), partition)
            part = cut.after(case.plan, aim.partitions, aim.planner)
            if not part.same_routing(case.plan):
                case.weigh(part, aim.partitions)
                return part
            total, partition = max(2 * total, 1.0), max(2 * partition, 1.0)
        return aim

    def _reason_to_wait(
        self, case: "_Case", batch: int, last_replan: int | None, pinned: bool, count: int
    ) -> str | None:
        """Return why no plan is made; ``None`` to ask the planner."""
        policy, before = self.policy, case.numbers["imbalance_before"]
        since = policy.minimum_interval if last_replan is None else batch - last_replan
        reason = None
        if pinned:
            reason = f"plan {case.plan.version} is pinned; {case.state}"
        elif policy.mode == "observe":
            reason = f"mode is observe; {case.state}"
        elif count != case.plan.partitions:
            reason = None  # the caller decided on the number of partitions
        elif case.loads.total == 0:
            reason = "no load measured yet"
        elif before <= case.bound * (1 + self._threshold):
            limit = case.limit(case.bound)
            reason = f"imbalance {before:.3f} is within {self._threshold:.0%} of the bound {case.bound:.3f}"
            reason += f", {limit}" if limit else ""
        elif before <= case.bound + hypot(case.bound * self._threshold, case.noise):  # tolerance and chance
            rows = f"{case.loads.effective_rows:.0f} rows"
            reason = f"{case.state}, may be chance, which explains {case.noise:.3f} with {rows}"
        elif since < policy.minimum_interval:
            reason = f"{case.state}, but {since} of {policy.minimum_interval} batches have passed since the last replan"
        return reason

    def _objection(self, case: "_Case", proposed: Plan, batch: int, last_replan: int | None) -> str | None:
        """Return why a proposed plan is not applied; ``None`` to apply it."""
        policy, numbers = self.policy, case.numbers
        before, after = numbers["imbalance_before"], numbers["imbalance_after"]
        gain, cost = numbers["gain_seconds"], numbers["catch_up_seconds"]
        saved, wanted = case.trust * (1 - after / before), hypot(self._minimum_gain, case.noise / before)
        recent = last_replan is not None and batch - last_replan < policy.horizon
        budget = policy.budget(case.rate)
        change = f"predicted imbalance {before:.3f} -> {after:.3f} saves {saved:.1%}{case.doubt}"
        reason = None
        if proposed.same_routing(case.plan):
            reason = f"{case.state}, but planner {self._planner.name!r} found no better plan"
        elif saved < wanted:
            reason = f"{change}, less than the {wanted:.1%} that a replan must save"
        elif recent and saved < wanted + policy.hysteresis:
            wanted += policy.hysteresis
            reason = (
                f"hysteresis: {change}, less than the {wanted:.1%} that a replan must save "
                f"within {policy.horizon} batches of the last"
            )
        elif cost > 0 and gain <= cost:  # before the first batch no time is known, and nothing has to move
            reason = (
                f"{change}, {seconds_text(gain)} in {policy.horizon} batches, but moving lengthens this one by "
                f"{seconds_text(cost)}"
            )
        elif budget is not None and numbers["move_bytes"] > budget * (1 + _ROUNDING):
            reason = f"{change} but moves {size_text(numbers['move_bytes'])}, above the budget of {size_text(budget)}"
        return reason


class _Case:
    """Numbers of one decision: loads, costs and predictions."""

    def __init__(
        self,
        plan: Plan,
        loads: StreamLoadRecord,
        batch_seconds: float,
        rate: float,
        horizon: int,
        trust: float,
        way_out: str,
    ) -> None:
        self.plan, self.loads, self.rate, self.horizon, self.trust = plan, loads, rate, horizon, trust
        self._way_out = way_out
        self.histogram, self.costs = loads.histogram(), loads.costs()
        self.priced = price(self.histogram, plan.tail_groups, self.costs)
        self.bound = lower_bound(plan.partitions, self.priced.largest_share)
        loads_now = self.priced.loads(plan)
        before = load_imbalance(loads_now)
        # a plan can shorten the longest task; if no time was measured, that is assumed to be the whole batch
        longest = before / plan.partitions * loads.batch_work
        self.longest_task = min(batch_seconds, longest) if longest > 0 else batch_seconds
        uncertain = (
            min(self.bound, max(0.0, before - self.bound))
            if self._hottest_is_in(int(loads_now.argmax()))
            else self.bound
        )
        self.noise = _noise(uncertain, loads.effective_rows, plan.partitions)
        self.numbers = {"imbalance_before": before, "bound": self.bound, "noise": self.noise, "trust": trust}

    @property
    def doubt(self) -> str:
        """How far the promise is believed, as text; empty if earlier plans have kept theirs."""
        return f" ({self.trust:.0%} believed, as earlier plans have kept)" if self.trust < _BELIEVED else ""

    def _hottest_is_in(self, partition: int) -> bool:
        """Return whether a partition has the key that sets the bound; then chance affects only its other keys."""
        keys = self.histogram.fingerprints
        return self.bound > 1 and len(keys) > 0 and int(self.plan.assign(keys[:1])[0]) == partition

    @property
    def state(self) -> str:
        """Balance of the present plan, as text."""
        return f"imbalance {self.numbers['imbalance_before']:.3f}, bound {self.bound:.3f}"

    def limit(self, bound: float) -> str:
        """Return what sets a bound, and the way out, as text; empty where the bound is the mean."""
        if bound <= _HIGH_BOUND:
            return ""
        key, share = fingerprint_text(int(self.histogram.fingerprints[0])), self.priced.largest_share
        return f"because the key {key} alone has {share:.1%} of the load; {self._way_out}"

    def weigh(self, proposed: Plan, count: int) -> None:
        """Predict gain and cost of a plan."""
        if proposed.partitions != count:
            raise MismatchError(f"it made a plan of {proposed.partitions} partitions, {count} were asked for")
        check_comparable(self.plan, proposed)
        loads, before = self.priced.loads(proposed), self.numbers["imbalance_before"]
        after = load_imbalance(loads)
        shorter = 1 - after / count / (before / self.plan.partitions)
        newly = np.setxor1d(self.plan.isolated_keys, proposed.isolated_keys)
        copied = newly[self.plan.assign(newly) == proposed.assign(newly)]
        copied_state = self.priced.of_keys(copied)[1]
        incoming = _incoming(self.priced, self.plan, proposed)
        moving = (incoming + np.bincount(proposed.assign(copied), copied_state, count)) / self.rate
        tasks = loads * (self.longest_task * self.plan.partitions / before)  # seconds
        single = np.union1d(self.plan.isolated_keys, proposed.isolated_keys)
        self.numbers = self.numbers | {
            "imbalance_after": after,
            "gain_seconds": self.horizon * self.longest_task * shorter * self.trust,
            "move_bytes": float(incoming.sum()),
            "move_seconds": float(moving.max()),
            "catch_up_seconds": float((tasks + moving).max() - tasks.max()),
            "copy_bytes": float(copied_state.sum()),
            "keys_moved": float(np.sum(self.plan.assign(single) != proposed.assign(single))),
            "groups_moved": float(np.sum(self.plan.tail != proposed.tail)),
        }

    def kept(self, reason: str, proposed: Plan | None = None) -> Decision:
        """Return the decision to keep the present plan."""
        return Decision(
            action="keep", applied=False, plan=self.plan, proposed=proposed, reason=reason, numbers=self.numbers
        )

    def taken(self, action: Action, proposed: Plan, *, applied: bool, aim: dict[str, float]) -> Decision:
        """Return the decision for a plan, applied or only advised; ``aim`` has the numbers of the whole change."""
        n, count = self.numbers, proposed.partitions
        bound = lower_bound(count, self.priced.largest_share)
        change = f"predicted imbalance {n['imbalance_before']:.3f} -> {aim['imbalance_after']:.3f}, bound {bound:.3f}"
        gain = f"saves {seconds_text(aim['gain_seconds'])} in {self.horizon} batches"
        if action == "rescale":
            change, gain = f"{self.plan.partitions} -> {count} partitions", change
        moving = f"moving {size_text(aim['move_bytes'])} takes {seconds_text(aim['move_seconds'])}"
        step = f", in steps: {size_text(n['move_bytes'])} now, to {n['imbalance_after']:.3f}" if n is not aim else ""
        limit = self.limit(bound)
        reason = f"{change}; {gain}{self.doubt}, {moving}{step}"
        reason += f"; no plan goes below {bound:.3f}, {limit}" if limit else ""
        return Decision(
            action=action,
            applied=applied,
            plan=proposed if applied else self.plan,
            proposed=proposed,
            reason=reason,
            numbers=n,
        )


def _noise(load: float, rows: float, partitions: int) -> float:
    """Return what chance may add to the largest of N loads, in units of their mean, if none should exceed ``load``.

    This is Bernstein's inequality for counts of rows, with the probability of a false alarm divided by the partitions.
    """
    mean = rows / partitions
    odds = log(partitions / _FALSE_ALARM)
    return sqrt(2 * odds * load / mean) + odds / (3 * mean) if mean > 0 else 0.0


def _incoming(priced: Priced, before: Plan, after: Plan) -> np.ndarray:
    """Return the state that each partition receives."""
    key_target, tail = after.assign(priced.keys), after.tail
    key_moved, group_moved = before.assign(priced.keys) != key_target, before.tail != tail
    keys = np.bincount(key_target[key_moved], priced.key_state[key_moved], after.partitions)
    groups = np.bincount(tail[group_moved], priced.group_state[group_moved], after.partitions)
    return np.asarray(keys + groups)


def _check(plan: Plan, loads: StreamLoadRecord) -> None:
    """Raise ``MismatchError`` if the loads were measured with other tail groups or another hash seed."""
    if (loads.tail_groups, loads.hash_seed) != (plan.tail_groups, plan.hash_seed):
        raise MismatchError(
            f"the loads cover {loads.tail_groups} tail groups with hash seed {loads.hash_seed}, plan {plan.version} "
            f"has {plan.tail_groups} with hash seed {plan.hash_seed}; measure with those of the plan"
        )
