"""Values written with any earlier schema of a variable are read with the current one, by the names of the fields."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from equipoise.errors import DamagedError, MismatchError
from equipoise.state.entries import entry_key, entry_prefix, split_value, with_expiry
from equipoise.state.evolution import ValueCodec
from equipoise.state.handle import StateHandle, VariableSpec, merge_specs
from equipoise.state.transaction import EmptyReader, GroupTransaction

WIDTHS = ("byte", "short", "integer", "long", "float", "double")


def struct(*fields, **more):
    named = [*fields, *more.items()]
    return {"type": "struct", "fields": [{"name": name, "type": kind, "nullable": True} for name, kind in named]}


def array(item):
    return {"type": "array", "elementType": item, "containsNull": True}


def mapping(value):
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}


def table(kind="value", **schema):
    return {"v": VariableSpec("v", kind, 1, struct(**schema), struct(k="string") if kind == "map" else None)}


def history(*tables):
    merged = {}
    for each in tables:
        merged = merge_specs(merged, each)
    return merged


def handle_at(declared, view, **batch):
    """A state of each kind that is in the table, at one key."""
    handle = StateHandle(declared, rows=lambda names: lambda values: Row(*names)(*values), **batch)
    (spec,) = declared.values()
    get = {"value": handle.getValueState, "list": handle.getListState, "map": handle.getMapState}[spec.kind]
    state = get("v", *[None] * (2 if spec.kind == "map" else 1))
    handle.set_group(view)
    handle.set_key(1, b"a")
    return state


@pytest.mark.parametrize("ttl_ms", [None, 10])
@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_fields_are_added_removed_reordered_and_widened_in_each_kind_of_variable(kind, ttl_ms):
    tables = [
        table(kind, id="integer", name="string"),
        table(kind, id="integer", name="string", score="float"),
        table(kind, score="double", id="long"),
        table(kind, name="string", score="double", id="double"),
    ]
    tables = [{"v": msgspec.structs.replace(each["v"], ttl_ms=ttl_ms)} for each in tables]
    rows = [(1, "one"), (2, "two", 0.5), (2.5, 3), ("four", 3.5, 4.0)]
    expected = ["one", None, 1.0], ["two", 0.5, 2.0], [None, 2.5, 3.0], ["four", 3.5, 4.0]
    view = GroupTransaction(EmptyReader())
    for at, row in enumerate(rows):
        state = handle_at(history(*tables[: at + 1]), view, mode="processingTime", processing_ms=5, batch=at)
        if kind == "value":
            state.update(row)
            last = handle_at(history(*tables), view, mode="processingTime", processing_ms=5, batch=at)
            assert last.get() == tuple(expected[at])
        elif kind == "list":
            state.appendValue(row)
        else:
            state.updateValue((str(at),), row)
    last = handle_at(history(*tables), view, mode="processingTime", processing_ms=5, batch=9)
    if kind == "list":
        assert list(last.get()) == [tuple(row) for row in expected]
    elif kind == "map":
        assert [last.getValue((str(at),)).asDict() for at in range(4)] == [
            dict(zip(("name", "score", "id"), row, strict=True)) for row in expected
        ]
        assert list(last.values()) == [tuple(row) for row in expected]
    later = handle_at(history(*tables), view, mode="processingTime", processing_ms=15, batch=9)
    assert later.exists() is (ttl_ms is None)


def test_values_of_the_first_schema_keep_their_bytes_and_later_ones_name_their_schema():
    view = GroupTransaction(EmptyReader())
    key = entry_key(entry_prefix(1, b"a"), 1)
    first, second = table(x="long"), table(x="long", y="string")
    handle_at(history(first), view).update((7,))
    assert view.get(key) == b"\x00\x91\x07"
    state = handle_at(history(first, second), view)
    assert (state.get(), view.get(key)) == ((7, None), b"\x00\x91\x07")
    state.update((7, "y"))
    assert view.get(key) == b"\x02\x00\x01\x92\x07\xa1y"
    assert handle_at(history(first, second, first), view).get() == (7,)
    assert handle_at(history(first, second, first, second), view).get() == (7, "y")


def test_a_wider_integer_or_double_needs_no_schema_of_its_own():
    for old, new in (("byte", "short"), ("integer", "long"), ("float", "double"), ("varchar(5)", "string")):
        merged = history(table(x=old), table(x=new))["v"]
        assert (merged.schema, merged.former_schemas) == (struct(x=new), ())
    fixed = {"v": VariableSpec("v", "value", 1, {"type": "struct", "fields": [{"name": "x", "type": "long"}]})}
    assert history(table(x="long"), fixed)["v"].former_schemas == ()


def test_nested_structs_evolve_and_stay_named():
    old, new = struct(a="integer", gone="string"), struct(b="string", a="double")
    tables = [
        table(s=old, many=array(old), by_name=mapping(array(old))),
        table(by_name=mapping(array(new)), many=array(new), s=new),
    ]
    view = GroupTransaction(EmptyReader())
    handle_at(history(tables[0]), view).update(((1, "x"), [(2, "x"), None], {"k": [(3, "x")], "none": None}))
    by_name, many, one = handle_at(history(*tables), view).get()
    assert (one, many, by_name) == ((None, 1.0), [(None, 2.0), None], {"k": [(None, 3.0)], "none": None})
    assert (one.a, many[0].asDict(), by_name["k"][0].b) == (1.0, {"a": 2.0, "b": None}, None)


def test_a_struct_that_did_not_change_stays_named_in_a_row_that_did():
    kept = struct(a="long")
    view = GroupTransaction(EmptyReader())
    handle_at(history(table(s=kept)), view).update(((1,),))
    added, found = handle_at(history(table(s=kept), table(x="long", s=kept)), view).get()
    assert (added, found.a) == (None, 1)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (struct(x="long"), struct(x="integer"), "value.x was long and is integer"),
        (struct(x="double"), struct(x="float"), "value.x was double and is float"),
        (struct(x="double"), struct(x="long"), "value.x was double and is long"),
        (struct(x="string"), struct(x="binary"), "value.x was string and is binary"),
        (struct(x="timestamp"), struct(x="long"), "value.x was timestamp and is long"),
        (struct(x="decimal(5,2)"), struct(x="decimal(6,2)"), r"value.x was decimal\(5,2\) and is decimal\(6,2\)"),
        (struct(x="string"), struct(x="string collate UTF8_LCASE"), "value.x was string and is string collate"),
        (struct(x="long"), struct(x=array("long")), "value.x was long and is array"),
        (struct(x=struct(y="long")), struct(x=struct(y="byte")), "value.x.y was long and is byte"),
        (struct(x=array("long")), struct(x=array("byte")), "value.x.elementType was long and is byte"),
        (struct(x=mapping("long")), struct(x=mapping("byte")), "value.x.valueType was long and is byte"),
        (
            struct(x={**mapping("long"), "keyType": "byte"}),
            struct(x={**mapping("long"), "keyType": "long"}),
            "value.x.keyType was byte and is long",
        ),
        (
            struct(x="long"),
            {"type": "struct", "fields": [{"name": "y", "type": "long", "nullable": False}]},
            "value.y is new and not nullable, and earlier values lack it",
        ),
    ],
)
def test_other_changes_are_refused_by_name(old, new, what):
    known = {"v": VariableSpec("v", "value", 1, old)}
    with pytest.raises(MismatchError, match=f"'v' .*: {what}.*; declare it as before, or use a new name"):
        merge_specs(known, {"v": VariableSpec("v", "value", 1, new)})


def test_a_field_that_comes_back_must_fit_the_values_that_still_have_it():
    without = history(table(x="long", y="string"), table(y="string"))
    with pytest.raises(MismatchError, match=r"value.x was long and is string"):
        merge_specs(without, table(x="string", y="string"))


@pytest.mark.parametrize("key", [struct(k="long", more="string"), struct(other="long"), struct(k="integer")])
def test_the_keys_of_a_map_cannot_change(key):
    old = {"v": VariableSpec("v", "map", 1, struct(x="long"), struct(k="long"))}
    with pytest.raises(MismatchError, match=r"'v' .*: its keys were \(k long\) and are \(.*declare it as before"):
        merge_specs(old, {"v": VariableSpec("v", "map", 1, struct(x="long"), key)})


def test_a_variable_that_was_deleted_begins_without_a_history():
    evolved = history(table(x="long"), table(y="long"))
    assert len(evolved["v"].schemas) == 2
    again = merge_specs(merge_specs(evolved, {}, ["v"]), table(x="string"))
    assert (again["v"].tag, again["v"].former_schemas) == (2, ())


def test_the_history_is_plain_data():
    merged = history(table(x="long"), table(y="long"), table(x="double"))
    stored = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(merged)))
    assert {name: msgspec.convert(spec, VariableSpec) for name, spec in stored.items()} == merged


def test_a_value_of_an_unknown_schema_is_damage():
    view = GroupTransaction(EmptyReader())
    declared = history(table(x="long"), table(x="long", y="long"))
    handle_at(declared, view).update((1, 2))
    key, value = next(view.scan(b""))
    expiry, payload, _ = split_value(value)
    view.put(key, with_expiry(payload, expiry, 2))
    with pytest.raises(
        DamagedError, match=r"value state 'v': .* written with schema 2, .* knows schemas 0 to 1; restore"
    ):
        handle_at(declared, view).get()
    view.put(key, with_expiry(payload, expiry, 0))
    with pytest.raises(DamagedError, match=r"value state 'v': .* stored bytes are not a row"):
        handle_at(declared, view).get()


@given(st.data())
def test_changed_bytes_are_damage_or_a_row_of_the_current_schema(data):
    codec = ValueCodec([struct(a="long", b="string"), struct(b="string"), struct(c="double", a="double")])
    schema = data.draw(st.integers(0, 2))
    try:
        row = codec.decode(data.draw(st.binary(max_size=12)), schema)
    except DamagedError:
        return
    assert len(row) == 2
    assert all(value is None or isinstance(value, float) for value in row)


def widened(kind):
    return st.sampled_from(WIDTHS[WIDTHS.index(kind) :]) if kind in WIDTHS else st.just(kind)


@st.composite
def next_schema(draw, fields):
    """Fields after a restart: some gone, some wider, some new, in any order; ``fields`` has the names ever used."""
    kept = [(name, draw(widened(kind))) for name, kind in fields.items() if draw(st.booleans())]
    new = [name for name in "abcdef" if name not in fields and draw(st.booleans())]
    added = [(name, draw(st.sampled_from(["byte", "integer", "float", "string"]))) for name in new]
    return dict(draw(st.permutations([*kept, *added])))


def values_for(kind):
    if kind in ("float", "double"):
        return st.floats(width=16, allow_nan=False)
    return st.none() | (st.text(max_size=3) if kind == "string" else st.integers(-128, 127))


@given(st.data())
def test_any_chain_of_changes_projects_values_by_name(data):
    ever, versions, view = {}, [], GroupTransaction(EmptyReader())
    merged, written = {}, []
    for at in range(data.draw(st.integers(1, 5))):
        fields = data.draw(next_schema(ever))
        ever.update(fields)
        versions.append(fields)
        merged = merge_specs(merged, table("map", **fields))
        row = {name: data.draw(values_for(kind)) for name, kind in fields.items()}
        handle_at(merged, view, batch=at).updateValue((str(at),), tuple(row.values()))
        written.append(row)
        state = handle_at(merged, view, batch=at)
        for number, earlier in enumerate(written):
            assert state.getValue((str(number),)) == tuple(earlier.get(name) for name in fields)
