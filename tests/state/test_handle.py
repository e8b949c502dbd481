"""The handle is Spark's in shape and meaning; what init declares fits what the checkpoint holds."""

import inspect

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.state.entries import companions, fingerprint_prefix
from equipoise.state.handle import RecordingHandle, StateHandle, VariableSpec, merge_specs, removed_tags
from equipoise.state.timers import due_timers, purge_expired, time_mode
from equipoise.state.transaction import EmptyReader, GroupTransaction
from equipoise.state.variables import ListState, MapState, ValueState

NUMBER = StructType([StructField("number", LongType())])
WORD = StructType([StructField("word", StringType())])


def struct(**fields):
    return {"type": "struct", "fields": [{"name": name, "type": each} for name, each in fields.items()]}


def new_view():
    return GroupTransaction(EmptyReader())


def record(init, mode="none"):
    handle = RecordingHandle(StructType.jsonValue, mode=mode)
    init(handle)
    return handle


def started(init=lambda _: None, *, view=None, key=b"a", **batch):
    """A handle after ``init``, at a key."""
    declared = merge_specs({}, record(init, batch.get("mode", "none")).specs)
    handle = StateHandle(declared, **batch)
    states = init(handle)
    handle.set_group(new_view() if view is None else view)
    handle.set_key(1, key)
    return handle, states


def three(handle):
    return (
        handle.getValueState("value", NUMBER),
        handle.getListState("list", NUMBER),
        handle.getMapState("map", WORD, NUMBER),
    )


@pytest.mark.parametrize("kind", [StateHandle, RecordingHandle])
def test_the_methods_are_those_of_spark(kind):
    for name, method in inspect.getmembers(StatefulProcessorHandle, inspect.isfunction):
        if not name.startswith("_"):
            assert list(inspect.signature(getattr(kind, name)).parameters) == list(inspect.signature(method).parameters)


def test_a_processor_works_key_by_key_and_batch_by_batch():
    view = new_view()
    for batch in range(3):
        handle, (value, many, table) = started(three, view=view, batch=batch)
        for fingerprint, key in enumerate([b"a", b"b"]):
            handle.set_key(fingerprint, key)
            (count,) = value.get() or (0,)
            value.update((count + 1 + fingerprint,))
            many.appendValue((batch,))
            table.updateValue((f"batch {batch}",), (fingerprint,))
    assert value.get() == (6,)
    assert list(many.get()) == [(0,), (1,), (2,)]
    assert list(table.keys()) == [("batch 0",), ("batch 1",), ("batch 2",)]
    handle.set_key(0, b"a")
    assert value.get() == (3,)


def test_groups_are_apart():
    handle, (value, _, _) = started(three)
    value.update((1,))
    handle.set_group(new_view())
    with pytest.raises(InvalidArgumentError, match="there is none here"):
        value.get()
    handle.set_key(1, b"a")
    assert value.get() is None


def test_all_of_a_fingerprint_moves_with_its_companions():
    def init(handle):
        return [handle.getValueState("value", NUMBER, 50), handle.getListState("list", NUMBER)]

    view, other = new_view(), new_view()
    handle, (value, many) = started(init, view=view, mode="processingTime", processing_ms=100)
    for fingerprint, key in [(-7, b"moved"), (5, b"stays"), (-7, b"same fingerprint")]:
        handle.set_key(fingerprint, key)
        value.update((1,))
        many.appendValue((2,))
        handle.registerTimer(120)
    for key, entry in list(view.scan(fingerprint_prefix(-7))):
        for each in (key, *companions(key, entry)):
            other.put(each, view.get(each))
            view.delete(each)
    assert {key for _, key, _ in due_timers(other, 120)} == {b"moved", b"same fingerprint"}
    assert [key for _, key, _ in due_timers(view, 120)] == [b"stays"]
    handle.set_group(other)
    handle.set_key(-7, b"moved")
    assert value.get() == (1,)
    assert list(many.get()) == [(2,)]
    assert list(handle.listTimers()) == [120]
    assert (purge_expired(other, 150, 10), purge_expired(view, 150, 10)) == (2, 1)


