"""The log gives back what was committed, refuses what is damaged, and keeps what is needed."""

import tempfile

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import AlreadyThere, Damaged, Fenced, LogBroken, UnknownFormat
from equipoise.framing import seal
from equipoise.state.fencing import claim
from equipoise.state.log import CommitLog, GroupTable, OutputFile, Snapshot

GROUPS = ["t00000", "t00001", "kff00000000000000"]
steps = st.lists(
    st.fixed_dictionaries(
        {
            "changed": st.sets(st.sampled_from(GROUPS)),
            "reset": st.sets(st.sampled_from(GROUPS)),
            "snapshots": st.sets(st.sampled_from(GROUPS)),
            "dropped": st.sets(st.sampled_from(GROUPS)),
            "summary": st.booleans(),
        }
    ),
    max_size=12,
)


def play(hand, table, step):
    """One commit after ``step``, as far as it makes sense at ``table``."""
    dropped = {group for group in step["dropped"] if group in table.chains}
    changed = step["changed"] - dropped
    return hand.batch(
        table,
        {group: [(b"\x00", b"1")] for group in sorted(changed)},
        reset=step["reset"] & changed,
        snapshots=sorted(group for group in step["snapshots"] - dropped if group in table.chains),
        dropped=sorted(dropped),
    )


def test_a_commit_comes_back_as_it_was(hand):
    sections = hand.file(1, {"t00000": [(b"a", b"1")]})
    commit = hand.append(
        0, sections, {"t00000": Snapshot(0, sections["t00000"])}, ["k1"], outputs=[OutputFile("outputs/1", 3, 4, 5)]
    )
    assert hand.log.read(0) == commit
    assert (hand.log.head(), hand.log.oldest(), commit.batch) == (0, 0, -1)
    assert list(hand.log.kept()) == [commit]


def test_an_empty_log_has_no_version(hand):
    assert (hand.log.head(), hand.log.oldest(), hand.log.last_epoch()) == (-1, -1, 0)
    with pytest.raises(LogBroken, match=r"no record of version 0 \(it is empty\)"):
        hand.log.read(0)


def test_a_version_is_committed_once(hand):
    hand.append(0)
    with pytest.raises(AlreadyThere):
        hand.append(0)


