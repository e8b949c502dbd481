"""What the kept versions need stays; all else goes, also what failed and killed tasks have left."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.state.garbage import GarbageCollector
from equipoise.state.group_table import GroupTable
from equipoise.storage import Storage

GROUPS = ["t00000", "t00001", "t00002", "k0000000000000001"]
steps = st.lists(
    st.fixed_dictionaries(
        {
            "changed": st.sets(st.sampled_from(GROUPS)),
            "snapshots": st.sets(st.sampled_from(GROUPS)),
            "dropped": st.sets(st.sampled_from(GROUPS[-1:])),
            "failed": st.booleans(),
            "killed": st.booleans(),
            "restart": st.booleans(),
        }
    ),
    min_size=1,
    max_size=15,
)


def files(root):
    return {str(path.relative_to(root)) for name in ("changes", "snapshots") for path in root.glob(f"{name}/*/*")}


def play(hand, table, step):
    version = table.version + 1
    if step["failed"]:
        hand.file(version, {"t00000": [(b"a", b"failed")]})
        hand.file(version, {"t00000": []}, folder="snapshots")
    if step["killed"]:
        hand.storage.write(f"changes/{version:020d}/whole", b"")
        hand.storage.delete(f"changes/{version:020d}/whole")
    dropped = {group for group in step["dropped"] if group in table.chains}
    return hand.batch(
        table,
        {group: [(b"a", b"1")] for group in sorted(step["changed"] - dropped)},
        reset={GROUPS[-1]} if GROUPS[-1] not in table.chains else (),
        snapshots=sorted(group for group in step["snapshots"] - dropped if group in table.chains),
        dropped=sorted(dropped),
    )


@settings(max_examples=60)
@given(steps, st.integers(1, 5))
def test_kept_versions_have_their_files_and_nothing_else_stays(make_hand, story, retain):
    with tempfile.TemporaryDirectory() as folder:
        hand = make_hand(folder)
        root = Path(folder)
        table, garbage = GroupTable(), GarbageCollector(hand.epoch, retain)
        needed = {}
        for step in story:
            commit = play(hand, table, step)
            garbage.retire(commit.version, table.advance(commit))
            needed[commit.version] = table.files()
            if step["restart"]:
                garbage = GarbageCollector(hand.epoch, retain)
                garbage.sweep(hand.log, table)
            garbage.collect(table)
            head = commit.version
            kept = set().union(*(needed[version] for version in range(max(0, head - retain), head + 1)))
            found = files(root)
            assert kept <= found
            young = {path for path in found if int(path.split("/")[1]) > head - retain}
            assert found - young <= kept
            for name in ("changes", "snapshots"):
                for version in hand.storage.names(name):
                    assert int(version) > head - retain or hand.storage.names(f"{name}/{version}")


def test_outputs_go_two_versions_later(hand):
    table, garbage = GroupTable(), GarbageCollector(hand.epoch, 3)
    for version in range(6):
        hand.storage.write(f"outputs/{version:020d}/rows.parquet", b"")
        table.advance(hand.append(version))
        garbage.collect(table)
        assert [int(name) for name in hand.storage.names("outputs")] == [max(0, version - 1), version][-version - 1 :]
    GarbageCollector(hand.epoch, 3).sweep(hand.log, table)
    assert [int(name) for name in hand.storage.names("outputs")] == [5]


def test_a_start_looks_through_everything(hand, tmp_path):
    table = GroupTable()
    for version in range(8):
        hand.file(version, {"t00000": [(b"a", b"failed")]})
        commit = hand.batch(table, {"t00000": [(b"a", b"1")]}, snapshots=["t00000"] if version == 4 else [])
        table.advance(commit)
    root = tmp_path / "checkpoint"
    left = [root / "log" / "half.1.tmp", root / f"changes/{7:020d}" / "half.2.tmp", root / "half.3.tmp"]
    for path in left:
        path.write_bytes(b"half")
    hand.file(8, {"t00000": [(b"a", b"of the next batch")]})
    GarbageCollector(hand.epoch, 2).sweep(hand.log, table)
    needed = {path for version in (5, 6, 7) for path in hand.log.table(version).files()}
    assert {path for path in files(root) if f"{8:020d}" not in path} == needed
    assert len(hand.storage.names(f"changes/{8:020d}")) == 1
    assert not any(path.exists() for path in left)


def test_a_start_looks_into_each_folder_of_a_version_once(hand, monkeypatch):
    table = GroupTable()
    for version in range(4):
        table.advance(hand.batch(table, {"t00000": [(b"a", b"1")]}, snapshots=["t00000"] if version % 2 else []))
    looked = []
    monkeypatch.setattr(
        Storage, "names", lambda self, folder, real=Storage.names: (looked.append(folder), real(self, folder))[1]
    )
    garbage = GarbageCollector(hand.epoch, 2)
    garbage.sweep(hand.log, table)
    versions = [folder for folder in looked if folder.startswith(("changes/", "snapshots/"))]
    assert versions
    assert len(versions) == len(set(versions))