def test_variables_are_declared_in_init_only():
    handle, _ = started(three)
    for call in (
        lambda: handle.getValueState("value", NUMBER),
        lambda: handle.getListState("list", NUMBER),
        lambda: handle.getMapState("map", WORD, NUMBER),
    ):
        with pytest.raises(InvalidArgumentError, match="after init; state variables are declared in init only"):
            call()
    with pytest.raises(
        InvalidArgumentError, match=r"Error deleting state: deleteIfExists\('value'\) was called after init, with the"
    ):
        handle.deleteIfExists("value")


def test_a_task_must_declare_what_the_driver_recorded():
    handle = StateHandle(merge_specs({}, record(three).specs))
    with pytest.raises(
        InvalidArgumentError, match=r"declares the list state 'value', but .* a value state under this name"
    ):
        handle.getListState("value", NUMBER)
    with pytest.raises(InvalidArgumentError, match="deletes the map state 'map', but the driver keeps it in use"):
        handle.deleteIfExists("map")
    handle.getMapState("map", "any text: the table has the schema", "any")
    with pytest.raises(InvalidArgumentError, match="declares the state variable 'map' twice"):
        handle.getMapState("map", WORD, NUMBER)
    handle.getValueState("other", NUMBER)
    with pytest.raises(InvalidArgumentError, match=r"declares the value state 'other', but .* no such variable"):
        handle.finish_init()


def declared_and_deleted(handle):
    states = three(handle)
    for name in ("value", "list", "map"):
        handle.deleteIfExists(name)
    return (*states, handle.getValueState("kept", NUMBER))


class GivenError(InvalidArgumentError):
    """The error that a handle was given for deleted variables."""


@pytest.mark.parametrize("table", [{}, merge_specs({}, record(three).specs)], ids=["new", "known"])
def test_a_variable_deleted_after_its_declaration_is_not_kept_and_using_it_is_refused(table):
    recorded = record(declared_and_deleted)
    table = merge_specs(table, recorded.specs, recorded.removed)
    assert {name for name, spec in table.items() if not spec.removed} == {"kept"}
    handle = StateHandle(table, error=GivenError)
    *deleted, kept = declared_and_deleted(handle)
    says = r"^Error .* state '\w+' is not initialized, because init has deleted it"
    handle.finish_init()
    handle.set_group(new_view())
    handle.set_key(1, b"a")
    kept.update((1,))
    for state, kind in zip(deleted, (ValueState, ListState, MapState), strict=True):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                parameters = list(inspect.signature(method).parameters)[1:]
                with pytest.raises(GivenError, match=says):
                    getattr(state, name)(*[(1,) for _ in parameters])
        with pytest.raises(AttributeError, match="no attribute 'unknown'"):
            state.unknown()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda states: states[0].exists(), "Error checking value state exists: "),
        (lambda states: states[0].get(), "Error getting value state: "),
        (lambda states: states[0].update((1,)), "Error updating value state: "),
        (lambda states: states[1].exists(), "Error checking value state exists: "),
        (lambda states: states[1].appendValue((1,)), "Error updating value state: "),
        (lambda states: states[2].containsKey(("a",)), "Error checking if map state contains key: "),
        (lambda states: states[2].getValue(("a",)), "Error getting value: "),
        (lambda states: states[2].removeKey(("a",)), "Error removing key from map state: "),
    ],
)
def test_the_refusal_begins_as_spark_begins_it(call, text):
    recorded = record(declared_and_deleted)
    states = declared_and_deleted(StateHandle(merge_specs({}, recorded.specs)))
    with pytest.raises(InvalidArgumentError, match=f"^{text}"):
        call(states)


