"""Collect the output rows of a task, and write them to one Parquet file, which appears when it is complete."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Self

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Row

from equipoise.errors import InvalidArgumentError
from equipoise.names import unique_name
from equipoise.spark.rows.arrow_rows import dicts_to_arrow, named_rows_to_arrow, rows_to_arrow, to_arrow
from equipoise.spark.rows.small_frames import FrameArrays, joined_frames
from equipoise.spark.rows.worker_options import WorkerOptions
from equipoise.state.commit import OutputFile
from equipoise.storage import Storage, Written

FOLDER = "outputs"
_ROWS_AT_A_TIME = 50_000


class Call(NamedTuple):
    """A call of the user's function: its name, and the fingerprint of its key."""

    function: str
    fingerprint: int


WrongResult = Callable[[Call, InvalidArgumentError], Exception]
"""Returns the error to raise for a result that does not fit."""


def _as_found(call: Call, error: InvalidArgumentError) -> Exception:  # noqa: ARG001 - other callers name the function
    return error


NOT_RESULTS = (pd.DataFrame, Row, str)
"""Types that can be iterated over, and are a result of a method of a processor rather than its results."""


def no_iterator(made: object) -> InvalidArgumentError:
    """Return the error for what a method of a processor returned instead of an iterator."""
    shown = "None" if made is None else f"an object of type {type(made).__name__}"
    return InvalidArgumentError(
        f"it returned {shown}, expected an iterator; yield the results, or return a list of them, such as []"
    )


def no_frame(result: object) -> InvalidArgumentError:
    """Return the error for what a processor yielded instead of a DataFrame."""
    return InvalidArgumentError(f"it must yield pandas DataFrames, got a {type(result).__name__}")


def no_named_row(result: object) -> InvalidArgumentError:
    """Return the error for what a processor yielded instead of a ``Row`` with named fields."""
    shown = "a Row without names" if isinstance(result, Row) else f"a {type(result).__name__}"
    return InvalidArgumentError(f"it must yield Rows with named fields, such as Row(key=..., n=...), got {shown}")


