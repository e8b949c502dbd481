"""The tester runs a processor for one key at a time as a query would, with the methods of Spark's tester."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.errors import (
    IllegalArgumentException,
    PySparkAssertionError,
    PySparkRuntimeError,
    PySparkValueError,
)
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from equipoise import InvalidArgumentError
from equipoise.spark import LocalQuery
from equipoise.testing import TwsTester

FORMS = ["rows", "pandas"]


class Processor(StatefulProcessor):
    """Base of processors that run in both forms."""

    def __init__(self, form="rows"):
        self.form = form

    def cells(self, rows):
        """The rows as ``Row``, in either form."""
        for each in rows:
            yield from [each] if self.form == "rows" else (Row(**cells) for cells in each.to_dict("records"))

    def made(self, **values):
        return Row(**values) if self.form == "rows" else pd.DataFrame([values])


class Visits(Processor):
    """Counts the visits of a host."""

    def init(self, handle):
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
        (n,) = self.count.get() or (0,)
        n += len(list(self.cells(rows)))
        self.count.update((n,))
        yield self.made(host=key[0], n=n)

    def handleInitialState(self, key, initialState, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
        given = initialState.n if self.form == "rows" else int(initialState["n"].sum())
        self.count.update((given,))


class Slowest(Processor):
    """Keeps the two slowest visits of a host, the slowest first."""

    def init(self, handle):
        self.slowest = handle.getListState("slowest", StructType().add("ms", DoubleType()))

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
        found = [ms for (ms,) in self.slowest.get()] + [row.ms for row in self.cells(rows)]
        kept = sorted(found, reverse=True)[:2]
        self.slowest.put([(ms,) for ms in kept])
        for ms in kept:
            yield self.made(host=key[0], ms=ms)


class Paths(Processor):
    """Counts the visits of each path of a host."""

    def init(self, handle):
        self.paths = handle.getMapState("paths", "path string", "n long")

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
        for row in self.cells(rows):
            (n,) = self.paths.getValue((row.path,)) or (0,)
            self.paths.updateValue((row.path,), (n + 1,))
            yield self.made(host=key[0], path=row.path, n=n + 1)


class Session(Processor):
    """Ends the session of a host 10 seconds after its last visit, in the time of the mode."""

    def init(self, handle):
        self.handle = handle
        self.last = handle.getValueState("last", "at long")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's own names
        now = timerValues.getCurrentProcessingTimeInMs()
        seen = list(self.cells(rows))
        if not seen:
            return
        at = max([row.time_ms for row in seen] if "time_ms" in seen[0] else [now])
        if self.last.exists():
            self.handle.deleteTimer(self.last.get()[0] + 10_000)
        self.last.update((at,))
        self.handle.registerTimer(at + 10_000)
        yield self.made(host=key[0], what=f"{len(seen)} until {at}")

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803 - Spark's own names
        self.last.clear()
        times = timerValues.getCurrentProcessingTimeInMs(), timerValues.getCurrentWatermarkInMs()
        yield self.made(host=key[0], what=f"ended at {expiredTimerInfo.getExpiryTimeInMs()} of {times}")


def run(tester, key, rows):
    """Run rows in the form of the tester's processor; the output as ``Row``."""
    if tester.processor.form == "rows":
        return tester.test(key, [Row(**row) for row in rows])
    return as_rows(tester.testInPandas(key, pd.DataFrame(rows)))


def as_rows(made):
    return made if isinstance(made, list) else [Row(**row) for row in made.to_dict("records")]


def visits(number):
    return [{"path": "/"}] * number


@pytest.mark.parametrize("form", FORMS)
def test_value_state_is_kept_for_each_key(form):
    tester = TwsTester(Visits(form))
    assert run(tester, "a", visits(1)) == [Row(host="a", n=1)]
    assert run(tester, "b", visits(2)) == [Row(host="b", n=2)]
    assert run(tester, "a", visits(3)) == [Row(host="a", n=4)]
    assert [tester.peekValueState("count", host) for host in "abc"] == [(4,), (2,), None]