def test_state_cannot_be_used_in_init():
    for handle in (
        RecordingHandle(StructType.jsonValue, mode="eventTime"),
        StateHandle(record(three).specs, mode="eventTime"),
    ):
        value, many, table = three(handle)
        for call in (value.get, many.exists, table.clear, handle.listTimers, lambda: handle.registerTimer(1)):  # noqa: B023 - called here
            with pytest.raises(InvalidArgumentError, match="not in init or close"):
                call()


def test_the_recorded_specs_say_all_and_are_plain_data():
    def init(handle):
        handle.getValueState("value", NUMBER, 5)
        handle.getMapState("map", WORD, NUMBER, ttlDurationMs=np.int64(7))

    specs = record(init, "processingtime").specs
    assert specs["value"] == VariableSpec("value", "value", 1, NUMBER.jsonValue(), None, 5)
    assert specs["map"] == VariableSpec("map", "map", 2, NUMBER.jsonValue(), WORD.jsonValue(), 7)
    assert msgspec.json.decode(msgspec.json.encode(specs), type=dict[str, VariableSpec]) == specs


def test_a_declaration_that_cannot_be_is_refused_on_the_driver():
    handle = RecordingHandle(StructType.jsonValue, mode="eventTime")
    with pytest.raises(
        InvalidArgumentError, match=r"ttlDurationMs 5, which needs timeMode processingTime, .* eventTime"
    ):
        handle.getValueState("value", NUMBER, 5)
    with pytest.raises(
        InvalidArgumentError, match="ttlDurationMs of 'value' must be a whole number of at least 0, got -1"
    ):
        handle.getValueState("value", NUMBER, -1)
    for name in ("", None):
        with pytest.raises(InvalidArgumentError, match="needs a name"):
            handle.getValueState(name, NUMBER)
    handle.getValueState("value", NUMBER)
    with pytest.raises(InvalidArgumentError, match="twice"):
        handle.getListState("value", NUMBER)
    handle.deleteIfExists("earlier")
    with pytest.raises(
        InvalidArgumentError,
        match=r"deletes the state variable 'earlier' and then declares it, .* leave out deleteIfExists",
    ):
        handle.getValueState("earlier", NUMBER)
    with pytest.raises(InvalidArgumentError, match="field 'x' has the type variant"):
        RecordingHandle(lambda schema: schema).getListState("list", struct(x="variant"))
    with pytest.raises(InvalidArgumentError, match="one of none, processingTime, eventTime, got 'never'"):
        RecordingHandle(StructType.jsonValue, mode="never")


@pytest.mark.parametrize("mode", ["none", "processingTime", "eventTime"])
def test_a_ttl_of_zero_is_no_ttl_as_in_spark(mode):
    assert record(lambda handle: handle.getValueState("value", NUMBER, 0), mode).specs["value"].ttl_ms is None


def test_fields_must_be_nullable_where_spark_stores_avro():
    fixed = StructType(
        [StructField("a", LongType(), False), StructField("b", LongType()), StructField("c", LongType(), False)]
    )
    RecordingHandle(StructType.jsonValue).getListState("state", fixed)
    handle = RecordingHandle(StructType.jsonValue, mode="processingTime", nullable=True)
    handle.getMapState("map", fixed, NUMBER)
    handle.getValueState("expiring", fixed, 5)
    with pytest.raises(
        InvalidArgumentError,
        match=r"'state' has fields that are not nullable \(a, c\).*TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE",
    ):
        handle.getListState("state", fixed)


def test_known_variables_keep_their_tags_and_new_ones_get_new_tags():
    first = merge_specs({}, record(three).specs)

    def init(handle):
        handle.getValueState("newer", NUMBER)
        handle.getListState("list", NUMBER, 9)

    second = merge_specs(first, record(init, "processingTime").specs)
    assert {name: spec.tag for name, spec in second.items()} == {"value": 1, "list": 2, "map": 3, "newer": 4}
    assert second["list"].ttl_ms == 9
    assert merge_specs(second, record(three).specs)["value"] == first["value"]


