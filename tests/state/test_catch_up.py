"""Wherever a cache is, a task reads the version that the log says."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise.errors import DamagedError, StorageError
from equipoise.state import catch_up, section_reader, sections, sparse_reader
from equipoise.state.byte_columns import ByteColumn
from equipoise.state.cache import GroupCache
from equipoise.state.catch_up import RECENT, Recent, reading, reading_some
from equipoise.state.commit import Change, GroupSnapshot
from equipoise.state.entries import entry_key, entry_prefix
from equipoise.state.group_table import Chain
from equipoise.state.section_reader import SectionReader
from equipoise.state.sections import Section
from equipoise.state.sparse_reader import SparseReader
from equipoise.state.transaction import GroupTransaction
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
        self.chain = Chain(GroupSnapshot(self.chain.version, section), [])
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


def test_the_end_of_a_chain_is_sent_as_bytes(group):
    fill(group, RECENT + 2)
    recent = Recent.of(group.chain)
    assert Recent.from_bytes(recent.to_bytes()) == recent
    assert Recent.from_bytes(Recent.of(Chain()).to_bytes()).version == -1


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
    monkeypatch.setattr(catch_up, "_fill", lambda cached, *_: cached.replace(1, ()))
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


@pytest.fixture
def sparse(group, monkeypatch):
    """A group of which single keys can be read: about 50 frames in a snapshot, about 10 in each of two changes."""
    monkeypatch.setattr(sections, "FRAME_BYTES", 1_000)
    monkeypatch.setattr(section_reader, "WHOLE_BYTES", 4_000)
    monkeypatch.setattr(section_reader, "_TAIL_BYTES", 2_000)
    monkeypatch.setattr(catch_up, "SPARSE_BYTES", 10_000)
    group.change(0, [(b"%d" % number, rng_bytes(number)) for number in range(1000)])
    group.snapshot(1)
    group.change(1, [(b"%d" % number, rng_bytes(-number)) for number in range(0, 1000, 5)])
    group.change(2, [(b"%d" % number, None) for number in range(0, 1000, 7)])
    return group


def rng_bytes(seed):
    return np.random.default_rng(abs(seed) + 7).bytes(50)


def some(group, version, stack):
    chain = group.chains[version]
    return reading_some(group.cached, Recent.of(chain), SectionReader(group.hand.storage), lambda: chain, stack)


def fetched(group, monkeypatch):
    """Bytes of each read from now on."""
    lengths, real = [], group.hand.storage.read_range

    def read(*args):
        data = real(*args)
        lengths.append(len(data))
        return data

    monkeypatch.setattr(group.hand.storage, "read_range", read)
    return lengths


def test_without_a_cache_a_key_is_read_without_the_rest_of_its_group(sparse, monkeypatch):
    lengths, size = fetched(sparse, monkeypatch), sum(s.length for s in sparse.chains[2].sections())
    with ExitStack() as stack:
        reader = some(sparse, 2, stack)
        assert isinstance(reader, SparseReader)
        for number in (0, 5, 7, 8, 999):
            key = sparse.key(b"%d" % number)
            assert reader.get(key) == sparse.contents[2].get(key)
        assert reader.get(sparse.key(b"never")) is None
    assert sum(lengths) < size / 3
    assert sparse.cached.record.version == -1
    assert sparse.cached.record.spent == sum(lengths)


def test_after_as_many_bytes_as_the_group_has_its_cache_is_filled(sparse, monkeypatch):
    size = sum(s.length for s in sparse.chains[2].sections())
    read, batches = fetched(sparse, monkeypatch), 0
    while sparse.cached.version < 0:
        batches += 1
        with ExitStack() as stack:
            reader = some(sparse, 2, stack)
            for number in range(batches * 40, batches * 40 + 4):
                key = sparse.key(b"%d" % number)
                assert reader.get(key) == sparse.contents[2].get(key)
    assert batches > 2
    assert sum(read) <= 3 * size  # at most the group for single keys, then the group, of which indexes are read twice
    assert sparse.cached.record.spent == 0
    read.clear()
    with ExitStack() as stack:
        assert dict(some(sparse, 2, stack).entries()) == sparse.contents[2]
    assert read == []


def test_a_batch_with_many_keys_fills_the_cache_at_once(sparse, monkeypatch):
    keys = [sparse.key(b"%d" % number) for number in range(1100)]
    with ExitStack() as stack:
        reader = some(sparse, 2, stack)
        lookups = []
        monkeypatch.setattr(reader, "_under", lookups.append)
        assert reader.get_many(keys) == [sparse.contents[2].get(key) for key in keys]
        assert lookups == []
        assert sparse.cached.version == 2


def test_whoever_reads_all_entries_fills_the_cache(sparse):
    with ExitStack() as stack:
        reader = some(sparse, 2, stack)
        assert dict(reader.scan(b"")) == sparse.contents[2]
        assert dict(reader.whole().entries()) == sparse.contents[2]
        assert reader.get(sparse.key(b"8")) == sparse.contents[2][sparse.key(b"8")]


def test_a_cache_that_can_follow_the_changes_is_not_read_past(sparse):
    sparse.read(0)
    with ExitStack() as stack:
        assert not isinstance(some(sparse, 2, stack), SparseReader)


def test_a_damaged_frame_is_named_where_single_keys_are_read(sparse):
    section = sparse.chains[2].snapshot.section
    data = bytearray(sparse.hand.storage.read(section.path))
    data[section.offset + 40 : section.offset + section.length // 2] = bytes(section.length // 2 - 40)
    sparse.hand.storage.write(section.path, bytes(data))
    keys = [sparse.key(b"%d" % number) for number in range(1000)]
    with ExitStack() as stack:
        reader = some(sparse, 2, stack)
        with pytest.raises(DamagedError, match=rf"{section.path} is damaged: a frame has"):
            list(map(reader.get, keys))


def test_long_sections_are_applied_piece_by_piece(sparse, monkeypatch):
    lengths = fetched(sparse, monkeypatch)
    assert sparse.read(2) == sparse.contents[2]
    assert max(lengths) <= 4_100


def test_a_cache_that_has_to_grow_for_a_long_section_reads_it_once(group, monkeypatch):
    monkeypatch.setattr(section_reader, "WHOLE_BYTES", 1 << 20)
    group.key = lambda name: entry_key(entry_prefix(int(name) << 40, name), 2)
    group.change(0, [(b"%d" % number, rng_bytes(number) * 2) for number in range(20_000)])
    group.snapshot(1)
    group.change(1, [(b"%d" % number, rng_bytes(number)) for number in range(20_000, 50_000)])
    monkeypatch.setattr(catch_up, "WHOLE_BYTES", 1 << 20)
    lengths, size = fetched(group, monkeypatch), sum(s.length for s in group.chains[1].sections())
    assert group.read(1) == group.contents[1]
    assert size <= sum(lengths) < 1.2 * size


PREFIXES = [entry_prefix(number, b"%d" % number) for number in (-9, -1, 0, 3, 2**40)]
KEYS = (
    st.builds(entry_key, st.sampled_from(PREFIXES), st.sampled_from([1, 2]))
    | st.builds(lambda prefix, n: entry_key(prefix, 3, bytes([n])), st.sampled_from(PREFIXES), st.integers(0, 5))
    | st.builds(
        lambda space, time, prefix: bytes([space]) + time.to_bytes(8, "big") + prefix,
        st.sampled_from([1, 2]),
        st.integers(0, 9),
        st.sampled_from(PREFIXES),
    )
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_reads_past_the_cache_are_those_of_a_dict(make_hand, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("sparse")
    group = Group(make_hand(folder), folder / "cache", data.draw(st.sampled_from([None, 2])))
    group.key = lambda name: name
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "FRAME_BYTES", data.draw(st.integers(1, 90)))
        patch.setattr(section_reader, "_TAIL_BYTES", data.draw(st.sampled_from([24, 100, 4_000])))
        patch.setattr(section_reader, "WHOLE_BYTES", data.draw(st.sampled_from([100, 4_000])))
        patch.setattr(sparse_reader, "_FRAMES", data.draw(st.sampled_from([1, 64])))
        patch.setattr(catch_up, "SPARSE_BYTES", 0)
        patch.setattr(catch_up, "_share", lambda _: share)
        version = 0
        for _ in range(data.draw(st.integers(1, 6))):
            entries = data.draw(st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=12))
            group.change(version, sorted(entries.items()), reset=data.draw(st.integers(0, 5)) == 0)
            version += 1
            if data.draw(st.integers(0, 3)) == 0:
                group.snapshot(version)
        for _ in range(3):
            share = data.draw(st.sampled_from([0.1, 1, 3, 1_000]))
            expected = group.contents[version - 1]
            with ExitStack() as stack:
                reader = some(group, version - 1, stack)
                for _ in range(data.draw(st.integers(1, 6))):
                    look_up(data, reader, expected)
        group.cache.close()


def look_up(data, reader, expected):
    kind = data.draw(st.sampled_from(["get", "get_many", "scan", "find"]))
    if kind == "get":
        key = data.draw(KEYS)
        assert reader.get(key) == expected.get(key)
    elif kind == "get_many":
        keys = data.draw(st.lists(KEYS, max_size=5))
        assert reader.get_many(keys) == [expected.get(key) for key in keys]
    elif kind == "scan":
        prefix = data.draw(st.sampled_from([b"", b"\x00", b"\x01", b"\x02", *PREFIXES, *(p[:9] for p in PREFIXES)]))
        found = list(reader.scan(prefix))
        assert found == sorted((key, value) for key, value in expected.items() if key.startswith(prefix))
    else:
        numbers = data.draw(st.lists(st.sampled_from([-9, -1, 0, 3, 2**40, 77]), max_size=4))
        names = [b"%d" % number for number in numbers]
        fingerprints = np.array(numbers, np.int64).view(np.uint64)
        values, exists = GroupTransaction(reader).find(2, fingerprints, ByteColumn.of(names))
        keys = [entry_key(entry_prefix(*each), 2) for each in zip(numbers, names, strict=True)]
        assert exists.tolist() == [key in expected for key in keys]
        assert values.strings() == [expected.get(key, b"") for key in keys]


def test_due_timers_are_read_as_far_as_they_are_scanned(hand, tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "FRAME_BYTES", 1_000)
    monkeypatch.setattr(catch_up, "SPARSE_BYTES", 0)
    group = Group(hand, tmp_path / "cache")
    due = [(b"\x01" + time.to_bytes(8, "big") + rng_bytes(time), b"") for time in range(3000)]
    group.change(0, due)
    group.change(1, [(due[0][0], None), (due[2][0], None)])
    lengths, size = fetched(group, monkeypatch), group.chains[1].changes[0].section.length
    with ExitStack() as stack:
        scan = some(group, 1, stack).scan(b"\x01")
        assert [next(scan) for _ in range(20)] == [due[1], *due[3:22]]
    assert sum(lengths) < size / 2
    group.cache.close()