@pytest.mark.parametrize("form", FORMS)
def test_list_state_is_kept_for_each_key(form):
    tester = TwsTester(Slowest(form))
    assert run(tester, "a", [{"ms": ms} for ms in (2.0, 3.0, 1.0)]) == [Row(host="a", ms=3.0), Row(host="a", ms=2.0)]
    assert run(tester, "b", [{"ms": 9.0}]) == [Row(host="b", ms=9.0)]
    assert run(tester, "a", [{"ms": 5.0}]) == [Row(host="a", ms=5.0), Row(host="a", ms=3.0)]
    assert [tester.peekListState("slowest", host) for host in "abc"] == [[(5.0,), (3.0,)], [(9.0,)], []]


@pytest.mark.parametrize("form", FORMS)
def test_map_state_is_kept_for_each_key(form):
    tester = TwsTester(Paths(form))
    assert run(tester, "a", [{"path": path} for path in ("/", "/x", "/")]) == [
        Row(host="a", path="/", n=1),
        Row(host="a", path="/x", n=1),
        Row(host="a", path="/", n=2),
    ]
    assert run(tester, "b", [{"path": "/"}]) == [Row(host="b", path="/", n=1)]
    assert tester.peekMapState("paths", "a") == {("/",): (2,), ("/x",): (1,)}
    assert tester.peekMapState("paths", "b") == {("/",): (1,)}
    assert tester.peekMapState("paths", "c") == {}


def test_a_value_that_a_test_sets_is_the_one_that_the_processor_finds():
    tester = TwsTester(Visits())
    tester.updateValueState("count", "a", (41,))
    assert run(tester, "a", visits(1)) == [Row(host="a", n=42)]
    assert tester.peekValueState("count", "a") == (42,)


def test_a_list_that_a_test_sets_is_the_one_that_the_processor_finds():
    tester = TwsTester(Slowest())
    tester.updateListState("slowest", "a", [(6.0,), (5.0,)])
    run(tester, "a", [{"ms": 10.0}])
    assert tester.peekListState("slowest", "a") == [(10.0,), (6.0,)]
    tester.updateListState("slowest", "a", [])
    assert run(tester, "a", [{"ms": 1.0}]) == [Row(host="a", ms=1.0)]


def test_a_map_that_a_test_sets_replaces_the_one_that_the_processor_finds():
    tester = TwsTester(Paths())
    tester.updateMapState("paths", "a", {("/old",): (1,)})
    tester.updateMapState("paths", "a", {("/",): (5,), ("/x",): (3,)})
    assert run(tester, "a", [{"path": "/"}, {"path": "/new"}]) == [
        Row(host="a", path="/", n=6),
        Row(host="a", path="/new", n=1),
    ]
    assert tester.peekMapState("paths", "a") == {("/",): (6,), ("/x",): (3,), ("/new",): (1,)}


def test_a_step_from_a_state_to_the_next_can_be_tested_alone():
    tester = TwsTester(Visits())
    for before, after in [((10,), (11,)), ((0,), (1,))]:
        tester.updateValueState("count", "a", before)
        run(tester, "a", visits(1))
        assert tester.peekValueState("count", "a") == after


def test_rows_can_be_given_one_by_one():
    tester = TwsTester(Visits())
    made = [run(tester, host, visits(1)) for host in "abaca"]
    assert [(row.host, row.n) for [row] in made] == [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3)]


@pytest.mark.parametrize("form", FORMS)
def test_the_initial_state_of_each_key_reaches_the_processor(form):
    if form == "rows":
        tester = TwsTester(Visits(form), initialStateRow=[("a", Row(n=10)), ("b", Row(n=20))])
    else:
        frames = [("a", pd.DataFrame({"n": [4, 6]})), ("b", pd.DataFrame({"n": [20]}))]
        tester = TwsTester(Visits(form), initialStatePandas=frames)
    assert [tester.peekValueState("count", host) for host in "abc"] == [(10,), (20,), None]
    assert run(tester, "a", visits(1)) == [Row(host="a", n=11)]
    assert run(tester, "c", visits(1)) == [Row(host="c", n=1)]


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_initial_state_is_none(form):
    name = "initialStateRow" if form == "rows" else "initialStatePandas"
    tester = TwsTester(Visits(form), **{name: []})
    assert run(tester, "a", visits(1)) == [Row(host="a", n=1)]


