"""The log gives back what was committed, refuses what is damaged, and keeps what is needed."""

import re
import tempfile
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import failpoints
from equipoise.errors import DamagedError, FencedError, LogBrokenError, StorageError, UnknownFormatError
from equipoise.framing import seal
from equipoise.state.commit import Change, GroupSnapshot, OutputFile
from equipoise.state.fencing import claim
from equipoise.state.garbage import GarbageCollector
from equipoise.state.group_table import Chain, GroupTable
from equipoise.state.log import CommitLog
from equipoise.storage import Storage, StoredFile

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
        0,
        sections,
        {"t00000": GroupSnapshot(0, sections["t00000"])},
        ["k1"],
        outputs=[OutputFile("outputs/1/a.parquet", 3, "4", 5)],
    )
    assert hand.log.read(0) == commit
    assert (hand.log.head(), hand.log.oldest(), commit.batch) == (0, 0, -1)
    assert list(hand.log.kept()) == [commit]


def test_an_empty_log_has_no_version(hand):
    assert (hand.log.head(), hand.log.oldest(), hand.log.last_epoch()) == (-1, -1, 0)
    with pytest.raises(LogBrokenError, match=r"no record of version 0 \(it is empty\)"):
        hand.log.read(0)


@pytest.mark.parametrize("protocol", ["exclusive"], indirect=True)
def test_a_version_is_committed_once_and_the_first_record_counts(hand):
    first = hand.append(0, measures={"rows": 1})
    late = hand.commit(0, measures={"rows": 2})
    assert hand.log.append(late, hand.epoch) == first == hand.log.read(0)
    assert hand.storage.names("log") == [f"{0:020d}.commit"]


@pytest.mark.parametrize("protocol", ["exclusive"], indirect=True)
def test_of_eight_that_commit_a_version_at_once_all_go_on_from_one_record(hand):
    """Records of one version differ in what was measured, as those of two drivers do."""
    with ThreadPoolExecutor(8) as pool:
        for version in range(50):
            made = [hand.commit(version, measures={"rows": place}) for place in range(8)]
            counted = list(pool.map(lambda each: hand.log.append(each, hand.epoch), made))
            assert [hand.log.read(version)] * 8 == counted


def append_late(log, commit, epoch, then=lambda _: None):
    """Append as a query that hangs between its check and its record; gives the epoch that takes over meanwhile."""
    claimed = []

    def take_over(point):
        if point == "storage.before-name":
            failpoints.watchers.remove(take_over)
            claimed.append(claim(log.storage, lambda _: False))
            then(claimed[0])

    failpoints.watchers.append(take_over)
    with pytest.raises(FencedError):
        log.append(commit, epoch)
    return claimed[0]


def test_a_query_that_knows_that_it_was_taken_over_writes_no_record(hand):
    hand.append(0)
    claim(hand.storage, lambda _: False)
    with pytest.raises(FencedError):
        hand.append(1)
    assert hand.log.head() == 0


def test_a_query_that_hung_while_a_copy_was_restored_writes_no_record(hand):
    hand.append(0)
    hand.storage.delete(f"epochs/{hand.epoch.name}")
    with pytest.raises(StorageError, match="has lost the claim"):
        hand.append(5)
    assert hand.log.head() == 0


@pytest.mark.parametrize("protocol", ["exclusive"], indirect=True)
def test_the_record_of_a_query_that_was_taken_over_counts_if_it_came_first(hand):
    hand.append(0)
    first = hand.epoch
    second = append_late(hand.log, hand.commit(1, measures={"rows": 1}), first)
    counted = hand.log.append(hand.commit(1, epoch=second.number, measures={"rows": 2}), second)
    assert (counted.epoch, counted.measures) == (first.number, {"rows": 1})
    assert hand.log.read(1) == counted == hand.log.adopt(second)
    with pytest.raises(FencedError):  # too late: the version is there
        hand.log.append(hand.commit(1, measures={"rows": 3}), first)
    assert hand.log.read(1) == counted


@pytest.mark.parametrize("protocol", ["by epoch"], indirect=True)
def test_an_epoch_commits_a_version_once(hand):
    first = hand.append(0, measures={"rows": 1})
    assert hand.log.append(hand.commit(0, measures={"rows": 2}), hand.epoch) == first
    assert hand.storage.names("log") == [f"{0:020d}-{1:010d}.commit"]


