"""Run a ``StatefulProcessor`` for one key at a time without Spark, with the methods of Spark's ``TwsTester``."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pandas as pd
from pyspark.errors import IllegalArgumentException, PySparkAssertionError, PySparkValueError
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.arrow_rows import dicts_to_arrow, to_arrow
from equipoise.spark.rows.pandas_rows import to_pandas
from equipoise.spark.stream.local import LocalSchemas, SchemaLike
from equipoise.spark.stream.outputs import NOT_RESULTS, no_frame, no_iterator, no_named_row
from equipoise.spark.stream.user_code import require_processor
from equipoise.spark.testing.live_handle import HandleForTests, LiveHandle, unsupported
from equipoise.spark.testing.output_rows import rows_of
from equipoise.state.timers import time_mode
from equipoise.state.variables import ListState, MapState, ValueState

_OUTPUT_MODES = ("append", "update", "complete")
_TIMEZONE = "UTC"
_V = TypeVar("_V", ValueState, ListState, MapState)


class TwsTester:
    """Test a ``StatefulProcessor`` without Spark, one key at a time, in milliseconds.

    It has the constructor and the methods of Spark's ``TwsTester`` and raises exceptions of the same types. It needs
    neither Java nor a session and runs on every Spark that equipoise supports, also where Spark has no tester.

    Parameters
    ----------
    processor
        The processor. ``init`` is called once.
    initialStateRow, initialStatePandas
        Pairs of a key and its row or frame, for ``handleInitialState``; one of the two.
    timeMode
        ``"None"``, ``"ProcessingTime"`` or ``"EventTime"``.
    outputMode
        ``"Append"``, ``"Update"`` or ``"Complete"``; it changes nothing in a test.
    eventTimeExtractor
        Returns the event time of a row in milliseconds since 1970; required in event time. Rows that are not later
        than the watermark are dropped.
    outputStructType
        Schema of the output. If given, outputs are checked against it and converted as in a query.
    keySchema
        Schema of the key columns. If given, the processor receives the key with the types of a query; with several
        columns a key is a tuple of their values. By default a key is one column, which the processor receives as the
        test gives it.

    Attributes
    ----------
    handle
        Gives a test the declared variables and the timers of a key: ``setGroupingKey``, ``getValueState``,
        ``registerTimer`` and so on.

    Differs from Spark
    ------------------
    - State is that of a query: values must fit their schemas, come back with the types of the schema, and expire by
      their TTL when ``setProcessingTime`` passes it. TTL needs processing time.
    - State variables can be declared in ``init`` only.
    - Timers fire in the order of their times, over all keys.
    - An output that is not a ``Row`` with named fields or a DataFrame is refused.
    - A row without an event time (None or NaN) is on time.

    Examples
    --------
    >>> class Count(StatefulProcessor):
    ...     def init(self, handle):
    ...         self.count = handle.getValueState("count", "n long")
    ...     def handleInputRows(self, key, rows, timerValues):
    ...         (n,) = self.count.get() or (0,)
    ...         self.count.update((n + len(list(rows)),))
    ...         yield Row(host=key[0], n=self.count.get()[0])
    >>> tester = TwsTester(Count())
    >>> tester.test("a", [Row(ms=3), Row(ms=5)])
    [Row(host='a', n=2)]
    >>> tester.updateValueState("count", "a", (40,))
    >>> tester.test("a", [Row(ms=7)])
    [Row(host='a', n=41)]
    >>> tester.updateValueState("count", "a", ("many",))
    Traceback (most recent call last):
    equipoise.errors.InvalidArgumentError: value state 'count': field 'n' is declared long and cannot hold 'many': ...
    """

    def __init__(
        self,
        processor: StatefulProcessor,
        initialStateRow: Sequence[tuple[Any, Row]] | None = None,  # noqa: N803 - Spark's own name
        initialStatePandas: Sequence[tuple[Any, pd.DataFrame]] | None = None,  # noqa: N803 - Spark's own name
        timeMode: str = "None",  # noqa: N803 - Spark's own name
        outputMode: str = "Append",  # noqa: N803 - Spark's own name
        eventTimeExtractor: Callable[[Any], int | None] | None = None,  # noqa: N803 - Spark's own name
        *,
        outputStructType: SchemaLike | None = None,  # noqa: N803 - Spark's own name
        keySchema: SchemaLike | None = None,  # noqa: N803 - as Spark names schemas
    ) -> None:
        require_processor(processor)
        self._mode = time_mode(timeMode)
        if not isinstance(outputMode, str) or outputMode.lower() not in _OUTPUT_MODES:
            raise InvalidArgumentError(f"outputMode must be one of {', '.join(_OUTPUT_MODES)}, got {outputMode!r}")
        if self._mode == "eventTime" and eventTimeExtractor is None:
            raise PySparkValueError(
                "timeMode EventTime needs eventTimeExtractor, a function from a row to its event time in milliseconds",
                errorClass="ARGUMENT_REQUIRED",
            )
        if initialStateRow is not None and initialStatePandas is not None:
            raise PySparkAssertionError(
                "expected initialStateRow or initialStatePandas, got both; give the one of the processor's form"
            )
        self.processor = processor
        self._event_time = eventTimeExtractor if self._mode == "eventTime" else None
        self._output = None if outputStructType is None else LocalSchemas(_TIMEZONE).arrow(outputStructType)
        self._in_pandas = initialStatePandas is not None
        self._live = LiveHandle(self._mode, keySchema)
        self.handle = HandleForTests(self._live, self._mode)
        processor.init(self._live)  # type: ignore[arg-type]  # the same methods, over our own store
        self._live.end_init()
        for key, initial in initialStateRow or initialStatePandas or ():
            self._live.set_key(key)
            processor.handleInitialState(self._shown(key), initial, self._times())

    def test(self, key: Any, input: Iterable[Row]) -> list[Row]:  # noqa: A002 - Spark's own name
        """Run the rows of a key, as ``transformWithState`` does, and return the rows that the processor yields."""
        if isinstance(input, pd.DataFrame):
            raise InvalidArgumentError("test takes the rows of the key, and got a DataFrame; use testInPandas")
        self._in_pandas = False
        rows = [row for row in input if self._is_on_time(row)]
        made = self._run(key, iter(rows))
        with self._naming("handleInputRows"):
            return self._rows(made)

    def testInPandas(self, key: Any, input: pd.DataFrame) -> pd.DataFrame:  # noqa: A002, N802 - Spark's own name
        """Run the frame of a key, as ``transformWithStateInPandas`` does, and return what the processor yields."""
        if not isinstance(input, pd.DataFrame):
            raise InvalidArgumentError(
                f"testInPandas takes a DataFrame with the rows of the key, and got a {type(input).__name__}; use test "
                "for rows"
            )
        self._in_pandas = True
        if self._event_time is not None:
            on_time = [self._is_on_time(row) for _, row in input.iterrows()]
            input = input[pd.Series(on_time, index=input.index, dtype=bool)]  # noqa: A001 - as above
        made = self._run(key, iter([input.reset_index(drop=True)]))
        with self._naming("handleInputRows"):
            return self._frame(made)

    def setProcessingTime(self, currentTimeMs: int) -> list[Row] | pd.DataFrame:  # noqa: N802, N803 - Spark's own name
        """Set the processing time, let values expire, fire the due timers, and return what they yield."""
        if self._mode != "processingTime":
            raise unsupported("setProcessingTime", f"timeMode {self._mode}", "give timeMode='ProcessingTime'")
        return self._advance("processing time", whole("currentTimeMs", currentTimeMs, 0))

    def setWatermark(self, currentWatermarkMs: int) -> list[Row] | pd.DataFrame:  # noqa: N802, N803 - Spark's own name
        """Set the watermark, fire the due timers, and return what they yield."""
        if self._mode != "eventTime":
            raise unsupported("setWatermark", f"timeMode {self._mode}", "give timeMode='EventTime'")
        return self._advance("watermark", whole("currentWatermarkMs", currentWatermarkMs, 0))

    def updateValueState(self, stateName: str, key: Any, value: tuple[Any, ...]) -> None:  # noqa: N802, N803 - Spark's own name
        """Set a value of a key."""
        self._of(ValueState, stateName, key).update(value)

    def peekValueState(self, stateName: str, key: Any) -> tuple[Any, ...] | None:  # noqa: N802, N803 - Spark's own name
        """Return a value of a key, None without one."""
        return self._of(ValueState, stateName, key).get()

    def updateListState(self, stateName: str, key: Any, value: Sequence[tuple[Any, ...]]) -> None:  # noqa: N802, N803 - Spark's own name
        """Set a list of a key."""
        found = self._of(ListState, stateName, key)
        if len(value):
            found.put(value)
        else:
            found.clear()

    def peekListState(self, stateName: str, key: Any) -> list[tuple[Any, ...]]:  # noqa: N802, N803 - Spark's own name
        """Return a list of a key, empty without one."""
        return list(self._of(ListState, stateName, key).get())

    def updateMapState(self, stateName: str, key: Any, value: Mapping[Any, Any]) -> None:  # noqa: N802, N803 - Spark's own name
        """Set a map of a key."""
        found = self._of(MapState, stateName, key)
        found.clear()
        for each in value.items():
            found.updateValue(*each)

    def peekMapState(self, stateName: str, key: Any) -> dict[Any, Any]:  # noqa: N802, N803 - Spark's own name
        """Return a map of a key, empty without one."""
        return dict(self._of(MapState, stateName, key).iterator())

    def deleteState(self, stateName: str, key: Any) -> None:  # noqa: N802, N803 - Spark's own name
        """Remove the values of a variable for a key."""
        self._live.set_key(key)
        self.handle.deleteState(stateName)

    def _of(self, kind: type[_V], name: str, key: Any) -> _V:
        self._live.set_key(key)
        return self._live.variable(kind, name)

    def _shown(self, key: Any, *, of_timer: bool = False) -> tuple[Any, ...]:
        return self._live.shown_key(key, in_pandas=self._in_pandas, of_timer=of_timer)

    def _times(self) -> TimerValues:
        return TimerValues(*self._live.timer_values())

    def _is_on_time(self, row: Any) -> bool:
        if self._event_time is None:
            return True
        event = self._event_time(row)
        return event is None or bool(pd.isna(event)) or event > self._live.clock

    def _run(self, key: Any, rows: Iterator[Any]) -> list[Any]:
        self._live.begin_batch()
        self._live.set_key(key)
        return list(self._results("handleInputRows", self._shown(key), rows, self._times()))

    def _advance(self, clock: str, now_ms: int) -> list[Row] | pd.DataFrame:
        if now_ms <= self._live.clock:
            raise IllegalArgumentException(
                f"the {clock} must move forward: it is {self._live.clock} ms, got {now_ms} ms; give a later time"
            )
        self._live.begin_batch()
        self._live.set_clock(now_ms)
        made: list[Any] = []
        for key, expiry in self._live.due_timers():
            self._live.set_key(key)
            arguments = (self._shown(key, of_timer=True), self._times(), ExpiredTimerInfo(expiry))
            made.extend(self._results("handleExpiredTimer", *arguments))
            self._live.deleteTimer(expiry)
        with self._naming("handleExpiredTimer"):
            return self._frame(made) if self._in_pandas else self._rows(made)

    def _results(self, method: str, *arguments: Any) -> Iterable[Any]:
        made = getattr(self.processor, method)(*arguments)
        if isinstance(made, Iterable) and not isinstance(made, NOT_RESULTS):
            return made
        with self._naming(method):
            raise no_iterator(made)

    @contextmanager
    def _naming(self, method: str) -> Iterator[None]:
        """Name the method of the processor in the error of a result that does not fit."""
        try:
            yield
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                f"{type(self.processor).__name__}.{method} gave a wrong result: {error}"
            ) from error

    def _rows(self, made: list[Any]) -> list[Row]:
        for row in made:
            if not isinstance(row, Row) or not hasattr(row, "__fields__"):
                raise no_named_row(row)
        if self._output is None:
            return made
        table = dicts_to_arrow([row.asDict(recursive=True) for row in made], self._output)
        return rows_of(table)

    def _frame(self, made: list[Any]) -> pd.DataFrame:
        for frame in made:
            if not isinstance(frame, pd.DataFrame):
                raise no_frame(frame)
        if self._output is not None:
            return to_pandas(to_arrow(made, self._output, _TIMEZONE), _TIMEZONE)
        made = [frame for frame in made if len(frame.columns)]
        return pd.concat(made, ignore_index=True) if made else pd.DataFrame()
