"""Join with hot keys in shards: the rows of one side are dealt out to them, those of the other are copied to each.

Every row of the split side then meets every row of its key on the other side, in exactly one shard, so the result is
that of the plain join. A key is split on a side whose unmatched rows the join keeps, or on either side of an inner
join. It is never split on the side that is only looked up: the copies of its rows would come out as unmatched several
times.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.adapt import Policy
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.readable import count_text
from equipoise.spark.batch.advice import WORTH_IT, Operation, advice_for, shard_facts
from equipoise.spark.batch.broadcast import broadcast_advice, broadcast_by_spark
from equipoise.spark.batch.join_sizes import LEFT, RIGHT, SIDES, JoinSizes, JoinType, SampledSide, join_type
from equipoise.spark.batch.options import BatchOptions, Sampling
from equipoise.spark.batch.sample import WeightedRows, measured_or, resolve_weight, take_samples
from equipoise.spark.batch.split_plan import Split, plan_split
from equipoise.spark.rows.advice import Action, Advice, number_facts
from equipoise.spark.rows.cluster import slot_count
from equipoise.spark.rows.columns import FINGERPRINT, PARTITION, SHARD
from equipoise.spark.rows.explained import Explained, Facts
from equipoise.spark.rows.keys import Key, resolve_key
from equipoise.spark.rows.routing import SplitPlan, next_shard, width_column
from equipoise.split.shards import shards_text

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Decision:
    """How a join is done.

    Parameters
    ----------
    advice
        The decision and its reason.
    plan
        Placement of keys and shards; ``None`` for Spark's own join.
    split_on
        Side on which each key in shards is split, by its fingerprint: 0 for left, 1 for right.
    broadcast
        Side that is broadcast; ``None`` for none.
    is_hinted
        Whether Spark needs a hint to broadcast it.
    """

    advice: Advice
    plan: SplitPlan | None = None
    split_on: Mapping[int, int] = field(default_factory=dict)
    broadcast: int | None = None
    is_hinted: bool = True


class Join(Explained):
    """A join of two batch DataFrames with hot keys in shards; made by ``join``.

    Nothing is read before ``dataframe()`` is called or a property is used.

    Parameters
    ----------
    sides, keys
        Left and right, and their keys.
    how
        Type of the join.
    split
        How to split hot keys.
    options
        How to measure and plan.
    """

    def __init__(
        self,
        sides: tuple[DataFrame, DataFrame],
        keys: tuple[Key, Key],
        how: JoinType,
        split: Split,
        options: BatchOptions,
    ) -> None:
        self._sides = sides
        self._keys = keys
        self._how = how
        self._split = split
        self._options = options
        self._partitions = options.partitions(sides[LEFT].sparkSession)

    def dataframe(self) -> DataFrame:
        """Return the joined rows, with the columns of ``left.join(right, on, how)``."""
        left, right = self._sides
        if not self._options.places_keys:
            return self._plain()
        decision = self._decision
        _log.info("%s join on %s: %s", self._how.name, self._keys[LEFT], decision.advice)
        if decision.broadcast == LEFT and decision.is_hinted:
            left = F.broadcast(left)
        elif decision.broadcast == RIGHT and decision.is_hinted:
            right = F.broadcast(right)
        names = list(self._keys[LEFT].names)
        if decision.plan is None:
            return left.join(right, names, self._how.name)
        placed = [self._placed(side) for side in (LEFT, RIGHT)]
        return placed[LEFT].join(placed[RIGHT], [PARTITION, SHARD, *names], self._how.name).drop(PARTITION, SHARD)

    @property
    def plan(self) -> SplitPlan | None:
        """Placement of keys and shards; measures both sides first. ``None`` where Spark's own join is used."""
        return self._decision.plan

    @property
    def advice(self) -> Advice:
        """The decision and its reason; measures both sides first."""
        return self._decision.advice

    @property
    def split_on(self) -> Mapping[int, int]:
        """Side on which each key in shards is split, by its fingerprint: 0 for left, 1 for right."""
        return self._decision.split_on

    @property
    def broadcast(self) -> int | None:
        """Side that is broadcast, 0 for left and 1 for right; ``None`` for none."""
        return self._decision.broadcast

    def __repr__(self) -> str:
        return f"Join[{self._how.name} on {self._keys[LEFT]}, numPartitions: {self._partitions}]"

    @property
    def _title(self) -> str:
        return "Join"

    def _facts(self, *, measure: bool) -> Facts:
        facts = [("join", f"{self._how.name} on {self._keys[LEFT]}; {count_text(self._partitions, 'partition')}")]
        if not self._options.makes_plan:
            return [*facts, ("plan", f"none: mode {self._options.policy.mode!r} leaves the join to Spark")]
        if not measure and "_decision" not in self.__dict__:
            return [*facts, ("plan", "not made yet: .dataframe(), .plan or .explain() measures both sides")]
        decision = self._decision
        if decision.plan is not None:
            facts.append(("plan", f"{decision.plan.plan.planner}: {shards_text(decision.plan.widths)}"))
            facts += shard_facts(decision.plan, {key: SIDES[side] for key, side in decision.split_on.items()})
        elif decision.broadcast is not None:
            facts.append(("plan", f"Spark's own join, with the {SIDES[decision.broadcast]} side broadcast"))
        else:
            facts.append(("plan", "Spark's own join"))
        facts += [*number_facts(decision.advice.numbers), ("advice", str(decision.advice))]
        if not self._options.places_keys:
            facts.append(("placement", f"left to Spark's own join: mode {self._options.policy.mode!r}"))
        return facts

    @cached_property
    def _decision(self) -> _Decision:
        if not self._options.makes_plan:
            return _Decision(Advice(Action.NOTHING, f"mode {self._options.policy.mode!r} leaves the join to Spark"))
        return measured_or(
            self._measured,
            lambda why: _Decision(Advice(Action.NOTHING, f"the keys could not be measured: {why}")),
            f"the keys {self._keys[LEFT]} could not be measured, so this is Spark's own join",
        )

    def _measured(self) -> _Decision:
        by_spark = broadcast_by_spark(self._plain())
        if by_spark is not None:
            reason = f"Spark broadcasts the {by_spark} side by itself, so nothing is shuffled; no key was looked at"
            return _Decision(Advice(Action.BROADCAST, reason), broadcast=SIDES.index(by_spark), is_hinted=False)
        slots = slot_count(self._sides[LEFT].sparkSession, self._options.slots)
        rows = [
            WeightedRows(df, key, resolve_weight(df, None)) for df, key in zip(self._sides, self._keys, strict=True)
        ]
        samples = take_samples(rows, self._options, self._partitions, slots)
        for side in self._how.broadcasts:
            small = broadcast_advice(self._sides[side], samples[side].rows, SIDES[side])
            if small is not None:
                return _Decision(small, broadcast=side)
        decision = self._decided(JoinSizes.of(self._how, *map(SampledSide.of_sample, samples)), slots)
        error = max(sample.load_error(self._partitions) for sample in samples)
        return replace(decision, advice=decision.advice.with_number("load_error", error))

    def _plain(self) -> DataFrame:
        """Return Spark's own join."""
        left, right = self._sides
        return left.join(right, list(self._keys[LEFT].names), self._how.name)

    def _decided(self, sized: JoinSizes, slots: int) -> _Decision:
        """Decide by the work of the keys."""
        planner = self._options.planner(slots)

        def planned(split: Split) -> SplitPlan:
            loads = sized.loads({})
            return plan_split(loads, self._partitions, planner, slots, split, lambda _, widths: sized.loads(widths))

        plan = planned(self._split)
        whole = planned(None) if plan.widths else plan
        ways = {"hash": sized.plain_loads(self._partitions), "whole": sized.with_nulls(whole.loads)}
        if plan.widths:
            ways["split"] = sized.with_nulls(plan.loads)
        advice = advice_for(Operation.JOIN, hottest=sized.hottest, loads=ways, slots=slots, plan=plan)
        by_plan = advice.numbers["split_over_ideal" if plan.widths else "whole_over_ideal"]
        by_hash = advice.numbers["hash_over_ideal"]
        was_asked = self._split not in {"auto", None} and bool(plan.widths)
        if by_hash < WORTH_IT * by_plan and not was_asked:
            reason = f"Spark's own join is predicted at {by_hash:.2f} times the ideal time, a plan at {by_plan:.2f}"
            return _Decision(Advice(Action.NOTHING, reason, advice.numbers))
        return _Decision(advice, plan, {key: sized.side_of(key) for key in plan.widths})

    def _placed(self, side: int) -> DataFrame:
        plan = self._decision.plan
        assert plan is not None  # noqa: S101 - this tells the type checker
        df, key = self._sides[side], self._keys[side]
        if side not in self._how.keeps_null:
            df = df.where(~key.has_null)
        df = df.withColumn(FINGERPRINT, key.fingerprint)
        fingerprint = F.col(FINGERPRINT)
        own, others = (
            {k: plan.widths[k] for k, where in self.split_on.items() if where == each} for each in (side, 1 - side)
        )
        number = next_shard(width_column(own, fingerprint)) if own else F.lit(0)
        if others:
            copies = width_column(others, fingerprint)
            every = F.sequence(F.lit(0), copies - 1)
            df = df.withColumn(SHARD, F.explode(F.when(copies > 1, every).otherwise(F.array(number))))
        else:
            df = df.withColumn(SHARD, number)
        partition = plan.partition(plan.shard(fingerprint, F.col(SHARD)))
        if side in self._how.keeps_null:
            anywhere = F.pmod(F.monotonically_increasing_id(), F.lit(plan.plan.partitions)).cast("int")
            partition = F.when(key.has_null, anywhere).otherwise(partition)
        return df.withColumn(PARTITION, partition).drop(FINGERPRINT).repartitionById(plan.plan.partitions, PARTITION)


