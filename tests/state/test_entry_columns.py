"""Entries as columns: the same bytes in a section, the same order and the same content as pairs."""

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.state.entries import entry_key, entry_prefix
from equipoise.state.entry_columns import EntryColumns, Frame, concatenated, frame_bytes, plain_key, read_frame

TAG = 7
FINGERPRINTS = st.sampled_from([0, 1, 2**62, -1, -(2**63), 5]) | st.integers(-(2**63), 2**63 - 1)
KEYS = st.binary(max_size=3) | st.sampled_from([b"k" * 241, b"k" * 242, b"k" * 65_522])
VALUES = st.none() | st.binary(max_size=9) | st.sampled_from([b"v" * 255, b"v" * 256, b"v" * 65_536])
ENTRIES = st.lists(st.tuples(FINGERPRINTS, KEYS, VALUES), max_size=20)
OTHERS = st.sampled_from(
    [
        entry_key(entry_prefix(5, b"k"), TAG + 1),
        entry_key(entry_prefix(5, b"k"), TAG, b"suffix"),
        b"\x01timer",
        b"",
        b"\x00" * 13,
        b"\x00" * 14,
    ]
)


def columns_of(entries):
    parts = [[entry[place] for entry in entries] for place in range(3)]
    return EntryColumns.of(TAG, *parts)


def pairs_of(entries):
    return [(entry_key(entry_prefix(fingerprint, key), TAG), value) for fingerprint, key, value in entries]


@given(ENTRIES)
def test_columns_are_iterated_as_pairs(entries):
    assert list(columns_of(entries)) == pairs_of(entries)


@given(ENTRIES)
def test_entries_come_in_the_order_of_their_keys_and_the_last_of_a_key_counts(entries):
    assert list(columns_of(entries).in_order()) == sorted(dict(pairs_of(entries)).items())


@given(ENTRIES, ENTRIES)
def test_columns_follow_each_other(one, other):
    assert list(concatenated([columns_of(one), columns_of(other)])) == pairs_of(one + other)


@given(ENTRIES)
def test_a_frame_has_the_bytes_of_message_pack_and_is_read_back(entries):
    columns = columns_of(entries)
    raw = frame_bytes(columns).tobytes()
    assert raw == msgspec.msgpack.encode(pairs_of(entries))
    found = read_frame(pa.py_buffer(raw), TAG)  # as decompressed
    assert list(found.columns) == pairs_of(entries)
    assert not found.others
    assert columns.size_bytes == sum(len(key) + len(value or b"") for key, value in pairs_of(entries))


@given(st.lists(st.tuples(OTHERS, VALUES), max_size=5), ENTRIES)
def test_other_entries_stay_pairs(others, entries):
    pairs = sorted([*others, *pairs_of(entries)], key=lambda pair: pair[0])
    for found in (Frame.of(pairs, TAG), read_frame(msgspec.msgpack.encode(pairs), TAG)):
        plain = [pair for pair in pairs if plain_key(pair[0], TAG) is not None]
        assert list(found.columns) == plain
        assert found.others == [pair for pair in pairs if plain_key(pair[0], TAG) is None]
        assert len(found) == len(pairs)


@pytest.mark.parametrize("count", [15, 16, 65_535, 65_536])
def test_lists_of_every_head(count):
    columns = EntryColumns.of(TAG, range(count), [b"k"] * count, [b"v"] * count)
    raw = frame_bytes(columns).tobytes()
    assert raw == msgspec.msgpack.encode(list(columns))
    assert len(read_frame(raw, TAG)) == count


@given(st.binary(max_size=30))
def test_bytes_that_are_no_frame_are_left_to_message_pack(raw):
    found = read_frame(raw, TAG)
    if found is not None:
        pairs = msgspec.msgpack.decode(raw, type=list[tuple[bytes, bytes | None]])
        assert sorted([*found.columns, *found.others], key=repr) == sorted(pairs, key=repr)


@given(FINGERPRINTS, KEYS)
def test_a_plain_key_is_taken_apart(fingerprint, key):
    assert plain_key(entry_key(entry_prefix(fingerprint, key), TAG), TAG) == (fingerprint, key)
