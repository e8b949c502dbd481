"""Grouped Python functions over real skewed data (needs --data): balance against hash and over-partitioning."""

import pyarrow.parquet as pq

from equipoise.errors import InvalidArgumentError
from equipoise_lab.bench.batch import SLOTS, Case, compare, warm_up
from equipoise_lab.bench.harness import Context, Result
from equipoise_lab.bench.local_spark import as_parquet, local_spark

_FILES = {"reddit_links": False, "news_articles": True, "google_task_events": False}
"""Data sets, and whether the work of a row goes by the length of its text."""
_ROWS = 4000  # of each; every so-manyth row, so few that service outweighs what thousands of groups cost two cores
_PARTITIONS = 32


def run(context: Context) -> Result:
    """Time every data set at hand."""
    if context.data is None:
        raise InvalidArgumentError(
            f"batch-real measures real data; pass --data DIR with {', '.join(_FILES)} as Parquet"
        )
    metrics: dict[str, float] = {}
    samples: dict[str, object] = {}
    with local_spark(SLOTS) as spark:
        files = {"news_articles": True} if context.quick else _FILES  # the one with few enough groups for a minute
        for name, weighted in context.track(files.items(), "batch real"):
            path = context.file(f"{name}.parquet")
            table = pq.read_table(path, columns=["key", "text"] if weighted else ["key"])
            table = table.take(list(range(0, table.num_rows, max(1, table.num_rows // _ROWS))))
            columns = {"key": table["key"].cast("string").to_pylist()}
            if weighted:
                columns["weight"] = [float(len(text or "")) for text in table["text"].to_pylist()]
            with as_parquet(spark, columns, SLOTS) as df:
                if not metrics:
                    warm_up(df)
                outcome = compare(Case(name, df, _PARTITIONS, weighted), 2.0 if context.quick else 10.0, context)
            metrics[f"{name}_speedup_over_hash"] = outcome.speedup_over_hash
            metrics[f"{name}_speedup_over_overpartitioning"] = outcome.speedup_over_overpartitioning
            metrics[f"{name}_over_ideal"] = outcome.over_ideal
            samples[name] = outcome.sample()
    return Result(metrics, samples)
