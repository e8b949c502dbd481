"""A function with a ``GroupState`` gives the same answers as with Spark's ``applyInPandasWithState``."""

import datetime as dt
import sys
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StructField, StructType

from equipoise import InvalidArgumentError, UserFunctionError
from equipoise.spark import LocalQuery, balance
from equipoise.spark.stream.group_state import group_state_processor, group_state_time_mode

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules


def at(seconds):
    return dt.datetime(2024, 3, 30, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


def milliseconds(seconds):
    return int(at(seconds).timestamp() * 1000)


@pytest.fixture
def both(begin, collected, conf, tmp_path):
    """Run a function on our engine and with Spark's own operator; gives what both sinks got, by batch."""

    def run(stream, key, func, schema, state, timeout="NoTimeout"):
        mine = type(collected)()
        with conf(**{"spark.sql.shuffle.partitions": "2"}):
            groups = balance(stream, *key, numPartitions=2, tailGroups=8)
            own = groups.applyInPandasWithState(func, schema, state, "update", timeout)
            begin(own, mine, tmp_path / "ours", {"availableNow": True}).awaitTermination()
            made = stream.groupBy(*key).applyInPandasWithState(func, schema, state, "update", timeout)
            writer = made.writeStream.foreachBatch(collected).outputMode("update").trigger(availableNow=True)
            writer.option("checkpointLocation", str(tmp_path / "sparks")).start().awaitTermination()
        return mine.batches, collected.batches

    return run


def looks(key, frames, state):
    """Says what its arguments look like, and keeps values of many types."""
    n, price, t, day, word = state.getOption or (0, None, None, None, None)
    seen = [f"{frame.to_dict('list')} {frame.dtypes.astype(str).to_dict()} {list(frame.index)}" for frame in frames]
    reported = f"{key!r} {state} {state.exists} {state.hasTimedOut} {state.getCurrentWatermarkMs() >= 0} {seen}"
    assert state.getCurrentProcessingTimeMs() > 1_700_000_000_000
    if n < 2:
        state.update((n + 1, Decimal("1.50"), dt.datetime(2024, 1, 2, 3, 4, 5), dt.date(2024, 1, 1), "w"))  # noqa: DTZ001 - as Spark gives it
    else:
        state.remove()
    yield pd.DataFrame({"reported": [reported, f"{state.getOption} {price} {t} {day} {word}"]})
    yield pd.DataFrame({"reported": []})


def test_keys_frames_and_states_look_as_in_spark(feed, both, conf):
    types = "k int, s string, t timestamp, d date, b boolean, v int, f float, yes boolean, xs array<int>, m timestamp"
    rows = [
        (1, "a", at(0), dt.date(2024, 1, 1), True, 1, 0.5, True, [1, 2], at(5)),
        (1, "a", at(0), dt.date(2024, 1, 1), True, None, None, None, None, at(5)),
        (2, "", at(1), dt.date(1960, 2, 29), False, 7, 1.5, False, [], at(5)),
        (None, None, None, None, None, None, None, None, None, at(5)),
    ]
    source = feed(types, rows, rows[2:], rows[:1] + rows[2:3], rows[2:])
    stream = source.stream().withWatermark("m", "10 seconds")
    state = "n int, price decimal(10,2), t timestamp, day date, word string"
    with conf(spark__sql__session__timeZone="Asia/Kathmandu"):
        mine, theirs = both(stream, ["k", "s", "t", "d", "b"], looks, "reported string", state)
    assert sum(map(len, mine.values())) == 18
    assert mine == theirs


def times_out(key, frames, state):
    """Keeps a timeout in each of the ways that Spark allows; the key says in which."""
    what = key[0]
    if state.hasTimedOut:
        seen = [(list(frame.columns), len(frame)) for frame in frames]
        yield pd.DataFrame({"k": [what], "reported": [f"out {state.getOption} {seen} {state.getCurrentWatermarkMs()}"]})
        if what == "again":
            state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 5000)
        elif what != "stays":
            state.remove()
        return
    n = (state.getOption or (0,))[0] + sum(len(frame) for frame in frames)
    first = not state.exists
    if what == "valueless":
        state.remove()
    elif first or what != "untouched":
        state.update((n,))
    if first or what not in {"untouched", "cleared"}:
        state.setTimeoutTimestamp(max(state.getCurrentWatermarkMs(), milliseconds(15 if first else 60)))
    yield pd.DataFrame({"k": [what], "reported": [f"rows {n} {state.getOption}"]})


