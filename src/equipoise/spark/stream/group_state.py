"""``applyInPandasWithState`` on the engine: a function with a ``GroupState`` as a ``StatefulProcessor``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues
from pyspark.sql.types import StructType

from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.keyed_frames import KeyedFrames, KeyedSlices
from equipoise.spark.rows.pandas_rows import key_shower
from equipoise.spark.rows.runs import Runs
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.runners import KeyShower, ProcessorRunner

STATE = "groupState"
"""Name of the one state variable of a function with a ``GroupState``."""

GroupStateFunction = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterable[pd.DataFrame]]
"""A function as ``applyInPandasWithState`` takes it."""

_TIME_MODES = {
    GroupStateTimeout.NoTimeout: "none",
    GroupStateTimeout.ProcessingTimeTimeout: "processingTime",
    GroupStateTimeout.EventTimeTimeout: "eventTime",
}
_NUMPY = {
    "byte": np.int8,
    "short": np.int16,
    "integer": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
    "boolean": np.bool_,
}
_NULLS = {
    **dict.fromkeys(("byte", "short", "integer", "long", "double"), np.float64("nan")),
    "float": np.float32("nan"),
    "timestamp": pd.NaT,
    "timestamp_ntz": pd.NaT,
}


def group_state_time_mode(timeout_conf: str) -> str:
    """Return the time mode of a query with a ``timeoutConf`` of ``applyInPandasWithState``.

    Examples
    --------
    >>> group_state_time_mode("EventTimeTimeout")
    'eventTime'
    """
    if timeout_conf not in _TIME_MODES:
        raise InvalidArgumentError(f"timeoutConf must be one of {', '.join(_TIME_MODES)}, got {timeout_conf!r}")
    return _TIME_MODES[timeout_conf]


def group_state_processor(
    func: GroupStateFunction, state_schema: StructType | str, timeout_conf: str, columns: Sequence[str]
) -> "GroupStateProcessor":
    """Return a processor that runs a function of ``applyInPandasWithState``.

    Parameters
    ----------
    func
        Function of (key, iterator of pandas frames, ``GroupState``) that yields pandas frames.
    state_schema
        Schema of the state of a key.
    timeout_conf
        ``NoTimeout``, ``ProcessingTimeTimeout`` or ``EventTimeTimeout``.
    columns
        Names of the input columns. A call after a timeout gets one empty frame that has them.

    Returns
    -------
    GroupStateProcessor
        Run it with the time mode ``group_state_time_mode(timeout_conf)``.
    """
    group_state_time_mode(timeout_conf)
    if not callable(func):
        raise InvalidArgumentError(
            f"func must be a function of (key, iterator of pandas.DataFrame, GroupState), got a {type(func).__name__}"
        )
    return GroupStateProcessor(func, state_schema, timeout_conf, list(columns))


class KeyState(GroupState):
    """Spark's ``GroupState`` of one call, with properties that report changes."""

    @property
    def is_changed(self) -> bool:
        """Whether the call updated or removed the state, or set a timeout."""
        return self._updated or self._removed or self._timeout_timestamp != GroupState.NO_TIMESTAMP

    @property
    def timeout_ms(self) -> int | None:
        """The timeout that the call set; ``None`` without one."""
        return None if self._timeout_timestamp == GroupState.NO_TIMESTAMP else int(self._timeout_timestamp)