class Outputs:
    """Collects the output rows of a task as Arrow tables.

    Parameters
    ----------
    schema
        Schema of the rows.
    timezone, options
        The session's time zone, and its other settings for user functions.
    wrong_result
        Returns the error to raise for a result that does not fit, from the call that gave it.
    not_late
        Event-time column, and the milliseconds since 1970 that its values must exceed; ``None``: no rows are late.
    """

    def __init__(
        self,
        schema: pa.Schema,
        timezone: str,
        options: WorkerOptions | None = None,
        wrong_result: WrongResult = _as_found,
        *,
        not_late: tuple[str, int] | None = None,
    ) -> None:
        self._schema = schema
        self._timezone = timezone
        self._options = options or WorkerOptions()
        self._wrong_result = wrong_result
        self._not_late = not_late
        self._frames: list[tuple[FrameArrays, Call]] = []
        self._values: list[tuple[tuple[Any, ...], Call]] = []
        self._is_flat = not any(pa.types.is_nested(field.type) for field in schema)
        self._names: list[str] = []  # of the fields of all rows
        self._named: list[tuple[tuple[Any, ...], Call]] = []
        self._dicts: list[tuple[dict[str, Any], Call]] = []  # rows after one with other fields, and nested rows
        self._pending = 0
        self._tables: list[pa.Table] = []

    def add_frame(self, frame: pd.DataFrame, call: Call) -> None:
        """Add a copy of a frame that a function yielded; the function may go on to change its own."""
        if not isinstance(frame, pd.DataFrame):
            raise self._wrong_result(call, no_frame(frame))
        if len(frame):
            self._frames.append((FrameArrays.of(frame), call))
            self._count(len(frame))

    def add_values(self, values: tuple[Any, ...], call: Call) -> None:
        """Add a row, a tuple with a value for each column."""
        self._values.append((values, call))
        self._count(1)

    def add_row(self, row: Row, call: Call) -> None:
        """Add a ``Row`` that a function yielded; its fields are matched by name, as Spark does."""
        names = getattr(row, "__fields__", None) if isinstance(row, Row) else None
        if names is None:
            raise self._wrong_result(call, no_named_row(row))
        if not self._named:
            self._names = names
        if self._is_flat and not self._dicts and names == self._names:
            self._named.append((tuple(row), call))
        else:
            self._dicts.append((row.asDict(recursive=True), call))
        self._count(1)

    def add_table(self, table: pa.Table) -> None:
        """Add rows of the output schema."""
        self._flush()
        self._write(self._checked(table))

    def taken(self) -> Iterator[pa.RecordBatch]:
        """Return the rows that were added since the last call."""
        self._flush()
        tables, self._tables = self._tables, []
        for table in tables:
            yield from table.to_batches()

    def _count(self, rows: int) -> None:
        self._pending += rows
        if self._pending >= _ROWS_AT_A_TIME:
            self._flush()

    def _flush(self) -> None:
        frames, values, named, dicts = self._frames, self._values, self._named, self._dicts
        self._frames, self._values, self._named, self._dicts, self._pending = [], [], [], [], 0
        if frames:
            self._add(frames, lambda each: to_arrow(joined_frames(each), self._schema, self._timezone, self._options))
        if values:
            self._add(values, lambda each: rows_to_arrow(each, self._schema, self._timezone))
        if named:
            self._add(named, lambda each: named_rows_to_arrow(each, self._names, self._schema))
        if dicts:
            self._add(dicts, lambda each: dicts_to_arrow(each, self._schema))

    def _add(self, results: Sequence[tuple[Any, Call]], convert: Callable[[Sequence[Any]], pa.Table]) -> None:
        """Write results, converted together; if that fails, each alone, so that the error names the right call."""
        try:
            table = self._checked(convert([result for result, _ in results]))
        except InvalidArgumentError:
            table = pa.concat_tables([self._one(result, call, convert) for result, call in results])
        self._write(table)

    def _one(self, result: Any, call: Call, convert: Callable[[Sequence[Any]], pa.Table]) -> pa.Table:
        try:
            return self._checked(convert([result]))
        except InvalidArgumentError as error:
            raise self._wrong_result(call, error) from error

    def _checked(self, table: pa.Table) -> pa.Table:
        """Refuse rows that are older than the watermark, as Spark does: the next operator would drop them."""
        if self._not_late is not None and table.num_rows:
            _require_not_late(table, *self._not_late)
        return table

    def _write(self, table: pa.Table) -> None:
        self._tables.append(table)


class FileOutputs(Outputs):
    """Writes the output rows of one task to a file; without rows no file is written.

    Parameters
    ----------
    storage
        The checkpoint.
    version
        Version that the batch commits.
    schema
        Schema of the rows.
    timezone, options, wrong_result, not_late
        As for ``Outputs``.
    """

    def __init__(
        self,
        storage: Storage,
        version: int,
        schema: pa.Schema,
        timezone: str,
        options: WorkerOptions | None = None,
        wrong_result: WrongResult = _as_found,
        *,
        not_late: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(schema, timezone, options, wrong_result, not_late=not_late)
        self._storage = storage
        self._path = f"{FOLDER}/{version:020d}/{unique_name()}.parquet"
        self._rows = 0
        self._stack = ExitStack()
        self._file: Written | None = None
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.__exit__(*failure)  # type: ignore[arg-type]  # the usual three

    def finish(self) -> list[OutputFile]:
        """Complete the file; return it, or nothing without rows."""
        self._flush()
        if self._writer is None or self._file is None:
            return []
        self._writer.close()
        self._stack.close()
        return [OutputFile(self._path, self._file.size, self._file.sha256, self._rows)]

    def _write(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        if self._writer is None:
            self._file = self._stack.enter_context(self._storage.writing(self._path))
            self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd", write_page_checksum=True)
        self._writer.write_table(table)
        self._rows += table.num_rows


def _require_not_late(table: pa.Table, column: str, late_ms: int) -> None:
    oldest = pc.min(table.column(column)).cast(pa.timestamp("us", "UTC"))
    if oldest.is_valid and oldest.value <= late_ms * 1000:
        watermark = pa.scalar(late_ms, pa.timestamp("ms", "UTC"))
        raise InvalidArgumentError(
            f"it yielded a row with {column} = {oldest}, the event time of its output, which is not after the "
            f"watermark of the previous batch, {watermark}; the next operator would drop the row: yield an event time "
            "after timerValues.getCurrentWatermarkInMs(), or leave eventTimeColumnName out"
        )
