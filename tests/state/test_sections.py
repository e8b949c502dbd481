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
from equipoise.state import section_reader, sections
from equipoise.state.key_filters import filter_of, may_hold, numbers_of, probe_of
from equipoise.state.section_reader import SectionReader
from equipoise.state.sections import (
    CHANGES,
    LEAST_SECTION_BYTES,
    SNAPSHOT,
    IndexedFrame,
    Section,
    SectionWriter,
    read_section,
)
from equipoise.storage import Storage

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
    assert data[:11] == b"EQPSTATE" + b"\x02\x00" + b"\x02"
    assert (section.offset, section.length) == (11, len(data) - 11)
    assert data[11:26] == b"SECT" + b"\x02\x00" + b"\x01" + b"\x06t00000" + b"\x28"  # zstd begins here
    length, count, index_checksum, checksum = struct.unpack("<QQII", data[-24:])
    index = data[-24 - length : -24]
    [[first, last, frame_length, raw_length, in_frame, frame_checksum, keys]] = msgspec.msgpack.decode(index)
    frame = data[25 : 25 + frame_length]
    assert data[25 + frame_length :] == data[-24 - length :]
    raw = pa.Codec("zstd").decompress(frame, raw_length, asbytes=True)
    assert raw == bytes.fromhex("93 92c40161c4036f6e65 92c40162c0 92c40200ffc400")
    assert (first, last, in_frame, count) == (b"\x00\xff", b"b", 3, 3)
    assert keys == bytes.fromhex("345288e1")
    assert (frame_checksum, index_checksum) == (zlib.crc32(frame), zlib.crc32(data[-24 - length : -8]))
    assert checksum == zlib.crc32(data[11:-4]) == section.checksum


def test_the_shortest_section_has_the_documented_length():
    stream = io.BytesIO()
    assert SectionWriter(stream, CHANGES, "f").add("", []).length == LEAST_SECTION_BYTES


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
    assert len(set(arrived)) == 64
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


def test_another_format_is_unknown_and_not_damage():
    data, [section] = written((ENTRIES, False))
    body = bytearray(cut(data, section)[:-4])
    body[4:6] = struct.pack("<H", 3)
    with pytest.raises(UnknownFormatError, match="of f has format 3, this release reads format 2; run the query with"):
        read_section(*resealed(bytes(body)))


def test_the_format_before_this_one_is_refused_by_name(tmp_path):
    """Format 1 had lengths in front of its frames, and no index."""
    body = b"SECT" + struct.pack("<HBB", 1, 0, 0) + struct.pack("<QQ", len(FRAME), RAW_LENGTH) + FRAME
    data, section = resealed(body + struct.pack("<QQ", 0, len(ENTRIES)))
    storage = Storage(str(tmp_path))
    storage.write("f", data)
    for read in (SectionReader(storage).entries, SectionReader(storage).open):
        with pytest.raises(UnknownFormatError, match="of f has format 1, this release reads format 2; run the query"):
            read(section)


CONTENT = msgspec.msgpack.encode(ENTRIES)
RAW_LENGTH = len(CONTENT)
FRAME = pa.Codec("zstd").compress(CONTENT, asbytes=True)
SOUND = IndexedFrame(b"\x00\xff", b"b", len(FRAME), RAW_LENGTH, len(ENTRIES), zlib.crc32(FRAME), b"")


def around(frames, content, *, name_length=0):
    """A section of some frames whose checksums are right."""
    index = msgspec.msgpack.encode(frames)
    index += struct.pack("<QQ", len(index), len(ENTRIES))
    head = b"SECT" + struct.pack("<HBB", 2, 0, name_length)
    return resealed(head + content + index + struct.pack("<I", zlib.crc32(index)))


def test_a_section_made_by_hand_comes_back():
    assert list(read_section(*around([SOUND], FRAME))) == ENTRIES