class GroupStateProcessor(StatefulProcessor):
    """A function with a ``GroupState``; made by ``group_state_processor``.

    The value of the state is the state variable ``groupState``, the timeout a timer. A timeout at t fires in the first
    batch whose time exceeds t, so the timer is registered for t + 1.

    As in Spark, a call that neither updates nor removes the state nor sets a timeout changes nothing: an earlier
    timeout stays, and fires again if it is due. Any other call replaces the timeout, or clears it.
    """

    def __init__(
        self, func: GroupStateFunction, state_schema: StructType | str, timeout_conf: str, columns: list[str]
    ) -> None:
        self._func = func
        self._state_schema = state_schema
        self._timeout_conf = timeout_conf
        self._columns = columns
        self.has_watermark = False

    @property
    def name(self) -> str:
        """Name of the user's function."""
        return getattr(self._func, "__name__", type(self._func).__name__)

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self._handle = handle
        self._value = handle.getValueState(STATE, self._state_schema)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 - Spark's own name
        """Call the function with the rows of a key."""
        return self._called(key, rows, timerValues, timed_out=False)

    def handleExpiredTimer(  # noqa: N802 - Spark's own name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803 - Spark's own name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803 - Spark's own name
    ) -> Iterator[pd.DataFrame]:
        """Call the function without rows, because the key has timed out."""
        return self._called(key, iter([pd.DataFrame(columns=self._columns)]), timerValues, timed_out=True)

    def close(self) -> None:
        """Nothing to clean up."""

    def _called(
        self, key: Any, frames: Iterator[pd.DataFrame], times: TimerValues, *, timed_out: bool
    ) -> Iterator[pd.DataFrame]:
        value = self._value.get()
        state = KeyState(
            optionalValue=Row(*(value or ())),
            batchProcessingTimeMs=times.getCurrentProcessingTimeInMs(),
            eventTimeWatermarkMs=times.getCurrentWatermarkInMs(),
            timeoutConf=self._timeout_conf,
            hasTimedOut=timed_out,
            watermarkPresent=self.has_watermark,
            defined=value is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=GroupState.NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=self._state_schema,  # type: ignore[arg-type]  # Spark's worker reads it, nothing here does
        )
        made = self._func(key, frames, state)
        if isinstance(made, pd.DataFrame) or not isinstance(made, Iterable):
            raise InvalidArgumentError(
                f"{self.name} must yield pandas DataFrames or return an iterable of them, got a {type(made).__name__}"
            )
        yield from made
        if state.is_changed:
            self._store(state)

    def _store(self, state: KeyState) -> None:
        if state.exists:
            self._value.update(tuple(state.get))
        else:
            self._value.clear()
        if self._timeout_conf != GroupStateTimeout.NoTimeout:
            for timer in self._handle.listTimers():
                self._handle.deleteTimer(timer)
            if state.timeout_ms is not None:
                self._handle.registerTimer(state.timeout_ms + 1)


class GroupStateRunner(ProcessorRunner):
    """Runs a ``GroupStateProcessor`` with keys, frames and times as ``applyInPandasWithState`` gives them.

    Parameters
    ----------
    processor
        The function as a processor.
    batch_spec
        What the tasks of the batch need to know.
    """

    def __init__(self, processor: GroupStateProcessor, batch_spec: BatchSpec) -> None:
        self._group_state = processor
        super().__init__(processor, batch_spec)
        processor.has_watermark = batch_spec.event_time is not None
        watermark_ms = batch_spec.watermark_ms if processor.has_watermark else GroupState.NO_TIMESTAMP
        self._times = TimerValues(batch_spec.time_ms, watermark_ms)  # in every time mode, unlike those of a processor

    def _key_showers(self) -> tuple[KeyShower, KeyShower]:
        schema = self._batch_spec.key_schema
        kinds: list[Any] = [field["type"] for field in schema["fields"]]
        show = key_shower(schema, self._batch_spec.timezone)

        def shown(key: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(map(_as_numpy, show(key), kinds))

        return shown, shown

    def _keyed(self, rows: Iterator[Runs]) -> KeyedFrames:
        return KeyedSlices(rows, self._batch_spec.timezone, options=self._batch_spec.worker)

    def _handled(self, expiry: int) -> None:
        """Leave the timer to the processor: a call that changes nothing keeps its timeout."""

    def _function(self, method: str) -> str:  # noqa: ARG002 - both methods call the one function
        return self._group_state.name


def _as_numpy(value: Any, kind: Any) -> Any:
    """Return a value of a key as numpy's type; Spark takes keys from a Series."""
    if not isinstance(kind, str):
        return value
    if value is None:
        return _NULLS.get(kind)
    return _NUMPY[kind](value) if kind in _NUMPY else value
