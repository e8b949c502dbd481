"""Options of a batch job: one object from the user's call to sampling, planning and recording."""

import os
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, SparkSession

from equipoise.adapt import rows_needed
from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.plan import KIP, Plan, Planner, make_planner
from equipoise.spark.rows.cluster import partition_count
from equipoise.spark.rows.options import BalanceOptions

Sampling = int | Literal["full"] | None
"""How many rows to look at: a number, all of them, or as many as the plan needs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchOptions(BalanceOptions):
    """Options of ``balance`` on a batch DataFrame, and of ``join``, ``profile`` and ``advise``.

    Parameters
    ----------
    numPartitions
        Number of partitions N; default ``spark.sql.shuffle.partitions``.
    placement
        ``"plan"`` places keys by their load; ``"hash"`` leaves the rows to Spark's hash.
    policy
        Gives the planner and the mode. ``"auto"`` places keys by the plan; ``"advise"`` makes and reports the plan and
        leaves the rows to Spark's hash; ``"observe"`` leaves them to Spark's hash and makes no plan.
    plan
        Plan made earlier; then nothing is measured.
    record
        File with the loads that earlier runs of this job recorded. If it exists, nothing is sampled. Every run that
        places keys adds what it observed.
    weight
        Numeric column with the load of a row; default: every row counts 1.
    sample
        Number of rows to look at; smaller data are read whole. ``None``: as many as the plan needs, which for N
        partitions is ``max(20,000, 2 N ln N / 0.05^2)``. ``"full"``: the rows of every key are counted.
    slots
        Number of tasks that run at the same time; default Spark's default parallelism.
    seed
        Seed of the sampling.
    """

    plan: Plan | None = None
    record: str | os.PathLike[str] | None = None
    weight: str | Column | None = None
    sample: Sampling = None
    slots: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plan is not None:
            self._check_plan(self.plan)
        if self.sample not in {None, "full"}:
            whole("sample", self.sample, 1)
        whole("seed", self.seed, 0)
        if self.slots is not None:
            whole("slots", self.slots, 1)

    def _check_plan(self, plan: Plan) -> None:
        if not isinstance(plan, Plan):
            raise InvalidArgumentError(f"plan must be an equipoise.Plan, got {type(plan).__name__}")
        if self.numPartitions not in {None, plan.partitions}:
            raise MismatchError(
                f"the plan has {plan.partitions} partitions but numPartitions is {self.numPartitions}; drop one"
            )
        if self.record is not None:
            raise InvalidArgumentError("with plan= nothing is measured, so record= has no use; drop one")
        if not self.places_keys:
            raise InvalidArgumentError(
                f"plan= is used with placement='plan' and the mode 'auto' only, got placement={self.placement!r} and "
                f"mode {self.policy.mode!r}; drop one"
            )

    @property
    def makes_plan(self) -> bool:
        """Whether a plan is made, to be used or to be reported."""
        return self.placement == "plan" and self.policy.mode != "observe"

    @property
    def places_keys(self) -> bool:
        """Whether keys are placed by the plan; else by Spark's hash."""
        return self.placement == "plan" and self.policy.mode == "auto"

    def partitions(self, spark: SparkSession) -> int:
        """Return N: that of the plan, as given, or the session's number of shuffle partitions."""
        return self.plan.partitions if self.plan is not None else partition_count(spark, self.numPartitions)

    def sample_rows(self, partitions: int) -> int | None:
        """Return the number of rows to look at; ``None`` for all.

        The expected error of the load of the fullest of N partitions is ``sqrt(2 N ln N / n)`` for n rows.

        Examples
        --------
        >>> [BatchOptions().sample_rows(n) for n in (1, 16, 200)]
        [20000, 35490, 847731]
        """
        if self.sample == "full":
            return None
        return rows_needed(partitions) if self.sample is None else self.sample

    def planner(self, slots: int) -> Planner:
        """Return the planner, with the settings for work without state."""
        return batch_planner(self.policy.planner, slots)


def batch_planner(planner: str | Planner, slots: int) -> Planner:
    """Return a planner by name, with the settings for work without state; or one as given."""
    if isinstance(planner, Planner):
        return planner
    return KIP(repack=True, slots=slots) if planner == KIP.name else make_planner(planner)
