"""Let Spark analyse columns, and translate what its analyser refuses into an ``InvalidArgumentError``."""

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress

from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from equipoise.errors import InvalidArgumentError

_QUERY_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers to which pyspark writes each analysis error as JSON."""

_STATE = re.compile(r"\s*SQLSTATE: \w+")


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
    with analysing(df, role):
        return df.select(*columns).schema


@contextmanager
def analysing(df: DataFrame, role: str) -> Iterator[None]:
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
def refusing(what: str) -> Iterator[None]:
    """Raise an InvalidArgumentError, ``what`` and Spark's reason, for what Spark's analyser or parser refuses.

    Parameters
    ----------
    what
        Beginning of the message, such as "the schema cannot be read".
    """
    with without_query_log():
        try:
            yield
        except AnalysisException as error:
            raise InvalidArgumentError(f"{what}: {_reason(error)}") from None


@contextmanager
def without_query_log() -> Iterator[None]:
    """Keep pyspark from logging the JSON of an error that is caught in the block."""
    # a plain logger of these names would break pyspark's own calls
    loggers = [PySparkLogger.getLogger(name) for name in _QUERY_LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


def physical_plan(df: DataFrame) -> str:
    """Return Spark's physical plan of a query as text; empty if Spark cannot plan it. Runs no job.

    Such a query fails, with Spark's own message, when it is run.
    """
    text = io.StringIO()
    with redirect_stdout(text), suppress(Exception):
        df.explain()
    return text.getvalue()


def _message(error: AnalysisException, df: DataFrame, role: str) -> str:
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    available = ", ".join(df.columns)
    if condition.startswith("AMBIGUOUS"):
        return f"a {role} column is ambiguous: the DataFrame has it twice ({available}); rename one first"
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = parameters.get("objectName", "of that name")
        return f"there is no column {name} for the {role}; there are {available}"
    return f"the {role} cannot be computed: {_reason(error)}"


def _reason(error: AnalysisException) -> str:
    """Return the first line of Spark's message, without the plan below it, and the condition in brackets."""
    condition = error.getCondition() or ""
    text = (error.getMessage() or str(error)).strip().splitlines()[0]
    return f"{_STATE.sub('', text).removeprefix(f'[{condition}] ')} (Spark's {condition or 'AnalysisException'})"
