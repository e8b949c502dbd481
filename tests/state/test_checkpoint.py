"""A checkpoint knows its query, its plans and its wishes, and refuses another query."""

import msgspec
import pytest

from equipoise import Plan, uniform_plan
from equipoise.errors import AlreadyThere, Damaged, LogBroken, Mismatch, StorageFailed, UnknownFormat
from equipoise.framing import seal
from equipoise.state.checkpoint import KEPT_PLANS, Checkpoint, Identity, Wishes, new_name
from equipoise.storage import Storage

IDENTITY = Identity(
    name="one", key=["k"], key_schema={"type": "struct", "fields": []}, tail_groups=64, time_mode="none"
)


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(Storage(str(tmp_path)))


def test_a_query_is_identified_once_and_keeps_its_name(checkpoint):
    assert checkpoint.identity() is None
    with pytest.raises(LogBroken, match="there is no query in"):
        checkpoint.require()
    assert checkpoint.identify(IDENTITY) == IDENTITY
    again = msgspec.structs.replace(IDENTITY, name=new_name())
    assert checkpoint.identify(again) == IDENTITY == checkpoint.require()
    assert new_name() != new_name()


@pytest.mark.parametrize(
    ("field", "value"), [("key", ["other"]), ("key_schema", {}), ("tail_groups", 128), ("time_mode", "eventTime")]
)
def test_another_query_is_refused(checkpoint, field, value):
    checkpoint.identify(IDENTITY)
    with pytest.raises(Mismatch, match=rf"has {field} .* was given; .*or a new checkpoint"):
        checkpoint.identify(msgspec.structs.replace(IDENTITY, **{field: value}))


def test_two_that_identify_at_once_are_one_query(checkpoint, monkeypatch):
    first = msgspec.structs.replace(IDENTITY, name="first")
    create = Storage.create

    def late(self, path, data):
        monkeypatch.setattr(Storage, "create", create)
        Checkpoint(self).identify(first)
        create(self, path, data)

    monkeypatch.setattr(Storage, "create", late)
    assert checkpoint.identify(IDENTITY) == first


def test_wishes_are_kept(checkpoint):
    assert checkpoint.wishes() == Wishes()
    for wishes in (Wishes(hold=3), Wishes(hold="hash", partitions=8), Wishes(partitions=2), Wishes()):
        checkpoint.wish(wishes)
        assert checkpoint.wishes() == wishes


@pytest.mark.parametrize(("path", "read"), [("query", "identity"), ("wishes", "wishes")])
def test_damage_is_found_and_the_file_is_named(checkpoint, path, read):
    checkpoint.identify(IDENTITY)
    checkpoint.wish(Wishes(hold=3))
    sound = checkpoint.storage.read(path)
    for at in range(len(sound)):
        checkpoint.storage.write(path, sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(Damaged, match=rf"{checkpoint.storage.at(path)}: "):
            getattr(checkpoint, read)()
        checkpoint.storage.write(path, sound[:at])
        with pytest.raises(Damaged, match=rf"{checkpoint.storage.at(path)}: "):
            getattr(checkpoint, read)()
    checkpoint.storage.write(path, seal(path, 2, {}))
    with pytest.raises(UnknownFormat, match="format 2"):
        getattr(checkpoint, read)()
    checkpoint.storage.write(path, seal(path, 1, {"key": 1, "hold": 1.5}))
    with pytest.raises(Damaged, match=f"{path} is damaged.*restore it from a copy") as failure:
        getattr(checkpoint, read)()
    assert ("delete it and wish again" in str(failure.value)) is (path == "wishes")


def test_plans_are_found_by_name_and_the_last_query_has_the_last_word(checkpoint):
    plan = uniform_plan(2, 4)
    assert checkpoint.plan(checkpoint.keep_plan(plan, 1)) == plan
    late = Plan(2, [1, 1, 0, 0])
    name = checkpoint.keep_plan(late, 2)
    following = Plan(2, [1, 1, 0, 1], version=3)
    checkpoint.keep_plan(following, 1)
    assert checkpoint.plan_names() == {0: name, 3: "0000000003-0000000001"}
    assert checkpoint.plan(name) == checkpoint.plan_of_version(0) == late
    with pytest.raises(StorageFailed, match=r"has no plan 2.*rollback, plain_hash or unpin"):
        checkpoint.plan_of_version(2)


def test_old_plans_go_unless_somebody_needs_them(checkpoint):
    plan = uniform_plan(2, 4)
    for version in range(KEPT_PLANS + 5):
        name = checkpoint.keep_plan(Plan(2, plan.tail, version=version), 1)
        assert checkpoint.plan_of_version(version).version == version
    checkpoint.wish(Wishes(hold=3))
    checkpoint.forget_plans({name, "0000000001-0000000001"})
    assert sorted(checkpoint.plan_names()) == [1, 3, *range(5, KEPT_PLANS + 5)]


def test_a_lost_or_damaged_plan_is_named(checkpoint):
    with pytest.raises(StorageFailed, match=r"plans/none\.json is not there"):
        checkpoint.plan("none")
    name = checkpoint.keep_plan(uniform_plan(2, 4), 1)
    path = f"plans/{name}.json"
    checkpoint.storage.write(path, checkpoint.storage.read(path).replace(b"0, 1", b"1, 0", 1))
    with pytest.raises(Damaged, match=name):
        checkpoint.plan(name)


def test_a_file_that_must_be_new_is_not_overwritten(checkpoint):
    checkpoint.identify(IDENTITY)
    with pytest.raises(AlreadyThere):
        checkpoint.storage.create("query", b"")
