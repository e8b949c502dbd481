"""Shared by the batch benchmarks: a grouped function with a service time, by hash, over-partitioned and balanced."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from pyspark.sql import DataFrame

from equipoise.metrics import makespan
from equipoise.spark import profile
from equipoise_lab.bench.contenders import grouped
from equipoise_lab.bench.harness import Context, interleaved, median, paired
from equipoise_lab.bench.local_spark import run_to_the_end

SLOTS = 8
FACTORS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Case:
    """One data set on one number of partitions.

    Parameters
    ----------
    name
        What it is, for the samples.
    df
        Columns ``key`` and, where rows differ in work, ``weight``.
    partitions
        N.
    weighted
        Whether the service time goes by ``weight`` instead of by row.
    """

    name: str
    df: DataFrame
    partitions: int
    weighted: bool = False


@dataclass(frozen=True)
class Outcome:
    """Seconds of every contender, and what was predicted."""

    seconds: dict[str, list[float]]
    ideal_seconds: float
    predicted_hash_over_ideal: float
    predicted_overpartitioned_over_ideal: float

    def time(self, name: str) -> float:
        """Median seconds of one contender."""
        return median(self.seconds[name])

    @property
    def over_ideal(self) -> float:
        """Ours over the shortest possible time of the service alone."""
        return self.time("balance") / self.ideal_seconds

    @property
    def speedup_over_hash(self) -> float:
        """Hash over ours, the median of all rounds."""
        return paired(self.seconds["hash"], self.seconds["balance"]).median

    @property
    def speedup_over_overpartitioning(self) -> float:
        """Best of the over-partitioned ones over ours, the median of all rounds."""
        best = min((name for name in self.seconds if name.startswith("hash x")), key=self.time)
        return paired(self.seconds[best], self.seconds["balance"]).median

    def sample(self) -> dict[str, object]:
        """All of it, for the JSON."""
        extra = {"over_ideal": self.over_ideal, "speedup_over_hash": self.speedup_over_hash}
        return asdict(self) | extra


def compare(
    case: Case, ideal_seconds: float, context: Context, *, factors: tuple[int, ...] = FACTORS, rounds: int = 3
) -> Outcome:
    """Time every contender in turn; ours includes sampling and planning. The quick form has ``rounds``, the full one 7.

    The service time is chosen so that the shortest possible time on ``SLOTS`` slots, which is the larger of an even
    share of all work and the hottest key, is ``ideal_seconds``.
    """
    weight = "weight" if case.weighted else None
    report = profile(case.df, "key", numPartitions=case.partitions, weight=weight, slots=SLOTS, sample="full")
    per_unit = ideal_seconds / report.ideal_makespan / report.sample.load
    serve = grouped.waiting(per_unit, weight)

    def by_hash(partitions: int) -> Callable[[], None]:
        return lambda: run_to_the_end(grouped.by_hash(case.df, partitions, serve))

    def ours() -> None:
        run_to_the_end(grouped.by_balance(case.df, case.partitions, serve, SLOTS, weight))

    contenders = {"hash": by_hash(case.partitions), "balance": ours}
    contenders |= {f"hash x{factor}": by_hash(factor * case.partitions) for factor in factors}
    seconds = interleaved(contenders, context.repeats(7, rounds), warm_up={})
    predicted = [makespan(report.sample.plain_loads(f * case.partitions), SLOTS) for f in (1, *factors)]
    over = min(predicted[1:]) / report.ideal_makespan if factors else float("nan")
    return Outcome(seconds, ideal_seconds, predicted[0] / report.ideal_makespan, over)


def warm_up(df: DataFrame) -> None:
    """Start the Python workers and compile the kernels, outside of every figure."""
    run_to_the_end(grouped.by_balance(df, 2 * SLOTS, grouped.waiting(0.0), SLOTS))
