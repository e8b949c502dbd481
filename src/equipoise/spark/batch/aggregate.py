"""Aggregate by key with hot keys in shards: each shard is reduced by one task, then the partial results are merged.

The rows of a hot key are dealt out to its shards, and a plan places shards and whole keys alike, so that even one key
with most of the load keeps all slots busy. The second shuffle carries one small row for each key and shard.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from inspect import signature
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from equipoise.errors import InvalidArgumentError, UserFunctionError
from equipoise.plan import Plan, uniform_plan
from equipoise.readable import count_text
from equipoise.spark.batch.advice import Operation
from equipoise.spark.batch.look import KeyMeasurement
from equipoise.spark.batch.reduction import AggregatorReduction, FunctionReduction, PartialFunction, Reduction
from equipoise.spark.batch.split_plan import Split
from equipoise.spark.rows.advice import Action, Advice
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.columns import FINGERPRINT, GROUP
from equipoise.spark.rows.keyed_frames import KeyedFrames, KeyedTables
from equipoise.spark.rows.keys import Key, named_key
from equipoise.spark.rows.pandas_rows import KeyFrames, key_shower
from equipoise.spark.rows.routing import SplitPlan, next_shard
from equipoise.spark.rows.runs import cut
from equipoise.spark.rows.schemas import SparkSchemas, require_storable
from equipoise.spark.rows.user_functions import traced
from equipoise.split import SPLITTERS, Splitter, make_splitter
from equipoise.split.shards import shards_text
from equipoise.state.codec import KeyCodec

_KEY, _PARTIAL = "key", "partial"
_PARTIALS = pa.schema({_KEY: pa.binary(), _PARTIAL: pa.binary()})
_ROWS_AT_A_TIME = 10_000
_BYTES_AT_A_TIME = 1 << 26
_CHECKED_ROWS = 1000
_ROWS_PER_SECOND = 100_000  # the clock of a splitter that goes by time counts rows

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, eq=False)
class Aggregation:
    """An aggregate that is ready to run.

    Parameters
    ----------
    source, key, partitions
        The rows, their key, and N.
    reduction, output_schema
        The steps of the aggregate, and the schema of its result.
    plan
        Placement of keys and shards; ``None`` if a splitter routes row by row.
    splitter, seed
        The splitter, if one was given, and the seed of one given by name.
    advice
        The decision and its reason; ``None`` if nothing was measured.
    reason
        Why it is done this way, for ``explain``.
    """

    source: DataFrame = field(repr=False)
    key: Key
    partitions: int
    reduction: Reduction = field(repr=False)
    output_schema: StructType | str
    plan: SplitPlan | None
    splitter: str | Splitter | None
    seed: int
    advice: Advice | None
    reason: str

    def dataframe(self) -> DataFrame:
        """Return the output rows of all keys."""
        work = _Work(self.source, self.key, self.reduction)
        placed = self._placed().repartitionById(self.partitions, GROUP)
        rows = placed.sortWithinPartitions(FINGERPRINT, *self.key.columns)
        if not self.is_split:
            return rows.mapInArrow(work.in_one_step(), self.output_schema)
        partials = rows.mapInArrow(work.partials(), f"{_KEY} binary, {_PARTIAL} binary")
        together = partials.repartition(_KEY).sortWithinPartitions(_KEY)
        return together.mapInArrow(work.merged(), self.output_schema)

    @property
    def is_split(self) -> bool:
        """Whether some keys are in shards, so that partial results are merged."""
        return self.plan is None or bool(self.plan.widths)

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
            df = df.withColumn(FINGERPRINT, self.plan.shard(known, next_shard(self.plan.width(known))))
        return df.withColumn(GROUP, self.plan.partition(F.col(FINGERPRINT)))


def aggregation(
    look: KeyMeasurement,
    aggregator: Aggregator | PartialFunction,
    output_schema: StructType | str,
    *,
    split: Split,
    splitter: str | Splitter | None,
    check: bool,
) -> Aggregation:
    """Decide how to aggregate by a key.

    Parameters
    ----------
    look
        The rows, their key and their loads.
    aggregator, output_schema, split, splitter, check
        As for ``BalancedGroups.aggregate``.
    """
    df, options = look.df, look.options
    key = named_key(df, look.key, "aggregate")
    KeyCodec(df.select(*key.columns).schema.jsonValue())  # refuses types that have no unique bytes
    reduction = _reduction(df, aggregator, output_schema)
    can_split = not isinstance(aggregator, Aggregator) or aggregator.can_merge
    if not can_split and (splitter is not None or split not in {None, "auto"}):
        raise InvalidArgumentError(
            f"{type(aggregator).__name__} has no merge, so its keys cannot be split; add merge, or use split=None"
        )
    if check:
        _check(aggregator, df, key)

    def made(source: DataFrame, plan: SplitPlan | None, advice: Advice | None, reason: str) -> Aggregation:
        return Aggregation(
            source, key, look.partitions, reduction, output_schema, plan, splitter, options.seed, advice, reason
        )

    if splitter is not None:
        name = _splitter(splitter, look.partitions, options.seed, lambda: 0.0).name
        reason = (
            f"routed row by row by {name} into {count_text(look.partitions, 'partition')}; partial results are merged"
        )
        return made(df, None, Advice(Action.SPLIT, f"the splitter {name} was given"), reason)
    if options.plan is not None:
        if split not in {None, "auto"}:
            raise InvalidArgumentError("split= needs measured loads, and with plan= nothing is measured; drop one")
        return made(df, _unmeasured(options.plan), None, "keys placed whole by the given plan")
    if not options.places_keys:
        reason = f"keys placed whole by their hash: placement {options.placement!r}, mode {options.policy.mode!r}"
        return made(look.source, _unmeasured(uniform_plan(look.partitions)), None, reason)
    plan = look.split_plan(split if can_split else None)
    advice = look.advice(Operation.AGGREGATE if can_split else Operation.APPLY_IN_PANDAS, plan)
    return made(look.source, plan, advice, _reason(look, plan, None if can_split else type(aggregator).__name__))


def _reason(look: KeyMeasurement, plan: SplitPlan, unmergeable: str | None) -> str:
    """Return why keys are split or whole.

    Parameters
    ----------
    look
        The rows and their loads.
    plan
        The plan.
    unmergeable
        Name of an aggregator without ``merge``.
    """
    if look.failure:
        return f"keys placed whole by their hash, because they could not be measured: {look.failure}"
    if plan.widths:
        return f"{shards_text(plan.widths)}, reduced one by one and then merged"
    why = "no shards were needed" if unmergeable is None else f"{unmergeable} has no merge"
    return f"keys placed whole by the plan: {why}"


def _unmeasured(plan: Plan) -> SplitPlan:
    return SplitPlan(plan, {}, np.full(plan.partitions, 1 / plan.partitions))


def _reduction(df: DataFrame, aggregator: Aggregator | PartialFunction, schema: StructType | str) -> Reduction:
    if not isinstance(aggregator, Aggregator | PartialFunction):
        raise InvalidArgumentError(
            f"aggregator must be an Aggregator or a PartialFunction, got {type(aggregator).__name__}"
        )
    schemas = SparkSchemas(df.sparkSession)
    require_storable(schemas.parsed(schema))
    if isinstance(aggregator, Aggregator):
        return AggregatorReduction(aggregator, schemas, schemas.arrow(schema), _timezone(df))
    return FunctionReduction(aggregator, schemas, schemas.arrow(schema), _timezone(df))


def _timezone(df: DataFrame) -> str:
    return df.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"


def _check(aggregator: Aggregator | PartialFunction, df: DataFrame, key: Key) -> None:
    """Try the laws of ``merge`` on some rows of one key."""
    from equipoise.checks.aggregator import check_merge  # noqa: PLC0415 - loads all other checks

    if not isinstance(aggregator, Aggregator):
        raise InvalidArgumentError("check=True is for an Aggregator: buffers can be compared, partial rows cannot")
    if aggregator.can_merge:
        check_merge(aggregator, _rows_of_one_key(df, key, _timezone(df)))


def _rows_of_one_key(df: DataFrame, key: Key, timezone: str) -> pd.DataFrame:
    """Return the rows of the most frequent key among the first rows."""
    first = df.limit(_CHECKED_ROWS).withColumn(FINGERPRINT, key.fingerprint).toArrow().combine_chunks()
    keys, counts = np.unique(first.column(FINGERPRINT).to_numpy(), return_counts=True)
    if len(keys):
        first = first.filter(pc.equal(first.column(FINGERPRINT), int(keys[np.argmax(counts)])))
    return KeyFrames(first.drop_columns([FINGERPRINT]), timezone).cut(0, first.num_rows)


def _splitter(given: str | Splitter, partitions: int, seed: int, clock: Callable[[], float]) -> Splitter:
    """Return the splitter as given, or the one of that name, with this clock if it goes by time."""
    if isinstance(given, str):
        timed = given in SPLITTERS and "clock" in signature(SPLITTERS[given]).parameters
        return make_splitter(given, workers=partitions, seed=seed, **({"clock": clock} if timed else {}))
    if given.workers != partitions:
        raise InvalidArgumentError(
            f"the splitter has {given.workers} workers but numPartitions is {partitions}; use the same number"
        )
    return given


def _routed(given: str | Splitter, partitions: int, seed: int) -> Callable[[Batches], Batches]:
    """Return a function that adds the partition that a splitter chooses for each row; each task has its own splitter.

    The clock of a splitter given by name counts rows, so that a repeated task routes them as before.
    """

    def route(batches: Batches) -> Batches:
        seen = 0
        splitter = _splitter(given, partitions, seed, lambda: seen / _ROWS_PER_SECOND)
        for batch in batches:
            targets = splitter.route(batch.column(FINGERPRINT).to_numpy())
            seen += batch.num_rows
            yield batch.append_column(GROUP, pa.array(targets, pa.int32()))

    return route


class _Work:
    """Functions for ``mapInArrow``."""

    def __init__(self, df: DataFrame, key: Key, reduction: Reduction) -> None:
        self._fields = [df.columns.index(name) for name in key.names]
        kinds = [df.schema[name].dataType for name in key.names]
        schema = StructType([StructField(name, kind) for name, kind in zip(key.names, kinds, strict=True)])
        self._key_schema = schema.jsonValue()
        self._timezone = _timezone(df)
        self._reduction = reduction

    def in_one_step(self) -> Callable[[Batches], Batches]:
        """Return the function from rows to output rows, for keys that are all whole."""

        def run(batches: Batches) -> Batches:
            shown = key_shower(self._key_schema, self._timezone)
            found = (
                _called(self._reduction.whole, "finish", shown(key), [partial])
                for _, key, partial in self._reduced(batches)
            )
            yield from self._outputs(found)

        return run

    def partials(self) -> Callable[[Batches], Batches]:
        """Return the function from rows to one partial result for each key or shard."""

        def run(batches: Batches) -> Batches:
            pending: list[tuple[bytes, bytes]] = []
            size = 0
            for encoded, _, partial in self._reduced(batches):
                pending.append((encoded, partial))
                size += len(partial)
                if len(pending) == _ROWS_AT_A_TIME or size >= _BYTES_AT_A_TIME:
                    yield _partial_rows(pending)
                    pending, size = [], 0
            if pending:
                yield _partial_rows(pending)

        return run

    def merged(self) -> Callable[[Batches], Batches]:
        """Return the function from partial results, sorted by key, to output rows."""

        def run(batches: Batches) -> Batches:
            codec, shown = KeyCodec(self._key_schema), key_shower(self._key_schema, self._timezone)
            pairs = (
                pair
                for batch in batches
                for pair in zip(batch.column(_KEY).to_pylist(), batch.column(_PARTIAL).to_pylist(), strict=True)
            )
            outputs = (
                _called(self._reduction.whole, "merge", shown(codec.decode_key(encoded)), [each for _, each in found])
                for encoded, found in groupby(pairs, key=lambda pair: pair[0])
            )
            yield from self._outputs(outputs)

        return run

    def _reduced(self, batches: Batches) -> Iterator[tuple[bytes, tuple[Any, ...], bytes]]:
        """Yield the encoded key, the key and the partial result of each key or shard of sorted rows."""
        codec, shown = KeyCodec(self._key_schema), key_shower(self._key_schema, self._timezone)
        runs = (cut(batch, self._fields, codec) for batch in batches if batch.num_rows)
        reduction = self._reduction
        arrow, rebuilt = reduction.arrow, reduction.rebuilt
        keyed = KeyedTables(runs) if arrow else KeyedFrames(runs, self._timezone, rebuilt=rebuilt)
        for _, _, encoded, key, frames in keyed:
            yield encoded, key, _called(self._reduction.partial, "reduce", shown(key), frames)

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
    """Return the result of a step; an error of the user's code keeps its own traceback."""
    try:
        return step(key, given)
    except Exception as error:
        raise UserFunctionError(f"{what} failed: {type(error).__name__}: {error}\n{traced(error)}") from error


def _partial_rows(pairs: list[tuple[bytes, bytes]]) -> pa.RecordBatch:
    keys, partials = zip(*pairs, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(partials, pa.binary())], schema=_PARTIALS)
