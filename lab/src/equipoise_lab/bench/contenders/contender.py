"""A contender: a way to compute a result on Spark, how it is timed, and how its result is compared with the others'."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from equipoise.errors import CheckError
from equipoise_lab.bench.harness import interleaved
from equipoise_lab.bench.local_spark import run_to_the_end
from equipoise_lab.spark_settings import settings


def _as_it_is(df: DataFrame) -> DataFrame:
    return df


@dataclass(frozen=True)
class Contender:
    """One way to compute a result.

    Parameters
    ----------
    make
        Makes the result; what it does before it returns, such as sampling and planning, is timed too.
    work
        What is done with the rows where the contender is timed.
    digest
        What of the result has to be equal among contenders.
    settings
        Settings of the session while it runs.
    """

    make: Callable[[], DataFrame]
    work: Callable[[DataFrame], DataFrame] = _as_it_is
    digest: Callable[[DataFrame], DataFrame] = _as_it_is
    settings: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Compute every row and keep none."""
        with settings(SparkSession.active(), self.settings):
            run_to_the_end(self.work(self.make()))

    def rows(self) -> list[tuple[Any, ...]]:
        """Results that must be equal, in order."""
        with settings(SparkSession.active(), self.settings):
            return sorted(tuple(row) for row in self.digest(self.make()).collect())


def timed(
    make: Callable[[float], Mapping[str, Contender]], seconds_per_row: float, repeats: int
) -> dict[str, list[float]]:
    """Seconds of every contender in every round, once it is sure that their results are equal.

    Results are compared without a service time. That run, which is not counted, also starts the Python workers.

    Parameters
    ----------
    make
        Makes the contenders for a service time of a row.
    seconds_per_row
        The service time.
    repeats
        Number of rounds.
    """
    require_equal({name: each.rows() for name, each in make(0.0).items()})
    return interleaved({name: each.run for name, each in make(seconds_per_row).items()}, repeats, warm_up={})


def require_equal(results: Mapping[str, object]) -> None:
    """Refuse contenders that do not give the same.

    Examples
    --------
    >>> require_equal({"one": [1], "other": [1]})
    """
    first, *others = results
    for other in others:
        if results[other] != results[first]:
            raise CheckError(
                f"{other!r} gives another result than {first!r}, so their times cannot be compared; "
                "run the benchmark with another seed and report both"
            )
