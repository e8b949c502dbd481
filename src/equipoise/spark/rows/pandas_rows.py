"""Convert Arrow to pandas, with timestamps in the session's time zone, as in Spark's Python functions."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Row

_WIDE = {pa.int8(): pa.int64(), pa.int16(): pa.int64(), pa.int32(): pa.int64(), pa.float32(): pa.float64()}
PANDAS_NULLS = {
    **dict.fromkeys(("byte", "short", "integer", "long", "float", "double"), float("nan")),
    "timestamp": pd.NaT,
    "timestamp_ntz": pd.NaT,
}
"""Values that stand for NULL in the key of ``handleInputRows``, by the type of the key column, as pandas shows them."""

_KINDS_BY_KEY = (pa.types.is_boolean, pa.types.is_duration)  # dtypes that depend on the NULLs of a key


def to_pandas(rows: pa.RecordBatch | pa.Table, timezone: str) -> pd.DataFrame:
    """Convert rows to pandas as ``DataFrame.toPandas`` and ``applyInPandas`` do.

    Timestamps become local, lose their zone and count nanoseconds. Dates are objects, structs and maps dicts, arrays
    those of numpy. Two values that Spark refuses are converted: if a timestamp does not fit into nanoseconds (before
    1678, after 2261), the column counts microseconds, and a struct that is a key of a map is a tuple.
    """
    flat = [place for place, field in enumerate(rows.schema) if not pa.types.is_nested(field.type)]
    try:
        frame = rows.select(flat).to_pandas(date_as_object=True, coerce_temporal_nanoseconds=True)
    except pa.ArrowInvalid:
        frame = rows.select(flat).to_pandas(date_as_object=True)
    for place, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            frame.insert(place, field.name, _nested_series(rows.column(place), timezone))
        elif pa.types.is_timestamp(field.type) and field.type.tz is not None:
            frame[field.name] = frame[field.name].dt.tz_convert(timezone).dt.tz_localize(None)
    return frame


class KeyFrames:
    """Cuts a record batch into one frame for each key, with the dtypes that a ``StatefulProcessor`` sees in Spark.

    Spark (4.1 and newer) converts a record batch to pandas and then rebuilds the frame of each key from tuples. Whole
    numbers therefore arrive as ``int64`` and all floats as ``float64``. A NULL among whole numbers makes the column
    ``float64`` for all keys of the record batch. A NULL among booleans makes the column ``object`` for its key only.
    Intervals of a key that are all NULL arrive as ``datetime64[ns]``.

    Parameters
    ----------
    rows
        Rows, sorted by key.
    timezone
        The session's time zone.
    rebuilt
        Whether dtypes are as described above; else they are those of ``applyInPandas``, which keeps the columns' own.
    """

    def __init__(self, rows: pa.RecordBatch | pa.Table, timezone: str, *, rebuilt: bool = True) -> None:
        self.frame = to_pandas(_widened(rows) if rebuilt else rows, timezone)
        """The rows of all keys."""
        self.kinds = [
            [each.name for each in rows.schema if rebuilt and is_kind(each.type)] for is_kind in _KINDS_BY_KEY
        ]
        """Names of the columns of booleans, and of intervals, whose dtypes depend on the rows of a key."""
        self._flags, self._spans = (_nulls(rows, names) for names in self.kinds)
        self._depends = bool(self._flags or self._spans)

    def cut(self, first: int, last: int) -> pd.DataFrame:
        """Return the frame of rows ``first`` to ``last - 1``, which have one key."""
        frame = self.frame.iloc[first:last]
        frame.index = pd.RangeIndex(last - first)
        if not self._depends:
            return frame
        flags = {name: bool for name, nulls in self._flags.items() if nulls[last] == nulls[first]}
        spans = [name for name, nulls in self._spans.items() if nulls[last] - nulls[first] == last - first]
        if flags:
            frame = frame.astype(flags)
        if spans:
            frame = frame.assign(**dict.fromkeys(spans, np.datetime64("NaT", "ns")))
        return frame


def joined_frame(parts: Sequence[tuple[KeyFrames, int, int]]) -> pd.DataFrame:
    """Return the frame of rows of one key that lie in several record batches, each given as (batch, first, last).

    The dtype of a column is the one that holds the values of all parts.
    """
    whole, first, last = parts[0]
    if len(parts) == 1:
        return whole.cut(first, last)
    frames = [each.frame.iloc[start:stop] for each, start, stop in parts]
    places = range(len(whole.frame.columns))
    columns = [pd.concat([frame.iloc[:, place] for frame in frames], ignore_index=True) for place in places]
    flags, spans = whole.kinds
    for place, column in enumerate(columns):
        if column.name in flags and not column.hasnans:
            columns[place] = column.astype(bool)
        if column.name in spans and column.isna().all():
            columns[place] = column.astype("datetime64[ns]")
    return pd.concat(columns, axis=1)


def _nulls(rows: pa.RecordBatch | pa.Table, names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Return the running count of NULLs, before each row and at the end, of those columns that have any."""
    columns = {name: rows.column(name) for name in names}
    return {
        name: np.concatenate([[0], np.cumsum(column.is_null().to_numpy(zero_copy_only=False))])
        for name, column in columns.items()
        if column.null_count
    }


