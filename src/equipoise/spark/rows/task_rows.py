"""Number of the task that reads a row, and of the row within it: expressions that need neither a sort nor a shuffle.

Both come from ``monotonically_increasing_id``, which counts the rows for which it is evaluated. So it must not be
evaluated in a branch of a condition: add it as a column first.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

_ROW_BITS = 33  # bits of monotonically_increasing_id that number the rows of a task; the others number the tasks


def task_number(row_id: Column) -> Column:
    """Return the number of the task that reads each row, from 1, from its ``monotonically_increasing_id``."""
    return F.shiftright(row_id, _ROW_BITS) + 1


def row_of_task(row_id: Column) -> Column:
    """Return the number of each row within its task, from 1, from its ``monotonically_increasing_id``."""
    return row_id.bitwiseAND(F.lit((1 << _ROW_BITS) - 1)) + 1
