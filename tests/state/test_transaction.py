"""A transaction reads as a dict would, and its changes lead from the old entries to the new ones."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from equipoise.state.transaction import EmptyReader, GroupTransaction

parts = st.lists(st.sampled_from([b"\x00", b"\x01", b"\x02", b"\x00" * 8, b"\x07" * 8]), min_size=1, max_size=4)
keys = parts.map(b"".join)
prefixes = st.just(b"") | keys
values = st.binary(max_size=3)


class DictReader:
    """A reader over a dict that tells what was asked of it."""

    def __init__(self, entries):
        self.contents = dict(entries)
        self.asked = []

    def get(self, key):
        self.asked.append(key)
        return self.contents.get(key)

    def get_many(self, keys):
        return [self.get(key) for key in keys]

    def scan(self, prefix):
        return iter(sorted((k, v) for k, v in self.contents.items() if k.startswith(prefix)))


def under(entries, prefix):
    return sorted((key, value) for key, value in entries.items() if key.startswith(prefix))


class ATransactionIsADict(RuleBasedStateMachine):
    @initialize(stored=st.dictionaries(keys, values))
    def start(self, stored):
        self.stored, self.model = dict(stored), dict(stored)
        self.view = GroupTransaction(DictReader(stored))

    @rule(key=keys, value=values)
    def put(self, key, value):
        self.view.put(key, value)
        self.model[key] = value

    @rule(key=keys)
    def delete(self, key):
        self.view.delete(key)
        self.model.pop(key, None)

    @rule(key=keys)
    def get(self, key):
        assert self.view.get(key) == self.model.get(key)

    @rule(several=st.lists(keys, max_size=5))
    def get_many(self, several):
        assert self.view.get_many(several) == [self.model.get(key) for key in several]

    @rule(entries=st.lists(st.tuples(keys, values), max_size=6))
    def put_many(self, entries):
        self.view.put_many(entries)
        self.model |= dict(entries)

    @rule(prefix=prefixes)
    def scan(self, prefix):
        assert list(self.view.scan(prefix)) == under(self.model, prefix)

    @rule(prefix=prefixes, steps=st.lists(st.lists(st.tuples(keys, st.none() | values), max_size=3), max_size=6))
    def scan_while_changing(self, prefix, steps):
        waiting = [key for key, _ in under(self.model, prefix)]
        scan = self.view.scan(prefix)
        for changes in steps:
            for key, value in changes:
                if value is None:
                    self.delete(key)
                else:
                    self.put(key, value)
            found = next(scan, None)
            while waiting and waiting[0] not in self.model:
                waiting.pop(0)
            if found is None:
                assert not waiting
                return
            assert found == (waiting[0], self.model[waiting.pop(0)])
        assert list(scan) == [(key, self.model[key]) for key in waiting if key in self.model]

    @invariant()
    def changes_lead_to_the_model(self):
        changes = self.view.changes()
        assert [key for key, _ in changes] == sorted({key for key, _ in changes})
        result = dict(self.stored)
        for key, value in changes:
            if value is None:
                result.pop(key, None)
            else:
                result[key] = value
        assert result == self.model


ATransactionIsADict.TestCase.settings = settings(deadline=None, max_examples=150, stateful_step_count=30)
test_a_transaction_is_a_dict = ATransactionIsADict.TestCase


def test_a_value_that_was_read_and_is_the_same_again_is_no_change():
    view = GroupTransaction(DictReader({b"a": b"1", b"b": b"2", b"c": b"3"}))
    assert view.get_many([b"a", b"b", b"new"]) == [b"1", b"2", None]
    view.put(b"a", b"0")
    view.put(b"a", b"1")
    view.put(b"b", b"20")
    view.put(b"new", b"9")
    view.delete(b"new")
    view.put(b"c", b"3")  # not read: nobody knows
    assert view.changes() == [(b"b", b"20"), (b"c", b"3")]


def test_a_value_is_read_from_the_reader_once():
    reader = DictReader({b"a": b"1"})
    view = GroupTransaction(reader)
    for _ in range(3):
        view.get(b"a")
        view.get_many([b"a", b"b"])
    view.put(b"c", b"3")
    view.get(b"c")
    assert reader.asked == [b"a", b"b"]


def test_a_scan_is_lazy():
    def endless(prefix):
        number = 0
        while True:
            yield prefix + number.to_bytes(8, "big"), b""
            number += 1

    reader = DictReader({})
    reader.scan = endless
    view = GroupTransaction(reader)
    view.put(b"\x01" + bytes(8) + b"timer", b"")
    scan = view.scan(b"\x01")
    assert [next(scan)[0] for _ in range(3)] == [
        b"\x01" + bytes(8),
        b"\x01" + bytes(8) + b"timer",
        b"\x01" + bytes(7) + b"\x01",
    ]


def test_many_keys_that_arrive_between_scans_stay_in_order():
    view = GroupTransaction(EmptyReader())
    prefix = b"\x00" + bytes(8)
    expected = set()
    for step in (1000, 3, 500, 1, 40):
        for number in range(step):
            key = prefix + (number * 7919 % 10_007 + step).to_bytes(4, "big")
            view.put(key, b"")
            expected.add(key)
        assert [key for key, _ in view.scan(prefix)] == sorted(expected)


def test_a_new_group_is_empty():
    reader = EmptyReader()
    assert (reader.version, reader.count, reader.size_bytes) == (-1, 0, 0)
    assert (reader.get(b"a"), reader.get_many([b"a", b"b"])) == (None, [None, None])
    assert not [*reader.scan(b""), *reader.entries()]
