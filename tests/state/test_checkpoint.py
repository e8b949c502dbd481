"""A checkpoint knows its query, its plans and its overrides, and refuses another query."""

from hashlib import sha256

import msgspec
import pyarrow.fs
import pytest

from equipoise import Plan, uniform_plan
from equipoise.errors import (
    AlreadyExistsError,
    DamagedError,
    InvalidArgumentError,
    LogBrokenError,
    MismatchError,
    StorageError,
    UnknownFormatError,
)
from equipoise.framing import seal
from equipoise.state import batch_log
from equipoise.state.checkpoint import KEPT_PLANS, Checkpoint, Identity, Overrides, new_name
from equipoise.state.group_table import GroupTable
from equipoise.storage import Storage
from equipoise.storage.file_systems import ArrowObjects, RenamingFiles
from equipoise.storage.local_disk import LocalDisk

IDENTITY = Identity(
    name="one", key=["k"], key_schema={"type": "struct", "fields": []}, tail_groups=64, time_mode="none", exclusive=True
)


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(Storage(str(tmp_path)))


def test_a_query_is_identified_once_and_keeps_its_name(checkpoint):
    assert checkpoint.identity() is None
    assert checkpoint.identify(IDENTITY) == IDENTITY
    again = msgspec.structs.replace(IDENTITY, name=new_name())
    assert checkpoint.identify(again) == IDENTITY == checkpoint.require()
    assert new_name() != new_name()


@pytest.mark.parametrize(
    ("field", "value"), [("key", ["other"]), ("key_schema", {}), ("tail_groups", 128), ("time_mode", "eventTime")]
)
def test_another_query_is_refused(checkpoint, field, value):
    checkpoint.identify(IDENTITY)
    with pytest.raises(MismatchError, match=rf"has {field} .* was given; .*or a new checkpoint"):
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


def test_a_store_that_replaces_what_it_should_create_is_refused_at_every_start(tmp_path):
    """As an S3-compatible store that does not know If-None-Match."""

    class Careless(LocalDisk):
        def upload(self, path, *, replace):  # noqa: ARG002 - it ignores the condition
            return super().upload(path, replace=True)

    storage = Storage(str(tmp_path), store=Careless())
    for _ in range(2):
        with pytest.raises(
            InvalidArgumentError, match=r"replaced a file .*If-None-Match.*; give a new folder on a store"
        ):
            Checkpoint(storage).identify(IDENTITY)
        assert storage.names("") == []
    by_epoch = msgspec.structs.replace(IDENTITY, exclusive=False)
    assert Checkpoint(storage).identify(by_epoch) == by_epoch


def test_overrides_are_kept(checkpoint):
    assert checkpoint.overrides() == Overrides()
    for overrides in (
        Overrides(pinned="a plan"),
        Overrides(pinned="hash", partitions=8),
        Overrides(partitions=2),
        Overrides(),
    ):
        checkpoint.override(overrides)
        assert checkpoint.overrides() == overrides


