"""Convert what user functions yield to Arrow, as Spark's Python worker does."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import groupby, zip_longest
from math import isnan
from typing import Any

import pandas as pd
import pyarrow as pa

from equipoise.decimals import widened
from equipoise.errors import InvalidArgumentError
from equipoise.readable import count_text
from equipoise.spark.rows.worker_options import WorkerOptions

_ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)
_DEFAULTS = WorkerOptions()


def to_arrow(
    frames: Iterable[pd.DataFrame], schema: pa.Schema, timezone: str, options: WorkerOptions = _DEFAULTS
) -> pa.Table:
    """Convert the frames that a user function yielded to one table of the declared schema.

    If any column of a frame has a text label, columns are matched by name, and further columns are left out; else they
    are matched by position. A frame with rows and no columns gives rows of NULLs.

    Parameters
    ----------
    frames
        The frames. Those with equal labels and dtypes are converted together.
    schema
        Schema of the table.
    timezone
        Zone of timestamps without one.
    options
        Settings of the session.
    """
    alike = groupby(frames, key=lambda frame: (frame.columns.tolist(), frame.dtypes.tolist()))
    tables = [_table(list(each), schema, timezone, options) for _, each in alike]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def rows_to_arrow(rows: Sequence[Sequence[Any]], schema: pa.Schema, timezone: str) -> pa.Table:
    """Convert tuples to one table of the declared schema; pandas converts timestamps and what Arrow cannot."""
    for row in rows:
        if len(row) != len(schema):
            raise InvalidArgumentError(
                f"the function gave {count_text(len(row), 'value')}, but the output schema has {schema.names}; give "
                "one for each column"
            )
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.Table.from_arrays(
        [_values(column, field, timezone) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def dicts_to_arrow(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Convert dicts to one table of the declared schema, as ``transformWithState`` converts ``Row``.

    A name that a row lacks is NULL, a name that the schema lacks is left out, and a timestamp without a zone is UTC.
    """
    columns = []
    for field in schema:
        try:
            columns.append(pa.array([row.get(field.name) for row in rows], field.type))
        except _ARROW_ERRORS as error:
            raise _misfit(field, error) from error
    return pa.Table.from_arrays(columns, schema=schema)


