"""Sections give back what was written and refuse everything else."""

import io
import struct
import zlib

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.errors import DamagedError, UnknownFormatError
from equipoise.state import sections
from equipoise.state.sections import CHANGES, SNAPSHOT, Section, SectionWriter, read_section

ENTRIES = [(b"a", b"one"), (b"b", None), (b"\x00\xff", b"")]
groups = st.tuples(st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=40))), st.booleans())


def written(*contents, kind=CHANGES):
    stream = io.BytesIO()
    writer = SectionWriter(stream, kind, "changes/7")
    found = [writer.add(f"t{n:05d}", iter(entries), reset=reset) for n, (entries, reset) in enumerate(contents)]
    assert writer.offset == len(stream.getvalue())
    return stream.getvalue(), found


def cut(data, section):
    return data[section.offset : section.offset + section.length]


def resealed(body):
    """A section around ``body`` whose checksum is right, with what a log would say about it."""
    data = body + struct.pack("<I", zlib.crc32(body))
    return data, Section("f", 0, len(data), zlib.crc32(body), len(ENTRIES), reset=False)


@given(st.lists(groups, max_size=5), st.integers(1, 200))
def test_what_is_written_comes_back_section_by_section(contents, frame_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "FRAME_BYTES", frame_bytes)
        data, found = written(*contents)
    for section, (entries, reset) in zip(found, contents, strict=True):
        assert (section.path, section.count, section.reset) == ("changes/7", len(entries), reset)
        assert list(read_section(cut(data, section), section)) == entries


def test_the_layout_is_the_documented_one():
    data, [section] = written((ENTRIES, True), kind=SNAPSHOT)
    assert data[:11] == b"EQPSTATE" + b"\x01\x00" + b"\x02"
    assert (section.offset, section.length) == (11, len(data) - 11)
    assert data[11:25] == b"SECT" + b"\x01\x00" + b"\x01" + b"\x06t00000"
    length, raw_length = struct.unpack_from("<QQ", data, 25)
    raw = pa.Codec("zstd").decompress(data[41 : 41 + length], raw_length, asbytes=True)
    assert raw == bytes.fromhex("93 92c40161c4036f6e65 92c40162c0 92c40200ffc400")
    assert data[41 + length : -4] == struct.pack("<QQ", 0, 3)
    assert data[-4:] == struct.pack("<I", zlib.crc32(data[11:-4])) == struct.pack("<I", section.checksum)


def test_a_reference_is_stored_as_a_short_list():
    section = Section("changes/7", 11, 80, 123, 3, reset=False)
    stored = msgspec.msgpack.encode(section)
    assert msgspec.msgpack.decode(stored) == ["changes/7", 11, 80, 123, 3, False]
    assert msgspec.msgpack.decode(stored, type=Section) == section


def test_a_large_group_is_written_in_frames_as_it_arrives():
    arrived = []
    stream = io.BytesIO()

    def entries():
        for number in range(64):
            arrived.append(stream.tell())
            yield number.to_bytes(8, "big"), bytes(1 << 18)

    section = SectionWriter(stream, SNAPSHOT, "snapshots/7").add("t00001", entries())
    assert len(set(arrived)) == 4
    assert sum(1 for _ in read_section(cut(stream.getvalue(), section), section)) == 64


@pytest.mark.parametrize("bit", [0x01, 0x80])
def test_a_flipped_bit_is_damage_in_the_section_it_is_in(bit):
    data, [first, second] = written((ENTRIES, False), (ENTRIES, True))
    for at in range(len(data)):
        altered = bytearray(data)
        altered[at] ^= bit
        for section in (first, second):
            part = cut(bytes(altered), section)
            if section.offset <= at < section.offset + section.length:
                with pytest.raises(DamagedError, match=r"section at byte .* of changes/7 is damaged.*Restore the file"):
                    read_section(part, section)
            else:
                assert list(read_section(part, section)) == ENTRIES


def test_every_truncation_is_damage():
    data, [section] = written((ENTRIES, False))
    for length in range(len(data)):
        with pytest.raises(DamagedError, match=rf"expected {section.length} bytes with 3 entries"):
            read_section(cut(data[:length], section), section)


def test_another_section_is_damage():
    data, [first, second] = written((ENTRIES, False), (ENTRIES, True))
    with pytest.raises(DamagedError, match="checksum"):
        read_section(cut(data, first), second)


@pytest.mark.parametrize("change", [{"count": 4}, {"reset": True}])
def test_a_section_unlike_its_reference_is_damage(change):
    data, [section] = written((ENTRIES, False))
    with pytest.raises(DamagedError, match="its head and tail have 3 entries, reset 0"):
        read_section(cut(data, section), msgspec.structs.replace(section, **change))


