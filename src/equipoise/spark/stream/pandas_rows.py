"""Arrow to pandas and back, with timestamps in the session's time zone as Spark's own Python functions see them."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from equipoise.errors import InvalidArgument


def to_pandas(rows: pa.RecordBatch, timezone: str) -> pd.DataFrame:
    """Rows as pandas; timestamps become local and lose their zone, dates are objects."""
    frame = rows.to_pandas(date_as_object=True)
    for field in rows.schema:
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            frame[field.name] = frame[field.name].dt.tz_convert(timezone).dt.tz_localize(None)
    return frame


def key_shower(key_schema: Mapping[str, Any], timezone: str) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What makes a key look to user code as Spark shows it: points in time are those of pandas, structs are dicts.

    Parameters
    ----------
    key_schema
        ``StructType.jsonValue()`` of the key.
    timezone
        The session's time zone.
    """
    steps = [_shower(field["type"], timezone) for field in key_schema["fields"]]
    return (lambda key: _stepped(key, steps)) if any(steps) else (lambda key: key)


def _shower(kind: Any, timezone: str) -> Callable[[Any], Any] | None:
    if kind == "timestamp":  # without a zone it is in this process's local time, as the state's codec gives it
        return lambda value: pd.Timestamp(value.astimezone(dt.UTC)).tz_convert(timezone).tz_localize(None)
    if kind == "timestamp_ntz":
        return lambda value: pd.Timestamp(value)  # noqa: PLW0108 - the class itself says nothing to the type checker
    if isinstance(kind, str) or kind["type"] != "struct":
        return None
    names = [field["name"] for field in kind["fields"]]
    steps = [_shower(field["type"], timezone) for field in kind["fields"]]
    return lambda values: dict(zip(names, _stepped(values, steps), strict=True))


def _stepped(values: Sequence[Any], steps: Sequence[Callable[[Any], Any] | None]) -> tuple[Any, ...]:
    pairs = zip(values, steps, strict=True)
    return tuple([value if value is None or step is None else step(value) for value, step in pairs])


def state_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Decoded values of state as Arrow has them: the codec gives instants in local time, which Arrow takes for UTC."""
    step = _instants(kind)
    return pa.array(values if step is None else [None if value is None else step(value) for value in values], kind)


def _instants(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Gives every instant in a value its zone, and a map as pairs; ``None`` where there is neither."""
    if pa.types.is_timestamp(kind):
        return None if kind.tz is None else lambda value: value.astimezone(dt.UTC)
    if not pa.types.is_nested(kind):
        return None
    if pa.types.is_map(kind):
        parts = [kind.key_type, kind.item_type]
    else:
        parts = [field.type for field in kind] if pa.types.is_struct(kind) else [kind.value_type]
    steps = [_instants(part) for part in parts]
    if not any(steps) and not pa.types.is_map(kind):
        return None

    if pa.types.is_map(kind):
        return lambda found: [_stepped(pair, steps) for pair in (found.items() if isinstance(found, dict) else found)]
    if pa.types.is_struct(kind):
        return lambda values: _stepped(values, steps)
    return lambda values: _stepped(values, steps * len(values))


def to_arrow(frames: Sequence[pd.DataFrame], schema: pa.Schema, timezone: str) -> pa.Table:
    """What a user function yielded, as one table of the declared schema.

    Columns are matched by name where they have names, else by position, as Spark does.
    """
    frames = [frame for frame in frames if len(frame.columns)]
    if not frames:
        return schema.empty_table()
    labels = frames[0].columns
    same = all(frame.columns is labels or frame.columns.equals(labels) for frame in frames)
    parts = [frames] if same else [[frame] for frame in frames]
    return pa.concat_tables([_table(part, schema, timezone) for part in parts])


def rows_to_arrow(rows: Sequence[Sequence[Any]], schema: pa.Schema, timezone: str) -> pa.Table:
    """Tuples as one table of the declared schema, value by value: nothing goes by way of pandas but instants."""
    for row in rows:
        if len(row) != len(schema):
            raise InvalidArgument(f"the function gave {len(row)} values, but outputSchema has {schema.names}")
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.Table.from_arrays(
        [_values(column, field, timezone) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _values(column: Sequence[Any], field: pa.Field, timezone: str) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        return _array(pd.Series(column), field, timezone)
    try:
        return pa.array(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise _misfit(field, error) from error


def _misfit(field: pa.Field, error: Exception) -> InvalidArgument:
    return InvalidArgument(
        f"column {field.name!r} that the function yielded does not fit outputSchema ({field.type}): {error}"
    )


def _table(frames: Sequence[pd.DataFrame], schema: pa.Schema, timezone: str) -> pa.Table:
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    named = all(isinstance(label, str) for label in frame.columns)
    missing = sorted(set(schema.names) - set(frame.columns)) if named else []
    if missing or len(frame.columns) != len(schema):
        raise InvalidArgument(
            f"the function yielded columns {list(frame.columns)}, but outputSchema has {schema.names}; "
            + (f"{', '.join(missing)} missing" if missing else "yield exactly those")
        )
    columns = [frame[field.name] if named else frame.iloc[:, place] for place, field in enumerate(schema)]
    return pa.Table.from_arrays(
        [_array(column, field, timezone) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _array(column: Any, field: pa.Field, timezone: str) -> pa.Array:
    if pa.types.is_timestamp(field.type) and field.type.tz is not None:
        column = pd.to_datetime(column)
        if column.dt.tz is None:
            column = column.dt.tz_localize(timezone, ambiguous=False, nonexistent="shift_forward")
    try:
        return pa.Array.from_pandas(column, type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise _misfit(field, error) from error
