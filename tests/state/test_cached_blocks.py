"""A cache with blocks has the same content as one with single entries, whatever is written to it."""

import lmdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise.errors import DamagedError
from equipoise.state import cached_blocks
from equipoise.state.byte_columns import ByteColumn
from equipoise.state.cache import GroupCache
from equipoise.state.entries import entry_key, entry_prefix, fingerprint_prefix
from equipoise.state.entry_columns import EntryColumns, Frame
from equipoise.state.environments import ENVIRONMENTS

TAG = 3
FINGERPRINTS = st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1, 2**40])
PLAIN = st.tuples(FINGERPRINTS, st.binary(max_size=3)).map(lambda each: entry_key(entry_prefix(*each), TAG))
OTHER = st.tuples(FINGERPRINTS, st.binary(max_size=2) | st.just(b"k" * 600)).map(
    lambda each: entry_key(entry_prefix(*each), TAG + 1, b"s")
) | st.binary(max_size=4).map(lambda tail: b"\x01" + bytes(8) + tail)
VALUES = st.none() | st.binary(max_size=6) | st.just(b"v" * 700) | st.just(b"w" * 5_000)
CHANGES = st.dictionaries(PLAIN | OTHER, VALUES, max_size=30).map(lambda each: sorted(each.items()))


@pytest.fixture
def group(tmp_path):
    return GroupCache(tmp_path / "cache", tag=TAG).group("t00001")


def content(reader):
    return list(reader.entries())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(st.tuples(CHANGES, st.booleans()), max_size=6), st.sampled_from([1, 2, 2_048]))
def test_changes_lead_to_the_entries_of_a_dict(group, drawn, at_once):
    whole = cached_blocks._AT_ONCE
    cached_blocks._AT_ONCE = at_once
    try:
        group.replace(-1, ())
        expected = {}
        for version, (changes, resets) in enumerate(drawn):
            if resets:
                expected = {}
            expected = {key: value for key, value in {**expected, **dict(changes)}.items() if value is not None}
            group.apply([(version, resets, [Frame.of(changes, TAG)])], expected=version - 1)
            with group.read() as reader:
                assert content(reader) == sorted(expected.items())
                assert reader.count == len(expected)
                assert reader.size_bytes == sum(len(key) + len(value) for key, value in expected.items())
                for key, _ in changes:
                    assert reader.get(key) == expected.get(key)
                assert reader.get_many([key for key, _ in changes]) == [expected.get(key) for key, _ in changes]
                for prefix in (
                    b"",
                    b"\x00",
                    b"\x01",
                    fingerprint_prefix(1),
                    entry_prefix(1, b"a"),
                    entry_prefix(2, b"k" * 600),
                ):
                    found = list(reader.scan(prefix))
                    assert found == sorted(each for each in expected.items() if each[0].startswith(prefix))
                frames = list(reader.frames())
                assert sorted(pair for frame in frames for pair in [*frame.columns, *frame.others]) == sorted(
                    expected.items()
                )
    finally:
        cached_blocks._AT_ONCE = whole


def columns(fingerprints, value=b"v"):
    keys = [f"key {each}".encode() for each in fingerprints]
    return EntryColumns.of(TAG, fingerprints, keys, [value] * len(keys)).in_order()


def test_many_entries_are_found_among_many_blocks(group):
    rng = np.random.default_rng(1)
    known = rng.integers(-(2**63), 2**63 - 1, 30_000)
    group.replace(0, [Frame(columns(known[:10_000]), []), Frame(columns(known[10_000:]), [])])
    asked = columns([*known[::7].tolist(), *range(100)])
    with group.read() as reader:
        values, exists = reader.find(asked.fingerprints, asked.keys)
        assert exists.sum() == len(known[::7])
        assert set(values.taken(exists).strings()) == {b"v"}
        assert reader.count == len(known)


def test_blocks_stay_near_a_page(group):
    rng = np.random.default_rng(1)
    for version in range(20):
        changed = columns(rng.integers(-(2**63), 2**63 - 1, 2_000))
        group.apply([(version, False, [Frame(changed, [])])], expected=version - 1)
    sizes = blocks_of(group)
    assert max(sizes) <= cached_blocks.MOST_BYTES + 16
    assert np.mean(sizes) > 2_000


def blocks_of(group):
    with group._environment() as environment, environment.transaction(write=False) as transaction:
        return [len(value) for key, value in transaction.cursor() if key[:1] == b"\x03"]


def test_keys_of_one_fingerprint_stay_in_one_block(group):
    keys = [f"{n:05d}".encode() for n in range(1_000)]
    group.replace(0, [Frame(EntryColumns.of(TAG, [5] * 1_000, keys, [b"v"] * 1_000), [])])
    assert len(blocks_of(group)) == 1
    with group.read() as reader:
        asked = ByteColumn.of([b"00500", b"x", b"00999"])
        _, exists = reader.find(np.full(3, 5, np.uint64), asked)
    assert exists.tolist() == [True, False, True]


def test_a_block_that_is_damaged_is_noticed(group):
    group.replace(0, [Frame(columns(range(200)), [])])
    with group._environment() as environment, environment.transaction(write=True) as transaction:
        key, block = next((key, value) for key, value in transaction.cursor() if key[:1] == b"\x03")
        rng = np.random.default_rng(1)
        damaged = [block[: len(block) // 2], b"", b"\xff" * len(block), block[:-1]]
        for place in rng.integers(0, 8 + 16 * 80, 200):
            flipped = bytearray(block)
            flipped[place] ^= 1 << int(rng.integers(8))
            damaged.append(bytes(flipped))
        noticed = 0
        for each in damaged:
            transaction.put(key, each)
            try:
                content(cached_blocks.BlockReader(transaction, TAG))
            except lmdb.CorruptedError:
                noticed += 1
        assert noticed >= 4
        transaction.put(key, b"\xff" * len(block))
    with pytest.raises(DamagedError, match="was deleted"), group.read() as reader:
        content(reader)
    assert group.version == -1
    ENVIRONMENTS.close(group._cache.folder)
