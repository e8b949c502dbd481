"""Run user code over the keys of a task: the interface of a runner, and the runners of ``StatefulProcessor``."""

import datetime as dt
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Self

import numpy as np
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues

from equipoise.errors import InvalidArgumentError, UserFunctionError
from equipoise.readable import key_text
from equipoise.spark.rows.keyed_frames import KeyedBuffers, KeyedFrames, KeyedRows, KeyedTables, ProcessorFrames
from equipoise.spark.rows.pandas_rows import PANDAS_NULLS, key_shower, timer_key_shower
from equipoise.spark.rows.runs import Runs
from equipoise.spark.rows.user_functions import raised_at, traced
from equipoise.spark.stream.aggregator import AggregatorProcessor, FinalAggregatorProcessor
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.load_meter import LoadMeter
from equipoise.spark.stream.outputs import NOT_RESULTS, Call, Outputs, no_iterator
from equipoise.state.codec import KeyCodec
from equipoise.state.handle import StateHandle
from equipoise.state.transaction import GroupTransaction

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ViewOf = Callable[[int], GroupTransaction]
KeyShower = Callable[[tuple[Any, ...]], tuple[Any, ...]]


class StateVariableError(PySparkRuntimeError, InvalidArgumentError):
    """A deleted state variable was used, or one that is in use was deleted; Spark raises PySparkRuntimeError for it."""


class Runner(ABC):
    """Runs one kind of user code."""

    tag_in_columns: int | None = None
    """Tag of the state variable that is read and written in columns; ``None``: state is read key by key."""

    @abstractmethod
    def run(self, rows: Iterator[Runs], view_of: ViewOf, outputs: Outputs, meter: LoadMeter) -> Iterator[int]:
        """Process sorted rows; yield the number of a key group when all groups below it are done."""

    @abstractmethod
    def expire(self, view: GroupTransaction, outputs: Outputs) -> None:
        """Run the user's code for the due timers of a group."""

    @abstractmethod
    def close(self) -> None:
        """Let the user's code clean up."""


RunnerFactory = Callable[[BatchSpec], Runner]
"""Makes the runner of a task."""


class _Naming:
    """Names a call in the error of the user's code; one object for all calls, as making one takes a microsecond."""

    def __init__(self, batch_spec: BatchSpec) -> None:
        self._batch_spec = batch_spec

    def __call__(self, call: Call) -> Self:
        self._call = call
        return self

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, UserFunctionError):  # which names the call
            raise failed(self._batch_spec, self._call.function, self._call.fingerprint, error) from error