def test_initial_states_of_both_forms_are_refused():
    with pytest.raises(AssertionError, match="expected initialStateRow or initialStatePandas, got both"):
        TwsTester(Visits(), initialStateRow=[("a", Row(n=1))], initialStatePandas=[("a", pd.DataFrame({"n": [1]}))])


class Everything(Processor):
    """Calls every method of every state, and says what it returns."""

    def init(self, handle):
        self.value = handle.getValueState("value", "n int")
        self.list = handle.getListState("list", "n int")
        self.map = handle.getMapState("map", "k string", "n int")

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
        for row in rows:
            found = getattr(getattr(self, row.state), row.call)(*row.arguments)
            if row.call in {"get", "iterator", "keys", "values"} and row.state != "value":
                found = list(found)
            yield Row(found=found)


EVERY_CALL = [
    ("value", "exists", (), False),
    ("value", "get", (), None),
    ("value", "update", ((42,),), None),
    ("value", "exists", (), True),
    ("value", "get", (), (42,)),
    ("value", "clear", (), None),
    ("value", "exists", (), False),
    ("list", "exists", (), False),
    ("list", "get", (), []),
    ("list", "appendValue", ((1,),), None),
    ("list", "appendList", ([(2,), (3,)],), None),
    ("list", "exists", (), True),
    ("list", "get", (), [(1,), (2,), (3,)]),
    ("list", "put", ([(9,)],), None),
    ("list", "get", (), [(9,)]),
    ("list", "clear", (), None),
    ("list", "get", (), []),
    ("map", "exists", (), False),
    ("map", "getValue", (("x",),), None),
    ("map", "updateValue", (("x",), (1,)), None),
    ("map", "updateValue", (("y",), (2,)), None),
    ("map", "exists", (), True),
    ("map", "containsKey", (("y",),), True),
    ("map", "getValue", (("y",),), (2,)),
    ("map", "keys", (), [("x",), ("y",)]),
    ("map", "values", (), [(1,), (2,)]),
    ("map", "iterator", (), [(("x",), (1,)), (("y",), (2,))]),
    ("map", "removeKey", (("y",),), None),
    ("map", "keys", (), [("x",)]),
    ("map", "clear", (), None),
    ("map", "exists", (), False),
]


def test_every_method_of_every_state_works():
    calls = [Row(state=state, call=call, arguments=arguments) for state, call, arguments, _ in EVERY_CALL]
    assert [row.found for row in TwsTester(Everything()).test("a", calls)] == [found for *_, found in EVERY_CALL]


@pytest.mark.parametrize("form", FORMS)
def test_a_key_without_rows_reaches_the_processor(form):
    assert run(TwsTester(Visits(form)), "a", []) == [Row(host="a", n=0)]


def test_rows_may_hold_none():
    assert run(TwsTester(Visits()), "a", [{"path": None}, {"path": "/"}]) == [Row(host="a", n=2)]


@pytest.mark.parametrize("form", FORMS)
def test_a_processor_that_yields_nothing_gives_nothing(form):
    tester = TwsTester(Session(form), timeMode="ProcessingTime")
    assert len(tester.test("a", []) if form == "rows" else tester.testInPandas("a", pd.DataFrame())) == 0


KEYS = ["a", "key@#$%", "", 1, 2**40, -1.5, True, None, b"\x00", (1, 2), ("a", None), dt.date(2026, 1, 2)]


@pytest.mark.parametrize("key", [*KEYS, dt.datetime(2026, 1, 2, 3), dt.timedelta(1), np.int64(7)], ids=repr)  # noqa: DTZ001 - local, as Spark's
@pytest.mark.parametrize("form", FORMS)
def test_a_key_may_have_any_type_and_reaches_the_processor_as_given(form, key):
    class Shown(Visits):
        def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's own names
            seen.append(key)
            return super().handleInputRows(("any",), rows, timerValues)

    seen = []
    tester = TwsTester(Shown(form))
    run(tester, key, visits(2))
    run(tester, "another", visits(1))
    run(tester, key, visits(2))
    assert seen == [(key,), ("another",), (key,)]
    assert tester.peekValueState("count", key) == (4,)


