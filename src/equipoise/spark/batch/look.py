"""Measure the load of a key and plan for it: once, when the first operation needs it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from equipoise.plan import Plan, uniform_plan
from equipoise.readable import count_text
from equipoise.spark.batch.advice import OVERPARTITIONING, Operation, advice_for
from equipoise.spark.batch.key_loads import KeyLoads, hash_over_fine_groups
from equipoise.spark.batch.load_record import LoadRecord, Recorder
from equipoise.spark.batch.options import BatchOptions
from equipoise.spark.batch.sample import Sample, WeightedRows, measured_or, resolve_weight, take_sample
from equipoise.spark.batch.split_plan import Split, plan_split
from equipoise.spark.rows.advice import Advice
from equipoise.spark.rows.cluster import slot_count
from equipoise.spark.rows.keys import Key
from equipoise.spark.rows.routing import SplitPlan

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Measured:
    """Loads of a key, the sample they come from, ``None`` for loads from a record, and the seconds that it took."""

    loads: KeyLoads
    sample: Sample | None = None
    seconds: float = 0.0

    def hash_loads(self, partitions: int) -> NDArray[np.float64]:
        """Return the share of the load in each partition under Spark's hash.

        A record holds fingerprints and not Spark's hash; their hash is as even or uneven on average.
        """
        if self.sample is not None:
            return self.sample.plain_loads(partitions)
        return self.loads.predicted(hash_over_fine_groups(partitions))

    def load_error(self, partitions: int) -> float:
        """Return the expected error of the load of the fullest of N partitions, as a share of an even load."""
        return 0.0 if self.sample is None else self.sample.load_error(partitions)

    def described(self, partitions: int) -> str:
        """Return where the loads come from, how exact they are for N partitions, and what it cost to learn them."""
        if self.sample is None:
            return f"{self.loads.rows:,} rows, from the record of earlier runs"
        if self.sample.is_complete:
            return f"{self.sample.rows:,} rows, all of them read in {self.seconds:.2f} s"
        taken = f"{len(self.sample.fingerprints):,} of them taken in {self.seconds:.2f} s"
        return (
            f"about {self.sample.rows:,} rows, {taken}; "
            f"loads of {count_text(partitions, 'partition')} within {self.load_error(partitions):.1%}"
        )


class KeyMeasurement:
    """The loads of a key and the plan made from them; both are made once, when first needed.

    Parameters
    ----------
    df
        The rows.
    key
        Their key.
    options
        How to measure and plan.
    """

    def __init__(self, df: DataFrame, key: Key, options: BatchOptions) -> None:
        self.df = df
        self.key = key
        self.options = options
        self.partitions = options.partitions(df.sparkSession)
        self._weight = resolve_weight(df, options.weight)
        self._recorder: Recorder | None = None
        self.failure = ""

    @property
    def is_done(self) -> bool:
        """Whether the loads were measured, or an attempt to do so failed."""
        return "measured" in self.__dict__

    @cached_property
    def slots(self) -> int:
        """Number of tasks that run at the same time."""
        return slot_count(self.df.sparkSession, self.options.slots)

    @cached_property
    def measured(self) -> Measured | None:
        """The loads, from the record of earlier runs or from a sample; ``None`` if they could not be measured."""
        return self._attempted(self._measure, None)

    @property
    def loads(self) -> KeyLoads | None:
        """The loads; ``None`` if a plan was given or they could not be measured."""
        return None if self.options.plan is not None or self.measured is None else self.measured.loads

    @cached_property
    def plan(self) -> Plan | None:
        """The plan as given or made from the loads; ``None`` if the options ask for none."""
        if self.options.plan is not None:
            return self.options.plan
        if not self.options.makes_plan:
            return None
        by_hash = uniform_plan(self.partitions)
        loads = self.loads
        if loads is None:
            return by_hash
        return self._attempted(lambda: loads.plan(self.partitions, self.options.planner(self.slots)), by_hash)

    @cached_property
    def source(self) -> DataFrame:
        """The rows; observed on their way if there is a record to save the loads in."""
        if self._record is None or self.loads is None or not self.loads.load > 0:
            return self.df
        self._recorder = Recorder(self._record, self.key, self._weight, self.loads, seed=self.options.seed)
        return self._recorder.watch(self.df)

    def split_plan(self, split: Split) -> SplitPlan:
        """Return a plan with hot keys in shards; plain hash if the loads could not be measured."""
        by_hash = SplitPlan(uniform_plan(self.partitions), {}, np.full(self.partitions, 1 / self.partitions))
        loads = self.loads
        if loads is None:
            return by_hash
        planner = self.options.planner(self.slots)
        return self._attempted(lambda: plan_split(loads, self.partitions, planner, self.slots, split), by_hash)

    def advice(self, operation: Operation = Operation.APPLY_IN_PANDAS, plan: SplitPlan | None = None) -> Advice | None:
        """Return what was predicted; ``None`` if nothing was measured or planned.

        Parameters
        ----------
        operation
            Operation on the groups.
        plan
            The plan that is used, if keys may be split.
        """
        if self.options.plan is not None or not self.options.makes_plan or self.measured is None:
            return None
        hash_loads, loads = self.measured.hash_loads(self.partitions), self.measured.loads
        whole = self.plan
        assert whole is not None  # noqa: S101 - this tells the type checker
        ways = {"hash": hash_loads, "whole": loads.predicted(whole)}
        if plan is not None and plan.widths:
            ways["split"] = plan.loads
        if self.measured.sample is not None:
            for factor in OVERPARTITIONING:
                ways[f"hash_x{factor}"] = self.measured.sample.plain_loads(factor * self.partitions)
        advice = advice_for(operation, hottest=loads.hottest, loads=ways, slots=self.slots, plan=plan or whole)
        return advice.with_number("load_error", self.measured.load_error(self.partitions))

    def sampled(self) -> Sample:
        """Take the sample now, whatever the record says; errors are raised."""
        self.measured, taken = self._taken()
        return taken

    def advised(self, operation: Operation) -> Advice:
        """Return the advice on an operation, from the sample that ``sampled`` took."""
        found = self.advice(operation, self.split_plan("auto") if operation.splits else None)
        assert found is not None  # noqa: S101 - a sample was taken; this tells the type checker
        return found

    def wait_for_record(self, timeout: float | None) -> bool:
        """Wait until the run is recorded; False if it was not, or not within ``timeout`` seconds."""
        return self._recorder.wait(timeout) if self._recorder else False

    @property
    def _record(self) -> LoadRecord | None:
        path = self.options.record
        return None if path is None else LoadRecord.of(path, self.key, self._weight)

    def _measure(self) -> Measured:
        recorded = self._record.load() if self._record else None
        if recorded is not None:
            return Measured(recorded)
        return self._taken()[0]

    def _taken(self) -> tuple[Measured, Sample]:
        started = perf_counter()
        taken = take_sample(WeightedRows(self.df, self.key, self._weight), self.options, self.partitions, self.slots)
        loads = taken.key_loads()
        return Measured(loads, taken, perf_counter() - started), taken

    def _attempted(self, attempt: Callable[[], _T], otherwise: _T) -> _T:
        """Return ``attempt()``; if it fails, warn, remember why, and return ``otherwise``."""

        def failed(reason: str) -> _T:
            self.failure = reason
            return otherwise

        return measured_or(attempt, failed, f"the load of {self.key} could not be measured, so keys go by hash")