class ProcessorRunner(Runner):
    """Runs a ``StatefulProcessor`` as ``transformWithStateInPandas`` does.

    Parameters
    ----------
    processor
        The user's processor.
    batch_spec
        What the tasks of the batch need to know.
    """

    def __init__(self, processor: StatefulProcessor, batch_spec: BatchSpec) -> None:
        self._processor = processor
        self._batch_spec = batch_spec
        self._keys = KeyCodec(batch_spec.key_schema)
        self._shown, self._timer_key = self._key_showers()
        self._handle = StateHandle(
            batch_spec.variables,
            mode=batch_spec.time_mode,
            processing_ms=batch_spec.time_ms,
            watermark_ms=batch_spec.watermark_ms,
            batch=batch_spec.version,
            rows=None if isinstance(processor, AggregatorProcessor) else spark_rows,  # buffers are tuples everywhere
            error=StateVariableError,
        )
        self._times = TimerValues(*self._handle.timer_values())
        with naming_function(batch_spec, self._function("init")):
            processor.init(self._handle)  # type: ignore[arg-type]  # the same methods, over our own store
            self._handle.finish_init()

    def run(self, rows: Iterator[Runs], view_of: ViewOf, outputs: Outputs, meter: LoadMeter) -> Iterator[int]:
        """Call ``handleInputRows`` once for each key, or ``handleInitialState`` for each of its frames."""
        initial, keyed = self._batch_spec.initial, self._keyed(rows)
        function = self._function("handleInitialState" if initial else "handleInputRows")
        clock, current = time.perf_counter, -1
        measured: list[tuple[int, int, int, float, int]] = []
        handle, shown = self._handle, self._shown
        add, call, naming = self._adder(outputs), self._initial if initial else self._input, _Naming(self._batch_spec)
        for group, fingerprint, encoded, key, frames in keyed:
            if group != current:
                _report(measured, meter)  # a finished group is written with its measures
                yield group
                handle.set_group(view_of(group))
                current = group
            handle.set_key(fingerprint, encoded)
            start, this = clock(), Call(function, fingerprint)
            with naming(this):
                for made in self._results(call(shown(key), frames, self._times), this):
                    add(made, this)
            for _ in frames:
                pass
            meter.add_combined(keyed.combined, keyed.buffers)
            received = keyed.rows - keyed.combined + keyed.buffers
            measured.append((group, fingerprint, keyed.rows, clock() - start, received))
        _report(measured, meter)

    def expire(self, view: GroupTransaction, outputs: Outputs) -> None:
        """Call ``handleExpiredTimer`` for each due timer."""
        self._handle.set_group(view)
        add, function, naming = self._adder(outputs), self._function("handleExpiredTimer"), _Naming(self._batch_spec)
        for fingerprint, encoded, expiry in self._handle.due_timers():
            self._handle.set_key(fingerprint, encoded)
            key = self._timer_key(self._keys.decode_key(encoded))
            this = Call(function, fingerprint)
            with naming(this):
                made = self._processor.handleExpiredTimer(key, self._times, ExpiredTimerInfo(expiry))
                for each in self._results(made, this):
                    add(each, this)
            self._handled(expiry)

    def close(self) -> None:
        """Call ``close``."""
        with naming_function(self._batch_spec, self._function("close")):
            self._processor.close()

    def turn_to(self, batch_spec: BatchSpec) -> None:
        """Take the rows that follow by another specification, such as that of the initial state, without ``init``."""
        self._batch_spec = batch_spec

    def _keyed(self, rows: Iterator[Runs]) -> KeyedFrames:
        """Return keys with their rows in the form that the processor takes."""
        if self._batch_spec.has_buffers:
            return KeyedBuffers(rows, combined=self._batch_spec.combine.scope == "all")
        if isinstance(self._processor, AggregatorProcessor) and (
            self._batch_spec.initial or self._processor.takes_arrow
        ):
            return KeyedTables(rows)
        made = KeyedFrames if isinstance(self._processor, AggregatorProcessor) else ProcessorFrames
        return made(rows, self._batch_spec.timezone, options=self._batch_spec.worker)

    def _key_showers(self) -> tuple[KeyShower, KeyShower]:
        """Return the functions from a key to the form that ``handleInputRows`` and ``handleExpiredTimer`` see."""
        schema, timezone = self._batch_spec.key_schema, self._batch_spec.timezone
        if isinstance(self._processor, AggregatorProcessor):
            shown = key_shower(schema, None if self._processor.has_exact_keys else timezone)
            return shown, shown
        return key_shower(schema, timezone, PANDAS_NULLS), timer_key_shower(schema, timezone)

    def _results(self, made: Any, call: Call) -> Iterable[Any]:
        """Return the results of a call, if it returned something to iterate over."""
        if isinstance(made, Iterable) and not isinstance(made, NOT_RESULTS):
            return made
        raise wrong_result(self._batch_spec, call, no_iterator(made))

    def _adder(self, outputs: Outputs) -> Callable[[Any, Call], None]:
        """Return the function that adds an output of the processor."""
        return outputs.add_values if isinstance(self._processor, AggregatorProcessor) else outputs.add_frame

    def _input(self, key: tuple[Any, ...], frames: Iterator[Any], times: TimerValues) -> Iterator[Any]:
        return self._processor.handleInputRows(key, frames, times)

    def _handled(self, expiry: int) -> None:
        """Delete a timer after its call, as Spark does."""
        self._handle.deleteTimer(expiry)

    def _function(self, method: str) -> str:
        """Return the name of the user's function behind a method of the processor, for messages."""
        if isinstance(self._processor, AggregatorProcessor):
            return type(self._processor.aggregator).__name__  # the place of the error names its method
        return f"{type(self._processor).__name__}.{method}"

    def _initial(self, key: tuple[Any, ...], frames: Iterator[Any], times: TimerValues) -> Iterator[Any]:
        for frame in frames:
            if isinstance(self._processor, AggregatorProcessor):
                self._processor.merge_initial(key, frame)
            else:
                self._processor.handleInitialState(key, frame, times)
        return iter(())


class RowRunner(ProcessorRunner):
    """Runs a ``StatefulProcessor`` that takes and yields ``Row``.

    ``handleInputRows`` gets the key as a tuple and one iterator over the rows of the key. ``handleInitialState`` is
    called for each row. Values are those of Arrow's ``as_py``: a timestamp is a ``datetime`` with the session's zone, a
    struct a dict, a map a list of pairs. A yielded ``Row`` needs named fields, which are matched by name.

    Parameters
    ----------
    processor
        The user's processor.
    batch_spec
        What the tasks of the batch need to know.
    """

    def _key_showers(self) -> tuple[KeyShower, KeyShower]:
        return (lambda key: key), timer_key_shower(self._batch_spec.key_schema, None)

    def _keyed(self, rows: Iterator[Runs]) -> KeyedFrames:
        return KeyedRows(rows, self._batch_spec.key_fields)

    def _adder(self, outputs: Outputs) -> Callable[[Any, Call], None]:
        return outputs.add_row

    def _input(self, key: tuple[Any, ...], frames: Iterator[Any], times: TimerValues) -> Iterator[Any]:
        return super()._input(key, chain.from_iterable(frames), times)

    def _initial(self, key: tuple[Any, ...], frames: Iterator[Any], times: TimerValues) -> Iterator[Any]:
        return super()._initial(key, chain.from_iterable(frames), times)


