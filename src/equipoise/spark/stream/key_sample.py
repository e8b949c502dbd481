"""See some keys of a micro-batch before it is placed."""

import time

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.adapt import Look
from equipoise.spark.rows.columns import FINGERPRINT
from equipoise.spark.rows.keys import as_column, fingerprint_column
from equipoise.spark.stream.placement import late_filter
from equipoise.spark.stream.settings import Settings

_TASK = "__equipoise_task"
_SPARE = 1.2  # the batch may be smaller than the one before


def sampled_keys(rows: DataFrame, settings: Settings, wanted: int, expected: int, late_ms: int) -> Look:
    """Return the keys of a random sample of a batch, of all of its input partitions alike.

    One job in the JVM: it reads the key columns, keeps each row with the same probability, and takes at most twice the
    wanted number of them. A batch that is expected to have fewer rows than wanted is seen as a whole.

    Parameters
    ----------
    rows
        The batch.
    settings
        The open query.
    wanted
        Number of rows to see.
    expected
        Rows of the batch before; 0 if there was none.
    late_ms
        Rows with an event time up to this do not count if late rows are dropped.
    """
    start = time.perf_counter()
    fraction = min(1.0, _SPARE * wanted / expected) if expected else 1.0
    keys = [as_column(rows, name) for name in settings.identity.key]
    on_time = late_filter(rows, settings)(rows, late_ms)
    found = on_time.select(fingerprint_column(keys).alias(FINGERPRINT), F.spark_partition_id().alias(_TASK))
    if fraction < 1:
        found = found.where(F.rand() < fraction)
    most = 2 * wanted
    table = found.orderBy(F.rand()).limit(most + 1).toArrow()
    seen = table.column(FINGERPRINT).to_numpy() if table.num_rows else np.empty(0, dtype=np.int64)
    tasks = len(table.column(_TASK).unique()) if table.num_rows else 1
    total = None
    if len(seen) > most:  # there may be many more
        seen, total = seen[:most], float(max(len(seen), expected))
    elif fraction < 1:
        total = len(seen) / fraction
    return Look.of(seen, seconds=time.perf_counter() - start, rows=total, tasks=tasks)