def test_a_key_that_spark_cannot_group_by_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"a dict cannot be a key, got .*; give .* or name the types"):
        TwsTester(Visits()).test({"a": 1}, [])


def test_equal_keys_of_python_and_numpy_are_one_key():
    tester = TwsTester(Visits())
    run(tester, 7, visits(1))
    assert run(tester, np.int32(7), visits(1)) == [Row(host=7, n=2)]


def test_a_key_of_several_columns_reaches_the_processor_as_in_a_query():
    class Shown(Visits):
        def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
            yield Row(host=key[0], port=key[1])

    tester = TwsTester(Shown(), keySchema="host string, port int")
    assert tester.test(("a", 80), []) == [Row(host="a", port=80)]
    with pytest.raises(InvalidArgumentError, match="field 'port' is declared integer and cannot hold 'x'"):
        tester.test(("a", "x"), [])


@pytest.mark.parametrize("form", FORMS)
def test_with_a_schema_a_key_has_the_types_of_a_query(form):
    class Shown(Session):
        def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's own names
            seen.append(key)
            return super().handleInputRows(key, rows, timerValues)

        def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803 - Spark's own names
            seen.append(key)
            return super().handleExpiredTimer(key, timerValues, expiredTimerInfo)

    seen = []
    schema = "day timestamp_ntz, port int, `of` struct<a int>"
    tester = TwsTester(Shown(form), timeMode="ProcessingTime", keySchema=schema)
    run(tester, (dt.datetime(2026, 1, 2), None, (3,)), [{"path": "/"}])  # noqa: DTZ001 - without a zone
    tester.setProcessingTime(10_000)
    first, of_timer = seen
    assert (of_timer.day, of_timer.port, of_timer["of"].a) == (dt.datetime(2026, 1, 2), None, 3)  # noqa: DTZ001 - as above
    if form == "pandas":
        assert type(first[0]) is pd.Timestamp
        assert np.isnan(first[1])
        assert first[2] == {"a": 3}
    else:
        assert first == (dt.datetime(2026, 1, 2), None, (3,))  # noqa: DTZ001 - as above


def test_values_of_maps_and_nested_values_are_rows_as_in_a_query():
    class Nested(Processor):
        def init(self, handle):
            self.map = handle.getMapState("map", "k string", "n long, of struct<a: int>")

        def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
            self.map.updateValue(("x",), (1, {"a": 2}))
            found = self.map.getValue(("x",))
            yield Row(n=found.n, a=found["of"].a)

    assert TwsTester(Nested()).test("a", []) == [Row(n=1, a=2)]


def test_a_variable_that_init_deletes_after_declaring_it_is_refused_as_in_a_query():
    class Deleting(Visits):
        def init(self, handle):
            super().init(handle)
            handle.deleteIfExists("count")

    with pytest.raises(PySparkRuntimeError, match="value state 'count' is not initialized, because init"):
        TwsTester(Deleting()).test("a", [])
    with pytest.raises(AssertionError, match="there is no state variable 'count'"):
        TwsTester(Deleting()).peekValueState("count", "a")


def test_none_as_a_key_is_none_in_a_frame():
    made = TwsTester(Visits("pandas")).testInPandas(None, pd.DataFrame({"path": ["/", "/"]}))
    pd.testing.assert_frame_equal(made, pd.DataFrame({"host": [None], "n": [2]}))


def test_frames_of_outputs_keep_their_dtypes():
    tester = TwsTester(Paths("pandas"))
    made = tester.testInPandas("a", pd.DataFrame({"path": ["/", "/x"]}))
    expected = pd.DataFrame({"host": ["a", "a"], "path": ["/", "/x"], "n": [1, 1]})
    pd.testing.assert_frame_equal(made, expected)
    assert made["n"].dtype == "int64"


def test_the_frame_of_a_test_is_not_changed_by_the_processor():
    class Careless(Visits):
        def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's own names
            frames = list(rows)
            frames[0]["path"] = "changed"
            return super().handleInputRows(key, iter(frames), timerValues)

    given = pd.DataFrame({"path": ["/"]}, index=[7])
    TwsTester(Careless("pandas")).testInPandas("a", given)
    assert given.to_dict() == {"path": {7: "/"}}