def named_rows_to_arrow(rows: Sequence[tuple[Any, ...]], names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Convert tuples with these names of fields as ``dicts_to_arrow`` converts dicts; the schema has no nested columns.

    A row may have fewer values than there are names. Of equal names the last counts.
    """
    found = dict(zip(names, zip_longest(*rows), strict=False))
    nulls = (None,) * len(rows)
    columns = []
    for field in schema:
        try:
            columns.append(pa.array(found.get(field.name, nulls), field.type))
        except _ARROW_ERRORS as error:
            raise _misfit(field, error) from error
    return pa.Table.from_arrays(columns, schema=schema)


def _values(column: Sequence[Any], field: pa.Field, timezone: str) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        return _array(pd.Series(column), field, timezone, _DEFAULTS)
    convert = _unless_null(_converter(field.type, timezone) if pa.types.is_nested(field.type) else None)
    try:
        return pa.array([convert(value) for value in column], field.type)
    except (ValueError, TypeError, NotImplementedError):  # those of Arrow as well
        return _array(pd.Series(column), field, timezone, _DEFAULTS)  # takes 3.0 for a whole number and NaN for NULL


class MisfitError(InvalidArgumentError):
    """A column of values does not fit its schema. The message is for results of the user's function."""

    what: str = ""
    """The column, its type and the reason, for messages about other values."""


def _misfit(field: pa.Field, error: Exception) -> MisfitError:
    made = MisfitError(
        f"column {field.name!r} that the function yielded does not fit the output schema ({field.type}): {error}; "
        "convert it in the function, or change the schema"
    )
    made.what = f"column {field.name!r} is not {field.type}: {error}"
    return made


def _table(frames: Sequence[pd.DataFrame], schema: pa.Schema, timezone: str, options: WorkerOptions) -> pa.Table:
    frame = frames[0] if len(frames) == 1 else _concatenated(frames)
    if not len(frame.columns):
        return pa.Table.from_arrays([pa.nulls(len(frame), field.type) for field in schema], schema=schema)
    named = options.columns_by_name and any(isinstance(label, str) for label in frame.columns)
    labels = frame.columns.tolist()
    missing = [name for name in schema.names if labels.count(name) != 1] if named else schema.names[len(labels) :]
    if missing:
        raise InvalidArgumentError(
            f"the function yielded columns {labels}, but the output schema has {schema.names}; yield one column for "
            f"each: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing or double"
        )
    columns = [frame[field.name] if named else frame.iloc[:, place] for place, field in enumerate(schema)]
    return pa.Table.from_arrays(
        [_array(column, field, timezone, options) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _concatenated(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate frames with equal labels.

    They get the same index object first: comparing labels would take most of the time of small frames.
    """
    labels = frames[0].columns
    for frame in frames:
        frame.columns = labels
    return pd.concat(frames, ignore_index=True)


def _array(column: Any, field: pa.Field, timezone: str, options: WorkerOptions) -> pa.Array:
    kind, safe = field.type, options.safe_casts
    try:
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.astype(column.dtype.categories.dtype)
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            column = _localised(column, timezone)
        elif options.int_to_decimal and pa.types.is_decimal(kind) and pd.api.types.is_integer_dtype(column):
            column = column.apply(lambda value: Decimal(int(value)) if pd.notna(value) else None).astype(object)
        convert = _converter(kind, timezone) if pa.types.is_nested(kind) else None
        if convert is not None:
            values = [None if _is_null(value) else convert(value) for value in column]
            return pa.array(values, kind, from_pandas=True)
        try:
            return pa.Array.from_pandas(column, type=kind, safe=safe)
        except pa.ArrowInvalid:  # "7" for a whole number, say, which Spark casts
            found = pa.Array.from_pandas(column)
            if not pa.types.is_integer(found.type) and not pa.types.is_floating(found.type):
                found = found.cast(widened(kind), safe=safe)
            return found.cast(kind, safe=safe)
    except (ValueError, TypeError, AttributeError, NotImplementedError) as error:  # those of Arrow and pandas as well
        raise _misfit(field, error) from error


def _is_null(value: Any) -> bool:
    """Whether a value of a nested column stands for NULL; that of a float column may be NaN."""
    return value is None or value is pd.NA or (isinstance(value, float) and isnan(value))


def _localised(column: Any, timezone: str) -> Any:
    """Return a column with its timestamps in a zone; whole numbers stay, which Arrow takes as microseconds."""
    if pd.api.types.is_integer_dtype(column):
        return column
    column = pd.to_datetime(column)
    if column.dt.tz is None:
        return column.dt.tz_localize(timezone, ambiguous=False, nonexistent="shift_forward")
    return column


def _converter(kind: pa.DataType, timezone: str) -> Callable[[Any], Any] | None:
    """Return the function that prepares a value for Arrow; ``None`` if Arrow takes it as it is.

    An array may be any iterable, and a map a dict or pairs. The values of a struct are matched by name in a dict, and
    by position in a ``Row`` or tuple, as in Spark.
    """
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is not None:
        return lambda value: _moment(value, timezone)
    if types.is_list(kind) or types.is_large_list(kind):
        element = _unless_null(_converter(kind.value_type, timezone))
        return lambda value: [element(each) for each in value]
    if types.is_map(kind):
        key, item = (_unless_null(_converter(part, timezone)) for part in (kind.key_type, kind.item_type))
        return lambda value: [(key(name), item(each)) for name, each in _pairs(value)]
    if types.is_struct(kind):
        names = [part.name for part in kind]
        steps = [_unless_null(_converter(part.type, timezone)) for part in kind]

        def convert(value: Any) -> dict[str, Any]:
            values = [value.get(name) for name in names] if isinstance(value, dict) else value
            return {name: step(each) for name, step, each in zip(names, steps, values, strict=False)}

        return convert
    return None


def _pairs(value: Any) -> Any:
    return value.items() if isinstance(value, dict) else value


def _moment(value: Any, timezone: str) -> Any:
    moment = pd.Timestamp(value)
    if moment.tzinfo is None:
        moment = moment.tz_localize(timezone, ambiguous=False, nonexistent="shift_forward")
    return moment.to_pydatetime()


def _unless_null(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)