def test_a_deleted_variable_is_gone_and_its_tag_is_never_used_again():
    first = merge_specs({}, record(three).specs)
    deleting = record(lambda handle: [handle.deleteIfExists("value"), handle.deleteIfExists("never declared")])
    second = merge_specs(first, deleting.specs, deleting.removed)
    assert removed_tags(second) == {1}
    handle = StateHandle(second)
    handle.getValueState("value", NUMBER)
    with pytest.raises(InvalidArgumentError, match="no such variable"):
        handle.set_group(new_view())
    StateHandle(second).deleteIfExists("value")
    assert merge_specs(second, deleting.specs, deleting.removed) == second
    third = merge_specs(second, {"value": VariableSpec("value", "list", 1, struct(x="string"))})
    assert (third["value"].tag, removed_tags(third)) == (4, {1})
    fourth = merge_specs(third, {}, ["value"])
    fifth = merge_specs(fourth, {"value": VariableSpec("value", "value", 1, struct(x="string"))})
    assert (fifth["value"].tag, removed_tags(fifth)) == (5, {1, 4})


def test_a_checkpoint_has_room_for_255_variables():
    def init(handle):
        for number in range(255):
            handle.getValueState(f"variable {number}", NUMBER)

    table = merge_specs({}, record(init).specs)
    assert table["variable 254"].tag == 255
    with pytest.raises(InvalidArgumentError, match="at most 255 state variables"):
        merge_specs(table, {"more": VariableSpec("more", "value", 1, struct(x="long"))})


@pytest.mark.parametrize(
    ("old", "new"),
    [("byte", "short"), ("integer", "long"), ("byte", "long")],
)
def test_integers_may_become_wider(old, new):
    for wrap in (
        lambda each: each,
        lambda each: {"type": "array", "elementType": each},
        lambda each: {"type": "map", "keyType": "string", "valueType": each},
        lambda each: struct(inner=each),
    ):
        before = {"v": VariableSpec("v", "value", 1, struct(x=wrap(old)))}
        after = {"v": VariableSpec("v", "value", 1, struct(x=wrap(new)))}
        assert merge_specs(before, after)["v"].schema == after["v"].schema
        with pytest.raises(
            MismatchError, match=rf"'v' .* was {new} and is {old}; declare it as before, or use a new name"
        ):
            merge_specs(after, before)


@pytest.mark.parametrize(
    ("new", "what"),
    [
        (VariableSpec("v", "list", 1, struct(x="long")), "it was a map state and is declared a list state now"),
        (VariableSpec("v", "map", 1, struct(x="string"), struct(k="string")), "value.x was long and is string"),
        (VariableSpec("v", "map", 1, struct(x=struct(y="long")), struct(k="string")), "value.x was long and is struct"),
        (
            VariableSpec("v", "map", 1, struct(x="long"), struct(k="binary")),
            r"its keys were \(k string\) and are \(k binary\)",
        ),
    ],
)
def test_a_change_that_stored_bytes_cannot_follow_is_a_mismatch(new, what):
    old = {"v": VariableSpec("v", "map", 1, struct(x="long"), struct(k="string"))}
    with pytest.raises(MismatchError, match=f"{what}; declare it as before, or use a new name or a new checkpoint"):
        merge_specs(old, {"v": new})


def test_a_widened_integer_reads_what_was_written_before():
    view = new_view()
    table = {"v": VariableSpec("v", "map", 1, struct(x="integer"), struct(k="byte"))}
    wider = merge_specs(table, {"v": VariableSpec("v", "map", 1, struct(x="long"), struct(k="byte"))})
    for declared in (table, wider):
        handle = StateHandle(declared)
        state = handle.getMapState("v", None, None)
        handle.set_group(view)
        handle.set_key(1, b"a")
        if declared is table:
            state.updateValue((5,), (-(2**31),))
    assert state.getValue((5,)) == (-(2**31),)


