"""Dead letters: streams that are refused, and the text of lines and rows that could not be read.

The text is for people. Making it never fails, whatever the values are.
"""

import json
import math
from typing import Any, NamedTuple

import pyarrow as pa

SHOWN = 4096
"""Characters of a dead letter that are kept."""

_ITEMS = 10  # of a nested value that are shown, at its start and at its end


class DeadLetter(NamedTuple):
    """Lines or rows that could not be read.

    Parameters
    ----------
    text
        Their text, for people; empty for a stream that could not be read to its end.
    reason
        What was found, what was expected, and what to do.
    rows
        Number of lines or rows.
    """

    text: str
    reason: str
    rows: int = 1


class RefusedError(Exception):
    """A stream is broken or exceeds its limits; a signal between the modules of the feed."""


class TimedOutError(RefusedError):
    """A sender completed nothing for too long."""


def shown(line: bytes) -> str:
    r"""Text of a line; bytes that are not UTF-8 appear as ``\xff``."""
    text = line[: 4 * SHOWN].decode("utf-8", "backslashreplace")
    return _cut(text, len(line) > 4 * SHOWN, f"{len(line):,} bytes")


def shown_row(row: pa.RecordBatch) -> str:
    """JSON text of the one row of a batch, which must be valid."""
    values = {name: _value(column) for name, column in zip(row.schema.names, row.columns, strict=True)}
    return _cut(json.dumps(values), False, f"{row.nbytes:,} bytes")


def _cut(text: str, is_cut: bool, size: str) -> str:
    if not is_cut and len(text) <= SHOWN:
        return text
    return f"{text[:SHOWN]} [cut after {SHOWN:,} characters; {size} in all]"


def _value(column: pa.Array) -> Any:
    """Value of an array of length 1 as JSON can have it."""
    if pa.types.is_nested(column.type):
        return _printed(column)
    try:
        value = column[0].as_py()
    except Exception:  # noqa: BLE001 - dates past the year 9999, unknown time zones, text that is not UTF-8, and more
        return _printed(column)
    if isinstance(value, bytes):
        return shown(value)
    if isinstance(value, str):
        return _cut(value.encode("utf-8", "backslashreplace").decode(), False, f"{len(value):,} characters")
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _printed(column: pa.Array) -> str:
    """Value of an array of length 1 as Arrow prints it, or its type where even that fails."""
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return shown(column.view(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())[0].as_py())
        if pa.types.is_temporal(column.type):
            return f"{column.type} {column.view(f'int{column.type.bit_width}')[0].as_py()}"
        return _cut(column.to_string(window=_ITEMS, skip_new_lines=True), False, f"{column.nbytes:,} bytes")
    except Exception:  # noqa: BLE001 - the reason of the dead letter must reach its reader all the same
        return f"a value of type {column.type} that cannot be shown"
