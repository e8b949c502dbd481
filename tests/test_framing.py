"""The envelope gives back what was put in and refuses everything else."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.errors import DamagedError, FormatError, UnknownFormatError
from equipoise.framing import pack_array, seal, unpack_array, unseal

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)

SEALED = seal("thing", 3, {"numbers": [1, 2, 3], "raw": b"\x00\xff"})


def with_checksum(body):
    return body + struct.pack("<I", zlib.crc32(body))


@given(st.text("abc-", min_size=1, max_size=20), st.integers(0, 65_535), plain_values)
def test_what_is_sealed_comes_back(kind, version, payload):
    assert unseal(kind, version, seal(kind, version, payload)) == payload


def test_the_layout_is_the_documented_one():
    assert SEALED[:4] == b"EQP\x01"
    assert SEALED[4:10] == b"\x05thing"
    version, length = struct.unpack_from("<HQ", SEALED, 10)
    assert (version, length) == (3, len(SEALED) - 24)
    assert SEALED[-4:] == struct.pack("<I", zlib.crc32(SEALED[:-4]))


@pytest.mark.parametrize("at", range(len(SEALED)))
@pytest.mark.parametrize("bit", [0x01, 0x80])
def test_a_flipped_bit_is_damage(at, bit):
    altered = bytearray(SEALED)
    altered[at] ^= bit
    with pytest.raises(DamagedError):
        unseal("thing", 3, bytes(altered))


@pytest.mark.parametrize("length", range(len(SEALED)))
def test_a_truncated_thing_is_damage(length):
    with pytest.raises(DamagedError):
        unseal("thing", 3, SEALED[:length])


def test_added_bytes_are_damage():
    with pytest.raises(DamagedError, match=f"has {len(SEALED) + 1} bytes, its header says {len(SEALED)}"):
        unseal("thing", 3, SEALED + b"\x00")


def test_bytes_that_were_never_ours_are_damage():
    with pytest.raises(DamagedError, match="do not start with"):
        unseal("thing", 3, b"PK\x03\x04 some archive")


def test_another_kind_is_refused_by_name():
    with pytest.raises(DamagedError, match="expected a stored other, found a stored thing"):
        unseal("other", 3, SEALED)


def test_another_version_is_unknown_and_not_damage():
    with pytest.raises(UnknownFormatError, match="has format 3, this release reads format 4"):
        unseal("thing", 4, SEALED)


def test_a_sound_envelope_around_garbage_is_damage():
    body = b"\xc1\xc1\xc1"
    head = SEALED[:12] + struct.pack("<Q", len(body))
    with pytest.raises(DamagedError, match="not MessagePack"):
        unseal("thing", 3, with_checksum(head + body))


def around(body):
    """``body`` as the payload of a sound envelope."""
    return with_checksum(SEALED[:12] + struct.pack("<Q", len(body)) + body)


@pytest.mark.parametrize("length", [0, 2**31, 2**60, 2**64 - 1])
def test_an_absurd_length_of_the_payload_is_damage(length):
    body = SEALED[:12] + struct.pack("<Q", length) + SEALED[20:-4]
    with pytest.raises(DamagedError, match=f"has {len(SEALED)} bytes, its header says {24 + length}"):
        unseal("thing", 3, with_checksum(body))


@pytest.mark.parametrize("length", [6, 200, 255])
def test_a_name_that_runs_past_its_end_is_damage(length):
    with pytest.raises(DamagedError):
        unseal("thing", 3, with_checksum(SEALED[:4] + bytes([length]) + SEALED[5:-4]))


@pytest.mark.parametrize("head", [b"\xdb", b"\xc6", b"\xdd", b"\xdf", b"\xc9"])
def test_absurd_lengths_inside_the_payload_are_damage(head):
    for rest in (b"", b"\x01" * 100):
        with pytest.raises(DamagedError, match="not MessagePack"):
            unseal("thing", 3, around(head + b"\xff" * 4 + rest))


@pytest.mark.parametrize("head", [b"\x91", b"\x81\x01"])
def test_a_payload_nested_without_end_is_damage(head):
    with pytest.raises(DamagedError, match="not MessagePack"):
        unseal("thing", 3, around(head * 100_000))


@given(st.data())
def test_changed_bytes_under_a_right_checksum_are_refused_or_give_a_payload(data):
    body = bytearray(SEALED[:-4])
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=9)):
        body[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xDD, 0xDF, 0xFF]) | st.integers(0, 255))
    try:
        unseal("thing", 3, with_checksum(bytes(body)))
    except FormatError:
        return


def test_every_refusal_is_a_format_error_and_a_value_error():
    for data, version in ((b"", 3), (SEALED, 4)):
        with pytest.raises(FormatError):
            unseal("thing", version, data)
        with pytest.raises(ValueError, match="thing"):
            unseal("thing", version, data)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.float64])
def test_arrays_are_stored_little_endian_and_come_back_writable(dtype):
    array = np.array([0, 1, 2**31 - 1], dtype=dtype)
    swapped = array.astype(array.dtype.newbyteorder(">"))
    assert pack_array(array) == pack_array(swapped) == array.astype(array.dtype.newbyteorder("<")).tobytes()
    back = unpack_array(pack_array(array), dtype)
    back[0] = 1
    assert back.tolist() == [1, 1, 2**31 - 1]
    assert back.dtype == dtype


def test_an_empty_array_comes_back_empty():
    assert len(unpack_array(pack_array(np.empty(0, dtype=np.int64)), np.int64)) == 0