def test_timers_are_listed_in_order_and_kept_once():
    handle, _ = started(mode="processingTime")
    for time in (30, 10, np.int64(20), 10, -5):
        handle.registerTimer(time)
    assert list(handle.listTimers()) == [0, 10, 20, 30]
    handle.deleteTimer(20)
    handle.deleteTimer(21)
    handle.deleteTimer(-3)
    assert list(handle.listTimers()) == [10, 30]
    handle.set_key(1, b"another")
    assert list(handle.listTimers()) == []


def test_timers_need_a_clock_and_a_whole_number():
    handle, _ = started(mode="None")
    for call in (handle.listTimers, lambda: handle.registerTimer(1), lambda: handle.deleteTimer(1)):
        with pytest.raises(
            InvalidArgumentError, match="timeMode none; start it with timeMode processingTime or eventTime"
        ):
            call()
    assert list(handle.due_timers()) == []
    handle, _ = started(mode="eventTime")
    for wrong in (1.5, "1", None, 2**63):
        with pytest.raises(InvalidArgumentError, match="milliseconds since 1970"):
            handle.registerTimer(wrong)


@pytest.mark.parametrize(("mode", "due"), [("processingTime", [1, 2, 3]), ("eventTime", [1])])
def test_the_clock_of_timers_is_that_of_the_time_mode(mode, due):
    handle, _ = started(mode=mode, processing_ms=3, watermark_ms=1)
    for time in (1, 2, 3, 4):
        handle.registerTimer(time)
    assert [time for _, _, time in handle.due_timers()] == due
    assert handle.timer_values() == (3, 1)


def test_without_time_mode_there_are_no_times():
    assert StateHandle({}, processing_ms=3, watermark_ms=1).timer_values() == (-1, -1)
    assert time_mode("EVENTTIME") == "eventTime"


def test_timers_registered_while_timers_fire_wait_and_deleted_ones_still_fire():
    handle, _ = started(mode="processingTime", processing_ms=100)
    for time in (10, 20, 30, 101):
        handle.registerTimer(time)
    fired = []
    for fingerprint, key, time in handle.due_timers():
        handle.set_key(fingerprint, key)
        fired.append(time)
        if time == 10:
            handle.deleteTimer(20)
            assert list(handle.listTimers()) == [10, 30, 101]
        if time != 20:
            handle.registerTimer(time + 1)
        handle.deleteTimer(time)
    assert fired == [10, 20, 30]
    assert [time for _, _, time in handle.due_timers()] == [11, 31]
    assert list(handle.listTimers()) == [11, 31, 101]


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3), st.integers(-5, 50))),
    st.integers(-1, 60),
)
def test_exactly_the_due_timers_fire_ascending_by_time(timers, now_ms):
    handle, _ = started(mode="eventTime", watermark_ms=now_ms)
    for fingerprint, key, time in timers:
        handle.set_key(fingerprint, key)
        handle.registerTimer(time)
    fired = list(handle.due_timers())
    expected = {(fingerprint, key, max(time, 0)) for fingerprint, key, time in timers if max(time, 0) <= now_ms}
    assert set(fired) == expected
    assert len(fired) == len(expected)
    assert [time for _, _, time in fired] == sorted(time for _, _, time in fired)


@given(st.lists(st.tuples(st.binary(max_size=2), st.integers(0, 20))), st.integers(0, 40), st.integers(0, 5))
def test_purging_takes_expired_entries_oldest_first_and_no_others(writes, now_ms, limit):
    view, written = new_view(), {}
    for batch, (key, time) in enumerate(writes):
        _, (value,) = started(
            lambda handle: [handle.getValueState("value", NUMBER, 10)],
            view=view,
            key=key,
            mode="processingTime",
            processing_ms=time,
            batch=batch,
        )
        value.update((time,))
        written[key] = time + 10
    expired = sorted(expiry for expiry in written.values() if expiry <= now_ms)
    purged = purge_expired(view, now_ms, limit)
    assert purged == min(len(expired), limit)
    left = sorted(expiry for expiry in written.values())[purged:]
    assert len(list(view.scan(b"\x00"))) == len(left)
    assert [int.from_bytes(key[1:9], "big") for key, _ in view.scan(b"\x02")] == left