def join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str | Column],
    how: str = "inner",
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    *,
    policy: Policy = Policy(),  # noqa: B008 - it is immutable
    split: Split = "auto",
    sample: Sampling = None,
    slots: int | None = None,
    seed: int = 0,
) -> Join:
    """Join two batch DataFrames; hot keys of one side are split, and the matching rows of the other repeated.

    If there is no skew, or one side can be broadcast, this is Spark's own join.

    Parameters
    ----------
    left, right
        Batch DataFrames.
    on
        Names of the key columns, which both sides have.
    how
        ``inner``, ``left``, ``right``, ``semi`` or ``anti``, or Spark's other names for them.
    numPartitions
        Number of partitions N; default ``spark.sql.shuffle.partitions``.
    policy
        Gives the planner and the mode. In the modes ``"advise"`` and ``"observe"`` the join is Spark's own.
    split
        ``"auto"``: hot keys are cut into as few shards as make the partitions even. A number: so many shards for each
        hot key. A function of (share, N): the number of shards of a hot key. ``None``: keys stay whole.
    sample
        Number of rows of each side to look at; smaller sides are read whole. Default: as many as N partitions need, see
        ``balance``. ``"full"``: the rows of every key are counted.
    slots
        Number of tasks that run at the same time; default Spark's default parallelism.
    seed
        Seed of the sampling.

    Returns
    -------
    Join
        Its ``dataframe()`` has the joined rows.
    """
    options = BatchOptions(numPartitions=numPartitions, policy=policy, sample=sample, slots=slots, seed=seed)
    kind = join_type(how)
    names = (on,) if isinstance(on, str | Column) else tuple(on)
    keys = _key(left, names), _key(right, names)
    if keys[LEFT].types != keys[RIGHT].types:  # values of different types hash differently and would not meet
        here, there = (", ".join(key.types) for key in keys)
        raise MismatchError(
            f"the key is of type ({here}) on the left and ({there}) on the right; cast one to the other's type"
        )
    return Join((left, right), keys, kind, split, options)


def _key(df: DataFrame, names: Sequence[str | Column]) -> Key:
    for name in names if isinstance(df, DataFrame) else ():
        if isinstance(name, Column):
            raise InvalidArgumentError("on must name columns that both sides have; rename them, or use left.join")
        if name not in df.columns:
            raise InvalidArgumentError(f"there is no column {name!r} to join on; there are {', '.join(df.columns)}")
    return resolve_key(df, names)
