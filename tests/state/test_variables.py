"""State variables behave as a dictionary for each key would, with a clock."""

import inspect

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyspark.sql import Row
from pyspark.sql.streaming import stateful_processor

from equipoise.errors import DamagedError, InvalidArgumentError
from equipoise.state.codec import KeyCodec
from equipoise.state.entries import companions, entry_prefix
from equipoise.state.evolution import ValueCodec
from equipoise.state.timers import purge_expired
from equipoise.state.variables import ListState, MapState, Scope, ValueState

NUMBER = {"type": "struct", "fields": [{"name": "number", "type": "long"}]}
WORD = {"type": "struct", "fields": [{"name": "word", "type": "string"}]}


class DictView:
    """A group in a dictionary, which counts what is asked of it."""

    def __init__(self):
        self.entries = {}
        self.gets = self.scans = 0

    def get(self, key):
        self.gets += 1
        return self.entries.get(key)

    def get_many(self, keys):
        return [self.get(key) for key in keys]

    def scan(self, prefix):
        self.scans += 1
        return iter([(key, self.entries[key]) for key in sorted(self.entries) if key.startswith(prefix)])

    def put(self, key, value):
        self.entries[key] = value

    def delete(self, key):
        self.entries.pop(key, None)


def make(kind, ttl_ms=None, *, now_ms=1000, batch=0):
    """A variable of each kind, on a view of its own, at key b"a"."""
    scope = Scope(now_ms, batch)
    scope.view = DictView()
    scope.prefix = entry_prefix(1, b"a")
    keys = [KeyCodec(WORD)] if kind is MapState else []
    return kind(scope, "seen", 3, ttl_ms, ValueCodec([NUMBER], "state 'seen'"), *keys), scope


def at_key(scope, key):
    scope.prefix = entry_prefix(1, key)


@pytest.mark.parametrize("kind", [ValueState, ListState, MapState])
def test_the_methods_are_those_of_spark(kind):
    sparks = getattr(stateful_processor, kind.__name__)
    for name, method in inspect.getmembers(sparks, inspect.isfunction):
        if not name.startswith("_"):
            assert list(inspect.signature(getattr(kind, name)).parameters) == list(inspect.signature(method).parameters)


def test_a_value_is_what_was_set_last():
    value, _ = make(ValueState)
    assert not value.exists()
    assert value.get() is None
    value.clear()
    value.update((1,))
    value.update((2,))
    assert value.exists()
    assert value.get() == (2,)
    value.clear()
    assert value.get() is None


def test_a_list_has_what_was_put_and_appended():
    many, _ = make(ListState)
    assert not many.exists()
    assert list(many.get()) == []
    many.appendValue((1,))
    many.appendList([(2,), (3,)])
    assert list(many.get()) == [(1,), (2,), (3,)]
    many.put([(4,)])
    many.appendValue((5,))
    assert many.exists()
    assert list(many.get()) == [(4,), (5,)]
    many.clear()
    assert not many.exists()


def test_a_map_has_what_was_set_for_each_key():
    table, _ = make(MapState)
    assert not table.exists()
    assert table.getValue(("x",)) is None
    table.removeKey(("x",))
    table.updateValue(("x",), (1,))
    table.updateValue(("y",), (2,))
    table.updateValue(("x",), (3,))
    assert table.exists()
    assert table.containsKey(("x",))
    assert not table.containsKey(("z",))
    assert dict(table.iterator()) == {("x",): (3,), ("y",): (2,)}
    assert list(table.keys()) == [("x",), ("y",)]
    assert list(table.values()) == [(3,), (2,)]
    table.removeKey(("x",))
    assert dict(table.iterator()) == {("y",): (2,)}
    table.clear()
    assert not table.exists()


@pytest.mark.parametrize("kind", [ValueState, ListState, MapState])
def test_variables_and_keys_do_not_see_each_other(kind):
    one, scope = make(kind)
    other = kind(scope, "other", 4, None, ValueCodec([NUMBER]), *([KeyCodec(WORD)] if kind is MapState else []))
    write = {
        "ValueState": ("update", ((1,),)),
        "ListState": ("put", ([(1,)],)),
        "MapState": ("updateValue", (("x",), (1,))),
    }
    name, arguments = write[kind.__name__]
    getattr(one, name)(*arguments)
    assert not other.exists()
    at_key(scope, b"ab")
    assert not one.exists()
    at_key(scope, b"")
    assert not one.exists()
    other.clear()
    at_key(scope, b"a")
    assert one.exists()