@pytest.mark.parametrize("kind", ["commit", "summary"])
def test_any_damage_is_found_and_the_file_is_named(hand, kind):
    hand.append(0, hand.file(0, {"t00000": [(b"a", b"1")]}))
    hand.log.summarise(hand.log.table(0), hand.epoch)
    [name] = [name for name in hand.storage.names("log") if name.endswith(kind)]
    path = f"log/{name}"
    sound = hand.storage.read(path)
    for end in range(len(sound)):
        hand.storage.write(path, sound[:end])
        with pytest.raises(Damaged, match=name):
            hand.log.read(0) if kind == "commit" else hand.log.table(0)
    for at in range(len(sound)):
        hand.storage.write(path, sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(Damaged, match=name):
            hand.log.read(0) if kind == "commit" else hand.log.table(0)
    hand.storage.write(path, sound)
    assert hand.log.table(0).chains


@pytest.mark.parametrize("kind", ["commit", "summary"])
def test_a_newer_format_and_another_shape_are_refused(hand, kind):
    commit = hand.append(0)
    hand.log.summarise(hand.log.table(0), hand.epoch)
    [name] = [name for name in hand.storage.names("log") if name.endswith(kind)]

    def read():
        return hand.log.read(0) if kind == "commit" else hand.log.table(0)

    hand.storage.write(f"log/{name}", seal(kind, 2, msgspec.to_builtins(commit)))
    with pytest.raises(UnknownFormat, match=f"{name}.*format 2"):
        read()
    hand.storage.write(f"log/{name}", seal(kind, 1, {"version": "one"}))
    with pytest.raises(Damaged, match=f"{name} is not a {kind}.*restore it from a copy"):
        read()


def test_a_gap_is_named(hand):
    for version in range(4):
        hand.append(version)
    hand.storage.delete(f"log/{2:020d}-{hand.epoch.number:010d}.commit")
    for read in (lambda: hand.log.table(3), lambda: list(hand.log.commits(0, 3)), lambda: hand.log.read(2)):
        with pytest.raises(LogBroken, match=r"no record of version 2 \(versions 0 to 3 are there\)"):
            read()
    assert hand.log.table(1).version == 1
    with pytest.raises(LogBroken, match="commit 3 does not follow version 1"):
        hand.log.table(1).advance(hand.commit(3))


def test_of_several_records_the_highest_epoch_counts(hand):
    hand.append(0)
    late, hand.epoch = hand.epoch, claim(hand.storage, lambda _: False)
    hand.append(1, measures={"rows": 2})
    with pytest.raises(Fenced):
        hand.log.append(hand.commit(1, epoch=late.number, measures={"rows": 1}), late)
    assert hand.log.read(1).measures == {"rows": 2}
    assert [commit.measures["rows"] for commit in hand.log.kept()] == [3, 2]
    assert (hand.log.head(), hand.log.last_epoch()) == (1, 2)


def test_a_record_that_was_gone_on_from_counts_whatever_comes_late(hand):
    first = hand.epoch
    hand.append(0)
    second = claim(hand.storage, lambda _: False)
    with pytest.raises(Fenced):
        hand.log.append(hand.commit(1, measures={"rows": 1}), first)
    third = claim(hand.storage, lambda _: False)
    adopted = hand.log.adopt(third)
    assert (adopted.version, adopted.epoch, adopted.measures) == (1, third.number, {"rows": 1})
    with pytest.raises(Fenced):
        hand.log.append(hand.commit(1, epoch=second.number, measures={"rows": 2}), second)
    assert hand.log.read(1) == adopted == hand.log.adopt(third)


@settings(deadline=None, max_examples=50)
@given(steps)
def test_a_table_from_a_summary_is_the_table_from_all_records(make_hand, story):
    with tempfile.TemporaryDirectory() as folder:
        hand = make_hand(folder)
        table = GroupTable()
        for step in story:
            idle_before = table.files()
            commit = play(hand, table, step)
            idle = table.advance(commit)
            new = {section.path for section in commit.sections.values()}
            new |= {snapshot.section.path for snapshot in commit.snapshots.values()}
            assert table.files() == {path for chain in table.chains.values() for path in chain.files()}
            assert idle == (idle_before | new) - table.files()
            if step["summary"]:
                hand.log.summarise(table, hand.epoch)
        if not story:
            return
        read = CommitLog(hand.storage).table(table.version)
        assert (read.version, read.chains, read.files()) == (table.version, table.chains, table.files())
        for name in hand.storage.names("log"):
            if name.endswith("summary"):
                hand.storage.delete(f"log/{name}")
        assert hand.log.table(table.version).chains == table.chains


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 25), st.sets(st.integers(0, 25)), st.integers(-3, 25))
def test_forgetting_keeps_what_later_versions_need(make_hand, head, summaries, wanted):
    with tempfile.TemporaryDirectory() as folder:
        hand = make_hand(folder)
        table, tables = GroupTable(), []
        for version in range(head + 1):
            table.advance(hand.append(version, hand.file(version, {"t00000": [(b"a", b"1")]})))
            tables.append([change.version for change in table.chains["t00000"].changes])
            if version in summaries:
                hand.log.summarise(table, hand.epoch)
        hand.log.forget_before(wanted)
        for version in range(max(0, wanted), head + 1):
            found = hand.log.table(version)
            assert [change.version for change in found.chains["t00000"].changes] == tables[version]
            assert hand.log.read(version).version == version
        oldest = hand.log.oldest()
        assert [commit.version for commit in hand.log.commits(oldest, head)] == list(range(oldest, head + 1))
        assert hand.log.table(oldest).version == oldest
        bases = [number for number in summaries if number <= min(wanted, head)]
        assert oldest >= (max(bases) if bases else 0)