def test_timeouts_fire_in_the_batches_in_which_they_do_in_spark(feed, both):
    keys = ["ends", "again", "stays", "valueless", "untouched", "cleared"]
    source = feed(
        "k string, t timestamp",
        [*((key, at(0)) for key in keys)],
        [("clock", at(10)), ("late", at(-100))],
        [*((key, at(11)) for key in ("untouched", "cleared", "valueless"))],
        [("clock", at(20)), ("ends", at(20))],
        [("clock", at(40)), ("untouched", at(40)), ("late", at(1))],
        [("clock", at(80))],
        [("clock", at(100)), ("stays", at(100))],
        [("clock", at(200))],
        [("clock", at(201))],
        [("clock", at(202))],
    )
    stream = source.stream().withWatermark("t", "0 seconds")
    mine, theirs = both(stream, ["k"], times_out, "k string, reported string", "n long", "EventTimeTimeout")
    fired = {row.k for rows in mine.values() for row in rows if row.reported.startswith("out")}
    assert fired >= set(keys) - {"cleared"}
    assert mine == theirs


ROWS = pa.schema({"k": pa.string(), "v": pa.int64()})
REPORTED = pa.schema({"k": pa.string(), "reported": pa.string()})
COUNT = StructType([StructField("n", LongType())])


def local(func, timeout="NoTimeout", **options):
    processor = group_state_processor(func, COUNT, timeout, ROWS.names)
    mode = group_state_time_mode(timeout)
    return LocalQuery(processor, key="k", inputSchema=ROWS, outputStructType=REPORTED, timeMode=mode, **options)


def frame(*keys):
    return pd.DataFrame({"k": list(keys), "v": range(len(keys))}).astype({"k": object, "v": "int64"})


def answers(query, *keys):
    return sorted(query.process(frame(*keys)).to_numpy().tolist())


def test_a_processing_time_timeout_fires_once_its_time_has_passed():
    def counted(key, frames, state):
        if state.hasTimedOut:
            yield pd.DataFrame({"k": [key[0]], "reported": [f"out {state.get[0]}"]})
            state.remove()
            return
        n = (state.getOption or (0,))[0] + sum(map(len, frames))
        state.update((n,))
        state.setTimeoutDuration(100)
        yield pd.DataFrame({"k": [key[0]], "reported": [f"{n} at {state.getCurrentProcessingTimeMs()}"]})

    now = [1000]
    query = local(counted, "ProcessingTimeTimeout", clock=lambda: now[0])
    assert answers(query, "a", "b", "a") == [["a", "2 at 1000"], ["b", "1 at 1000"]]
    now[0] = 1050
    assert answers(query, "b") == [["b", "2 at 1050"]]
    now[0] = 1100
    assert answers(query) == [], "a timeout fires when its time has passed, not when it has come"
    now[0] = 1101
    assert answers(query) == [["a", "out 2"]]
    assert query.state() == {("b",): {"groupState": (2,), "timers": [1151]}}
    now[0] = 1200
    assert answers(query, "b") == [["b", "3 at 1200"]], "a key with rows does not time out"
    now[0] = 1301
    assert answers(query) == [["b", "out 3"]]
    assert query.state() == {}


def test_states_errors_are_those_of_spark():
    def wrong(call):
        def func(key, frames, state):  # noqa: ARG001 - the names belong to Spark's protocol
            call(state)
            return iter(())

        return func

    for call, message in [
        (lambda state: state.get, "STATE_NOT_EXISTS"),
        (lambda state: state.setTimeoutDuration(10), "CANNOT_WITHOUT"),
        (lambda state: state.getCurrentWatermarkMs(), "setting watermark before applyInPandasWithState"),
        (lambda state: state.update(None), "CANNOT_BE_NONE"),
        (lambda state: state.update(("text",)), r"groupState.*field 'n' is declared long"),
    ]:
        with pytest.raises(UserFunctionError, match=rf"(?s)in func.*{message}"):
            answers(local(wrong(call)), "a")


def test_what_is_not_an_iterable_of_frames_is_refused():
    for func, got in [(lambda *_: pd.DataFrame({"k": ["a"], "reported": ["x"]}), "DataFrame"), (lambda *_: 7, "int")]:
        with pytest.raises(UserFunctionError, match=rf"must yield pandas DataFrames .*got a {got}"):
            answers(local(func), "a")


def test_what_cannot_be_run_is_refused_before_it_runs():
    with pytest.raises(InvalidArgumentError, match=r"timeoutConf must be one of NoTimeout, .*got 'never'"):
        group_state_processor(looks, COUNT, "never", [])
    with pytest.raises(InvalidArgumentError, match=r"func must be a function of .*got a str"):
        group_state_processor("looks", COUNT, "NoTimeout", [])
