"""Join with hot keys in pieces: the rows of one side take turns between them, those of the other are in all of them.

Every row of the split side then meets every row of its key on the other side, in exactly one piece, so the result is
that of the plain join. A key is split on a side whose unmatched rows the join keeps, or on either side of an inner
join; never on the side that is only looked up, whose repeated rows would then come out as unmatched several times.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.metrics import makespan
from equipoise.plan import Planner
from equipoise.sketch import Histogram
from equipoise.spark.batch.advice import WORTH_IT, Action, Advice, broadcast_advice
from equipoise.spark.batch.fallback import measured_or
from equipoise.spark.batch.key_loads import KeyLoads
from equipoise.spark.batch.report import batch_planner
from equipoise.spark.batch.sample import SAMPLE_ROWS, Rows, Sample, count, resolve_weight, take_samples
from equipoise.spark.batch.split_plan import Split, SplitPlan, plan_split
from equipoise.spark.rows.cluster import partition_count, slot_count
from equipoise.spark.rows.columns import FINGERPRINT, PARTITION, SHARD
from equipoise.spark.rows.keys import Key, as_column, resolve_key
from equipoise.spark.rows.routing import next_shard, width_column
from equipoise.split.shards import shard_fingerprints

_HASH_OF_NULL = 42  # the seed of Spark's hash, which NULL leaves as it is
_SURE = 5  # sampled rows from which the size of a key is believed
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JoinType:
    """A type of join: which sides may be split, which rows with NULL keys it keeps, which side may be broadcast."""

    name: str
    splits: tuple[int, ...]
    keeps_null: tuple[int, ...]
    broadcasts: tuple[int, ...]
    pairs: bool = True  # whether every pair of matching rows comes out


LEFT, RIGHT = 0, 1
JOIN_TYPES = {
    "inner": JoinType("inner", (LEFT, RIGHT), (), (RIGHT, LEFT)),
    "left": JoinType("left", (LEFT,), (LEFT,), (RIGHT,)),
    "right": JoinType("right", (RIGHT,), (RIGHT,), (LEFT,)),
    "semi": JoinType("semi", (LEFT,), (), (RIGHT,), pairs=False),
    "anti": JoinType("anti", (LEFT,), (LEFT,), (RIGHT,), pairs=False),
}
"""Types of join that can be treated."""

_OTHER_NAMES = {"outer": "full", "fullouter": "full", "leftouter": "left", "rightouter": "right", "leftsemi": "semi"}
_OTHER_NAMES |= {"leftanti": "anti"}


@dataclass(frozen=True, eq=False)
class Join:
    """A join that is ready to run; what ``plan_join`` gives.

    Parameters
    ----------
    sides
        Left and right.
    on
        Names of the key columns.
    how
        Type of the join.
    advice
        What was decided, and why.
    plan
        Where keys and pieces go; ``None`` where Spark's own join is used.
    split_on
        Side on which each key that is in pieces is split, by its fingerprint: 0 for left, 1 for right.
    broadcast
        Side that is broadcast; ``None`` for none.
    """

    sides: tuple[DataFrame, DataFrame] = field(repr=False)
    on: tuple[str, ...]
    how: JoinType
    advice: Advice
    plan: SplitPlan | None = None
    split_on: Mapping[int, int] = field(default_factory=dict)
    broadcast: int | None = None

    def dataframe(self) -> DataFrame:
        """The joined rows, with the columns of ``left.join(right, on, how)``."""
        left, right = self.sides
        if self.broadcast == LEFT:
            left = F.broadcast(left)
        elif self.broadcast == RIGHT:
            right = F.broadcast(right)
        if self.plan is None:
            return left.join(right, list(self.on), self.how.name)
        placed = [self._placed(side) for side in (LEFT, RIGHT)]
        return placed[LEFT].join(placed[RIGHT], [PARTITION, SHARD, *self.on], self.how.name).drop(PARTITION, SHARD)

    def explain(self) -> None:
        """Print what is done, and why."""
        lines = ["== Join ==", f"+- {self.how.name} on [{', '.join(self.on)}]"]
        if self.plan is not None:
            names = ("left", "right")
            lines += [
                f"   :- {format(key % 2**64, '016x')} in {width} pieces, split on the {names[self.split_on[key]]}"
                for key, width in sorted(self.plan.widths.items(), key=lambda pair: -pair[1])[:10]
            ]
            lines.append(f"   +- {len(self.plan.widths)} keys in pieces, {self.plan.plan.partitions} partitions")
        else:
            lines.append("   +- by Spark's own join" + (", one side broadcast" if self.broadcast is not None else ""))
        print("\n".join([*lines, "", "== Advice ==", str(self.advice)]))  # noqa: T201 - as DataFrame.explain does

    def _placed(self, side: int) -> DataFrame:
        assert self.plan is not None  # noqa: S101 - this tells the type checker
        df, plan = self.sides[side], self.plan
        key = [as_column(df, name) for name in self.on]
        if side not in self.how.keeps_null:
            df = df.where(_all(column.isNotNull() for column in key))
        df = df.withColumn(FINGERPRINT, F.xxhash64(*key))
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
        partition = plan.partition(plan.piece(fingerprint, F.col(SHARD)))
        if side in self.how.keeps_null:
            anywhere = F.pmod(F.monotonically_increasing_id(), F.lit(plan.plan.partitions)).cast("int")
            partition = F.when(_all(column.isNotNull() for column in key), partition).otherwise(anywhere)
        return df.withColumn(PARTITION, partition).drop(FINGERPRINT).repartitionById(plan.plan.partitions, PARTITION)


def join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    how: str = "inner",
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    **options: Any,
) -> DataFrame:
    """Join two DataFrames; hot keys of one side are split, and the matching rows of the other repeated.

    Takes the options of ``plan_join``, which also tells what will be done. Where there is no skew, or one side can be
    broadcast, this is Spark's own join.
    """
    planned = plan_join(left, right, on, how, numPartitions, **options)
    _log.info("%s join on %s: %s", planned.how.name, ", ".join(planned.on), planned.advice)
    return planned.dataframe()


def plan_join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    how: str = "inner",
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    *,
    split: Split = "auto",
    planner: str | Planner = "kip",
    sample: int = SAMPLE_ROWS,
    slots: int | None = None,
    seed: int = 0,
) -> Join:
    """Look at the keys of both sides and decide how to join them.

    Parameters
    ----------
    left, right
        Batch DataFrames.
    on
        Names of the key columns, which both sides have.
    how
        ``inner``, ``left``, ``right``, ``semi`` or ``anti``, or Spark's other names for them.
    numPartitions
        N; default ``spark.sql.shuffle.partitions``.
    split
        As for ``plan_aggregate``.
    planner
        Name of a planner, or a planner.
    sample
        Number of rows of each side to sample, about.
    slots
        Tasks that run at a time; default Spark's default parallelism.
    seed
        Seed of the sampling.
    """
    kind = _join_type(how)
    names = (on,) if isinstance(on, str) else tuple(on)
    keys = tuple(_key(df, names) for df in (left, right))
    if keys[LEFT].types != keys[RIGHT].types:  # values of different types hash differently and would not meet
        here, there = (", ".join(key.types) for key in keys)
        raise MismatchError(
            f"the key is of type ({here}) on the left and ({there}) on the right; cast one to the other's type"
        )
    sides = (left, right)
    spark = left.sparkSession
    partitions, concurrent = partition_count(spark, numPartitions), slot_count(spark, slots)
    chosen = batch_planner(planner, concurrent)

    def measured() -> Join:
        rows = [Rows(df, key, resolve_weight(df, None)) for df, key in zip(sides, keys, strict=True)]
        totals = count(rows)
        for side in kind.broadcasts:
            small = broadcast_advice(sides[side], totals[side][0])
            if small is not None:
                return Join(sides, names, kind, small, broadcast=side)
        sized = _Sizes.of(kind, *map(_Side.of_sample, take_samples(rows, totals, rows=sample, seed=seed)))
        return Join(sides, names, kind, *_decided(sized, partitions, concurrent, chosen, split))

    return measured_or(
        measured,
        lambda why: Join(sides, names, kind, Advice(Action.NOTHING, f"the keys could not be measured: {why}")),
        f"the keys {', '.join(names)} could not be measured, so this is Spark's own join",
    )


def _decided(
    sized: "_Sizes", partitions: int, slots: int, planner: Planner, split: Split
) -> tuple[Advice, SplitPlan | None, dict[int, int]]:
    """What to do about keys of these sizes: the advice, the plan, and the side on which each key is split."""
    plan = plan_split(sized.loads({}), partitions, planner, slots, split, lambda _, widths: sized.loads(widths))
    plain = makespan(sized.plain_loads(partitions), slots) * slots
    planned = makespan(sized.with_nulls(plan.loads), slots) * slots
    numbers = {"hottest_share": sized.hottest, "hash_over_ideal": plain, "planned_over_ideal": planned}
    asked_for = split not in {"auto", None} and bool(plan.widths)
    if plain < WORTH_IT * planned and not asked_for:
        reason = f"Spark's own join is at {plain:.2f} of the ideal time, a plan would be at {planned:.2f}"
        return Advice(Action.NOTHING, reason, numbers), None, {}
    if not plan.widths:
        reason = f"Spark's own join is at {plain:.2f} of the ideal time, keys placed by a plan at {planned:.2f}"
        return Advice(Action.ISOLATE, reason, numbers), plan, {}
    reason = (
        f"one key makes {sized.hottest:.1%} of the work; {len(plan.widths)} keys in {sum(plan.widths.values())} pieces "
        f"are predicted at {planned:.2f} of the ideal time, Spark's own join at {plain:.2f}"
    )
    return Advice(Action.SPLIT, reason, numbers), plan, {key: sized.side_of(key) for key in plan.widths}


def _join_type(how: str) -> JoinType:
    name = str(how).lower().replace("_", "")
    name = _OTHER_NAMES.get(name, name)
    if name == "full":
        raise InvalidArgumentError(
            "a full outer join cannot be split: whichever side is repeated, its unmatched rows would come out several "
            "times; use Spark's own join, or a left join and an anti join"
        )
    if name not in JOIN_TYPES:
        raise InvalidArgumentError(
            f"how must be one of {', '.join(JOIN_TYPES)}, got {how!r}; use Spark's own join for others"
        )
    return JOIN_TYPES[name]


def _key(df: DataFrame, names: tuple[str, ...]) -> Key:
    missing = [name for name in names if name not in df.columns]
    if missing:
        raise InvalidArgumentError(f"there is no column {missing[0]!r} to join on; there are {', '.join(df.columns)}")
    return resolve_key(df, list(names))


@dataclass(frozen=True, eq=False)
class _Side:
    """Sampled keys of one side, with the rows each stands for."""

    sample: Sample
    keys: NDArray[np.int64]
    rows: NDArray[np.float64]
    hits: NDArray[np.int64]
    nulls: int

    @classmethod
    def of_sample(cls, sample: Sample) -> "_Side":
        """Count the keys of a sample."""
        known, nulls = sample.without_nulls()
        keys, inverse, hits = np.unique(known.fingerprints, return_inverse=True, return_counts=True)
        rows = np.bincount(inverse, known.loads, len(keys)).astype(np.float64)
        return cls(known, keys, rows, hits, nulls)

    def of(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Rows of some keys, and whether enough of them were sampled to believe it."""
        at = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        found = self.keys[at] == keys if len(self.keys) else np.zeros(len(keys), dtype=bool)
        rows = np.where(found, self.rows[at], 0.0) if len(self.keys) else np.zeros(len(keys))
        hits = np.where(found, self.hits[at], 0) if len(self.keys) else np.zeros(len(keys), dtype=np.int64)
        return rows, (hits >= _SURE) | self.sample.is_complete