def test_init_is_called_once():
    class Counting(Visits):
        def init(self, handle):
            calls.append(handle)
            super().init(handle)

    calls = []
    tester = TwsTester(Counting())
    run(tester, "a", visits(1))
    run(tester, "b", visits(1))
    assert len(calls) == 1


@pytest.mark.parametrize("processor", [Visits, Slowest, Paths, Session])
def test_a_processor_that_was_tested_can_be_used_in_a_query(processor):
    tested = processor("pandas")
    rows = pd.DataFrame({"host": ["b"], "ms": [1.0], "path": ["/"]})
    TwsTester(tested, timeMode="ProcessingTime").testInPandas("a", rows)
    output = {Visits: "n long", Slowest: "ms double", Paths: "path string, n long", Session: "what string"}[processor]
    schemas = "host string, ms double, path string", f"host string, {output}"
    with LocalQuery(cloudpickle.loads(cloudpickle.dumps(tested)), "host", *schemas, timeMode="processingTime") as query:
        assert query.process(rows)["host"].tolist() == ["b"]
        assert list(query.state()) == [("b",)]


def test_the_handle_gives_a_test_the_declared_variables():
    for processor, name, get in [(Visits(), "count", "getValueState"), (Slowest(), "slowest", "getListState")]:
        tester = TwsTester(processor)
        tester.handle.setGroupingKey("a")
        getattr(tester.handle, get)(name, "n long").clear()
        assert not getattr(tester.handle, get)(name, "n long").exists()
    tester = TwsTester(Paths())
    tester.updateMapState("paths", "a", {("/",): (1,)})
    tester.handle.setGroupingKey("a")
    tester.handle.getMapState("paths", "path string", "n long").clear()
    assert tester.peekMapState("paths", "a") == {}


def test_the_handle_deletes_a_variable_and_passes_over_one_that_does_not_exist():
    tester = TwsTester(Visits())
    tester.updateValueState("count", "a", (1,))
    tester.handle.deleteIfExists("other")
    assert tester.peekValueState("count", "a") == (1,)
    tester.handle.deleteIfExists("count")
    with pytest.raises(AssertionError, match="there is no state variable 'count'"):
        tester.peekValueState("count", "a")


@pytest.mark.parametrize(
    "call",
    [
        lambda tester: tester.peekValueState("other", "a"),
        lambda tester: tester.updateValueState("other", "a", (1,)),
        lambda tester: tester.peekListState("count", "a"),
        lambda tester: tester.updateMapState("count", "a", {}),
        lambda tester: tester.deleteState("other", "a"),
    ],
    ids=["peek", "update", "peek of another kind", "update of another kind", "delete"],
)
def test_a_variable_that_init_does_not_declare_is_refused(call):
    with pytest.raises(PySparkAssertionError, match="STATE_NOT_EXISTS"):
        call(TwsTester(Visits()))


def test_the_state_of_one_key_can_be_deleted():
    tester = TwsTester(Visits())
    for host in "ab":
        tester.updateValueState("count", host, (7,))
    tester.deleteState("count", "a")
    assert [tester.peekValueState("count", host) for host in "ab"] == [None, (7,)]
    tester = TwsTester(Slowest())
    for host in "ab":
        tester.updateListState("slowest", host, [(7.0,)])
    tester.deleteState("slowest", "a")
    assert [tester.peekListState("slowest", host) for host in "ab"] == [[], [(7.0,)]]
    tester = TwsTester(Paths())
    for host in "ab":
        tester.updateMapState("paths", host, {("/",): (7,)})
    tester.deleteState("paths", "a")
    assert [tester.peekMapState("paths", host) for host in "ab"] == [{}, {("/",): (7,)}]


