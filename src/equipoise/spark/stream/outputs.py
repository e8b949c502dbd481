"""Collect the output rows of a task, and write them to one Parquet file, which appears when it is complete."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Row

from equipoise.errors import InvalidArgumentError, UserFunctionError
from equipoise.names import unique_name
from equipoise.spark.rows.pandas_rows import dicts_to_arrow, rows_to_arrow, to_arrow
from equipoise.state.commit import OutputFile
from equipoise.storage import Storage, Written

FOLDER = "outputs"
_ROWS_AT_A_TIME = 50_000


class Outputs:
    """Collects the output rows of a task as Arrow tables.

    Parameters
    ----------
    schema
        Schema of the rows.
    timezone
        The session's time zone.
    not_late
        Event-time column, and the milliseconds since 1970 that its values must exceed; ``None``: no rows are late.
    """

    def __init__(self, schema: pa.Schema, timezone: str, *, not_late: tuple[str, int] | None = None) -> None:
        self._schema = schema
        self._timezone = timezone
        self._not_late = not_late
        self._frames: list[pd.DataFrame] = []
        self._values: list[tuple[Any, ...]] = []
        self._dicts: list[dict[str, Any]] = []
        self._pending = 0
        self._tables: list[pa.Table] = []

    def add_frame(self, frame: pd.DataFrame) -> None:
        """Add a frame that a function yielded."""
        if not isinstance(frame, pd.DataFrame):
            raise InvalidArgumentError(f"the function must yield pandas DataFrames, got a {type(frame).__name__}")
        if len(frame):
            self._frames.append(frame)
            self._count(len(frame))

    def add_values(self, values: tuple[Any, ...]) -> None:
        """Add a row, a tuple with a value for each column."""
        self._values.append(values)
        self._count(1)

    def add_row(self, row: Row) -> None:
        """Add a ``Row`` that a function yielded; its fields are matched by name, as Spark does."""
        if not isinstance(row, Row) or not hasattr(row, "__fields__"):
            shown = "a Row without names" if isinstance(row, Row) else f"a {type(row).__name__}"
            raise InvalidArgumentError(
                f"the function must yield Rows with named fields, such as Row(key=..., n=...), got {shown}"
            )
        self._dicts.append(row.asDict(recursive=True))
        self._count(1)

    def add_table(self, table: pa.Table) -> None:
        """Add rows of the output schema."""
        self._flush()
        self._write(table)

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
        frames, values, dicts = self._frames, self._values, self._dicts
        self._frames, self._values, self._dicts, self._pending = [], [], [], 0
        if frames:
            self._write(to_arrow(frames, self._schema, self._timezone))
        if values:
            self._write(rows_to_arrow(values, self._schema, self._timezone))
        if dicts:
            self._write(dicts_to_arrow(dicts, self._schema))

    def _write(self, table: pa.Table) -> None:
        if self._not_late is not None:
            _require_not_late(table, *self._not_late)
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
    timezone
        The session's time zone.
    not_late
        As for ``Outputs``.
    """

    def __init__(
        self,
        storage: Storage,
        version: int,
        schema: pa.Schema,
        timezone: str,
        *,
        not_late: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(schema, timezone, not_late=not_late)
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
        if self._not_late is not None:
            _require_not_late(table, *self._not_late)
        if self._writer is None:
            self._file = self._stack.enter_context(self._storage.writing(self._path))
            self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd", write_page_checksum=True)
        self._writer.write_table(table)
        self._rows += table.num_rows


def _require_not_late(table: pa.Table, column: str, late_ms: int) -> None:
    """Refuse rows that are older than the watermark, as Spark does: the next operator would drop them."""
    oldest = pc.min(table.column(column)).cast(pa.timestamp("us", "UTC"))
    if oldest.is_valid and oldest.value <= late_ms * 1000:
        watermark = pa.scalar(late_ms, pa.timestamp("ms", "UTC"))
        raise UserFunctionError(
            f"the function yielded a row with {column} = {oldest}, the event time of its output, which is not after "
            f"the watermark of the previous batch, {watermark}; the next operator would drop the row: yield an event "
            "time after timerValues.getCurrentWatermarkInMs(), or leave eventTimeColumnName out"
        )
