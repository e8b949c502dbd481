"""A compaction changes nothing but the space: whatever fails in it, and whoever comes in between."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import CheckpointInUseError, FencedError, InvalidArgumentError, StorageError
from equipoise.state import fencing
from equipoise.state.checkpoint import Checkpoint, Identity
from equipoise.state.compaction import COMPACTED, compact
from equipoise.state.fencing import claim
from equipoise.state.garbage import GarbageCollector
from equipoise.state.group_table import GroupTable
from equipoise.state.log import CommitLog
from equipoise.state.section_reader import SectionReader
from equipoise.state.state_dump import group_entries
from equipoise.storage import Storage

GROUPS = ["t00000", "t00001", "t00002", "k0000000000000001"]
keys = st.sampled_from([b"a", b"b", b"c"])
steps = st.lists(
    st.fixed_dictionaries(
        {
            "changes": st.dictionaries(
                st.sampled_from(GROUPS), st.dictionaries(keys, st.none() | st.binary(max_size=3)), max_size=3
            ),
            "reset": st.sets(st.sampled_from(GROUPS)),
            "snapshots": st.sets(st.sampled_from(GROUPS)),
            "dropped": st.sets(st.sampled_from(GROUPS[-1:])),
            "summary": st.booleans(),
        }
    ),
    min_size=1,
    max_size=8,
)


def entries(storage):
    """All entries of the last version, as the log says."""
    log = CommitLog(storage)
    table, sections = log.table(log.head()), SectionReader(storage)
    return {group: group_entries(chain, sections) for group, chain in table.chains.items()}


def identify(hand):
    Checkpoint(hand.storage).identify(
        Identity(name="q", key=["k"], key_schema={}, tail_groups=3, time_mode="none", exclusive=hand.epoch.exclusive)
    )


def play(hand, table, step):
    """One version, made by hand; snapshots hold what their groups hold."""
    sections = SectionReader(hand.storage)
    version = table.version + 1
    dropped = sorted(group for group in step["dropped"] if group in table.chains)
    changes = {group: sorted(each.items()) for group, each in step["changes"].items() if group not in dropped}
    changed = hand.file(version, changes, reset=step["reset"]) if changes else {}
    wanted = sorted(group for group in step["snapshots"] if group in table.chains)
    held = {group: sorted(group_entries(table.chains[group], sections).items()) for group in wanted}
    made = hand.file(version, held, folder="snapshots") if held else {}
    snapshots = {group: hand.snapshot(table, group, section) for group, section in made.items()}
    table.advance(hand.append(version, changed, snapshots, dropped))
    if step["summary"]:
        hand.log.summarise(table, hand.epoch)


def files(storage):
    root = Path(storage.location)
    return {str(path.relative_to(root)) for name in ("changes", "snapshots") for path in root.glob(f"{name}/*/*")}


class Failing(Storage):
    """Fails when it is asked for the n-th change."""

    left = 10**9

    def _count(self):
        Failing.left -= 1
        if Failing.left < 0:
            raise StorageError("the disk is full")

    def writing(self, path, **options):
        self._count()
        return super().writing(path, **options)

    def delete(self, path):
        self._count()
        super().delete(path)

    def delete_folder(self, folder):
        self._count()
        super().delete_folder(folder)


@settings(max_examples=20)
@given(steps, steps)
def test_the_state_is_the_same_and_only_its_files_are_left(make_hand, protocol, first, second):
    with tempfile.TemporaryDirectory() as folder:
        for story in (first, second):
            hand = make_hand(folder, protocol)
            identify(hand)
            table = hand.log.table(hand.log.head()) if hand.log.head() >= 0 else GroupTable()
            for step in story:
                play(hand, table, step)
            hand.epoch.release()
            known = entries(hand.storage)
            done = compact(hand.storage)
            assert done.version == table.version
            assert entries(hand.storage) == known
            kept = hand.log.table(hand.log.head())
            assert files(hand.storage) == kept.files()
            assert all(not chain.changes for chain in kept.chains.values())
            again = compact(hand.storage)
            assert again.folded == 0
            assert entries(hand.storage) == known


@settings(max_examples=6)
@given(steps)
def test_a_failure_at_any_step_loses_nothing(make_hand, protocol, story):
    with tempfile.TemporaryDirectory() as folder:
        hand = make_hand(folder, protocol)
        identify(hand)
        table = GroupTable()
        for step in story:
            play(hand, table, step)
        hand.epoch.release()
        known = entries(hand.storage)
        for allowed in range(200):
            Failing.left = allowed
            try:
                compact(Failing(folder, hand.storage._given))
            except StorageError:
                Failing.left = 10**9
                for name in hand.storage.names("epochs"):  # as when the process is gone
                    hand.storage.write(f"epochs/{name}.released", b"")
                assert entries(hand.storage) == known
            else:
                break
        Failing.left = 10**9
        compact(hand.storage)
        assert entries(hand.storage) == known
        assert files(hand.storage) == hand.log.table(hand.log.head()).files()


STORY = [
    {
        "changes": {"t00000": {b"a": bytes([n]), b"c": None if n % 2 else b"c"}, "t00001": {b"b": bytes([n])}},
        "reset": set(),
        "snapshots": {"t00001"} if n == 2 else set(),
        "dropped": set(),
        "summary": False,
    }
    for n in range(6)
]


@pytest.fixture
def played(hand):
    identify(hand)
    table = GroupTable()
    for step in STORY:
        play(hand, table, step)
    return hand


def test_a_query_that_runs_is_left_alone(played):
    with pytest.raises(CheckpointInUseError, match="stop it first"):
        compact(played.storage)
    played.epoch.check()
    played.epoch.release()
    compact(played.storage)


def test_a_query_of_another_machine_is_taken_over_only_if_asked_to(played, monkeypatch):
    monkeypatch.setattr(fencing, "_machine", lambda: "elsewhere 1")
    with pytest.raises(CheckpointInUseError, match="has not recorded its end"):
        compact(played.storage)
    played.epoch.check()
    known = entries(played.storage)
    compact(played.storage, take_over=True)
    assert entries(played.storage) == known
    with pytest.raises(FencedError):
        played.epoch.check()


def test_a_query_that_comes_while_snapshots_are_written_goes_on(played):
    played.epoch.release()
    known, before = entries(played.storage), files(played.storage)
    claimed = []

    def progress(_done, _all):
        if not claimed:
            claimed.append(claim(played.storage, lambda _owner: False))

    with pytest.raises(FencedError):
        compact(played.storage, progress=progress)
    claimed[0].check()
    assert before <= files(played.storage)
    assert entries(played.storage) == known


def test_a_query_that_read_the_log_just_before_the_summary_and_the_one_after_it_find_the_same(played, monkeypatch):
    """The second query sweeps and deletes by a table that knows nothing of the compaction; the third reads it."""
    played.epoch.release()
    known = entries(played.storage)
    second = []
    summarise = CommitLog.summarise

    def claimed_before(log, table, epoch):
        if not second:
            second.append(claim(log.storage, lambda _owner: False))
            second.append(log.table(log.head()))
            log.adopt(second[0])
        summarise(log, table, epoch)

    monkeypatch.setattr(CommitLog, "summarise", claimed_before)
    with pytest.raises(FencedError):
        compact(played.storage)
    played.epoch, table = second
    assert any(chain.changes for chain in table.chains.values())
    garbage = GarbageCollector(played.epoch, 1)
    garbage.sweep(played.log, table)
    for step in STORY[:4]:
        play(played, table, {**step, "changes": {"t00000": step["changes"]["t00000"]}})
        garbage.collect(table)
    found = entries(played.storage)
    assert found["t00001"] == known["t00001"]
    assert found["t00000"][b"a"] == bytes([3])


def test_what_killed_compactions_left_goes_with_the_next(played):
    played.epoch.release()
    left, later = f"{COMPACTED}/{played.epoch.number:010d}-left", f"{COMPACTED}/{played.epoch.number + 2:010d}-later"
    played.storage.write(left, b"of a compaction that was killed")
    played.storage.write(later, b"of one that has taken over while this one was paused")
    compact(played.storage)
    assert left not in files(played.storage)
    assert later in files(played.storage)


def test_sizes_are_reported(played):
    played.epoch.release()
    done = compact(played.storage)
    assert (done.version, done.groups, done.folded) == (5, 2, 2)
    assert done.before["changes"] > 0 == done.after["changes"]
    assert done.after["snapshots"] > 0


def test_a_folder_without_a_query_and_a_query_without_versions(tmp_path, make_hand):
    with pytest.raises(InvalidArgumentError, match="there is no query"):
        compact(Storage(str(tmp_path / "nothing")))
    hand = make_hand(tmp_path / "new")
    identify(hand)
    hand.epoch.release()
    assert compact(hand.storage).version == -1
