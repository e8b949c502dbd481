"""Let Spark analyse columns, and translate what its analyser refuses into an ``InvalidArgumentError``."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from equipoise.errors import InvalidArgumentError

_QUERY_LOGGER = "DataFrameQueryContextLogger"  # pyspark logs each analysis error to it as JSON


def analysed(df: DataFrame, columns: Iterable[Column], role: str) -> StructType:
    """Return the schema of some columns of ``df``; columns that Spark cannot resolve are an InvalidArgumentError.

    Parameters
    ----------
    df
        The DataFrame.
    columns
        The columns.
    role
        What they are used for, for the message.
    """
    with translated(df, role):
        return df.select(*columns).schema


@contextmanager
def translated(df: DataFrame, role: str) -> Iterator[None]:
    """Raise our own error for what Spark's analyser refuses in the block, without Spark's plan and JSON.

    Parameters
    ----------
    df
        The DataFrame whose columns are used.
    role
        What they are used for, for the message.
    """
    with without_query_log():
        try:
            yield
        except AnalysisException as error:
            raise InvalidArgumentError(_message(error, df, role)) from None


@contextmanager
def without_query_log() -> Iterator[None]:
    """Keep pyspark from logging the JSON of an error that is caught in the block."""
    logger = logging.getLogger(_QUERY_LOGGER)
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled


def _message(error: AnalysisException, df: DataFrame, role: str) -> str:
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    available = ", ".join(df.columns)
    if condition.startswith("AMBIGUOUS"):
        return f"a {role} column is ambiguous: the DataFrame has it twice ({available}); rename one first"
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = parameters.get("objectName", "of that name")
        return f"there is no column {name} for the {role}; there are {available}"
    return f"the {role} cannot be computed: {spark_reason(error)}"


def spark_reason(error: PySparkException) -> str:
    """Return the first line of a message of Spark, without the plan below it, and the condition in brackets."""
    condition = error.getCondition() or ""
    reason = (error.getMessage() or str(error)).splitlines()[0].removeprefix(f"[{condition}] ")
    return f"{reason} (Spark's {condition or type(error).__name__})"
