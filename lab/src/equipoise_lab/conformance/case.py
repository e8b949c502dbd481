"""A case: input, processor and options of one query, which Spark and equipoise run alike.

::

    steps      input files that arrive before each start of the query, which runs until they are processed
    processor  made once for each form; the same object is given to Spark and to equipoise
    refusal    a pattern of the error that Spark raises, if it does
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.sql import DataFrame

Form = Literal["pandas", "row", "applyInPandasWithState"]
"""Operator that runs a case: ``transformWithStateInPandas``, ``transformWithState`` or ``applyInPandasWithState``."""

Values = tuple[Any, ...]
"""Values of a row, in the order of the schema."""

Make = Callable[[bool], Any]
"""Makes the processor, or the function of ``applyInPandasWithState``; the argument says whether rows come as frames."""

BOTH: tuple[Form, ...] = ("pandas", "row")
PANDAS: tuple[Form, ...] = ("pandas",)
ROW: tuple[Form, ...] = ("row",)
GROUP_STATE: tuple[Form, ...] = ("applyInPandasWithState",)

OUTPUT = "id string, seen string"


@dataclass(frozen=True)
class Step:
    """Files that arrive before a start of the query.

    Parameters
    ----------
    batches
        Rows of each file; each file is a batch.
    make
        Makes the processor of this start; default the one of the step before.
    partitions
        ``numPartitions`` of equipoise at this start.
    """

    batches: tuple[tuple[Values, ...], ...]
    make: Make | None = None
    partitions: int = 2


@dataclass(frozen=True)
class Initial:
    """Initial state.

    Parameters
    ----------
    schema, rows
        The rows.
    through_statestore
        Whether the rows are written to the state of another query of Spark first and read from its checkpoint.
    """

    schema: str
    rows: tuple[Values, ...]
    through_statestore: bool = False


@dataclass(frozen=True)
class Case:
    """One query that Spark and equipoise run.

    Parameters
    ----------
    about
        What the case shows, in a few words.
    make
        Makes the processor.
    steps
        Starts of the query and the files before each.
    refusal
        Pattern of the error that Spark raises.
    forms
        Operators that run the case.
    schema, key, output
        Schema of the input, key columns, schema of the output.
    state
        Schema of the state, for ``applyInPandasWithState``.
    time_mode
        Time mode; for ``applyInPandasWithState`` the timeout.
    output_mode
        Mode of operator and writer.
    source
        Applied to the input DataFrame, for example to set a watermark.
    initial
        Initial state.
    event_time
        ``eventTimeColumnName``.
    then
        Applied to the output.
    counted_by
        Columns by which a second operator counts the output rows.
    batch
        Whether the input is a batch DataFrame.
    settings
        Settings of the session.
    process_all
        Whether a start ends with ``processAllAvailable`` and ``stop`` instead of ``availableNow``.
    parquet
        Whether the sink is a table of Parquet files.
    spark_reads
        Whether Spark's ``statestore`` and ``state-metadata`` sources read the checkpoint.
    stricter
        Why equipoise refuses a value that Spark stores.
    meant
        Output rows of equipoise in the only batch, where it stores the value that was meant instead of refusing it.
    differs
        Why the batches without rows are others than Spark's; with ``apart``, what Spark does.
    apart
        State of equipoise in pandas form, where Spark stores the value of one key under another.
    """

    about: str
    make: Make
    steps: tuple[Step, ...]
    refusal: str | None = None
    forms: tuple[Form, ...] = BOTH
    schema: str = "id string, n int"
    key: tuple[str, ...] = ("id",)
    output: str = OUTPUT
    state: str = ""
    time_mode: str = "none"
    output_mode: str = "update"
    source: Callable[[DataFrame], DataFrame] | None = None
    initial: Initial | None = None
    event_time: str = ""
    then: Callable[[Any], Any] | None = None
    counted_by: tuple[str, ...] = ()
    batch: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    process_all: bool = False
    parquet: bool = False
    spark_reads: bool = False
    stricter: str | None = None
    meant: tuple[str, ...] | None = None
    differs: str | None = None
    apart: Mapping[str, Mapping[str, str]] | None = None


def once(*rows: Values) -> tuple[Step, ...]:
    """Return one start with one batch."""
    return (Step((rows,)),)


def batches(*given: tuple[Values, ...], partitions: int = 2) -> tuple[Step, ...]:
    """Return one start with several batches."""
    return (Step(given, partitions=partitions),)