@pytest.mark.parametrize("wrong", [None, 5, (), (1, 2), ("a",), (1.5,), {"number": 1}])
def test_a_wrong_value_is_refused_and_changes_nothing(wrong):
    for kind, calls in [
        (ValueState, [lambda state: state.update(wrong)]),
        (
            ListState,
            [
                lambda state: state.appendValue(wrong),
                lambda state: state.appendList([(1,), wrong]),
                lambda state: state.put([(1,), wrong]),
            ],
        ),
        (MapState, [lambda state: state.updateValue(("x",), wrong)]),
    ]:
        for call in calls:
            state, scope = make(kind)
            with pytest.raises(InvalidArgumentError, match="state 'seen'"):
                call(state)
            assert scope.view.entries == {}


def test_a_wrong_user_key_is_refused():
    table, _ = make(MapState)
    for call in (table.getValue, table.containsKey, table.removeKey, lambda key: table.updateValue(key, (1,))):
        with pytest.raises(InvalidArgumentError, match="expected a tuple of 1 value"):
            call(None)


def test_a_list_takes_no_empty_list_and_nothing_but_lists():
    many, _ = make(ListState)
    many.put([(1,)])
    with pytest.raises(
        InvalidArgumentError, match=r"appendList needs at least one value, got none; leave the call out"
    ):
        many.appendList([])
    with pytest.raises(
        InvalidArgumentError, match=r"put needs at least one value, got none; clear\(\) empties the list"
    ):
        many.put([])
    for wrong in (None, 5, "ab", {"a": (1,)}):
        with pytest.raises(InvalidArgumentError, match="needs tuples, in a list or another iterable"):
            many.put(wrong)
    assert list(many.get()) == [(1,)]


def test_a_list_takes_any_iterable_of_rows():
    many, _ = make(ListState)
    many.put((number,) for number in (1, 2))
    many.appendList(np.array([[3], [4]]))
    many.appendList(pd.DataFrame({"number": [5]}).itertuples(index=False))
    many.appendValue(pd.Series([6]))
    assert list(many.get()) == [(1,), (2,), (3,), (4,), (5,), (6,)]
    with pytest.raises(InvalidArgumentError, match="appendList needs at least one value"):
        many.appendList(iter(()))


def test_the_iterable_may_read_the_list_that_it_extends():
    many, _ = make(ListState)
    many.put([(1,), (2,)])
    many.put((number + 1,) for (number,) in many.get())
    many.appendList((number + 1,) for (number,) in many.get())
    assert list(many.get()) == [(2,), (3,), (3,), (4,)]


def test_text_is_a_map_key_of_its_characters_as_in_spark():
    table, _ = make(MapState)
    table.updateValue("k", (1,))
    assert (table.containsKey("k"), table.getValue(("k",)), list(table.keys())) == (True, (1,), [("k",)])
    table.removeKey("k")
    assert not table.exists()
    with pytest.raises(InvalidArgumentError, match=r"expected a tuple of 1 value \(word\), got 4: "):
        table.getValue("keys")


