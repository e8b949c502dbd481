"""Return Arrow tables as lists of ``Row``."""

import pyarrow as pa
from pyspark.sql import Row


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of a table as ``Row`` objects."""
    made = Row(*table.column_names)
    return [made(*values) for values in zip(*(column.to_pylist() for column in table.columns), strict=True)]