@dataclass(frozen=True, eq=False)
class _Sizes:
    """What each key costs: rows that are read and rows that come out.

    Parameters
    ----------
    keys
        All sampled keys, sorted.
    shared, repeated
        Work that pieces of a key share, and work that each of them has: the rows of the side that is repeated.
    sides
        Side on which each key would be split.
    hashes
        Spark's own hash of each key.
    nulls
        Rows with NULL keys that the join keeps.
    """

    keys: NDArray[np.int64]
    shared: NDArray[np.float64]
    repeated: NDArray[np.float64]
    sides: NDArray[np.int64]
    hashes: NDArray[np.int64]
    nulls: float

    @classmethod
    def of(cls, kind: JoinType, left: _Side, right: _Side) -> "_Sizes":
        """Put the samples of two sides together."""
        both = (left, right)
        keys = np.union1d(left.keys, right.keys)
        (here, sure_here), (there, sure_there) = left.of(keys), right.of(keys)
        out = np.where(sure_here & sure_there, here * there, np.maximum(here, there)) if kind.pairs else here
        larger = np.where(there > here, RIGHT, LEFT)
        side = larger if len(kind.splits) == 2 else np.full(len(keys), kind.splits[0])
        hashes = np.zeros(len(keys), dtype=np.int64)
        for each in both:
            hashes[np.searchsorted(keys, each.sample.fingerprints)] = each.sample.hashes
        return cls(
            keys,
            shared=np.where(side == LEFT, here, there) + out,
            repeated=np.where(side == LEFT, there, here),
            sides=side,
            hashes=hashes,
            nulls=float(sum(both[each].nulls for each in kind.keeps_null)),
        )

    @property
    def work(self) -> NDArray[np.float64]:
        """Work of each whole key."""
        return self.shared + self.repeated

    @property
    def hottest(self) -> float:
        """Share of the work of the hottest key."""
        return float(self.work.max() / max(self.work.sum(), 1.0)) if len(self.keys) else 0.0

    def side_of(self, key: int) -> int:
        """Side on which a key is split."""
        return int(self.sides[np.searchsorted(self.keys, key)])

    def loads(self, widths: Mapping[int, int]) -> KeyLoads:
        """Loads when some keys are in pieces; each piece has all rows of the side that is repeated."""
        split = np.isin(self.keys, list(widths))
        keys, work = [self.keys[~split]], [self.work[~split]]
        for key, shared, repeated in zip(
            self.keys[split].tolist(), self.shared[split], self.repeated[split], strict=True
        ):
            keys.append(shard_fingerprints(key, widths[key]))
            work.append(np.full(widths[key], shared / widths[key] + repeated))
        every, load = np.concatenate(keys), np.concatenate(work)
        total = float(load.sum())
        if total == 0:
            return KeyLoads.of(Histogram([], [], total=0.0), every, load, 0, 0.0)
        return KeyLoads.of(Histogram(every, load / total, unlisted=0.0, total=total), every, load, len(every), total)

    def plain_loads(self, partitions: int) -> NDArray[np.float64]:
        """Load of each partition under Spark's own hash, as a part of all work; NULLs are all in one."""
        loads = np.bincount(np.mod(self.hashes, partitions), self.work, partitions).astype(np.float64)
        loads[_HASH_OF_NULL % partitions] += self.nulls
        return np.asarray(loads / max(self.work.sum() + self.nulls, 1.0), dtype=np.float64)

    def with_nulls(self, loads: NDArray[np.float64]) -> NDArray[np.float64]:
        """Loads that are parts of the work of keys, with NULLs spread evenly, as parts of all work."""
        work = float(self.work.sum())
        return np.asarray((loads * work + self.nulls / len(loads)) / max(work + self.nulls, 1.0), dtype=np.float64)


def _all(conditions: Any) -> Column:
    whole = F.lit(True)
    for condition in conditions:
        whole = whole & condition
    return whole