class FinalAggregateRunner(ProcessorRunner):
    """Runs an aggregator that finishes each key when the watermark has passed the event time in it.

    Parameters
    ----------
    position
        Position of the event time among the columns of the key.
    processor
        The aggregator as a processor.
    batch_spec
        What the tasks of the batch need to know.
    """

    def __init__(self, position: int, processor: FinalAggregatorProcessor, batch_spec: BatchSpec) -> None:
        super().__init__(processor, batch_spec)
        show = self._shown

        def shown(key: tuple[Any, ...]) -> tuple[Any, ...]:
            processor.event_ms = _event_ms(key[position])
            return show(key)

        self._shown = shown


def _event_ms(value: dt.datetime | tuple[dt.datetime, dt.datetime] | None) -> int | None:
    """Return the first millisecond at which a watermark has passed an event time, or the end of a window."""
    end = value[1] if isinstance(value, tuple) else value
    return None if end is None else -((_EPOCH - end.astimezone(dt.UTC)) // dt.timedelta(milliseconds=1))


def spark_rows(names: Sequence[str]) -> Callable[[Iterable[Any]], Row]:
    """Return the function that makes Spark's ``Row`` with these field names, as Spark does for structs in state."""
    fields = list(names)

    def make(values: Iterable[Any]) -> Row:
        row = Row(*values)
        row.__fields__ = fields
        return row

    return make


def _report(measured: list[tuple[int, int, int, float, int]], meter: LoadMeter) -> None:
    if measured:
        columns = [np.array(column) for column in zip(*measured, strict=True)]
        measured.clear()
        meter.add(*columns)


def failed(batch_spec: BatchSpec, what: str, fingerprint: int, error: Exception) -> UserFunctionError:
    """Return the error to raise when the user's code failed for a key, with a filter that finds the key."""
    whom, hint = _found_by(batch_spec, fingerprint)
    return failed_for(batch_spec, what, whom, error, hint)


def wrong_result(batch_spec: BatchSpec, call: Call, error: InvalidArgumentError) -> UserFunctionError:
    """Return the error to raise when a result of the user's code does not fit."""
    whom, hint = _found_by(batch_spec, call.fingerprint)
    return UserFunctionError(f"{call.function} gave a wrong result: {error}\n{_called(batch_spec, whom)}{hint}")


def _found_by(batch_spec: BatchSpec, fingerprint: int) -> tuple[str, str]:
    """Return the name of a key in messages, and how to find it."""
    columns = ", ".join(_quoted(field["name"]) for field in batch_spec.key_schema["fields"])
    found = f'where("xxhash64({columns}) = {fingerprint}")'
    return (
        f" for the key with the fingerprint {key_text(fingerprint)}",
        f" To see the key, filter the input{' or read_state(checkpoint)' if batch_spec.location else ''} with {found}.",
    )


def _called(batch_spec: BatchSpec, whom: str) -> str:
    if not batch_spec.location:  # a batch DataFrame
        initial = " with the initial state" if batch_spec.initial else ""
        return f"It was called{whom}{initial}. Correct the function and run the job again."
    where = "with the initial state" if batch_spec.initial else f"in batch {batch_spec.batch}"
    return (
        f"It was called{whom} {where}, of which nothing was committed. Correct the function and start the query again "
        "on the same checkpoint."
    )


def failed_for(batch_spec: BatchSpec, what: str, whom: str, error: Exception, hint: str = "") -> UserFunctionError:
    """Return the error to raise when the user's code failed: the user's exception and line, then what to do."""
    return UserFunctionError(
        f"{type(error).__name__} in {what}{raised_at(error, what)}: {error}\n"
        f"{_called(batch_spec, whom)}{hint}\n{traced(error)}"
    )


def _quoted(name: str) -> str:
    """Return a column name as SQL reads it."""
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"


@contextmanager
def naming_function(batch_spec: BatchSpec, what: str) -> Iterator[None]:
    """Name the user's function in the error of a call that has no key."""
    try:
        yield
    except Exception as error:
        raise failed_for(batch_spec, what, "", error) from error
