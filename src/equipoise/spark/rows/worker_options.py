"""Session settings that Spark passes to its Python workers: sizes of frames, and how results become Arrow."""

import re
from dataclasses import dataclass
from typing import Self

from pyspark.sql import SparkSession

from equipoise.errors import InvalidArgumentError

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_BY_NAME = "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName"
_SAFE = "spark.sql.execution.pandas.convertToArrowArraySafely"
_INT_TO_DECIMAL = "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"
UNLIMITED = 2**31 - 1
_DEFAULT_ROWS, _JOINED_ROWS = 10_000, 65_536


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Settings of the session for user functions.

    Parameters
    ----------
    frame_rows, frame_bytes
        A frame of a key ends with the row that reaches one of them. Rows of 0 and below mean no limit.
    columns_by_name
        Whether columns of a frame that have text labels are matched by name; else all are matched by position.
    safe_casts
        Whether a cast that loses data, such as 1.5 to a whole number, is an error.
    int_to_decimal
        Whether whole numbers are converted to ``Decimal`` for a decimal column.
    """

    frame_rows: int = _DEFAULT_ROWS
    frame_bytes: int = 64 * 1024**2
    columns_by_name: bool = True
    safe_casts: bool = True
    int_to_decimal: bool = False

    @classmethod
    def of_session(cls, spark: SparkSession) -> Self:
        """Return the settings of a session."""

        def flag(name: str, *, default: bool) -> bool:
            return str(spark.conf.get(name, str(default).lower())).lower() == "true"

        return cls(
            frame_rows=int(spark.conf.get(_ROWS, "10000") or 0),
            frame_bytes=bytes_of(_BYTES, spark.conf.get(_BYTES, "64m") or "64m"),
            columns_by_name=flag(_BY_NAME, default=True),
            safe_casts=flag(_SAFE, default=True),
            int_to_decimal=flag(_INT_TO_DECIMAL, default=False),
        )

    @property
    def joined_rows(self) -> int:
        """Rows of a call that takes many keys at once: more than Spark's default, unless the session asks for fewer."""
        return self.frame_rows if 0 < self.frame_rows < _DEFAULT_ROWS else _JOINED_ROWS

    def rows_of(self, row_bytes: float) -> int:
        """Return the number of rows of a full frame, from the average size of a row."""
        rows = self.frame_rows if self.frame_rows > 0 else UNLIMITED
        if self.frame_bytes >= UNLIMITED or not row_bytes:
            return rows
        return max(1, min(rows, -int(-self.frame_bytes // row_bytes)))


def bytes_of(name: str, text: str) -> int:
    """Return the bytes of a setting of the session, as Spark reads it.

    Parameters
    ----------
    name
        Name of the setting, for the error message.
    text
        Number of bytes, or a number with a binary unit such as ``64m`` or ``64MB``; may be below 0.

    Examples
    --------
    >>> [bytes_of("spark.size", text) for text in ("2", "64MB", "1k", "-1")]
    [2, 67108864, 1024, -1]
    """
    found = re.fullmatch(r"(-?\d+)([kmgtp]?)b?", text.strip().lower())
    if found is None:
        raise InvalidArgumentError(f"{name} must be a size such as 64m, got {text!r}")
    return int(found[1]) << 10 * "bkmgtp".index(found[2] or "b")
