"""The spool: what is appended survives, sealed batches stay as they are, damage is reported."""

import errno
import json
import os
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise import (
    CheckpointInUseError,
    DamagedError,
    InvalidArgumentError,
    MismatchError,
    StorageError,
    UnknownFormatError,
)
from equipoise.errors import EquipoiseError
from equipoise.framing import seal
from equipoise.microbatch import spool as module
from equipoise.microbatch.dead_letters import DeadLetter
from equipoise.microbatch.frames import frame
from equipoise.microbatch.record_lines import add_records, line_of, records
from equipoise.microbatch.spool import Spool, SpoolSection, Tasks, Tuples

SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64()})


def table(*values):
    return pa.table({"k": [str(v) for v in values], "v": list(values)}, schema=SCHEMA)


@pytest.fixture
def claimed():
    claims = []

    def claim(folder, **options):
        claims.append(Spool(folder))
        claims[-1].claim(SCHEMA, ["k"], **options)
        return claims[-1]

    yield claim
    for spool in claims:
        spool.close()


def values(found):
    return {number: [v for each in tuples for v in each.table["v"].to_pylist()] for number, tuples in found.items()}


def log_of(folder, number):
    return folder / "open" / f"{number:020d}"


def test_what_was_appended_is_there_for_the_next_receiver(tmp_path, claimed):
    spool = claimed(tmp_path)
    spool.append(0, Tuples(table(1, 2), 10.0, {"line": 2}))
    spool.append(0, Tuples(table(3), 11.0))
    spool.append(1, Tuples(table(4), 12.0, 7))
    spool.close()
    found = claimed(tmp_path).unsealed()
    assert values(found) == {0: [1, 2, 3], 1: [4]}
    assert [(each.time, each.position) for each in found[0]] == [(10.0, {"line": 2}), (11.0, None)]


@given(st.integers(1, 10_000))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_log_that_is_cut_anywhere_keeps_all_whole_frames(tmp_path_factory, claimed, cut):
    folder = tmp_path_factory.mktemp("spool")
    spool = claimed(folder)
    ends = []
    for value in range(3):
        spool.append(0, Tuples(table(value), 0.0))
        ends.append(log_of(folder, 0).stat().st_size)
    spool.close()
    size = min(cut, ends[-1])
    os.truncate(log_of(folder, 0), size)
    again = claimed(folder)
    kept = [value for value, end in enumerate(ends) if end <= size]
    assert values(again.unsealed()) == {0: kept}
    again.append(0, Tuples(table(9), 0.0))  # what was cut off does not come between
    again.close()
    last = claimed(folder)
    assert values(last.unsealed()) == {0: [*kept, 9]}
    last.close()


