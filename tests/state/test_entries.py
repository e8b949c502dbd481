"""Keys of entries sort, come apart, and take their indices with them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.errors import DamagedError
from equipoise.state.entries import (
    companions,
    due_expiry,
    due_timer,
    entry_key,
    entry_prefix,
    fingerprint_prefix,
    pack_time,
    parse_due,
    parse_entry,
    split_value,
    unpack_time,
    with_expiry,
)

fingerprints = st.integers(-(2**63), 2**63 - 1)
times = st.integers(0, 2**63 - 1)
keys = st.builds(
    entry_key, st.builds(entry_prefix, fingerprints, st.binary(max_size=20)), st.integers(1, 255), st.binary()
)


def test_the_layout_is_the_documented_one():
    prefix = entry_prefix(-2, b"key")
    assert prefix == b"\x00" + b"\xff" * 7 + b"\xfe" + b"\x00\x00\x00\x03key"
    assert entry_prefix(np.int64(-2), b"key") == prefix
    assert entry_key(prefix, 7, b"suffix") == prefix + b"\x07suffix"
    assert due_timer(258, b"entry") == b"\x01" + b"\x00" * 6 + b"\x01\x02entry"
    assert due_expiry(258, b"entry") == b"\x02" + b"\x00" * 6 + b"\x01\x02entry"
    assert with_expiry(b"p", None) == b"\x00p"
    assert with_expiry(b"p", 258) == b"\x01" + b"\x00" * 6 + b"\x01\x02p"
    assert with_expiry(b"p", None, 259) == b"\x02\x01\x03p"
    assert with_expiry(b"p", 258, 1) == b"\x03\x00\x01" + b"\x00" * 6 + b"\x01\x02p"


@given(fingerprints, st.binary(), st.integers(0, 255), st.binary())
def test_a_key_comes_apart_into_what_it_was_made_of(fingerprint, key, tag, suffix):
    entry = entry_key(entry_prefix(fingerprint, key), tag, suffix)
    assert parse_entry(entry) == (fingerprint, key, tag, suffix)
    assert entry.startswith(fingerprint_prefix(fingerprint))


@given(fingerprints, st.binary(max_size=4), st.binary(max_size=4))
def test_the_entries_of_one_key_are_no_prefix_of_those_of_another(fingerprint, one, other):
    if one != other:
        assert not entry_prefix(fingerprint, other).startswith(entry_prefix(fingerprint, one))


@given(times, times, keys, keys)
def test_an_index_sorts_by_time_and_leads_back(one, other, entry, another):
    for due in (due_timer, due_expiry):
        assert parse_due(due(one, entry)) == (one, entry)
        if one < other:
            assert due(one, entry) < due(other, another)


@given(st.none() | times, st.binary(), st.integers(0, 2**16 - 1))
def test_a_value_comes_apart_into_expiry_payload_and_schema(expiry, payload, schema):
    assert split_value(with_expiry(payload, expiry, schema)) == (expiry, payload, schema)


@given(st.integers(-(2**70), 2**70))
def test_times_are_kept_within_what_eight_bytes_sort(time):
    assert unpack_time(pack_time(time)) == min(max(time, 0), 2**63 - 1)


@given(keys, st.none() | times, st.binary(), st.integers(0, 3))
def test_an_expiring_entry_is_accompanied_by_its_expiry_and_no_other_is(entry, expiry, payload, schema):
    found = companions(entry, with_expiry(payload, expiry, schema))
    assert found == ([] if expiry is None else [due_expiry(expiry, entry)])


@given(fingerprints, st.binary(), times)
def test_a_timer_is_accompanied_by_its_time(fingerprint, key, time):
    entry = entry_key(entry_prefix(fingerprint, key), 0, pack_time(time))
    assert companions(entry, b"\x00") == [due_timer(time, entry)]


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x01" * 30, entry_prefix(1, b"key"), entry_prefix(1, b"key")[:-1]])
def test_what_is_no_key_of_an_entry_is_damage(key):
    with pytest.raises(DamagedError, match="are not the key of a state entry"):
        parse_entry(key)


@pytest.mark.parametrize("key", [b"", b"\x01" * 9, b"\x00" * 20, b"\x03" * 20])
def test_what_is_no_key_of_an_index_is_damage(key):
    with pytest.raises(DamagedError, match="are not the key of an index entry"):
        parse_due(key)


@pytest.mark.parametrize("value", [b"", b"\x04abc", b"\x01" + b"\x00" * 7, b"\x02\x00", b"\x03" + b"\x00" * 9])
def test_what_is_no_value_is_damage(value):
    with pytest.raises(DamagedError, match="are not a state value"):
        split_value(value)


def test_a_timer_with_another_suffix_is_damage():
    with pytest.raises(DamagedError, match="are not a time"):
        companions(entry_key(entry_prefix(1, b"key"), 0, b"abc"), b"\x00")