@pytest.mark.parametrize("form", FORMS)
def test_timers_fire_when_the_processing_time_reaches_them(form):
    tester = TwsTester(Session(form), timeMode="ProcessingTime")
    assert run(tester, "a", visits(1)) == [Row(host="a", what="1 until 0")]
    assert len(tester.setProcessingTime(5_000)) == 0
    assert run(tester, "b", visits(2)) == [Row(host="b", what="2 until 5000")]
    assert as_rows(tester.setProcessingTime(11_000)) == [Row(host="a", what="ended at 10000 of (11000, -1)")]
    assert as_rows(tester.setProcessingTime(15_000)) == [Row(host="b", what="ended at 15000 of (15000, -1)")]
    assert len(tester.setProcessingTime(90_000)) == 0
    assert [tester.peekValueState("last", host) for host in "ab"] == [None, None]


@pytest.mark.parametrize("form", FORMS)
def test_timers_fire_when_the_watermark_reaches_them(form):
    tester = TwsTester(Session(form), timeMode="EventTime", eventTimeExtractor=lambda row: row.time_ms)
    assert run(tester, "b", [{"time_ms": 6_000}]) == [Row(host="b", what="1 until 6000")]
    assert run(tester, "a", [{"time_ms": 5_000}]) == [Row(host="a", what="1 until 5000")]
    assert as_rows(tester.setWatermark(15_000)) == [Row(host="a", what="ended at 15000 of (0, 15000)")]
    assert as_rows(tester.setWatermark(16_000)) == [Row(host="b", what="ended at 16000 of (0, 16000)")]
    assert [tester.peekValueState("last", host) for host in "ab"] == [None, None]


def test_timers_of_all_keys_fire_in_the_order_of_their_times():
    tester = TwsTester(Session(), timeMode="EventTime", eventTimeExtractor=lambda row: row.time_ms)
    for host, at in [("a", 3), ("b", 1), ("c", 2)]:
        run(tester, host, [{"time_ms": at}])
    assert [row.host for row in tester.setWatermark(20_000)] == ["b", "c", "a"]


def test_a_visit_puts_off_the_end_of_a_session():
    tester = TwsTester(Session(), timeMode="ProcessingTime")
    run(tester, "a", visits(1))
    tester.setProcessingTime(9_000)
    run(tester, "a", visits(1))
    assert tester.setProcessingTime(18_999) == []
    tester.handle.setGroupingKey("a")
    assert list(tester.handle.listTimers()) == [19_000]
    assert [row.what for row in tester.setProcessingTime(19_000)] == ["ended at 19000 of (19000, -1)"]


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_not_later_than_the_watermark_are_dropped(form):
    tester = TwsTester(Session(form), timeMode="EventTime", eventTimeExtractor=lambda row: row.time_ms)
    assert run(tester, "a", [{"time_ms": 5_000}, {"time_ms": 7_000}]) == [Row(host="a", what="2 until 7000")]
    tester.setWatermark(6_000)
    late = [{"time_ms": at} for at in (4_000, 6_000)]
    assert run(tester, "a", [*late, {"time_ms": 8_000}, *late]) == [Row(host="a", what="1 until 8000")]
    assert run(tester, "b", late) == []


@pytest.mark.parametrize("form", FORMS)
def test_rows_without_an_event_time_are_on_time(form):
    tester = TwsTester(Visits(form), timeMode="EventTime", eventTimeExtractor=lambda row: None)  # noqa: ARG005 - any row
    tester.setWatermark(6_000)
    assert run(tester, "a", visits(2)) == [Row(host="a", n=2)]


@pytest.mark.parametrize("call", ["registerTimer", "deleteTimer", "listTimers"])
def test_timers_are_refused_without_a_time_mode(call):
    tester = TwsTester(Visits())
    tester.handle.setGroupingKey("a")
    with pytest.raises(PySparkValueError, match=rf"UNSUPPORTED_OPERATION.*{call} .* give the tester timeMode="):
        getattr(tester.handle, call)(*([] if call == "listTimers" else [12_345]))


@pytest.mark.parametrize(
    ("mode", "call"),
    [
        ("None", "setProcessingTime"),
        ("EventTime", "setProcessingTime"),
        ("None", "setWatermark"),
        ("ProcessingTime", "setWatermark"),
    ],
)
def test_a_clock_of_another_time_mode_is_refused(mode, call):
    tester = TwsTester(Visits(), timeMode=mode, eventTimeExtractor=lambda row: row.time_ms)
    with pytest.raises(PySparkValueError, match=rf"UNSUPPORTED_OPERATION.*{call}"):
        getattr(tester, call)(1_000)


