"""Aggregate by key with hot keys in pieces: each piece is reduced where it lies, then the pieces are merged.

The rows of a hot key take turns between its pieces, and a plan places pieces and whole keys alike, so that even one
key with most of the load keeps all slots busy. What is shuffled a second time is one small row for each key and piece.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from equipoise.checks.aggregator import check_merge
from equipoise.errors import InvalidArgumentError, UserFunctionError
from equipoise.plan import Planner, uniform_plan
from equipoise.spark.batch.advice import WORTH_IT, Action, Advice
from equipoise.spark.batch.fallback import measured_or
from equipoise.spark.batch.reduction import AggregatorReduction, FunctionReduction, PartialFunction, Reduction
from equipoise.spark.batch.report import batch_planner
from equipoise.spark.batch.sample import SAMPLE_ROWS, resolve_weight, take_sample
from equipoise.spark.batch.split_plan import Split, SplitPlan, plan_split
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.cluster import partition_count, slot_count
from equipoise.spark.rows.columns import FINGERPRINT, GROUP
from equipoise.spark.rows.keyed_frames import KeyedFrames, KeyedTables
from equipoise.spark.rows.keys import Key, as_column, resolve_key
from equipoise.spark.rows.pandas_rows import KeyFrames, key_shower
from equipoise.spark.rows.routing import next_shard
from equipoise.spark.rows.runs import cut
from equipoise.spark.rows.schemas import SparkSchemas, require_storable
from equipoise.spark.rows.user_functions import traced
from equipoise.split import SPLITTERS, Splitter, make_splitter
from equipoise.state.codec import KeyCodec

_KEY, _PART = "key", "part"
_PARTS = pa.schema({_KEY: pa.binary(), _PART: pa.binary()})
_ROWS_AT_A_TIME = 10_000
_BYTES_AT_A_TIME = 1 << 26
_CHECKED_ROWS = 1000
_ROWS_A_SECOND = 100_000  # what a second is to a splitter that goes by the clock
_log = logging.getLogger(__name__)

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, eq=False)
class Aggregation:
    """An aggregate that is ready to run; what ``plan_aggregate`` gives.

    Parameters
    ----------
    source, key, partitions
        The rows, their key, and N.
    reduction, output_schema
        What is done with them, and what comes of it.
    plan
        Where keys and pieces go; ``None`` where a splitter routes row by row.
    splitter, seed
        The splitter, if one was asked for, and the seed of one that was named.
    advice
        What was decided, and why.
    """

    source: DataFrame = field(repr=False)
    key: Key
    partitions: int
    reduction: Reduction = field(repr=False)
    output_schema: StructType | str
    plan: SplitPlan | None
    splitter: str | Splitter | None
    seed: int
    advice: Advice

    def dataframe(self) -> DataFrame:
        """The result: what ``finish`` or ``merge`` gives for each key."""
        work = _Work(self.source, self.key, self.reduction)
        placed = self._placed().repartitionById(self.partitions, GROUP)
        columns = [as_column(self.source, name) for name in self.key.names]
        rows = placed.sortWithinPartitions(FINGERPRINT, *columns)
        if not self.is_split:
            return rows.mapInArrow(work.in_one_step(), self.output_schema)
        parts = rows.mapInArrow(work.parts(), f"{_KEY} binary, {_PART} binary")
        together = parts.repartition(_KEY).sortWithinPartitions(_KEY)
        return together.mapInArrow(work.merged(), self.output_schema)

    @property
    def is_split(self) -> bool:
        """Whether some keys are in pieces, so that there is something to merge."""
        return self.plan is None or bool(self.plan.widths)

    def explain(self) -> None:
        """Print what is done, and why."""
        lines = ["== Aggregation ==", f"+- key [{self.key}], {self.partitions} partitions"]
        if self.splitter is not None:
            lines.append(f"   +- routed row by row by {_name(self.splitter)}, then merged")
        elif self.plan is not None:
            lines += [
                f"   :- {format(key % 2**64, '016x')} in {width} pieces"
                for key, width in sorted(self.plan.widths.items(), key=lambda pair: -pair[1])[:10]
            ]
            lines.append(
                f"   +- {len(self.plan.widths)} keys in pieces, fullest partition "
                f"{self.plan.loads.max() * self.partitions:.2f} of the mean"
            )
        lines += ["", "== Advice ==", str(self.advice)]
        print("\n".join(lines))  # noqa: T201 - as DataFrame.explain does

    def _placed(self) -> DataFrame:
        df, fingerprint = self.source, self.key.fingerprint
        if self.splitter is not None:
            schema = StructType(
                [*df.schema.fields, StructField(FINGERPRINT, LongType()), StructField(GROUP, IntegerType())]
            )
            return df.withColumn(FINGERPRINT, fingerprint).mapInArrow(
                _routed(self.splitter, self.partitions, self.seed), schema
            )
        assert self.plan is not None  # noqa: S101 - this tells the type checker
        df = df.withColumn(FINGERPRINT, fingerprint)
        if self.plan.widths:
            known = F.col(FINGERPRINT)
            df = df.withColumn(FINGERPRINT, self.plan.piece(known, next_shard(self.plan.width(known))))
        return df.withColumn(GROUP, self.plan.partition(F.col(FINGERPRINT)))


def aggregate(
    df: DataFrame,
    key: str | Sequence[str],
    aggregator: Aggregator | PartialFunction,
    outputSchema: StructType | str,  # noqa: N803 - Spark's own name
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    **options: Any,
) -> DataFrame:
    """Aggregate by key; hot keys are split over as many partitions as their load needs, and merged.

    Takes the options of ``plan_aggregate``, which also tells what will be done.
    """
    planned = plan_aggregate(df, key, aggregator, outputSchema, numPartitions, **options)
    _log.info("aggregate by %s: %s", planned.key, planned.advice)
    return planned.dataframe()


def plan_aggregate(
    df: DataFrame,
    key: str | Sequence[str],
    aggregator: Aggregator | PartialFunction,
    outputSchema: StructType | str,  # noqa: N803 - Spark's own name
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    *,
    split: Split = "auto",
    splitter: str | Splitter | None = None,
    planner: str | Planner = "kip",
    weight: str | Column | None = None,
    sample: int = SAMPLE_ROWS,
    slots: int | None = None,
    check: bool = False,
    seed: int = 0,
) -> Aggregation:
    """Look at the load of a key and decide how to aggregate by it.

    Parameters
    ----------
    df
        A batch DataFrame.
    key
        Key column or columns, by name.
    aggregator
        An ``Aggregator``, or a ``PartialFunction``.
    outputSchema
        Schema of the result.
    numPartitions
        N; default ``spark.sql.shuffle.partitions``.
    split
        ``"auto"``: hot keys are cut into as few pieces as make the partitions even. A number: so many pieces for each
        hot key. A function of (share, N): the number of pieces of a hot key. ``None``: keys stay whole.
    splitter
        Name of a splitter, or a splitter of N workers, that routes row by row in the tasks that read the data, each
        task with loads of its own: the methods as published. Then nothing is sampled, and every key is merged.
    planner
        Name of a planner, or a planner, for whole keys and pieces.
    weight
        Numeric column: the load of a row; default: every row counts 1.
    sample
        Number of rows to sample, about.
    slots
        Tasks that run at a time; default Spark's default parallelism.
    check
        Try on some rows whether ``merge`` is associative and commutative, and refuse one that is not.
    seed
        Seed of the sampling, and of a splitter that is named.
    """
    resolved = _named_key(df, key)
    KeyCodec(df.select(*resolved.columns).schema.jsonValue())  # refuses types that cannot be told apart by bytes
    spark = df.sparkSession
    count, concurrent = partition_count(spark, numPartitions), slot_count(spark, slots)
    schemas = SparkSchemas(spark)
    require_storable(schemas.parsed(outputSchema))
    timezone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    output = schemas.arrow(outputSchema)
    if isinstance(aggregator, Aggregator):
        reduction: Reduction = AggregatorReduction(aggregator, schemas, output, timezone)
        if check and aggregator.can_merge:
            check_merge(aggregator, _rows_of_one_key(df, resolved, timezone))
    elif isinstance(aggregator, PartialFunction):
        reduction = FunctionReduction(aggregator, schemas, output, timezone)
        if check:
            raise InvalidArgumentError("check=True is for an Aggregator: buffers can be compared, partial rows cannot")
    else:
        raise InvalidArgumentError(
            f"aggregator must be an Aggregator or a PartialFunction, got {type(aggregator).__name__}"
        )
    whole_only = isinstance(aggregator, Aggregator) and not aggregator.can_merge
    if whole_only and (splitter is not None or split not in {None, "auto"}):
        raise InvalidArgumentError(
            f"{type(aggregator).__name__} has no merge, so its keys cannot be split; add merge, or split=None"
        )
    if splitter is not None:
        made = _splitter(splitter, count, seed, lambda: 0.0)
        advice = Advice(Action.SPLIT, f"{made.name} was asked for; it routes row by row and every key is merged")
        return Aggregation(df, resolved, count, reduction, outputSchema, None, splitter, seed, advice)
    weight_of, chosen_planner = resolve_weight(df, weight), batch_planner(planner, concurrent)

    def measured() -> Aggregation:
        loads = take_sample(df, resolved, weight_of, rows=sample, seed=seed).key_loads()
        plan = plan_split(loads, count, chosen_planner, concurrent, None if whole_only else split)
        whole = plan if not plan.widths else plan_split(loads, count, chosen_planner, concurrent, None)
        advice = _advice(plan, whole, loads.hottest, concurrent, whole_only=whole_only)
        return Aggregation(df, resolved, count, reduction, outputSchema, plan, None, seed, advice)

    def by_hash(why: str) -> Aggregation:
        plan = SplitPlan(uniform_plan(count), {}, np.full(count, 1 / count))
        advice = Advice(Action.NOTHING, f"the keys could not be measured: {why}")
        return Aggregation(df, resolved, count, reduction, outputSchema, plan, None, seed, advice)

    return measured_or(measured, by_hash, f"the load of {resolved} could not be measured, so keys go by hash")


def _advice(plan: SplitPlan, whole: SplitPlan, hottest: float, slots: int, *, whole_only: bool) -> Advice:
    times = {"whole": whole.time(slots), "split": plan.time(slots)}
    numbers = {"hottest_share": hottest, **{f"{name}_over_ideal": time for name, time in times.items()}}
    if plan.widths:
        return Advice(
            Action.SPLIT,
            f"one key carries {hottest:.1%} of the load; {len(plan.widths)} keys in {sum(plan.widths.values())} pieces "
            f"are predicted at {times['split']:.2f} of the ideal time, whole keys at {times['whole']:.2f}",
            numbers,
        )
    if whole_only and times["whole"] > WORTH_IT:
        why = "the aggregator has no merge, so keys stay whole"
        return Advice(Action.ISOLATE, f"{why}: {times['whole']:.2f} of the ideal time is predicted", numbers)
    return Advice(Action.NOTHING, f"whole keys are predicted at {times['whole']:.2f} of the ideal time", numbers)


def _rows_of_one_key(df: DataFrame, key: Key, timezone: str) -> pd.DataFrame:
    """Some rows of the most frequent key among the first ones."""
    first = df.limit(_CHECKED_ROWS).withColumn(FINGERPRINT, key.fingerprint).toArrow().combine_chunks()
    keys, counts = np.unique(first.column(FINGERPRINT).to_numpy(), return_counts=True)
    if len(keys):
        first = first.filter(pc.equal(first.column(FINGERPRINT), int(keys[np.argmax(counts)])))
    return KeyFrames(first.drop_columns([FINGERPRINT]), timezone).cut(0, first.num_rows)


def _named_key(df: DataFrame, key: str | Sequence[str]) -> Key:
    names = [key] if isinstance(key, str | Column) else list(key)
    missing = [name for name in names if not isinstance(name, str) or name not in df.columns]
    if missing:
        raise InvalidArgumentError(f"key {missing[0]!r} is not the name of a column; add it with withColumn first")
    return resolve_key(df, names)


def _splitter(given: str | Splitter, partitions: int, seed: int, clock: Callable[[], float]) -> Splitter:
    """The splitter as given, or the one of that name, with this clock if it goes by one."""
    if isinstance(given, str):
        timed = given in SPLITTERS and "clock" in signature(SPLITTERS[given]).parameters
        return make_splitter(given, workers=partitions, seed=seed, **({"clock": clock} if timed else {}))
    if given.workers != partitions:
        raise InvalidArgumentError(
            f"the splitter has {given.workers} workers but numPartitions is {partitions}; give it as many"
        )
    return given


def _name(splitter: str | Splitter) -> str:
    return splitter if isinstance(splitter, str) else splitter.name


def _routed(given: str | Splitter, partitions: int, seed: int) -> Callable[[Batches], Batches]:
    """Adds where a splitter sends each row; every task is a source with a splitter of its own.

    The clock of one that is named is the number of rows, so that a task that is repeated routes them as before.
    """

    def route(batches: Batches) -> Batches:
        seen = 0
        splitter = _splitter(given, partitions, seed, lambda: seen / _ROWS_A_SECOND)
        for batch in batches:
            targets = splitter.route(batch.column(FINGERPRINT).to_numpy())
            seen += batch.num_rows
            yield batch.append_column(GROUP, pa.array(targets, pa.int32()))

    return route


class _Work:
    """The functions for ``mapInArrow``."""

    def __init__(self, df: DataFrame, key: Key, reduction: Reduction) -> None:
        self._fields = [df.columns.index(name) for name in key.names]
        kinds = [df.schema[name].dataType for name in key.names]
        schema = StructType([StructField(name, kind) for name, kind in zip(key.names, kinds, strict=True)])
        self._key_schema = schema.jsonValue()
        self._timezone = df.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
        self._reduction = reduction

    def in_one_step(self) -> Callable[[Batches], Batches]:
        """Rows to output rows, where every key is whole."""

        def run(batches: Batches) -> Batches:
            shown = key_shower(self._key_schema, self._timezone)
            found = (
                _called(self._reduction.whole, "finish", shown(key), [part]) for _, key, part in self._reduced(batches)
            )
            yield from self._outputs(found)

        return run

    def parts(self) -> Callable[[Batches], Batches]:
        """Rows to one part for each key or piece."""

        def run(batches: Batches) -> Batches:
            pending: list[tuple[bytes, bytes]] = []
            size = 0
            for encoded, _, part in self._reduced(batches):
                pending.append((encoded, part))
                size += len(part)
                if len(pending) == _ROWS_AT_A_TIME or size >= _BYTES_AT_A_TIME:
                    yield _part_rows(pending)
                    pending, size = [], 0
            if pending:
                yield _part_rows(pending)

        return run

    def merged(self) -> Callable[[Batches], Batches]:
        """Parts, sorted by key, to output rows."""

        def run(batches: Batches) -> Batches:
            codec, shown = KeyCodec(self._key_schema), key_shower(self._key_schema, self._timezone)
            pairs = (
                pair
                for batch in batches
                for pair in zip(batch.column(_KEY).to_pylist(), batch.column(_PART).to_pylist(), strict=True)
            )
            found = (
                _called(self._reduction.whole, "merge", shown(codec.decode_key(encoded)), [part for _, part in parts])
                for encoded, parts in groupby(pairs, key=lambda pair: pair[0])
            )
            yield from self._outputs(found)

        return run

    def _reduced(self, batches: Batches) -> Iterator[tuple[bytes, tuple[Any, ...], bytes]]:
        """Encoded key, key and part of each key or piece of sorted rows."""
        codec, shown = KeyCodec(self._key_schema), key_shower(self._key_schema, self._timezone)
        runs = (cut(batch, self._fields, codec) for batch in batches if batch.num_rows)
        reduction = self._reduction
        arrow, rebuilt = reduction.arrow, reduction.rebuilt
        keyed = KeyedTables(runs) if arrow else KeyedFrames(runs, self._timezone, rebuilt=rebuilt)
        for _, _, encoded, key, frames in keyed:
            yield encoded, key, _called(self._reduction.part, "reduce", shown(key), frames)

    def _outputs(self, found: Iterator[Any]) -> Batches:
        pending: list[Any] = []
        for each in found:
            if each is not None:
                pending.append(each)
            if len(pending) == _ROWS_AT_A_TIME:
                yield from self._reduction.table(pending).to_batches()
                pending = []
        if pending:
            yield from self._reduction.table(pending).to_batches()


def _called(step: Callable[[tuple[Any, ...], Any], Any], what: str, key: tuple[Any, ...], given: Any) -> Any:
    """What a step gives; a failure is told with the user's own traceback."""
    try:
        return step(key, given)
    except Exception as error:
        raise UserFunctionError(f"{what} failed: {type(error).__name__}: {error}\n{traced(error)}") from error


def _part_rows(pairs: list[tuple[bytes, bytes]]) -> pa.RecordBatch:
    keys, parts = zip(*pairs, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(parts, pa.binary())], schema=_PARTS)