@pytest.mark.parametrize("kind", ["commit", "summary"])
def test_any_damage_is_found_and_the_file_is_named(hand, kind):
    hand.append(0, hand.file(0, {"t00000": [(b"a", b"1")]}))
    hand.log.summarise(hand.log.table(0), hand.epoch)
    [name] = [name for name in hand.storage.names("log") if name.endswith(kind)]
    path = f"log/{name}"
    sound = hand.storage.read(path)
    for end in range(len(sound)):
        hand.storage.write(path, sound[:end])
        with pytest.raises(DamagedError, match=name):
            hand.log.read(0) if kind == "commit" else hand.log.table(0)
    for at in range(len(sound)):
        hand.storage.write(path, sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(DamagedError, match=name):
            hand.log.read(0) if kind == "commit" else hand.log.table(0)
    hand.storage.write(path, sound)
    assert hand.log.table(0).chains


@pytest.mark.parametrize("kind", ["commit", "summary"])
def test_another_format_and_another_shape_are_refused(hand, kind):
    commit = hand.append(0)
    hand.log.summarise(hand.log.table(0), hand.epoch)
    [name] = [name for name in hand.storage.names("log") if name.endswith(kind)]

    def read():
        return hand.log.read(0) if kind == "commit" else hand.log.table(0)

    hand.storage.write(f"log/{name}", seal(kind, 2, msgspec.to_builtins(commit)))
    with pytest.raises(UnknownFormatError, match=f"{name}.*format 2, this release reads format 4") as refused:
        read()
    assert str(refused.value).endswith(
        "read it with the release that wrote it. To continue with this release, read the state with the other one "
        "(read_state), start a new checkpoint with that state as initialState, and let the source start after the last "
        "batch"
    )
    hand.storage.write(f"log/{name}", seal(kind, 4, {"version": "one"}))
    with pytest.raises(DamagedError, match=f"{name} is not a {kind}.*restore it from a copy"):
        read()


def test_a_gap_is_named(hand):
    for version in range(4):
        hand.append(version)
    [gap] = [name for name in hand.storage.names("log") if name.startswith(f"{2:020d}")]
    hand.storage.delete(f"log/{gap}")
    for read in (lambda: hand.log.table(3), lambda: list(hand.log.commits(0, 3)), lambda: hand.log.read(2)):
        with pytest.raises(LogBrokenError, match=r"no record of version 2 \(it has versions 0 to 3\)"):
            read()
    assert hand.log.table(1).version == 1
    with pytest.raises(LogBrokenError, match="commit 3 does not follow version 1"):
        hand.log.table(1).advance(hand.commit(3))


def test_a_late_record_of_a_lower_epoch_never_counts(hand):
    hand.append(0)
    late, hand.epoch = hand.epoch, claim(hand.storage, lambda _: False)
    hand.append(1, measures={"rows": 2})
    with pytest.raises(FencedError):
        hand.log.append(hand.commit(1, epoch=late.number, measures={"rows": 1}), late)
    assert hand.log.read(1).measures == {"rows": 2}
    assert [commit.measures["rows"] for commit in hand.log.kept()] == [3, 2]
    assert (hand.log.head(), hand.log.last_epoch()) == (1, 2)


@pytest.mark.parametrize("protocol", ["by epoch"], indirect=True)
def test_a_record_that_was_gone_on_from_counts_whatever_comes_late(hand):
    first = hand.epoch
    hand.append(0)
    second = append_late(hand.log, hand.commit(1, measures={"rows": 1}), first)
    adopted = []
    late = hand.commit(1, epoch=second.number, measures={"rows": 2})
    third = append_late(hand.log, late, second, then=lambda claimed: adopted.append(hand.log.adopt(claimed)))
    assert (adopted[0].version, adopted[0].epoch, adopted[0].measures) == (1, third.number, {"rows": 1})
    assert len(hand.storage.names("log")) == 4, "that of version 0, and three of version 1"
    assert hand.log.read(1) == adopted[0] == hand.log.adopt(third)


@pytest.mark.parametrize("protocol", ["exclusive"], indirect=True)
def test_a_record_that_another_query_wrote_is_synced_before_anything_relies_on_it(hand, monkeypatch):
    synced = []
    monkeypatch.setattr(Storage, "sync", lambda self, path, real=Storage.sync: (real(self, path), synced.append(path)))
    hand.append(0)
    assert synced == [], "an upload is synced by itself"
    second = append_late(hand.log, hand.commit(1, measures={"rows": 1}), hand.epoch)
    hand.log.append(hand.commit(1, epoch=second.number), second)
    assert synced == [f"log/{1:020d}.commit"]
    hand.log.adopt(second)
    assert synced == [f"log/{1:020d}.commit"] * 2


ABSURD = [{"length": 1 << 44}, {"length": 2**63}, {"length": 27}, {"length": -1}, {"offset": -5}, {"offset": 1 << 50}]


@pytest.mark.parametrize("wrong", ABSURD, ids=str)
@pytest.mark.parametrize("kind", ["commit", "summary"])
def test_a_section_outside_of_its_file_is_damage_of_its_record(hand, kind, wrong):
    sections = hand.file(0, {"t00000": [(b"a", b"1")]})
    sound = sections["t00000"]
    bad = msgspec.structs.replace(sound, **wrong)
    commit = hand.append(0, {"t00000": bad if kind == "commit" else sound})
    if kind == "summary":
        hand.log.summarise(GroupTable(0, {"t00000": Chain(None, [Change(0, bad)])}, commit.files), hand.epoch)
    with pytest.raises(DamagedError, match=rf"{kind} has a section .*{bad.length} bytes.*; restore it from a copy"):
        hand.log.table(0)


def test_a_section_in_a_file_that_its_record_does_not_name_is_damage(hand):
    hand.append(0, hand.file(0, {"t00000": [(b"a", b"1")]}), files=[])
    with pytest.raises(
        DamagedError, match=r"commit has a section .*, which it does not list with a SHA-256; restore it"
    ):
        hand.log.table(0)


@pytest.mark.parametrize(("group", "version"), [("t99999", 0), ("t00000", 7)])
def test_a_snapshot_of_what_is_not_there_is_damage(hand, group, version):
    hand.append(0, hand.file(0, {"t00000": [(b"a", b"1")]}))
    section = hand.file(1, {group: [(b"a", b"1")]}, folder="snapshots")[group]
    hand.append(1, snapshots={group: GroupSnapshot(version, section)})
    said = rf"commit 1 has a snapshot of the key group '{group}' at version {version}, .*; restore the log from a copy"
    with pytest.raises(DamagedError, match=said):
        hand.log.table(1)


OUTSIDE = ["../victim.txt", "changes/../../victim.txt", "/victim.txt", "changes//x", "", "changes/1/..", "log/1/x"]
VICTIM = b"not of the checkpoint"


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("kind", ["section", "snapshot", "file", "output", "summary", "file of a summary"])
def test_a_record_that_names_a_file_outside_is_refused_and_nothing_outside_is_deleted(hand, tmp_path, kind, path):
    (tmp_path / "victim.txt").write_bytes(VICTIM)
    sections = hand.file(0, {"t00000": [(b"a", b"1")]})
    outside = {"t00000": msgspec.structs.replace(sections["t00000"], path=path)}
    bad_file = [StoredFile(path, 1, "0")]
    fields = {
        "section": {"sections": outside},
        "snapshot": {"snapshots": {"t00000": GroupSnapshot(0, outside["t00000"])}},
        "file": {"files": bad_file},
        "output": {"outputs": [OutputFile(path, 1, "0", 1)]},
    }
    hand.append(0, **fields.get(kind, {}))
    if kind not in fields:
        used = outside if kind == "summary" else sections
        chains = {"t00000": Chain(None, [Change(0, used["t00000"])])}
        body = msgspec.to_builtins([0, chains, [] if kind == "summary" else bad_file], builtin_types=(bytes,))
        hand.storage.write(f"log/{0:020d}-{1:010d}-{0:020d}.summary", seal("summary", 4, body))
    name = max(hand.storage.names("log"), key=lambda each: each.endswith("summary"))
    hand.append(1)
    for use in (lambda: hand.log.table(1), lambda: GarbageCollector(hand.epoch, 1).sweep(hand.log, GroupTable(1))):
        with pytest.raises(
            DamagedError, match=rf"{name} names the file '{re.escape(path)}', .*; restore it from a copy"
        ):
            use()
    assert (tmp_path / "victim.txt").read_bytes() == VICTIM


@pytest.mark.parametrize("kind", ["commit", "summary"])
def test_a_record_under_the_name_of_another_version_is_refused(hand, kind):
    for version in range(3):
        hand.append(version)
        hand.log.summarise(hand.log.table(version), hand.epoch)
    older, newer = (name for name in hand.storage.names("log")[-4:] if name.endswith(kind))
    hand.storage.write(f"log/{newer}", hand.storage.read(f"log/{older}"))
    with pytest.raises(DamagedError, match=rf"{newer} holds the record of version 1, .*; restore it from a copy"):
        hand.log.read(2) if kind == "commit" else hand.log.table(2)


@settings(max_examples=50)
@given(steps)
def test_a_table_from_a_summary_is_the_table_from_all_records(make_hand, protocol, story):
    with tempfile.TemporaryDirectory() as folder:
        hand = make_hand(folder, protocol)
        table = GroupTable()
        for step in story:
            idle_before = table.files()
            commit = play(hand, table, step)
            idle = table.advance(commit)
            new = {section.path for section in commit.sections.values()}
            new |= {snapshot.section.path for snapshot in commit.snapshots.values()}
            assert table.files() == {path for chain in table.chains.values() for path in chain.files()}
            assert idle == (idle_before | new) - table.files()
            assert table.changed_bytes == {group: chain.changed_bytes for group, chain in table.chains.items()}
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


@settings(max_examples=40)
@given(st.integers(1, 25), st.sets(st.integers(0, 25)), st.integers(-3, 25))
def test_forgetting_keeps_what_later_versions_need(make_hand, protocol, head, summaries, wanted):
    with tempfile.TemporaryDirectory() as folder:
        hand = make_hand(folder, protocol)
        table, tables = GroupTable(), []
        for version in range(head + 1):
            table.advance(hand.append(version, hand.file(version, {"t00000": [(b"a", b"1")]})))
            tables.append([change.version for change in table.chains["t00000"].changes])
            if version in summaries:
                hand.log.summarise(table, hand.epoch)
        if head in summaries:
            hand.log.forget_before(hand.log.summarise(table, hand.epoch, wanted))
        for version in range(max(0, wanted), head + 1):
            found = hand.log.table(version)
            assert [change.version for change in found.chains["t00000"].changes] == tables[version]
            assert hand.log.read(version).version == version
        oldest = hand.log.oldest()
        assert [commit.version for commit in hand.log.commits(oldest, head)] == list(range(oldest, head + 1))
        assert hand.log.table(oldest).version == oldest
        bases = [number for number in summaries if number <= min(wanted, head)]
        assert oldest == (max(bases) if bases and head in summaries else 0)


def test_a_record_that_was_forgotten_and_is_there_again_counts_for_nothing(hand):
    table, records = GroupTable(), {}
    for version in range(8):
        table.advance(hand.append(version))
        records |= {name: hand.storage.read(f"log/{name}") for name in hand.storage.names("log")}
        if version in {3, 6}:
            hand.log.forget_before(hand.log.summarise(table, hand.epoch, version - 2))
    assert hand.log.oldest() == 3
    for name in sorted(records)[:2]:  # as after a power cut, or from a query that wakes up
        hand.storage.write(f"log/{name}", records[name])
    assert hand.log.oldest() == 3
    assert [commit.version for commit in hand.log.kept()] == [3, 4, 5, 6, 7]
    assert hand.log.table(7).version == 7


def test_a_gap_above_the_oldest_version_is_a_loss(hand):
    table = GroupTable()
    for version in range(8):
        table.advance(hand.append(version))
        if version in {3, 6}:
            hand.log.forget_before(hand.log.summarise(table, hand.epoch, version - 2))
    lost = next(name for name in hand.storage.names("log") if int(name[:20]) == 5)
    hand.storage.delete(f"log/{lost}")
    for use in (hand.log.oldest, lambda: list(hand.log.kept())):
        with pytest.raises(LogBrokenError, match=r"no record of version 5 .*restore the missing file"):
            use()
