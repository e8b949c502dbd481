"""The handle of a processor under test: variables that are declared in ``init`` and used at once, in memory."""

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, TypeVar, cast

import numpy as np
from pyspark.errors import IllegalArgumentException, PySparkAssertionError, PySparkValueError

from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.pandas_rows import PANDAS_NULLS, key_shower, timer_key_shower
from equipoise.spark.stream.local import LocalSchemas, SchemaLike
from equipoise.spark.stream.runners import StateVariableError, spark_rows
from equipoise.state.codec import KeyCodec
from equipoise.state.entries import entry_prefix
from equipoise.state.handle import Kind, RecordingHandle, VariableSpec
from equipoise.state.timers import due_timers
from equipoise.state.transaction import EmptyReader, GroupTransaction
from equipoise.state.variables import DeletedVariable, ListState, MapState, ValueState

Variable = ValueState | ListState | MapState
_V = TypeVar("_V", ValueState, ListState, MapState)

_TIMEZONE = "UTC"
_SCALARS: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "long"),
    (float, "double"),
    (str, "string"),
    (bytes, "binary"),
    (Decimal, "decimal(38,18)"),
    (dt.datetime, "timestamp"),
    (dt.date, "date"),
    (dt.timedelta, "interval day to second"),
)
"""Spark's types of Python values; a ``bool`` is an ``int`` too, and a ``datetime`` a ``date``, so the order counts."""