def test_a_newer_format_is_unknown_and_not_damage():
    data, [section] = written((ENTRIES, False))
    body = bytearray(cut(data, section)[:-4])
    body[4:6] = struct.pack("<H", 2)
    with pytest.raises(UnknownFormatError, match="of f has format 2, this release reads format 1; run the query with"):
        read_section(*resealed(bytes(body)))


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (struct.pack("<QQ", 3, 9) + b"abc", "a frame cannot be read"),
        (struct.pack("<QQ", 99, 9) + b"abc", "a frame of 99 bytes does not fit"),
        (b"", "its frames have 0 entries"),
    ],
)
def test_a_sound_checksum_around_garbage_is_damage(frame, found):
    body = b"SECT" + struct.pack("<HBB", 1, 0, 0) + frame + struct.pack("<QQ", 0, len(ENTRIES))
    with pytest.raises(DamagedError, match=found):
        list(read_section(*resealed(body)))


FRAME = pa.Codec("zstd").compress(msgspec.msgpack.encode(ENTRIES), asbytes=True)
RAW_LENGTH = len(msgspec.msgpack.encode(ENTRIES))


def around(frame, *, name_length=0):
    """A section of one frame whose checksum is right."""
    head = b"SECT" + struct.pack("<HBB", 1, 0, name_length)
    return resealed(head + frame + struct.pack("<QQ", 0, len(ENTRIES)))


@pytest.mark.parametrize("raw_length", [0, RAW_LENGTH - 1, RAW_LENGTH + 1, 2**27, 2**33, 2**60, 2**63, 2**64 - 1])
def test_a_length_that_is_not_the_one_of_the_content_is_damage_and_takes_no_memory(raw_length):
    data, section = around(struct.pack("<QQ", len(FRAME), raw_length) + FRAME)
    pool = pa.default_memory_pool()
    most_before = max(pool.max_memory(), 2**28)
    with pytest.raises(DamagedError, match=r"a frame (cannot be read|of \d+ bytes before compression)"):
        list(read_section(data, section))
    assert pool.max_memory() <= most_before


def test_a_zstd_head_that_claims_as_much_as_the_frame_is_damage():
    claimed = 2**33
    head = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", claimed)  # one segment, content size in 8 bytes
    data, section = around(struct.pack("<QQ", len(head) + 7, claimed) + head + FRAME[-7:])
    with pytest.raises(DamagedError, match="a frame cannot be read"):
        list(read_section(data, section))


@pytest.mark.parametrize("name_length", [1, 40, 255])
def test_a_name_that_runs_past_its_end_is_damage(name_length):
    data, section = around(struct.pack("<QQ", len(FRAME), RAW_LENGTH) + FRAME, name_length=name_length)
    with pytest.raises(DamagedError, match="section at byte 0 of f is damaged"):
        list(read_section(data, section))


@given(st.data())
def test_a_changed_byte_under_a_right_checksum_is_damage_or_gives_entries(data):
    stored, [section] = written((ENTRIES, False))
    body = bytearray(cut(stored, section)[:-4])
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=9)):
        body[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xDD, 0xDF, 0xFF]) | st.integers(0, 255))
    try:
        found = list(read_section(*resealed(bytes(body))))
    except (DamagedError, UnknownFormatError):
        return
    assert len(found) == len(ENTRIES)


@given(st.lists(groups, min_size=1, max_size=3))
def test_frames_too_large_to_be_read_at_once_come_back(contents):
    data, found = written(*contents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "_AT_ONCE", 3)
        for section, (entries, _) in zip(found, contents, strict=True):
            assert list(read_section(cut(data, section), section)) == entries


def test_an_entry_larger_than_a_frame_comes_back():
    entries = [(b"key", bytes(sections._AT_ONCE + 1)), (b"z", None)]
    data, [section] = written((entries, False))
    assert list(read_section(cut(data, section), section)) == entries


def test_other_magic_bytes_are_damage():
    body = b"NOPE" + struct.pack("<HBB", 1, 0, 0) + struct.pack("<QQ", 0, len(ENTRIES))
    with pytest.raises(DamagedError, match="it starts with b'NOPE' instead of b'SECT'"):
        read_section(*resealed(body))


def test_entries_that_fail_leave_the_writer_usable():
    stream = io.BytesIO()
    writer = SectionWriter(stream, CHANGES, "changes/7")
    with pytest.raises(ZeroDivisionError):
        writer.add("t00000", ((b"k", bytes(1 // n)) for n in (1, 0)))
    section = writer.add("t00001", ENTRIES)
    assert list(read_section(cut(stream.getvalue(), section), section)) == ENTRIES