def test_event_time_needs_a_function_that_reads_it():
    with pytest.raises(PySparkValueError, match=r"ARGUMENT_REQUIRED.*eventTimeExtractor"):
        TwsTester(Visits(), timeMode="EventTime")


@pytest.mark.parametrize(("mode", "call"), [("processingtime", "setProcessingTime"), ("EVENTTIME", "setWatermark")])
def test_clocks_move_forward_only(mode, call):
    tester = TwsTester(Visits(), timeMode=mode, eventTimeExtractor=lambda row: row.time_ms)
    getattr(tester, call)(1_000)
    for earlier in (1_000, 500):
        with pytest.raises(IllegalArgumentException, match=f"must move forward: it is 1000 ms, got {earlier} ms"):
            getattr(tester, call)(earlier)


def test_a_clock_counts_whole_milliseconds():
    tester = TwsTester(Visits(), timeMode="ProcessingTime")
    with pytest.raises(InvalidArgumentError, match=r"currentTimeMs must be a whole number of at least 0, got 1\.5"):
        tester.setProcessingTime(1.5)


def test_a_test_cannot_register_a_timer_behind_the_watermark():
    tester = TwsTester(Session(), timeMode="EventTime", eventTimeExtractor=lambda row: row.time_ms)
    tester.setWatermark(10_000)
    tester.handle.setGroupingKey("a")
    for late in (10_000, 5_000):
        with pytest.raises(IllegalArgumentException, match=f"later than the watermark, 10000 ms, got {late} ms"):
            tester.handle.registerTimer(late)
    tester.handle.registerTimer(10_001)
    assert list(tester.handle.listTimers()) == [10_001]


@pytest.mark.parametrize("options", [{"timeMode": "often"}, {"outputMode": "sometimes"}], ids=str)
def test_an_unknown_mode_is_refused_by_name(options):
    with pytest.raises(InvalidArgumentError, match=f"{next(iter(options))} must be one of .*, got"):
        TwsTester(Visits(), **options)


class Expiring(Processor):
    """Counts visits of the last minute or so."""

    def init(self, handle):
        self.count = handle.getValueState("count", "n long", 60_000)

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
        (n,) = self.count.get() or (0,)
        self.count.update((n + len(list(rows)),))
        yield Row(host=key[0], n=self.count.get()[0])


def test_values_expire_by_their_time_to_live():
    tester = TwsTester(Expiring(), timeMode="ProcessingTime")
    run(tester, "a", visits(3))
    tester.setProcessingTime(59_999)
    assert tester.peekValueState("count", "a") == (3,)
    tester.setProcessingTime(60_000)
    assert tester.peekValueState("count", "a") is None
    assert run(tester, "a", visits(1)) == [Row(host="a", n=1)]


def test_a_value_that_does_not_fit_its_schema_is_refused_as_in_a_query():
    tester = TwsTester(Visits())
    with pytest.raises(InvalidArgumentError, match="field 'n' is declared long and cannot hold 'many'"):
        tester.updateValueState("count", "a", ("many",))


def test_state_cannot_be_declared_after_init_as_in_a_query():
    class Late(Visits):
        def init(self, handle):
            self.handle = handle

        def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's own names
            super().init(self.handle)
            return super().handleInputRows(key, rows, timerValues)

    with pytest.raises(InvalidArgumentError, match=r"getValueState\('count'\) was called after init"):
        TwsTester(Late()).test("a", [])


def test_state_cannot_be_deleted_after_init_as_in_a_query():
    class Late(Visits):
        def init(self, handle):
            super().init(handle)
            self.handle = handle

        def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
            self.handle.deleteIfExists("count")

    with pytest.raises(
        PySparkRuntimeError, match=r"deleteIfExists\('count'\) was called after init, with the variable"
    ):
        TwsTester(Late()).test("a", [])


def test_state_cannot_be_used_in_init_as_in_a_query():
    class Early(Visits):
        def init(self, handle):
            super().init(handle)
            self.count.update((0,))

    with pytest.raises(InvalidArgumentError, match="state and timers belong to a grouping key, and there is none here"):
        TwsTester(Early())