class LiveHandle(RecordingHandle):
    """A ``RecordingHandle`` whose variables have state: the entries of one key group, in memory.

    Schemas are checked, values pass through the codec and TTL and timers work as in a query, because the variables
    and timers are those of a query. A processor that was tested can be pickled for a query: the handle and the
    variables that it holds are pickled without their state, and ``init`` replaces them.

    Parameters
    ----------
    mode
        Time mode.
    key_schema
        Schema of the key columns; by default a key is one column whose type is inferred from its value.

    Attributes
    ----------
    variables
        Declared variables by name.
    """

    def __init__(self, mode: str, key_schema: SchemaLike | None) -> None:
        schemas = LocalSchemas(_TIMEZONE)
        super().__init__(schemas.parsed, mode=mode)
        self._rows, self._error = spark_rows, StateVariableError
        self.variables: dict[str, Variable] = {}
        self._slots: dict[str, _Slot] = {}
        self._key_schema = None if key_schema is None else schemas.parsed(key_schema)
        self._codecs: dict[str, KeyCodec] = {}
        self._keys: dict[bytes, Any] = {}
        self._watermark_ms = 0
        self._scope.now_ms = 0
        self._scope.view = GroupTransaction(EmptyReader())

    def end_init(self) -> None:
        """Refuse further declarations."""
        self._in_init = False

    def begin_batch(self) -> None:
        """Begin a batch: each call of the tester is one."""
        self._scope.batch += 1

    def set_clock(self, now_ms: int) -> None:
        """Set the clock of the time mode: the processing time or the watermark."""
        if self._mode == "eventTime":
            self._watermark_ms = now_ms
        else:
            self._scope.now_ms = now_ms

    @property
    def clock(self) -> int:
        """The processing time or the watermark, by time mode."""
        return self._watermark_ms if self._mode == "eventTime" else self._scope.now_ms

    def timer_values(self) -> tuple[int, int]:
        """Processing time and watermark as user code sees them; -1 where the time mode has none."""
        if self._mode == "none":
            return -1, -1
        return self._scope.now_ms, self._watermark_ms if self._mode == "eventTime" else -1

    def __reduce__(self) -> tuple[type["LiveHandle"], tuple[str, None]]:
        return LiveHandle, (self._mode, None)

    def set_key(self, key: Any) -> None:
        """Switch to this grouping key."""
        encoded = self._encoded(key)
        self._keys[encoded] = key
        self._scope.prefix = entry_prefix(0, encoded)

    def shown_key(self, key: Any, *, in_pandas: bool, of_timer: bool = False) -> tuple[Any, ...]:
        """Return a key as the processor receives it; by a ``keySchema``, in the types of a query.

        Parameters
        ----------
        key
            The key as the test gives it.
        in_pandas
            Whether the processor is tested with frames.
        of_timer
            Whether ``handleExpiredTimer`` receives it.
        """
        schema = self._key_schema
        if schema is None:
            return (key,)
        known = self._codec(schema).decode_key(self._encoded(key))
        if of_timer:
            return timer_key_shower(schema, _TIMEZONE if in_pandas else None)(known)
        return key_shower(schema, _TIMEZONE, PANDAS_NULLS)(known) if in_pandas else self._values(key)

    def due_timers(self) -> Iterator[tuple[Any, int]]:
        """Key and time of each due timer, ascending by time."""
        for _, encoded, expiry in due_timers(self._scope.view, self.clock):
            yield self._keys[encoded], expiry

    def variable(self, kind: type[_V], name: str) -> _V:
        """Return a declared variable of a kind; if there is none, raise as Spark's tester does."""
        found = self.any_variable(name)
        if not isinstance(found, kind):
            raise PySparkAssertionError(
                f"init declares {name!r} as a {type(found).__name__}, and this call needs a {kind.__name__}; use the "
                "method for its kind",
                errorClass="STATE_NOT_EXISTS",
            )
        return found

    def any_variable(self, name: str) -> Variable:
        """Return a declared variable."""
        if name not in self.variables:
            raise PySparkAssertionError(
                f"there is no state variable {name!r}; init declares {', '.join(self.variables) or 'none'}; correct "
                "the name, or declare it in init",
                errorClass="STATE_NOT_EXISTS",
            )
        return self.variables[name]

    def forget(self, name: str) -> None:
        """Remove a variable with its values of all keys, if it exists."""
        variable = self.variables.pop(name, None)
        if variable is not None:
            before = self._scope.prefix
            for encoded in self._keys:
                self._scope.prefix = entry_prefix(0, encoded)
                variable.clear()
            self._scope.prefix = before

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ValueState:  # noqa: N802, N803 - Spark's own name
        """A variable that holds one row for each grouping key; in ``init`` only."""
        return self._kept(stateName, super().getValueState(stateName, schema, ttlDurationMs))

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ListState:  # noqa: N802, N803 - Spark's own name
        """A variable that holds a list of rows for each grouping key; in ``init`` only."""
        return self._kept(stateName, super().getListState(stateName, schema, ttlDurationMs))

    def getMapState(  # noqa: N802 - Spark's own name
        self,
        stateName: str,  # noqa: N803 - Spark's own name
        userKeySchema: Any,  # noqa: N803 - Spark's own name
        valueSchema: Any,  # noqa: N803 - Spark's own name
        ttlDurationMs: int | None = None,  # noqa: N803 - Spark's own name
    ) -> MapState:
        """A variable that holds a map from rows to rows for each grouping key; in ``init`` only."""
        return self._kept(stateName, super().getMapState(stateName, userKeySchema, valueSchema, ttlDurationMs))

    def deleteIfExists(self, stateName: str) -> None:  # noqa: N802, N803 - Spark's own name
        """Remove a variable; in ``init`` only."""
        self._require_deletable(stateName)
        super().deleteIfExists(stateName)
        if self.variables.pop(stateName, None) is not None:
            self._slots[stateName].delete(stateName)

    def _declare(self, name: str, kind: Kind, *declaration: Any) -> VariableSpec:
        self._require_declarable(name, kind)
        return super()._declare(name, kind, *declaration)

    def _kept(self, name: str, variable: _V) -> _V:
        self.variables[name] = variable
        self._slots[name] = _Slot(variable)
        return cast("_V", self._slots[name])

    def _values(self, key: Any) -> tuple[Any, ...]:
        schema = self._key_schema
        return (key,) if schema is None or len(schema["fields"]) == 1 else tuple(key)

    def _encoded(self, key: Any) -> bytes:
        schema = self._key_schema
        if schema is None:
            schema = {"type": "struct", "fields": [{"name": "key", "type": _inferred(key)}]}
        return self._codec(schema).encode_key(self._values(key))

    def _codec(self, schema: dict[str, Any]) -> KeyCodec:
        text = json.dumps(schema, sort_keys=True)
        if text not in self._codecs:
            self._codecs[text] = KeyCodec(schema)
        return self._codecs[text]


class _Slot:
    """A variable as ``init`` receives it: ``deleteIfExists`` may still delete it; it is pickled without the variable.

    Parameters
    ----------
    variable
        The variable.
    """

    def __init__(self, variable: Variable | None) -> None:
        self._variable: Variable | DeletedVariable | None = variable

    def delete(self, name: str) -> None:
        """Refuse all further calls, as a query does."""
        kind = type(self._variable).__name__.removesuffix("State").lower()
        self._variable = DeletedVariable(kind, name, StateVariableError)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._variable, name)

    def __reduce__(self) -> tuple[type["_Slot"], tuple[None]]:
        return _Slot, (None,)