def test_a_frame_that_was_damaged_is_reported_and_one_at_the_end_is_kept_apart_with_a_warning(
    tmp_path, claimed, caplog
):
    spool = claimed(tmp_path)
    spool.append(0, Tuples(table(1), 0.0))
    first = log_of(tmp_path, 0).stat().st_size
    spool.append(0, Tuples(table(2), 0.0))
    spool.close()
    whole = log_of(tmp_path, 0).read_bytes()
    for at, reported in ((first // 2, True), (first + (len(whole) - first) // 2, False)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        log_of(tmp_path, 0).write_bytes(bytes(damaged))
        spool = claimed(tmp_path)
        if reported:
            with pytest.raises(DamagedError, match="is damaged at byte 0"):
                spool.unsealed()
        else:
            assert values(spool.unsealed()) == {0: [1]}
            apart = tmp_path / "cut-off" / f"{0:020d}-{first}"
            assert apart.read_bytes() == damaged[first:], "nothing is thrown away"
            assert f"the last {len(whole) - first} bytes of {log_of(tmp_path, 0)} are not a whole frame" in caplog.text
            assert f"kept in {apart}" in caplog.text
        spool.close()


@pytest.mark.parametrize("number", [0, 2], ids=["first", "last"])
def test_a_flipped_bit_in_a_length_is_reported_and_nothing_is_cut_off(tmp_path, claimed, number):
    spool, ends = claimed(tmp_path), [0]
    for value in range(3):
        spool.append(0, Tuples(table(value), 0.0))
        ends.append(log_of(tmp_path, 0).stat().st_size)
    spool.close()
    whole = log_of(tmp_path, 0).read_bytes()
    again = claimed(tmp_path)
    for bit in range(64):
        damaged = bytearray(whole)
        damaged[ends[number] + bit // 8] ^= 1 << bit % 8
        log_of(tmp_path, 0).write_bytes(damaged)
        with pytest.raises(DamagedError, match=f"is damaged at byte {ends[number]}: a frame of"):
            again.unsealed()
        assert log_of(tmp_path, 0).read_bytes() == damaged


def test_a_frame_without_a_beginning_is_reported_where_others_follow(tmp_path, claimed):
    spool = claimed(tmp_path)
    for value in range(3):
        spool.append(0, Tuples(table(value), 0.0))
    spool.close()
    whole, again = log_of(tmp_path, 0).read_bytes(), claimed(tmp_path)
    for lost in (b"\0" * 40, b"\xff" * 40):
        log_of(tmp_path, 0).write_bytes(lost + whole[len(lost) :])
        with pytest.raises(DamagedError, match="is damaged at byte 0"):
            again.unsealed()


def test_bytes_that_never_came_to_the_disk_are_dropped(tmp_path, claimed):
    spool = claimed(tmp_path)
    spool.append(0, Tuples(table(1), 0.0))
    spool.close()
    with log_of(tmp_path, 0).open("ab") as file:
        file.write(b"\0" * 5000)
    assert values(claimed(tmp_path).unsealed()) == {0: [1]}


def test_a_batch_that_was_forgotten_by_half_is_gone_with_the_next_receiver(tmp_path, claimed):
    spool = claimed(tmp_path)
    for number in range(3):
        spool.seal(number, [table(number)], None, {})
    (tmp_path / "sealed" / f"{0:020d}").unlink()
    spool.close()
    claimed(tmp_path)
    assert sorted(path.name for path in (tmp_path / "blocks").iterdir()) == [f"{n:020d}" for n in (1, 2)]


def test_a_sealed_batch_is_the_same_whenever_it_is_read_until_it_is_forgotten(tmp_path, claimed):
    spool = claimed(tmp_path)
    spool.append(0, Tuples(table(1, 2, 3), 0.0, 3))
    sealed = spool.seal(0, [table(1, 3), table(2)], 3, {"rows": 3})
    assert spool.unsealed() == {}
    assert not log_of(tmp_path, 0).exists()
    for reader in (spool, Spool(tmp_path)):
        batch = reader.batch(0)
        assert batch == sealed
        assert [reader.block(0, section)["v"].to_pylist() for section in batch.blocks] == [[1, 3], [2]]
    spool.seal(1, [table()], 3, {})
    spool.forget(1)
    assert spool.numbers() == [1]
    assert spool.bytes == (tmp_path / "blocks" / f"{1:020d}").stat().st_size


@pytest.mark.parametrize("kind", ["blocks", "sealed"])
def test_damage_to_a_sealed_batch_is_reported(tmp_path, kind, claimed):
    spool = claimed(tmp_path)
    spool.seal(0, [table(1, 2)], None, {})
    path = tmp_path / kind / f"{0:020d}"
    whole = path.read_bytes()
    for at in (5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises((DamagedError, UnknownFormatError)):
            spool.block(0, spool.batch(0).blocks[0])
    path.write_bytes(whole[:-3])
    with pytest.raises(DamagedError):
        spool.block(0, spool.batch(0).blocks[0])
    path.unlink()
    with pytest.raises(StorageError, match="is not there"):
        spool.block(0, spool.batch(0).blocks[0])


def test_a_newer_format_is_reported(tmp_path, claimed):
    spool = claimed(tmp_path)
    spool.seal(0, [table(1)], None, {})
    (tmp_path / "sealed" / f"{0:020d}").write_bytes(seal("micro-batch", 2, {}))
    with pytest.raises(UnknownFormatError, match="has format 2"):
        spool.batch(0)


def test_a_spool_has_a_name_that_no_other_has(tmp_path, claimed):
    assert Spool(tmp_path / "a").name() is None
    names = {claimed(tmp_path / folder).name() for folder in ("a", "b")}
    assert len(names) == 2
    assert Spool(tmp_path / "a").name() in names


def test_a_spool_of_an_older_release_is_refused_by_name_with_what_to_do(tmp_path, claimed):
    claimed(tmp_path).close()
    schema = pa.schema({"k": pa.string()})
    (tmp_path / "identity").write_bytes(seal("spool", 2, ["name", schema.serialize().to_pybytes(), ["k"]]))
    (tmp_path / "batches.jsonl").write_text('{"batch": 1, "rows": 3}\n')  # as that release wrote it
    reported = f"{tmp_path}/identity: stored spool has format 2.*with that release and give this one a new spool"
    for use in (lambda: Spool(tmp_path).name(), lambda: Spool(tmp_path).claim(schema, ["k"])):
        with pytest.raises(UnknownFormatError, match=reported):
            use()


def test_damage_to_the_identity_is_reported(tmp_path, claimed):
    claimed(tmp_path)
    path = tmp_path / "identity"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises((DamagedError, UnknownFormatError)):
            Spool(tmp_path).name()


@pytest.mark.parametrize("given", ["{}", "file://{}", "file:{}", "file://localhost{}"])
def test_a_spool_is_a_local_folder_however_it_is_written(tmp_path, given):
    assert Spool(given.format(tmp_path)).folder == tmp_path
    assert Spool(tmp_path).folder == tmp_path


@pytest.mark.parametrize(
    "given", ["s3://bucket/spool", "hdfs://name/spool", "file://host/spool", Path("s3://bucket/x")]
)
def test_a_spool_that_is_no_local_folder_is_reported(given):
    with pytest.raises(InvalidArgumentError, match=r"can append and sync.*give a path"):
        Spool(given)


def test_small_records_are_kept(tmp_path, claimed):
    spool = claimed(tmp_path)
    assert (spool.released(), spool.tasks(), spool.times()) == (0, None, [])
    spool.release(3)
    spool.set_tasks(Tasks(4, 5, 0.5))
    for number in range(20):
        spool.add_time(number, number / 10)
    spool.add_time(19, 7.0)
    other = Spool(tmp_path)
    assert (other.released(), other.tasks()) == (3, Tasks(4, 5, 0.5))
    assert other.times()[-2:] == [(18, 1.8), (19, 7.0)]
    assert len(other.times()) == 16


def test_one_receiver_at_a_time_and_of_one_kind(tmp_path, claimed):
    first = claimed(tmp_path)
    with pytest.raises(CheckpointInUseError, match="another receiver uses the spool"):
        claimed(tmp_path, patience=0.1)
    first.close()
    with pytest.raises(MismatchError, match="another schema or key"):
        Spool(tmp_path).claim(SCHEMA, ["v"])
    with pytest.raises(MismatchError):
        Spool(tmp_path).claim(pa.schema({"k": pa.string()}), ["k"])
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not use"):
        Spool(tmp_path / "file").claim(SCHEMA, ["k"])


def test_a_full_disk_is_reported_and_nothing_is_acknowledged(tmp_path, monkeypatch, claimed):
    spool = claimed(tmp_path)
    spool.append(0, Tuples(table(1), 0.0))

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(StorageError, match=r"No space left.*make room"):
        spool.append(0, Tuples(table(2), 0.0))


def test_dead_letters_are_counted_and_their_file_is_bounded(tmp_path, monkeypatch, claimed):
    spool = claimed(tmp_path)
    assert spool.add_dead_letters([DeadLetter("{", "no JSON"), DeadLetter("x", "no JSON", 64)])
    monkeypatch.setattr(module, "_DEAD_LETTERS_BYTES", 10)
    assert not spool.add_dead_letters([DeadLetter("y", "no JSON")])
    assert spool.dead_letter_count == 66
    found = [(line["text"], line["reason"], line["rows"]) for line in spool.dead_letters()]
    assert found == [("{", "no JSON", 1), ("x", "no JSON", 64)]


def test_dead_letters_are_on_disk_before_they_are_acknowledged(tmp_path, monkeypatch, claimed):
    spool = claimed(tmp_path)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(StorageError, match=r"dead-letters.*No space left.*make room"):
        spool.add_dead_letters([DeadLetter("{", "no JSON")])


def test_the_lines_of_batches_are_bounded_and_survives_a_crash_in_mid_line(tmp_path, monkeypatch, claimed):
    monkeypatch.setattr(module, "BATCH_LINES_KEPT", 5)
    spool = claimed(tmp_path)
    for number in range(12):
        spool.add_batch_line({"batch": number})
    with (tmp_path / "batches.jsonl").open("a") as file:
        file.write('{"batch": 12, "ro')
    assert [line["batch"] for line in spool.batch_lines()] == list(range(5, 12))
    assert [line["batch"] for line in spool.batch_lines(3)] == [9, 10, 11]
    spool.add_batch_line({"batch": 13})
    assert [line["batch"] for line in spool.batch_lines(2)] == [11, 13], "the stump is gone"


values_of_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
records_of = st.dictionaries(
    st.text().filter(lambda name: name not in {"version", "crc32"}), values_of_json, max_size=4
)


@given(st.lists(records_of, max_size=4))
def test_records_are_the_same_when_they_are_read_and_written_again(given):
    data = b"".join(map(line_of, given))
    found = list(records(data, "file"))
    assert found == given
    assert b"".join(map(line_of, found)) == data
    assert data.count(b"\n") == len(given)
    assert all(json.loads(line)["version"] == 1 for line in data.splitlines()), "each line is JSON for other programs"


def test_every_flipped_bit_of_a_line_is_reported_by_the_number_of_the_line(tmp_path):
    data = line_of({"batch": 1, "letter": "\ud800 \u2028"}) + line_of({"batch": 2}) + line_of({"batch": 3})
    first = data.index(b"\n") + 1
    for bit in range(8 * first, 8 * (data.index(b"\n", first) + 1)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((DamagedError, UnknownFormatError), match=f"line 2 of {tmp_path}/x"):
            list(records(bytes(damaged), f"{tmp_path}/x"))


def test_a_line_of_a_newer_format_or_of_none_is_reported():
    newer = b'{"batch": 1, "version": 2'
    with pytest.raises(UnknownFormatError, match="line 1 of file has format 2"):
        list(records(b'%s, "crc32": "%08x"}\n' % (newer, zlib.crc32(newer)), "file"))
    with pytest.raises(DamagedError, match="line 1 of file"):
        list(records(b'{"batch": 1}\n', "file"))


@given(st.integers(0, 200_000))
@settings(max_examples=30)
def test_a_file_of_lines_that_is_cut_anywhere_keeps_all_whole_lines(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("lines") / "lines"
    given = [{"n": n, "text": "x" * length} for n, length in enumerate([10, 100_000, 0, 50])]
    add_records(path, given[:2], sync=True)
    add_records(path, given[2:], sync=False)
    data = path.read_bytes()
    path.write_bytes(data[:cut])
    kept = list(records(data[:cut], "file"))
    assert kept == given[: data[:cut].count(b"\n")]
    add_records(path, [{"n": 9}], sync=False)
    assert list(records(path.read_bytes(), "file")) == [*kept, {"n": 9}]


def test_damage_to_the_history_is_reported(tmp_path, claimed):
    spool = claimed(tmp_path)
    for number in range(3):
        spool.add_batch_line({"batch": number})
    path = tmp_path / "batches.jsonl"
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(DamagedError, match=r"line 1 of .*batches.jsonl is damaged"):
        spool.batch_lines()
    assert [line["batch"] for line in spool.batch_lines(1)] == [2]


def test_files_of_other_names_stay(tmp_path, claimed):
    claimed(tmp_path).append(0, Tuples(table(1), 0.0))
    strange = [tmp_path / folder / name for folder in ("open", "sealed", "blocks") for name in (".swp", "7", "٣" * 20)]
    for path in strange:
        path.write_text("mine")
    (tmp_path / "sealed" / f"{5:020d}.bak").mkdir()
    Spool(tmp_path)
    again = Spool(tmp_path)
    assert again.numbers() == []
    assert again.sealed() == 0
    assert values(again.unsealed()) == {0: [1]}
    assert all(path.read_text() == "mine" for path in strange)


@pytest.mark.parametrize(
    "payload",
    [[b"", 0.0], ["text", 0.0, None], [b"no stream", 0.0, None], 7, [b"\xff\xff\xff\xff\xff\xff\xff\x7f" * 9, 0.0, 1]],
)
def test_frames_of_the_right_checksum_and_another_content_are_reported(tmp_path, claimed, payload):
    spool = claimed(tmp_path)
    log_of(tmp_path, 3).write_bytes(frame(payload))
    with pytest.raises(DamagedError, match=rf"open/{3:020d} is damaged.*restore it from a copy"):
        spool.unsealed()


@pytest.mark.parametrize(
    "section",
    [
        SpoolSection(2**62, 10, 0, 0),
        SpoolSection(0, 2**62, 0, 0),
        SpoolSection(-5, 10, 0, 0),
        SpoolSection(0, -1, 0, 0),
    ],
)
def test_absurd_lengths_are_reported_before_memory_is_taken(tmp_path, claimed, section):
    spool = claimed(tmp_path)
    spool.seal(0, [table(1)], None, {})
    with pytest.raises(DamagedError, match=r"bytes, and .* were expected at"):
        spool.block(0, section)


def test_records_of_the_right_checksum_and_another_content_are_reported(tmp_path, claimed):
    spool = claimed(tmp_path)
    for name, payload in (("released", "many"), ("tasks", [1]), ("times", {"a": 1})):
        (tmp_path / name).write_bytes(seal(f"spool-{name}", 1, payload))
        with pytest.raises(DamagedError, match=f"{tmp_path}/{name} is damaged"):
            getattr(spool, name)()
    (tmp_path / "sealed" / f"{4:020d}").write_bytes(seal("micro-batch", 1, [1, 2]))
    with pytest.raises(DamagedError, match=f"sealed/{4:020d} is damaged"):
        spool.batch(4)
    (tmp_path / "identity").write_bytes(seal("spool", 4, ["name", b"no schema", ["k"]]))
    with pytest.raises(DamagedError, match="identity is damaged"):
        spool.name()


def lived_in(folder, claimed):
    spool = claimed(folder)
    spool.append(0, Tuples(table(1), 0.0))
    spool.seal(0, [table(1), table(2)], 1, {"rows": 2})
    spool.seal(1, [table(3)], 1, {"rows": 1})
    spool.append(2, Tuples(table(4), 0.0))
    spool.append(2, Tuples(table(5), 0.0))
    spool.release(1)
    spool.set_tasks(Tasks(1, 2, 0.5))
    spool.add_time(0, 1.0)
    spool.add_batch_line({"batch": 0})
    spool.add_dead_letters([DeadLetter("{", "no JSON")])
    spool.close()


def faults(folder):
    found = []
    for what, check in Spool(folder).verify():
        try:
            check()
        except EquipoiseError:
            found.append(what)
    return found


def test_a_spool_is_verified_in_all_its_parts(tmp_path, claimed):
    lived_in(tmp_path, claimed)
    assert [what for what, _ in Spool(tmp_path).verify()] == [
        "identity of the spool",
        "released of the spool",
        "tasks of the spool",
        "times of the spool",
        "sealed batch 0",
        "sealed batch 1",
        "open batch 2",
        "batches.jsonl",
        "dead-letters.jsonl",
    ]
    assert faults(tmp_path) == []
    for path in sorted(path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"):
        whole = path.read_bytes()
        at = len(whole) // 3
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert len(faults(tmp_path)) == 1, path
        path.write_bytes(whole)
    assert faults(tmp_path) == []


def test_verifying_changes_nothing_and_takes_a_folder_that_is_no_spool_for_none(tmp_path, claimed):
    lived_in(tmp_path / "spool", claimed)
    with log_of(tmp_path / "spool", 2).open("ab") as file:
        file.write(b"cut short")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert faults(tmp_path / "spool") == []
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert faults(tmp_path) == ["identity of the spool"]


def test_a_batch_that_is_forgotten_while_a_spool_is_verified_is_skipped(tmp_path, claimed):
    lived_in(tmp_path, claimed)
    checks = list(Spool(tmp_path).verify())
    Spool(tmp_path).forget(1)
    log_of(tmp_path, 2).unlink()
    for _, check in checks:
        check()
    (tmp_path / "blocks" / f"{1:020d}").unlink()
    assert faults(tmp_path) == ["sealed batch 1"]
