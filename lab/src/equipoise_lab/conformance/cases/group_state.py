"""``applyInPandasWithState``."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.state import GroupStateTimeout

from equipoise_lab.conformance.case import GROUP_STATE, Case, Step, batches, once
from equipoise_lab.conformance.cases.timers import at

Function = Callable[[Any, Iterator[Any], Any], Iterator[Any]]


def _out(*rows: tuple[Any, Any]) -> pd.DataFrame:
    return pd.DataFrame({"id": [each for each, _ in rows], "seen": [seen for _, seen in rows]})


def counts(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Count the rows of a key."""
    before = state.get[0] if state.exists else 0
    assert state.getOption == ((before,) if state.exists else None)  # noqa: S101 - the case's claim
    state.update((before + sum(len(frame) for frame in frames),))
    yield _out((key[0], f"{state.get[0]} {type(key).__name__} {state.hasTimedOut} {state.exists}"))


def without_state(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Yield two rows and keep nothing."""
    del frames, state
    yield _out((key[0], "100"), ("more", "222"))


def without_output(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Yield a frame without rows and keep nothing."""
    del key, frames, state
    yield _out()


def more_rows(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Yield more rows than there are."""
    del frames
    state.update((1,))
    yield _out((key[0], "1"), ("more", "666"), (f"{key[0]}2", "2"))


def fewer_rows(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Keep state and yield no row."""
    del key, frames
    state.update((1,))
    yield _out()


def with_null(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Yield NULL."""
    del key
    state.update((sum(len(frame) for frame in frames),))
    yield _out((None, str(state.get[0])))


def dies(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """End the Python process at the second batch of a key, after its state has changed."""
    if state.exists:
        state.update((99,))
        os._exit(1)
    yield from counts(key, frames, state)


def removes(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Keep state in one batch and remove it in the next."""
    existed = state.exists
    if existed:
        state.remove()
    else:
        state.update((sum(len(frame) for frame in frames),))
    yield _out((key[0], f"{existed} {state.exists} {state.getOption}"))


def times_out(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Time out at the event time of a row and a second."""
    if state.hasTimedOut:
        yield _out((key[0], f"timed out at {state.getCurrentWatermarkMs()} with {state.get}"))
        state.remove()
        return
    seconds = [int(second) for frame in frames for second in frame["second"]]
    state.update((max(seconds),))
    state.setTimeoutTimestamp(1000 * max(seconds) + 1000)
    yield _out((key[0], f"{seconds} at {state.getCurrentWatermarkMs()}"))


def clock_times_out(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Time out a millisecond after the last row."""
    if state.hasTimedOut:
        yield _out((key[0], f"timed out with {state.get} {state.exists} {sum(1 for _ in frames)}"))
        state.remove()
        return
    state.update((sum(len(frame) for frame in frames),))
    state.setTimeoutDuration(1)
    yield _out((key[0], f"{state.get}"))


def whole_number(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Yield a whole number for a decimal column."""
    del frames, state
    yield pd.DataFrame({"id": [key[0]], "seen": [1]})


def _given(function: Function) -> Callable[[bool], Function]:
    return lambda frames: function if frames else _no_rows()


def _no_rows() -> Function:
    raise AssertionError("applyInPandasWithState has no Row form")


_ROWS = (("a", 1), ("a", 2), ("b", 3))
_DECIMAL = {"spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled": "true"}


def _case(about: str, function: Function, **options: Any) -> Case:
    options = {"steps": once(*_ROWS), "time_mode": GroupStateTimeout.NoTimeout, **options}
    return Case(about, _given(function), forms=GROUP_STATE, state="n long", **options)


CASES = {
    "group-state": _case("State that lasts from batch to batch", counts, steps=batches(_ROWS, _ROWS)),
    "group-state-unused": _case("A function without state", without_state),
    "group-state-nothing": _case("A function without state and output", without_output),
    "group-state-more-rows": _case("More output rows than input rows", more_rows),
    "group-state-fewer-rows": _case("State and no output rows", fewer_rows),
    "group-state-null": _case("NULL in the output", with_null),
    "group-state-worker-dies": _case("A Python process that ends; the next start goes on", dies, output_mode="append",
                                     steps=(Step((_ROWS,)), Step((_ROWS,)), Step((), _given(counts)))),
    "group-state-decimal": _case("A whole number for a decimal column", whole_number,
                                 output="id string, seen decimal(10, 2)", settings=_DECIMAL),
    "group-state-repartitioned": _case("More and fewer partitions at the next starts", counts,
                                       steps=(Step((_ROWS,), partitions=3), Step((_ROWS,), partitions=6),
                                              Step((_ROWS,), partitions=2))),
    "group-state-removed": _case("State that is removed", removes, steps=batches(_ROWS, _ROWS, _ROWS)),
    "group-state-event-timeout": _case("An event-time timeout", times_out, schema="id string, second int", source=at,
                                       time_mode=GroupStateTimeout.EventTimeTimeout,
                                       steps=batches((("a", 1), ("b", 2)), (("c", 40),))),
    "group-state-clock-timeout": _case("A processing-time timeout", clock_times_out,
                                       time_mode=GroupStateTimeout.ProcessingTimeTimeout,
                                       steps=batches(_ROWS, (("b", 4),), (("c", 5),))),
}  # fmt: skip