def test_an_error_of_the_processor_reaches_the_test_unchanged():
    class Failing(Visits):
        def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
            raise LookupError("no such path")

    with pytest.raises(LookupError, match="no such path"):
        TwsTester(Failing()).test("a", [])


@pytest.mark.parametrize(
    ("form", "yielded", "expected"),
    [
        ("rows", ("a", 1), "must yield Rows with named fields"),
        ("rows", Row("a", 1), "must yield Rows with named fields"),
        ("pandas", Row(host="a"), "must yield pandas DataFrames"),
    ],
)
def test_an_output_of_another_form_is_refused_as_in_a_query(form, yielded, expected):
    class Wrong(Visits):
        def made(self, **values):  # noqa: ARG002 - what it counted does not matter
            return yielded

    with pytest.raises(InvalidArgumentError, match=expected):
        run(TwsTester(Wrong(form)), "a", visits(1))


@pytest.mark.parametrize("form", FORMS)
def test_outputs_are_checked_against_a_schema_and_converted_as_in_a_query(form):
    output = StructType().add("host", StringType()).add("n", LongType())
    assert run(TwsTester(Visits(form), outputStructType=output), "a", visits(2)) == [Row(host="a", n=2)]
    assert run(TwsTester(Visits(form), outputStructType="host string, n double"), "a", visits(2)) == [
        Row(host="a", n=2.0)
    ]
    with pytest.raises(InvalidArgumentError, match="column 'host' that the function yielded does not fit"):
        run(TwsTester(Visits(form), outputStructType="host long, n long"), "a", visits(1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("returned", [None, pd.DataFrame({"host": ["a"]}), Row(host="a")], ids=["None", "frame", "row"])
def test_a_method_that_returns_no_iterator_is_named_as_in_a_query(form, returned):
    class Returns(Visits):
        def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
            self.handle.registerTimer(1)
            return []

        def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: ARG002, N802, N803 - as above
            return returned

        def init(self, handle):
            self.handle = handle

    tester = TwsTester(Returns(form), timeMode="ProcessingTime")
    run(tester, "a", visits(1))
    with pytest.raises(InvalidArgumentError, match=r"^Returns\.handleExpiredTimer gave a wrong result: it returned"):
        tester.setProcessingTime(1)


def test_an_input_of_the_other_form_is_refused():
    tester = TwsTester(Visits("rows"))
    with pytest.raises(InvalidArgumentError, match="test takes the rows of the key, and got a DataFrame; use testIn"):
        tester.test("a", pd.DataFrame(visits(1)))
    with pytest.raises(InvalidArgumentError, match=r"testInPandas takes a DataFrame .* got a list; use test for rows"):
        tester.testInPandas("a", visits(1))


def test_a_class_is_refused_where_a_processor_is_needed():
    with pytest.raises(InvalidArgumentError, match=r"statefulProcessor must be .* give an instance, Visits\(\.\.\.\)"):
        TwsTester(Visits)


HOSTS = st.sampled_from(["a", "b", "c", None])
BATCHES = st.lists(st.lists(st.tuples(HOSTS, st.sampled_from([1.0, 2.5, 7.0]), st.sampled_from("xy"))), max_size=4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("processor", "output"),
    [
        (Visits, "host string, n long"),
        (Slowest, "host string, ms double"),
        (Paths, "host string, path string, n long"),
    ],
    ids=["value", "list", "map"],
)
@settings(max_examples=5)
@given(batches=BATCHES)
def test_the_tester_gives_what_a_query_gives(form, processor, output, batches):
    tester = TwsTester(processor(form), outputStructType=output)
    columns = ["host", "ms", "path"]
    with LocalQuery(processor(form), "host", "host string, ms double, path string", output, form=form) as query:
        for batch in batches:
            hosts = dict.fromkeys(host for host, *_ in batch)
            given = {host: [dict(zip(columns, row, strict=True)) for row in batch if row[0] == host] for host in hosts}
            expected = [tuple(row) for host in hosts for row in run(tester, host, given[host])]
            made = query.process(pd.DataFrame(batch, columns=columns))
            assert sorted(map(tuple, made.astype(object).to_numpy()), key=repr) == sorted(expected, key=repr)
