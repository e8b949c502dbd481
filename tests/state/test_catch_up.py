"""Wherever a cache is, a task reads the version that the log says."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise.errors import DamagedError, StorageError
from equipoise.state import catch_up, section_reader
from equipoise.state.cache import GroupCache
from equipoise.state.catch_up import RECENT, Recent, reading
from equipoise.state.commit import Change, Snapshot
from equipoise.state.entries import entry_key, entry_prefix
from equipoise.state.group_table import Chain
from equipoise.state.section_reader import SectionReader
from equipoise.state.sections import Section
from equipoise.storage import Storage

GROUP = "t00001"


class Group:
    """One group over many versions: files in a checkpoint, and what it must hold at each."""

    def __init__(self, hand, folder, tag=None):
        self.hand = hand
        self.tag = tag
        self.cache = GroupCache(folder, tag=tag)
        self.cached = self.cache.group(GROUP)
        self.chain = Chain()
        self.chains, self.contents = {}, {}
        self.asked = 0

    def key(self, name):
        """The key of an entry: that of a value of the variable in columns, if there is one."""
        return name if self.tag is None else entry_key(entry_prefix(sum(name) - 107, name), self.tag)

    def change(self, version, entries, *, reset=False):
        entries = [(self.key(name), value) for name, value in entries]
        section = self.hand.file(version, {GROUP: entries}, reset={GROUP} if reset else ())[GROUP]
        before = {} if reset or not self.chains else self.contents[max(self.contents)]
        merged = {**before, **dict(entries)}
        self.contents[version] = {key: value for key, value in merged.items() if value is not None}
        kept = [] if reset else self.chain.changes
        self.chain = Chain(None if reset else self.chain.snapshot, [*kept, Change(version, section)])
        self.chains[version] = self.chain

    def snapshot(self, version):
        """A snapshot of the present version, made by a later one."""
        entries = sorted(self.contents[max(self.contents)].items())
        section = self.hand.file(version, {GROUP: entries}, folder="snapshots")[GROUP]
        self.chain = Chain(Snapshot(self.chain.version, section), [])
        self.chains[self.chain.snapshot.version] = self.chain

    def read(self, version):
        chain = self.chains.get(version)

        def whole():
            self.asked += 1
            return chain

        recent = None if chain is None else Recent.of(chain)
        with ExitStack() as stack:
            reader = reading(self.cached, recent, SectionReader(self.hand.storage), whole, stack)
            assert reader.version == (-1 if chain is None else version)
            return dict(reader.entries())


@pytest.fixture(params=[None, 2], ids=["entries", "columns"])
def group(request, hand, tmp_path):
    group = Group(hand, tmp_path / "cache", request.param)
    yield group
    group.cache.close()


def fill(group, versions, start=0):
    for version in range(start, start + versions):
        group.change(version, [(b"k%d" % (version % 3), b"%d" % version), (b"gone", None if version % 2 else b"")])


def test_a_cold_cache_with_a_short_chain_needs_no_log(group):
    fill(group, RECENT)
    assert group.read(RECENT - 1) == group.contents[RECENT - 1]
    assert group.asked == 0


def test_a_cold_cache_with_a_long_chain_reads_the_log(group):
    fill(group, RECENT + 2)
    assert group.read(RECENT + 1) == group.contents[RECENT + 1]
    assert group.asked == 1


def test_a_cold_cache_starts_from_the_snapshot(group):
    fill(group, 3)
    group.snapshot(3)
    fill(group, RECENT + 1, start=4)
    for version in range(3):
        group.hand.storage.delete_folder(f"changes/{version:020d}")  # not needed any more
    assert group.read(RECENT + 4) == group.contents[RECENT + 4]


def test_a_snapshot_alone_is_enough(group):
    fill(group, 2)
    group.snapshot(2)
    assert group.read(1) == group.contents[1]
    assert group.read(1) == group.contents[1]


def test_a_warm_cache_reads_no_file(group):
    fill(group, 3)
    assert group.read(2) == group.contents[2]
    group.hand.storage.delete_folder("changes")
    assert group.read(2) == group.contents[2]
    assert group.asked == 0


def test_a_cache_that_is_behind_takes_what_is_missing(group):
    fill(group, 3)
    assert group.read(0) == group.contents[0]
    group.hand.storage.delete_folder(f"changes/{0:020d}")
    assert group.read(2) == group.contents[2]
    fill(group, RECENT + 2, start=3)
    assert group.read(RECENT + 4) == group.contents[RECENT + 4]
    assert group.asked == 1


def test_a_cache_that_is_ahead_goes_back(group):
    fill(group, 5)
    assert group.read(4) == group.contents[4]
    assert group.read(1) == group.contents[1]
    assert group.read(4) == group.contents[4]


def test_a_group_that_has_no_state_is_emptied(group):
    fill(group, 2)
    group.read(1)
    assert group.read(None) == {}
    assert group.cached.version == -1
    assert group.read(1) == group.contents[1]


@pytest.mark.parametrize("later", [0, 1, RECENT + 1])
def test_a_group_that_starts_anew_needs_nothing_older(group, later):
    fill(group, 3)
    group.read(1)
    group.change(7, [(b"new", b"1")], reset=True)
    fill(group, later, start=8)
    for version in range(3):
        group.hand.storage.delete_folder(f"changes/{version:020d}")
    assert group.read(7 + later) == group.contents[7 + later]


def test_a_damaged_cache_is_rebuilt(group):
    fill(group, 3)
    group.read(2)
    group.cache.close()
    for path in Path(group.cache.folder).rglob("data.mdb"):
        path.write_bytes(b"\xa5" * path.stat().st_size)
    assert group.read(2) == group.contents[2]


def test_a_deleted_cache_is_rebuilt(group):
    fill(group, 3)
    group.read(2)
    group.cache.forget(GROUP)
    assert group.read(2) == group.contents[2]


@pytest.mark.parametrize(
    ("offset", "length"), [(11, 2**62), (11, 2**70), (-5, 50), (2**70, 10), (11, -1), (11, 1 << 40), (90, 50)]
)
def test_a_section_that_its_file_cannot_have_is_damage_and_takes_no_memory(tmp_path, offset, length):
    storage = Storage(str(tmp_path))
    storage.write("changes/1/a", b"x" * 100)
    section = Section("changes/1/a", offset, length, 0, 1, reset=False)
    for alone in (True, False):
        with pytest.raises(
            DamagedError, match=rf"the section at byte {offset} of changes/1/a is damaged: .*{length} bytes"
        ):
            SectionReader(storage).entries(section, alone=alone)


def test_a_damaged_or_lost_file_is_named(group):
    fill(group, 1)
    [name] = group.hand.storage.names(f"changes/{0:020d}")
    path = f"changes/{0:020d}/{name}"
    sound = group.hand.storage.read(path)
    group.hand.storage.write(path, sound[:30] + bytes([sound[30] ^ 1]) + sound[31:])
    with pytest.raises(DamagedError, match=name):
        group.read(0)
    group.hand.storage.delete(path)
    with pytest.raises(StorageError, match=name):
        group.read(0)
    group.hand.storage.write(path, sound)
    assert group.read(0) == group.contents[0]


def test_a_cache_that_others_keep_changing_is_given_up_with_a_reason(group, monkeypatch):
    fill(group, 3)
    monkeypatch.setattr(catch_up, "_catch_up", lambda cached, *_: cached.replace(1, ()))
    with pytest.raises(
        DamagedError, match=r"does not reach version 2 in 10 attempts: .*; give the query its own cache folder"
    ):
        group.read(2)


def test_sections_of_one_file_are_fetched_at_once_and_large_ones_alone(hand, monkeypatch):
    monkeypatch.setattr(section_reader, "WHOLE_BYTES", 300)
    contents = {f"t{number:05d}": [(b"key", bytes([number]) * 10)] for number in range(40)}
    contents["t00099"] = [(bytes([number]), number.to_bytes(2, "big") * number) for number in range(200)]
    sections = hand.file(0, contents)
    assert sections["t00099"].length > 300
    reads = []
    real = hand.storage.read_range
    monkeypatch.setattr(hand.storage, "read_range", lambda *args: reads.append(args) or real(*args))
    reader = SectionReader(hand.storage)
    assert {group: list(reader.entries(section)) for group, section in sections.items()} == contents
    assert len(reads) < len(sections)


@pytest.mark.parametrize("versions", [1, RECENT, RECENT + 3])
def test_a_cold_start_reads_no_byte_more_than_once(hand, tmp_path, monkeypatch, versions):
    groups = [f"t{number:05d}" for number in range(20)]
    written = [hand.file(version, {group: [(b"key", bytes(50))] for group in groups}) for version in range(versions)]
    size = sum(hand.storage.size(sections["t00000"].path) for sections in written)
    real, fetched = hand.storage.read_range, []
    monkeypatch.setattr(hand.storage, "read_range", lambda *args: fetched.append(real(*args)) or fetched[-1])
    cache, reader = GroupCache(tmp_path / "cache"), SectionReader(hand.storage)
    for group in groups:
        chain = Chain(None, [Change(version, sections[group]) for version, sections in enumerate(written)])
        with ExitStack() as stack:
            found = reading(cache.group(group), Recent.of(chain), reader, lambda chain=chain: chain, stack)
            assert found.get(b"key") == bytes(50)
    cache.close()
    assert sum(map(len, fetched)) <= size
    assert len(fetched) == (1 if versions == 1 else versions * len(groups))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_way_through_the_versions_reads_what_the_log_says(make_hand, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any")
    group = Group(make_hand(folder), folder / "cache", data.draw(st.sampled_from([None, 2])))
    entries = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.none() | st.binary(max_size=3)), max_size=3)
    version = 0
    for _ in range(data.draw(st.integers(1, 12))):
        group.change(version, data.draw(entries), reset=data.draw(st.integers(0, 9)) == 0)
        version += data.draw(st.integers(1, 3))
        if data.draw(st.integers(0, 4)) == 0:
            group.snapshot(version)
    for wanted in data.draw(st.lists(st.sampled_from([None, *group.contents]), min_size=1, max_size=8)):
        assert group.read(wanted) == group.contents.get(wanted, {})
        if data.draw(st.integers(0, 5)) == 0:
            group.cache.forget(GROUP)
    group.cache.close()
