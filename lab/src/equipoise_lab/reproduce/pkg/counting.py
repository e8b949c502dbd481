"""A word count on Spark in parts that are merged, with a service time for each word: PKG's deployment, in batches."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.exhibit import Setting, as_in_paper
from equipoise_lab.reproduce.pkg.data_sets import TABLE_1
from equipoise_lab.reproduce.pkg.deployment import METHODS
from equipoise_lab.simulate.streams import zipf_exponent

if TYPE_CHECKING:
    from equipoise.spark import Aggregator

_FILES = 8

SETTINGS = {
    "keys": Setting("2.9 M", 200, 2_000, 5_000),
    "workers": as_in_paper({"KG": 10, "PKG": 8, "SG": 8}),
    "runs": Setting("not given", 1, 1, 2),
}

NOTE = (
    "A batch, since Spark has no message at a time, on 10 slots that wait instead of computing: PKG and SG as a Python "
    "aggregate by `balance(...).aggregate(..., splitter=...)` on 8 partitions, whose partial counts are merged in a "
    "second step; KG "
    "by Spark's own hash on 10 partitions, without a second step. The paper's workers do not merge where the CPU delay "
    "is varied; here they do, as without it there is no result. Keys are fewer than on WP, with the same hottest one, "
    "for each takes Python a moment of its own."
)


class Counted(NamedTuple):
    """Cost of counting: seconds, and counters held by all workers together before they were merged."""

    seconds: float
    counters: int


@contextmanager
def counting(context: Context) -> Iterator[Callable[[int, str, float], Counted]]:
    """A Spark, and a function that counts so many words by a method with a delay in milliseconds for each word."""
    from equipoise.spark import balance  # noqa: PLC0415 - as above
    from equipoise_lab.bench.contenders import grouped  # noqa: PLC0415 - needs Spark
    from equipoise_lab.bench.local_spark import as_parquet, local_spark  # noqa: PLC0415 - as above

    workers = context["workers"]
    shares = zipf_shares(context["keys"], zipf_exponent(context["keys"], TABLE_1["WP"].hottest))

    def words(rows: int) -> NDArray[np.int64]:
        return sample(shares, rows, np.random.default_rng(context.seed))

    with local_spark(max(workers.values()), or_more=True) as spark:

        def count(rows: int, method: str, delay: float) -> Counted:
            with as_parquet(spark, {"key": words(rows)}, _FILES) as df:
                start = time.perf_counter()
                found = counted(df, method, delay / 1000).toArrow()
                seconds = time.perf_counter() - start
                counters = found["parts"].to_numpy().sum() if "parts" in found.column_names else found.num_rows
                return Counted(seconds, int(counters))

        def counted(df: Any, method: str, delay: float) -> Any:
            if method == "KG":
                return grouped.by_hash(df, workers[method], grouped.waiting(delay))
            schema, splitter = "key long, n long, parts long", METHODS[method]
            groups = balance(df, "key", numPartitions=workers[method])
            return groups.aggregate(_counting_parts(delay), schema, splitter=splitter)

        for method in METHODS:
            count(1_000, method, 0.0)  # starts Python, compiles
        yield count


def _counting_parts(seconds_per_row: float) -> "Aggregator":
    from equipoise_lab.bench.contenders.grouped import SlowCount  # noqa: PLC0415 - needs Spark

    class CountingParts(SlowCount):
        """Counts rows, and the partial counters that they were counted in."""

        bufferSchema = "n long, parts long"  # noqa: N815 - as Spark names schemas

        def zero(self) -> tuple[Any, ...]:
            """Nothing."""
            return (0, 0)

        def reduce(self, buffer: tuple[Any, ...], rows: Any) -> tuple[Any, ...]:
            """Wait and count, in one counter."""
            return (*super().reduce(buffer, rows), 1)

        def merge(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
            """Add up both."""
            return (*super().merge(one, other), one[1] + other[1])

    return CountingParts(seconds_per_row)
