"""Take rows of every input partition in one pass, without an exchange: the chance of a row falls with its place.

The first rows of every partition are all taken, and each doubling of a partition adds as many rows as the doubling
before. So the number of rows taken grows with the logarithm of the data, whose size is not known beforehand. A row that
is taken counts with the inverse of its chance, so sums are unbiased in any order of the rows.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.adapt.look import LEAST_ROWS
from equipoise.spark.rows.task_rows import row_of_task, task_number

_THINNED = 0.6
"""Rows taken at a falling rate, over the wanted ones: for as many input partitions as slots, rows at the rate q / i for
the i-th row of a partition tell as much as 2 q rows at one rate, so this gives 1.2 times what is wanted."""


def falling_chance(row_id: Column, wanted: int, slots: int) -> Column:
    """Return the chance of each row: 1 for the first rows of every input partition, then ever less.

    Parameters
    ----------
    row_id
        ``monotonically_increasing_id`` of the rows, added as a column before.
    wanted
        Rows whose counts, if taken at one rate, would be as exact as needed.
    slots
        Number of input partitions expected: tasks that run at the same time.
    """
    row, task = row_of_task(row_id).cast("double"), task_number(row_id).cast("double")
    place = F.greatest(task, F.lit(float(slots))) * row  # in the data, if its partitions are equal
    is_early = (place <= wanted) | (task * row <= min(wanted, LEAST_ROWS))
    return F.when(is_early, F.lit(1.0)).otherwise(F.lit(_THINNED * wanted) / place)