@pytest.mark.parametrize(
    ("frames", "content", "found"),
    [
        ([msgspec.structs.replace(SOUND, length=3, checksum=zlib.crc32(b"abc"))], b"abc", "a frame cannot be read"),
        ([msgspec.structs.replace(SOUND, length=99)], FRAME, "its index does not fit it"),
        ([msgspec.structs.replace(SOUND, length=-1)], FRAME, "its index does not fit it"),
        ([msgspec.structs.replace(SOUND, length=len(FRAME) - 1)], FRAME, "its index does not fit it"),
        (
            [msgspec.structs.replace(SOUND, checksum=1)],
            FRAME,
            r"a frame has \d+ bytes with the checksum \w+, its index",
        ),
        ([msgspec.structs.replace(SOUND, count=2)], FRAME, "its index does not fit it"),
        ([], b"", "its index does not fit it"),
        ("text", FRAME, "its index does not fit it"),
        ([["a", "b"]], FRAME, "its index does not fit it"),
    ],
)
def test_sound_checksums_around_garbage_are_damage(frames, content, found):
    with pytest.raises(DamagedError, match=found):
        list(read_section(*around(frames, content)))


def test_a_frame_with_other_entries_than_its_index_says_is_damage():
    content = pa.Codec("zstd").compress(msgspec.msgpack.encode(ENTRIES[:2]), asbytes=True)
    raw_length = len(msgspec.msgpack.encode(ENTRIES[:2]))
    frame = msgspec.structs.replace(SOUND, length=len(content), raw_length=raw_length, checksum=zlib.crc32(content))
    with pytest.raises(DamagedError, match="a frame has 2 entries, its index has 3"):
        list(read_section(*around([frame], content)))


@pytest.mark.parametrize("raw_length", [0, RAW_LENGTH - 1, RAW_LENGTH + 1, 2**27, 2**33, 2**60, 2**63 - 1])
def test_a_length_that_is_not_the_one_of_the_content_is_damage_and_takes_no_memory(raw_length):
    data, section = around([msgspec.structs.replace(SOUND, raw_length=raw_length)], FRAME)
    pool = pa.default_memory_pool()
    most_before = max(pool.max_memory(), 2**28)
    with pytest.raises(DamagedError, match=r"a frame cannot be read|its index does not fit it"):
        list(read_section(data, section))
    assert pool.max_memory() <= most_before


def test_a_zstd_head_that_claims_as_much_as_the_frame_is_damage():
    claimed = 2**33
    head = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", claimed)  # one segment, content size in 8 bytes
    content = head + FRAME[-7:]
    frame = msgspec.structs.replace(SOUND, length=len(content), raw_length=claimed, checksum=zlib.crc32(content))
    data, section = around([frame], content)
    with pytest.raises(DamagedError, match="a frame cannot be read"):
        list(read_section(data, section))


@pytest.mark.parametrize("name_length", [1, 40, 255])
def test_a_name_that_runs_past_its_end_is_damage(name_length):
    data, section = around([SOUND], FRAME, name_length=name_length)
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
    body = b"NOPE" + struct.pack("<HBB", 2, 0, 0) + bytes(21)
    with pytest.raises(DamagedError, match="it starts with b'NOPE' instead of b'SECT'"):
        read_section(*resealed(body))