def test_rows_are_named_where_spark_names_them():
    pair = {"type": "struct", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": NUMBER}]}

    def named(names):
        return lambda values: Row(*names)(*values)

    scope = Scope(1000, 0)
    scope.view, scope.prefix = DictView(), entry_prefix(1, b"a")
    values = ValueCodec([pair], rows=named)
    value, many = ValueState(scope, "value", 1, None, values), ListState(scope, "list", 2, None, values)
    table = MapState(scope, "map", 3, None, values, KeyCodec(pair, rows=named), named(["a", "b"]))
    value.update((1, {"number": 2}))
    many.appendValue((1, (2,)))
    table.updateValue((1, (2,)), (3, (4,)))
    rows = [value.get(), *many.get(), *table.keys(), *table.values(), *next(table.iterator())]
    assert {type(row) for row in rows} == {tuple}
    assert [row[1].number for row in rows] == [2, 2, 2, 4, 2, 4]
    assert table.getValue((1, (2,))).asDict(recursive=True) == {"a": 3, "b": {"number": 4}}


@pytest.mark.parametrize("kind", [ValueState, ListState, MapState])
def test_without_a_key_every_operation_says_so(kind):
    state = kind(Scope(0, 0), "seen", 1, None, ValueCodec([NUMBER]), *([KeyCodec(WORD)] if kind is MapState else []))
    row = (1,) if kind is not MapState else ("x",)
    arguments = {"newValue": row, "newState": row, "key": row, "value": (1,)}
    for name, method in inspect.getmembers(state, inspect.ismethod):
        if not name.startswith("_"):
            given = [arguments[each] for each in inspect.signature(method).parameters]
            if name in {"put", "appendList"}:
                given = [[row]]
            with pytest.raises(InvalidArgumentError, match="belong to a grouping key, and there is none here"):
                method(*given)


def test_foreign_bytes_in_a_value_are_damage():
    value, scope = make(ValueState)
    for stored in (b"\x00\xc1", b"\x07", b"\x01abc"):
        scope.view.entries[scope.prefix + b"\x03"] = stored
        with pytest.raises(DamagedError):
            value.get()


def test_a_value_without_ttl_costs_one_get_and_one_put():
    value, scope = make(ValueState)
    value.update((1,))
    value.get()
    assert (scope.view.gets, scope.view.scans, len(scope.view.entries)) == (1, 0, 1)


def test_appending_reads_and_rewrites_nothing_of_earlier_batches():
    many, scope = make(ListState)
    for batch in range(50):
        scope.batch = batch
        at_key(scope, b"a")
        before = dict(scope.view.entries)
        gets = scope.view.gets
        for number in range(20):
            many.appendValue((batch * 20 + number,))
        assert scope.view.gets - gets == 1
        assert before.items() <= scope.view.entries.items()
        assert len(scope.view.entries) == batch + 1
    assert scope.view.scans == 0
    assert list(many.get()) == [(number,) for number in range(1000)]


def test_a_key_that_comes_again_in_one_batch_keeps_its_list():
    many, scope = make(ListState)
    for turn in range(4):
        at_key(scope, b"a")
        many.appendValue((turn,))
        at_key(scope, b"b")
        many.appendValue((-turn,))
    at_key(scope, b"a")
    assert list(many.get()) == [(0,), (1,), (2,), (3,)]


def test_a_second_variable_over_the_same_entries_appends_behind_the_first():
    one, scope = make(ListState)
    one.appendList([(1,), (2,)])
    other = ListState(scope, "seen", 3, None, ValueCodec([NUMBER]))
    other.appendValue((3,))
    assert list(one.get()) == [(1,), (2,), (3,)]


def test_a_long_append_is_cut_into_chunks_of_bounded_size():
    scope = Scope(0, 0)
    scope.view = DictView()
    scope.prefix = entry_prefix(1, b"a")
    many = ListState(scope, "seen", 3, None, ValueCodec([WORD]))
    words = [("x" * (number % 3000),) for number in range(200)] + [("y" * 100_000,), ("z",)]
    many.appendList(words[:100])
    for word in words[100:]:
        many.appendValue(word)
    assert list(many.get()) == words
    assert len(scope.view.entries) < 15
    assert sorted(map(len, scope.view.entries.values()))[-2] < 33_000


@pytest.mark.parametrize("kind", [ListState, MapState])
def test_writing_while_iterating_changes_what_is_stored_not_what_is_iterated(kind):
    state, _ = make(kind)
    if kind is ListState:
        state.put([(1,), (2,)])
        for (number,) in state.get():
            state.appendValue((number + 10,))
        assert list(state.get()) == [(1,), (2,), (11,), (12,)]
    else:
        state.updateValue(("x",), (1,))
        for key, (number,) in state.iterator():
            state.removeKey(key)
            state.updateValue((f"{key[0]}!",), (number,))
        assert list(state.keys()) == [("x!",)]


def test_an_iterator_outlives_its_key():
    table, scope = make(MapState)
    table.updateValue(("x",), (1,))
    keys, pairs = table.keys(), table.iterator()
    at_key(scope, b"a much longer key")
    assert list(keys) == [("x",)]
    assert list(pairs) == [(("x",), (1,))]


def test_a_value_lives_until_its_expiry_and_writing_renews_it():
    value, scope = make(ValueState, ttl_ms=10, now_ms=1000)
    value.update((1,))
    scope.now_ms = 1009
    assert value.get() == (1,)
    value.update((2,))
    scope.now_ms = 1018
    assert value.exists()
    assert value.get() == (2,)
    scope.now_ms = 1019
    assert not value.exists()
    assert value.get() is None


def test_parts_of_lists_and_entries_of_maps_expire_by_themselves():
    many, scope = make(ListState, ttl_ms=10)
    table = MapState(scope, "table", 5, 10, ValueCodec([NUMBER]), KeyCodec(WORD))
    many.appendValue((1,))
    table.updateValue(("x",), (1,))
    scope.now_ms, scope.batch = 1005, 1
    at_key(scope, b"a")
    many.appendValue((2,))
    table.updateValue(("y",), (2,))
    scope.now_ms, scope.batch = 1010, 2
    assert list(many.get()) == [(2,)]
    assert list(table.iterator()) == [(("y",), (2,))]
    assert not table.containsKey(("x",))
    scope.now_ms = 1015
    assert not many.exists()
    assert not table.exists()


def test_a_ttl_may_come_and_go_between_runs():
    value, scope = make(ValueState, ttl_ms=10)
    value.update((1,))
    forever = ValueState(scope, "seen", 3, None, ValueCodec([NUMBER]))
    assert forever.get() == (1,)
    forever.update((2,))
    scope.now_ms = 5000
    assert purge_expired(scope.view, 5000, 10) == 1  # the index entry alone
    assert forever.get() == (2,)
    assert len(scope.view.entries) == 1
    value.update((3,))
    assert value.get() == (3,)
    scope.now_ms = 5010
    assert value.get() is None


class VariablesAgainstDictionaries(RuleBasedStateMachine):
    """All three kinds beside plain dictionaries of (expiry, value); the clock moves on, and entries are purged."""

    keys = st.sampled_from([b"", b"a", b"ab", b"b"])
    numbers = st.integers(-5, 5)
    words = st.sampled_from(["", "x", "y", "é"])

    @initialize(ttl_ms=st.none() | st.integers(1, 5))
    def begin(self, ttl_ms):
        self.ttl_ms = ttl_ms
        self.scope = Scope(1000, 0)
        self.view = self.scope.view = DictView()
        numbers = ValueCodec([NUMBER])
        self.value = ValueState(self.scope, "value", 1, ttl_ms, numbers)
        self.list = ListState(self.scope, "list", 2, ttl_ms, numbers)
        self.map = MapState(self.scope, "map", 3, ttl_ms, numbers, KeyCodec(WORD))
        self.model = {key: {"value": None, "list": [], "map": {}} for key in (b"", b"a", b"ab", b"b")}
        self.go_to(b"a")

    @rule(key=keys)
    def go_to(self, key):
        self.key = key
        at_key(self.scope, key)

    @rule(by=st.integers(0, 4))
    def next_batch(self, by):
        self.scope.now_ms += by
        self.scope.batch += 1
        at_key(self.scope, self.key)

    @rule(number=numbers)
    def update(self, number):
        self.value.update((number,))
        self.here["value"] = self.alive((number,))

    @rule(number=numbers)
    def append_value(self, number):
        self.list.appendValue((number,))
        self.here["list"].append(self.alive((number,)))

    @rule(numbers=st.lists(numbers, min_size=1, max_size=3))
    def append_list(self, numbers):
        self.list.appendList([(number,) for number in numbers])
        self.here["list"] += [self.alive((number,)) for number in numbers]

    @rule(numbers=st.lists(numbers, min_size=1, max_size=3))
    def put(self, numbers):
        self.list.put([(number,) for number in numbers])
        self.here["list"] = [self.alive((number,)) for number in numbers]

    @rule(word=words, number=numbers)
    def update_value(self, word, number):
        self.map.updateValue((word,), (number,))
        self.here["map"][word,] = self.alive((number,))

    @rule(word=words)
    def remove_key(self, word):
        self.map.removeKey((word,))
        self.here["map"].pop((word,), None)

    @rule(kind=st.sampled_from(["value", "list", "map"]))
    def clear(self, kind):
        getattr(self, kind).clear()
        self.here[kind] = {"value": None, "list": [], "map": {}}[kind]

    @rule(limit=st.integers(0, 3))
    def purge_some(self, limit):
        assert purge_expired(self.view, self.scope.now_ms, limit) <= limit

    @precondition(lambda self: self.ttl_ms is not None)
    @rule()
    def purge_all(self):
        purge_expired(self.view, self.scope.now_ms, 10_000)
        assert all(key[1:9] > self.scope.now_ms.to_bytes(8, "big") for key in self.view.entries if key[0] == 2)

    @property
    def here(self):
        return self.model[self.key]

    def alive(self, row):
        return (None if self.ttl_ms is None else self.scope.now_ms + self.ttl_ms, row)

    def seen(self, timed):
        return timed is not None and (timed[0] is None or timed[0] > self.scope.now_ms)

    @invariant()
    def reads_are_those_of_the_model(self):
        value, many, table = self.here["value"], self.here["list"], self.here["map"]
        assert self.value.get() == (value[1] if self.seen(value) else None)
        assert self.value.exists() == self.seen(value)
        expected = [each[1] for each in many if self.seen(each)]
        assert list(self.list.get()) == expected
        assert self.list.exists() == bool(expected)
        pairs = {key: each[1] for key, each in table.items() if self.seen(each)}
        assert dict(self.map.iterator()) == pairs
        assert list(zip(self.map.keys(), self.map.values(), strict=True)) == list(self.map.iterator())
        assert self.map.exists() == bool(pairs)
        for word in ("", "x", "y", "é"):
            assert self.map.getValue((word,)) == pairs.get((word,))
            assert self.map.containsKey((word,)) == ((word,) in pairs)

    @invariant()
    def the_index_is_that_of_the_entries(self):
        entries = [(key, value) for key, value in self.view.entries.items() if key[0] == 0]
        index = {key for key in self.view.entries if key[0] != 0}
        assert index == {companion for key, value in entries for companion in companions(key, value)}


VariablesAgainstDictionaries.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
TestVariablesAgainstDictionaries = VariablesAgainstDictionaries.TestCase