class HandleForTests:
    """The handle that a test uses, with the methods of the one of Spark's ``TwsTester``.

    It gives the test the declared variables. Unlike the processor's handle, it may be used at any time.

    Parameters
    ----------
    live
        The handle of the processor.
    mode
        Time mode.
    """

    def __init__(self, live: LiveHandle, mode: str) -> None:
        self._live = live
        self._mode = mode

    def setGroupingKey(self, key: Any) -> None:  # noqa: N802 - Spark's own name
        """Switch to this key."""
        self._live.set_key(key)

    def getValueState(self, stateName: str, schema: Any = None, ttlDurationMs: int | None = None) -> ValueState:  # noqa: ARG002, N802, N803 - Spark's own name
        """Return the value state that ``init`` declared under this name."""
        return self._live.variable(ValueState, stateName)

    def getListState(self, stateName: str, schema: Any = None, ttlDurationMs: int | None = None) -> ListState:  # noqa: ARG002, N802, N803 - Spark's own name
        """Return the list state that ``init`` declared under this name."""
        return self._live.variable(ListState, stateName)

    def getMapState(  # noqa: N802 - Spark's own name
        self,
        stateName: str,  # noqa: N803 - Spark's own name
        userKeySchema: Any = None,  # noqa: ARG002, N803 - Spark's own name
        valueSchema: Any = None,  # noqa: ARG002, N803 - Spark's own name
        ttlDurationMs: int | None = None,  # noqa: ARG002, N803 - Spark's own name
    ) -> MapState:
        """Return the map state that ``init`` declared under this name."""
        return self._live.variable(MapState, stateName)

    def deleteIfExists(self, stateName: str) -> None:  # noqa: N802, N803 - Spark's own name
        """Remove a variable with its values of all keys, if it exists."""
        self._live.forget(stateName)

    def deleteState(self, stateName: str) -> None:  # noqa: N802, N803 - Spark's own name
        """Remove the values of a variable for the current key."""
        self._live.any_variable(stateName).clear()

    def registerTimer(self, expiryTimestampMs: int) -> None:  # noqa: N802, N803 - Spark's own name
        """Register a timer of the current key; in event time it must be after the watermark."""
        self._allow("registerTimer")
        if self._mode == "eventTime" and expiryTimestampMs <= self._live.clock:
            raise IllegalArgumentException(
                f"a timer of a test must be later than the watermark, {self._live.clock} ms, got {expiryTimestampMs} "
                "ms; register it before setWatermark, or for a later time"
            )
        self._live.registerTimer(expiryTimestampMs)

    def deleteTimer(self, expiryTimestampMs: int) -> None:  # noqa: N802, N803 - Spark's own name
        """Delete a timer of the current key, if it exists."""
        self._allow("deleteTimer")
        self._live.deleteTimer(expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:  # noqa: N802 - Spark's own name
        """Times of the timers of the current key, ascending."""
        self._allow("listTimers")
        return self._live.listTimers()

    def _allow(self, call: str) -> None:
        if self._mode == "none":
            raise unsupported(call, "timeMode None", "give the tester timeMode='ProcessingTime' or 'EventTime'")


def unsupported(call: str, found: str, instead: str) -> PySparkValueError:
    """Return the error of Spark's tester for a call that the time mode does not have."""
    return PySparkValueError(f"{call} is not supported with {found}; {instead}", errorClass="UNSUPPORTED_OPERATION")


def _inferred(key: Any) -> Any:
    """Return the type of a key column with this value, as in ``StructType.jsonValue()``."""
    value = key.item() if isinstance(key, np.generic) else key
    if value is None:
        return "void"
    if isinstance(value, tuple | list):
        fields = [{"name": f"_{place}", "type": _inferred(each)} for place, each in enumerate(value, 1)]
        return {"type": "struct", "fields": fields}
    for kind, name in _SCALARS:
        if isinstance(value, kind):
            return name
    raise InvalidArgumentError(
        f"a {type(key).__name__} cannot be a key, got {key!r:.80}; give a number, text, bytes, a date, a time or a "
        "tuple of them, or name the types with keySchema"
    )