def test_entries_that_fail_leave_the_writer_usable():
    stream = io.BytesIO()
    writer = SectionWriter(stream, CHANGES, "changes/7")
    with pytest.raises(ZeroDivisionError):
        writer.add("t00000", ((b"k", bytes(1 // n)) for n in (1, 0)))
    section = writer.add("t00001", ENTRIES)
    assert list(read_section(cut(stream.getvalue(), section), section)) == ENTRIES


def stored(tmp_path, data):
    storage = Storage(str(tmp_path))
    storage.write("changes/7", data)
    return SectionReader(storage)


LONG = [
    (number.to_bytes(9, "big"), None if number % 7 == 0 else bytes([number]) * (number % 50)) for number in range(200)
]


@pytest.fixture
def small_limits(monkeypatch):
    """Frames of some entries; sections that are read piece by piece; indexes that take a second read."""
    monkeypatch.setattr(sections, "FRAME_BYTES", 300)
    monkeypatch.setattr(section_reader, "WHOLE_BYTES", 400)
    monkeypatch.setattr(section_reader, "_TAIL_BYTES", 100)


@pytest.mark.usefixtures("small_limits")
def test_a_long_section_is_read_piece_by_piece(tmp_path, monkeypatch):
    data, [_, section] = written((ENTRIES, False), (LONG, True))
    reader = stored(tmp_path, data)
    read, real = [], Storage.read_range
    monkeypatch.setattr(Storage, "read_range", lambda *args: read.append(args[-1]) or real(*args))
    assert list(reader.entries(section)) == LONG
    assert [entry for frame in reader.frames(section, 1) for entry in frame.others] == LONG
    index = reader.open(section).index
    assert max(read) <= max(400, section.length - index.end)


@pytest.mark.usefixtures("small_limits")
def test_the_frames_of_a_key_are_found_without_the_others(tmp_path):
    data, [_, section] = written((ENTRIES, False), (LONG, True))
    opened = stored(tmp_path, data).open(section)
    before = opened.read_bytes
    for number in (0, 77, 199):
        [place] = opened.index.holding(number.to_bytes(9, "big"))
        assert LONG[number] in opened.frame(place)
    assert opened.read_bytes - before < section.length / 4
    assert len(opened.index.frames) > 10
    assert opened.index.within(b"\x00") == list(range(len(opened.index.frames)))
    assert opened.index.within(b"\x01") == []


@given(st.lists(st.binary(max_size=12), unique=True, max_size=60), st.lists(st.binary(max_size=12)), st.integers(1, 90))
def test_a_frame_that_has_a_key_is_always_found(keys, others, frame_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "FRAME_BYTES", frame_bytes)
        data, [section] = written(([(key, b"value") for key in keys], False))
    index = sections.read_index(cut(data, section), section)
    assert index is not None
    found = list(read_section(cut(data, section), section))
    at = 0
    places = {}
    for place, frame in enumerate(index.frames):
        places |= dict.fromkeys((key for key, _ in found[at : at + frame.count]), place)
        at += frame.count
    for key in keys:
        assert places[key] in index.holding(key[:9])
    for key in others:
        for place in index.holding(key[:9]):
            assert index.frames[place].first <= key[:9] <= index.frames[place].last


def test_a_filter_rules_out_nearly_all_other_keys():
    known = [number.to_bytes(9, "big") for number in range(0, 20_000, 2)]
    content = filter_of(numbers_of(known))
    assert len(content) == 12_500
    assert all(may_hold(content, probe_of(key)) for key in known[:1000])
    wrong = sum(may_hold(content, probe_of(number.to_bytes(9, "big"))) for number in range(1, 4_000, 2))
    assert wrong < 60  # of 2,000; 24 are expected


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("bit", [0x01, 0x80])
def test_a_flipped_bit_is_damage_also_where_a_section_is_read_in_pieces(tmp_path, bit):
    data, [_, section] = written((ENTRIES, False), (LONG, True))
    keys = [key for key, _ in LONG]
    for at in [*range(section.offset, section.offset + section.length, 7), *range(len(data) - 30, len(data))]:
        altered = bytearray(data)
        altered[at] ^= bit
        reader = stored(tmp_path, bytes(altered))
        with pytest.raises(DamagedError, match=r"section at byte .* of changes/7 is damaged.*Restore the file"):
            list(reader.entries(section))
        if at < section.offset + 14:  # the head, which only a reader of the whole section sees
            continue
        with pytest.raises(DamagedError, match=r"section at byte .* of changes/7 is damaged.*Restore the file"):
            looked_up(reader, section, keys)


def looked_up(reader, section, keys):
    """All frames that some keys need."""
    opened = reader.open(section)
    return [opened.frame(place) for key in keys for place in opened.index.holding(key)]


@pytest.mark.usefixtures("small_limits")
def test_a_file_that_ends_early_is_damage_where_a_section_is_read_in_pieces(tmp_path):
    data, [section] = written((LONG, False))
    for length in range(len(data) - 200, len(data)):
        reader = stored(tmp_path, data[:length])
        with pytest.raises(DamagedError, match=f"is damaged: .*expected {section.length} bytes"):
            list(reader.entries(section))
        with pytest.raises(DamagedError, match=f"is damaged: .*expected {section.length} bytes"):
            reader.open(section)