def _widened(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Return the rows with whole numbers as 64 bits and floats as doubles."""
    schema = pa.schema([field.with_type(_WIDE.get(field.type, field.type)) for field in rows.schema])
    return rows if schema.equals(rows.schema) else rows.cast(schema)


def _nested_series(column: pa.Array | pa.ChunkedArray, timezone: str) -> pd.Series:
    if _is_shown_by_arrow(column.type):
        return column.to_pandas(date_as_object=True, integer_object_nulls=True, maps_as_pydicts="lossy")
    show = _value_shower(column.type, timezone)
    return pd.Series([show(value) for value in column.to_pylist()], dtype=object)


def _is_shown_by_arrow(kind: pa.DataType) -> bool:
    """Whether Arrow converts the type as Spark does: not with timestamps inside, nor structs as keys of maps."""
    if pa.types.is_map(kind) and pa.types.is_nested(kind.key_type):
        return False
    return not pa.types.is_timestamp(kind) and all(_is_shown_by_arrow(part) for part in _parts(kind))


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types nested directly in a type."""
    if not pa.types.is_nested(kind):
        return []
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [field.type for field in kind] if pa.types.is_struct(kind) else [kind.value_type]


def _value_shower(kind: pa.DataType, timezone: str, *, as_key: bool = False) -> Callable[[Any], Any]:
    """Return the function from a value of ``to_pylist`` to the one that Spark shows; keys of maps are hashable."""
    if pa.types.is_map(kind):
        show_key, show = _value_shower(kind.key_type, timezone, as_key=True), _value_shower(kind.item_type, timezone)
        return _unless_null(lambda pairs: {show_key(key): show(value) for key, value in pairs})
    steps = [_value_shower(part, timezone, as_key=as_key) for part in _parts(kind)]
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        made = tuple if as_key else lambda values: dict(zip(names, values, strict=True))
        return _unless_null(lambda value: made(_stepped([value[name] for name in names], steps)))
    if pa.types.is_nested(kind):
        gather, null = tuple if as_key else _object_array, pd.NaT if pa.types.is_timestamp(kind.value_type) else None
        return _unless_null(lambda values: gather([null if each is None else steps[0](each) for each in values]))
    if not pa.types.is_timestamp(kind):
        return lambda value: value
    return _unless_null(lambda value: _moment(value, None if kind.tz is None else timezone))


def _moment(value: dt.datetime, timezone: str | None) -> pd.Timestamp:
    moment = pd.Timestamp(value)
    return moment if timezone is None else moment.tz_convert(timezone).tz_localize(None)


def _unless_null(show: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else show(value)


def _object_array(values: Sequence[Any]) -> NDArray[np.object_]:
    made = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):  # one by one: numpy would unpack values that are arrays
        made[place] = value
    return made


def key_shower(
    key_schema: Mapping[str, Any], timezone: str | None, nulls: Mapping[str, Any] = MappingProxyType({})
) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return the function from a key to the form that user code sees: timestamps of pandas, structs as dicts.

    Parameters
    ----------
    key_schema
        ``StructType.jsonValue()`` of the key.
    timezone
        The session's time zone; ``None`` to show timestamps as instants, with the zone UTC.
    nulls
        Values that stand for NULL, by the type of the key column; ``None`` for other types.
    """
    kinds = [field["type"] for field in key_schema["fields"]]
    steps = [_shower(kind, timezone) for kind in kinds]
    missing = tuple(nulls.get(kind) if isinstance(kind, str) else None for kind in kinds)
    if any(each is not None for each in missing):
        return lambda key: _stepped(key, steps) if None not in key else _shown_nulls(_stepped(key, steps), missing)
    return (lambda key: _stepped(key, steps)) if any(steps) else (lambda key: key)


def _shown_nulls(key: tuple[Any, ...], missing: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([null if value is None else value for value, null in zip(key, missing, strict=True)])


def timer_key_shower(key_schema: Mapping[str, Any], timezone: str | None) -> Callable[[tuple[Any, ...]], Row]:
    """Return the function from a key to the ``Row`` that ``handleExpiredTimer`` gets in Spark.

    Parameters
    ----------
    key_schema
        ``StructType.jsonValue()`` of the key.
    timezone
        Zone of the timestamps, which have none; ``None`` for that of the process, as in the form of rows.
    """
    made = Row(*[field["name"] for field in key_schema["fields"]])
    kinds = [field["type"] for field in key_schema["fields"]]
    steps = [_row_shower(kind, timezone) for kind in kinds]
    if timezone is None or not {"float", "double"}.intersection(kind for kind in kinds if isinstance(kind, str)):
        return lambda key: made(*_stepped(key, steps))
    missing = tuple(float("nan") if kind in {"float", "double"} else None for kind in map(str, kinds))
    return lambda key: made(*_shown_nulls(_stepped(key, steps), missing))


def _row_shower(kind: Any, timezone: str | None) -> Callable[[Any], Any] | None:
    if kind == "timestamp" and timezone is not None:
        zone = ZoneInfo(timezone)
        return lambda value: value.astimezone(zone).replace(tzinfo=None)
    if isinstance(kind, str) or kind["type"] != "struct":
        return None
    made = Row(*[field["name"] for field in kind["fields"]])
    steps = [_row_shower(field["type"], timezone) for field in kind["fields"]]
    return lambda values: made(*_stepped(values, steps))


def _shower(kind: Any, timezone: str | None) -> Callable[[Any], Any] | None:
    if kind == "timestamp" and timezone is None:
        return lambda value: value.astimezone(dt.UTC)
    if kind == "timestamp":  # the state's codec decodes it to local time without a zone
        return lambda value: pd.Timestamp(value.astimezone(dt.UTC)).tz_convert(timezone).tz_localize(None)
    if kind == "timestamp_ntz":
        return lambda value: pd.Timestamp(value)  # noqa: PLW0108 - the type checker needs the lambda
    if isinstance(kind, str) or kind["type"] != "struct":
        return None
    names = [field["name"] for field in kind["fields"]]
    steps = [_shower(field["type"], timezone) for field in kind["fields"]]
    return lambda values: dict(zip(names, _stepped(values, steps), strict=True))


def _stepped(values: Sequence[Any], steps: Sequence[Callable[[Any], Any] | None]) -> tuple[Any, ...]:
    pairs = zip(values, steps, strict=True)
    return tuple([value if value is None or step is None else step(value) for value, step in pairs])


def state_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Convert decoded state to Arrow; the codec decodes timestamps to local time, which Arrow would take for UTC."""
    step = _instants(kind)
    return pa.array(values if step is None else [None if value is None else step(value) for value in values], kind)


def _instants(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that adds zones to timestamps and turns maps into pairs; ``None`` if it has neither."""
    if pa.types.is_timestamp(kind):
        return None if kind.tz is None else lambda value: value.astimezone(dt.UTC)
    if not pa.types.is_nested(kind):
        return None
    steps = [_instants(part) for part in _parts(kind)]
    if not any(steps) and not pa.types.is_map(kind):
        return None

    if pa.types.is_map(kind):
        return lambda found: [_stepped(pair, steps) for pair in (found.items() if isinstance(found, dict) else found)]
    if pa.types.is_struct(kind):
        return lambda values: _stepped(values, steps)
    return lambda values: _stepped(values, steps * len(values))