@pytest.mark.parametrize(("path", "read"), [("query", "identity"), ("overrides", "overrides")])
def test_damage_is_found_and_the_file_is_named(checkpoint, path, read):
    checkpoint.identify(IDENTITY)
    checkpoint.override(Overrides(pinned="a plan"))
    sound = checkpoint.storage.read(path)
    for at in range(len(sound)):
        checkpoint.storage.write(path, sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(DamagedError, match=rf"{checkpoint.storage.at(path)}: "):
            getattr(checkpoint, read)()
        checkpoint.storage.write(path, sound[:at])
        with pytest.raises(DamagedError, match=rf"{checkpoint.storage.at(path)}: "):
            getattr(checkpoint, read)()
    checkpoint.storage.write(path, seal(path, 1, {}))
    with pytest.raises(
        UnknownFormatError, match=r"format 1, this release reads format [23]; .*with that state as initialState"
    ):
        getattr(checkpoint, read)()
    checkpoint.storage.write(path, seal(path, 3 if path == "overrides" else 2, {"key": 1, "pinned": 1.5}))
    with pytest.raises(DamagedError, match=f"{path} is damaged.*restore it from a copy") as failure:
        getattr(checkpoint, read)()
    assert ("set the overrides again" in str(failure.value)) is (path == "overrides")


def test_plans_are_named_by_their_content(checkpoint):
    first, second = uniform_plan(2, 4), Plan(2, [1, 1, 0, 0])
    names = [checkpoint.keep_plan(plan) for plan in (first, second, first)]
    assert names[0] == names[2] != names[1]
    assert names[0] == f"0000000000-{sha256(first.to_json().encode()).hexdigest()}"
    assert [checkpoint.plan(name) for name in names] == [first, second, first]
    following = checkpoint.keep_plan(Plan(2, [1, 1, 0, 1], version=3))
    assert checkpoint.plan_names()[3] == following
    with pytest.raises(StorageError, match=r"has no plan of version 2; it has versions 0, 3"):
        checkpoint.plan_of_version(2)
    with pytest.raises(StorageError, match=r"which an override pins; .*rollback, plain_hash or unpin"):
        checkpoint.pinned_plan(f"0000000009-{'0' * 64}")


def test_a_stored_plan_is_never_replaced(tmp_path, hadoop_folder):
    """On HDFS a file that is replaced is deleted first, and a commit may name the plan."""

    class NeverReplaced(hadoop_folder):
        def between_delete_and_rename(self):
            raise AssertionError

    checkpoint, plan = Checkpoint(Storage("root", store=RenamingFiles(NeverReplaced(tmp_path)))), uniform_plan(2, 4)
    name = checkpoint.keep_plan(plan)
    assert checkpoint.keep_plan(plan) == name
    assert checkpoint.plan(name) == plan
    (tmp_path / "root" / "plans" / f"{name}.json").write_bytes(b"{}")
    with pytest.raises(DamagedError, match=f"{name}.*restore"):
        checkpoint.keep_plan(plan)


def test_of_two_plans_of_one_version_the_log_says_which_one_counts(hand):
    checkpoint = Checkpoint(hand.storage)
    names = sorted(checkpoint.keep_plan(plan) for plan in (uniform_plan(2, 4), Plan(2, [1, 1, 0, 0])))
    for used in names:
        hand.append(names.index(used), plan=used)
        assert checkpoint.plan_names() == {0: used}


@pytest.mark.parametrize("used", [0, 1])
def test_a_plan_that_no_batch_was_committed_with_does_not_count_however_old_its_version_is(hand, used):
    """The commit log has forgotten the batches of the plan; the batch log has not."""
    checkpoint, table = Checkpoint(hand.storage), GroupTable()
    names = sorted(checkpoint.keep_plan(plan) for plan in (uniform_plan(2, 4), Plan(2, [1, 1, 0, 0])))
    later = checkpoint.keep_plan(Plan(2, [0, 1, 1, 0], version=1))
    for version in range(16):
        table.advance(hand.append(version, plan=names[used] if version < 2 else later))
        if version and version % 5 == 0:
            oldest = hand.log.summarise(table, hand.epoch, version - 2)
            batch_log.write(hand.log, version)
            hand.log.forget_before(oldest)
    assert names[used] not in {commit.plan for commit in hand.log.kept()}
    assert checkpoint.plan_names() == {0: names[used], 1: later}


def test_another_plan_under_the_name_of_one_is_refused(checkpoint):
    names = [checkpoint.keep_plan(Plan(2, [1, 1, 0, place], version=place)) for place in (0, 1)]
    checkpoint.storage.write(f"plans/{names[0]}.json", checkpoint.storage.read(f"plans/{names[1]}.json"))
    with pytest.raises(
        DamagedError, match=rf"{names[0]}.json has the SHA-256 {names[1][11:]}, .*another plan; restore it"
    ):
        checkpoint.plan(names[0])


def test_a_commit_that_was_delivered_after_a_stop_is_remembered_and_no_other(hand):
    checkpoint = Checkpoint(hand.storage)
    commits = [hand.append(version, offsets=f"offsets {version}") for version in range(4)]
    assert not any(map(checkpoint.is_delivered, commits))
    checkpoint.mark_delivered(commits[2])
    assert [checkpoint.is_delivered(commit) for commit in commits] == [False, False, True, False]
    after_going_back = msgspec.structs.replace(commits[2], offsets="of other rows")
    assert not checkpoint.is_delivered(after_going_back)


def test_a_damaged_mark_of_a_delivery_says_what_deleting_it_would_do(hand):
    checkpoint = Checkpoint(hand.storage)
    commit = hand.append(0)
    hand.storage.write("delivered", b"rubbish")
    with pytest.raises(DamagedError, match=r"/delivered: .*or delete it: then the last batch may be delivered again"):
        checkpoint.is_delivered(commit)


def test_a_checkpoint_that_relies_on_create_if_absent_is_refused_on_a_store_without(checkpoint, tmp_path):
    checkpoint.identify(IDENTITY)
    below = pyarrow.fs.SubTreeFileSystem(str(tmp_path.parent), pyarrow.fs.LocalFileSystem())
    plain = Checkpoint(Storage(tmp_path.name, store=ArrowObjects(below)))
    with pytest.raises(
        MismatchError, match=r"can create a file only if it is absent, and this one cannot; access it in the same way"
    ):
        plain.identify(msgspec.structs.replace(IDENTITY, exclusive=False))


def test_old_plans_go_unless_somebody_needs_them(checkpoint):
    plan = uniform_plan(2, 4)
    for version in range(KEPT_PLANS + 5):
        name = checkpoint.keep_plan(Plan(2, plan.tail, version=version))
        assert checkpoint.plan_of_version(version).version == version
    names = checkpoint.plan_names()
    checkpoint.override(Overrides(pinned=names[3]))
    checkpoint.forget_plans({name, names[1]})
    assert sorted(checkpoint.plan_names()) == [1, 3, *range(5, KEPT_PLANS + 5)]


def test_a_lost_or_damaged_plan_is_named(checkpoint):
    gone = f"0000000009-{'0' * 64}"
    with pytest.raises(StorageError, match=rf"plans/{gone}\.json is not there"):
        checkpoint.plan(gone)
    for name in ("none", "../../query", f"../{gone}"):
        with pytest.raises(DamagedError, match="does not name a plan"):
            checkpoint.plan(name)
    name = checkpoint.keep_plan(uniform_plan(2, 4))
    path = f"plans/{name}.json"
    checkpoint.storage.write(path, checkpoint.storage.read(path).replace(b"0, 1", b"1, 0", 1))
    with pytest.raises(DamagedError, match=name):
        checkpoint.plan(name)


def test_a_file_that_must_be_new_is_not_overwritten(checkpoint):
    checkpoint.identify(IDENTITY)
    with pytest.raises(AlreadyExistsError):
        checkpoint.storage.create("query", b"")


def test_a_mistyped_path_is_called_one(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for name in ("missing", "file"):
        expected = rf"there is no query in {tmp_path}/{name}: the folder does not exist or is empty; .*check the path"
        with pytest.raises(InvalidArgumentError, match=expected):
            Checkpoint(Storage(str(tmp_path / name))).require()
    (tmp_path / "spark").mkdir()
    for name in ("offsets", "commits", "metadata", "sources", "state", "x"):
        (tmp_path / "spark" / name).mkdir()
    with pytest.raises(InvalidArgumentError, match=r"contains commits, metadata, .*, \.\.\., but no file 'query'"):
        Checkpoint(Storage(str(tmp_path / "spark"))).require()


def test_a_lost_identity_is_not_taken_for_a_mistyped_path(hand):
    hand.append(0)
    with pytest.raises(LogBrokenError, match=r"query is missing, but .*log exists; restore the file from a copy"):
        Checkpoint(hand.storage).require()
