"""The log and Spark's half of a checkpoint must be of the same time; any other pair is refused by name."""

import shutil
from hashlib import sha256
from pathlib import Path

import pyarrow.fs
import pytest

from equipoise.errors import LogBrokenError
from equipoise.state.halves import PlannedBatch, SparkHalf
from equipoise.storage import Storage
from equipoise.storage.file_systems import RenamingFiles
from equipoise.storage.local_disk import LocalDisk

WAY_OUT = "restore the whole checkpoint, both halves, from one copy"


def offsets(batch, *, time=1000):
    """What Spark writes of a batch of the file source: the offset is a counter, and only the time tells files apart."""
    return f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{time + batch}}}\n{{"logOffset":{batch}}}\n'.encode()


def digest(batch, **given):
    return sha256(offsets(batch, **given)).hexdigest()


class Synced(LocalDisk):
    """Remembers which files were synced."""

    def __init__(self):
        self.paths = []

    def sync(self, path):
        super().sync(path)
        self.paths.append(path)


@pytest.fixture
def folder(tmp_path):
    """Spark's half after batches 0 to 3, the last of which Spark does not know to be finished."""
    for batch in range(4):
        for name in ("offsets", "sources/0"):
            path = tmp_path / "spark" / name / str(batch)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(offsets(batch))
            path.with_name(f".{batch}.crc").write_bytes(b"")
    (tmp_path / "spark/commits").mkdir()
    for batch in range(3):
        (tmp_path / "spark/commits" / str(batch)).write_bytes(b"v1\n{}")
    return tmp_path


@pytest.fixture
def half(folder):
    return SparkHalf(Storage(str(folder)))


def test_the_last_batches_are_found_among_other_files(half, folder):
    (folder / "spark/offsets/10").write_bytes(b"v1")
    (folder / "spark/offsets/.12.tmp").write_bytes(b"v1")
    assert (half.last_planned(), half.last_finished()) == (10, 2)
    shutil.rmtree(folder / "spark")
    assert (half.last_planned(), half.last_finished()) == (-1, -1)


def test_the_digest_is_that_of_the_whole_file(half, folder):
    assert half.digest(3) == digest(3)
    before = half.digest(2)
    (folder / "spark/offsets/2").write_bytes(offsets(2, time=5000))
    assert half.digest(2) != before, "another batch of the same number has the same offset and another time"


def test_the_time_and_the_watermark_of_a_batch_are_those_that_spark_has_recorded(half, folder):
    (folder / "spark/offsets/2").write_bytes(b'v2\n{"batchWatermarkMs":70,"batchTimestampMs":90,"conf":{}}\n{}\n')
    planned = half.planned(2)
    assert (planned.digest, planned.time_ms, planned.watermark_ms) == (half.digest(2), 90, 70)
    (folder / "spark/offsets/2").write_bytes(b"written without Spark")
    assert half.planned(2) == PlannedBatch(half.digest(2))


@pytest.mark.parametrize("line", [b"", b"\n{", b"\n{}", b'\n{"batchWatermarkMs":"x","batchTimestampMs":1}', b"\n\xff"])
def test_damaged_offsets_are_refused_by_name(half, folder, line):
    (folder / "spark/offsets/2").write_bytes(b"v1\n" + line.removeprefix(b"\n"))
    with pytest.raises(LogBrokenError, match=r"spark/offsets/2 should be JSON with batchTimestampMs and"):
        half.planned(2)


def test_a_batch_has_moved_the_watermark_if_spark_has_recorded_a_later_one_for_the_next(half, folder):
    for following, moved in ((0, False), (1, True)):
        (folder / "spark/commits/2").write_text(f'v1\n{{"nextBatchWatermarkMs":{following}}}')
        assert half.moved_watermark(2) is moved
    (folder / "spark/commits/2").write_text("v1")
    with pytest.raises(LogBrokenError, match=r"spark/commits/2 should be JSON with nextBatchWatermarkMs"):
        half.moved_watermark(2)


def test_halves_of_the_same_time_are_accepted(half):
    half.require(4, digest(3))  # to be delivered again
    half.require(3, digest(2))  # planned, and not committed


def test_a_first_batch_that_is_planned_is_accepted_and_an_empty_half(half, folder):
    shutil.rmtree(folder / "spark/commits")
    for batch in range(1, 4):
        (folder / f"spark/offsets/{batch}").unlink()
    half.require(0, "")  # the initial state
    shutil.rmtree(folder / "spark")
    half.require(0, "")
    half.require(-1, "")  # nothing is committed


def test_an_older_half_is_refused_by_name(half, folder):
    where = f"the log in {folder} ends with batch 4"
    with pytest.raises(LogBrokenError, match=rf"Spark's half is older than the log: {where}, .*after 3; .*{WAY_OUT}"):
        half.require(5, digest(4))


def test_a_newer_half_is_refused_by_name(half, folder):
    where = f"the log in {folder} ends with batch 1"
    with pytest.raises(
        LogBrokenError, match=rf"Spark's half is newer than the log: {where}, .*planned batch 3; .*{WAY_OUT}"
    ):
        half.require(2, digest(1))


def test_a_half_that_has_finished_what_the_log_does_not_know_is_refused_by_name(half, folder):
    (folder / "spark/commits/3").write_bytes(b"v1\n{}")
    where = f"the log in {folder} ends with batch 2"
    said = rf"Spark's half is newer than the log: {where}, and Spark has finished batch 3; .*{WAY_OUT}"
    with pytest.raises(LogBrokenError, match=said):
        half.require(3, digest(2))


@pytest.mark.parametrize(("head", "ends"), [(0, "ends before any batch"), (-1, "is empty")])
@pytest.mark.parametrize("finished", [True, False])
def test_a_half_with_batches_is_refused_where_the_log_has_none(half, folder, head, ends, finished):
    if not finished:
        shutil.rmtree(folder / "spark/commits")
    with pytest.raises(LogBrokenError, match=rf"newer than the log: the log in {folder} {ends}, .*{WAY_OUT}"):
        half.require(head, "")


def test_one_finished_batch_is_refused_where_the_log_is_empty(half, folder):
    shutil.rmtree(folder / "spark/offsets")
    for batch in (1, 2):
        (folder / f"spark/commits/{batch}").unlink()
    with pytest.raises(LogBrokenError, match="Spark has finished batch 0"):
        half.require(0, "")


@pytest.mark.parametrize("gone", ["spark", "spark/offsets"])
def test_a_missing_half_is_refused_by_name(half, folder, gone):
    shutil.rmtree(folder / gone)
    with pytest.raises(LogBrokenError, match=rf"Spark's half is missing: .*batch 3, .*offsets is empty.*{WAY_OUT}"):
        half.require(4, digest(3))


def test_missing_offsets_of_the_committed_batch_are_refused_by_name(half, folder):
    (folder / "spark/offsets/2").unlink()
    with pytest.raises(LogBrokenError, match=rf"Spark's half is missing: .*spark/offsets/2 does not exist; {WAY_OUT}"):
        half.require(3, digest(2))


def test_a_foreign_half_is_refused_by_name(half, folder):
    (folder / "spark/offsets/3").write_bytes(offsets(3, time=5000))
    said = rf"Spark's half is foreign: batch 3 of {folder} .*{digest(3)}, .*{digest(3, time=5000)}, .*{WAY_OUT}"
    with pytest.raises(LogBrokenError, match=said):
        half.require(4, digest(3))
    with pytest.raises(LogBrokenError, match=said):
        half.require_same(3, digest(3), half.digest(3))
    half.require_same(3, digest(3), digest(3))


def test_files_of_sources_are_synced_by_the_counter_of_each_source(folder):
    """The counter of a source stands still where a batch has no new files of that source."""
    sources = folder / "spark/sources"
    (sources / "1").mkdir()
    for name in ("7", "8", "9.compact", ".10.tmp"):
        (sources / "1" / name).write_bytes(b"")
    store = Synced()
    half = SparkHalf(Storage(str(folder), store=store))

    def synced(batch):
        half.sync(batch)
        names, store.paths = [str(Path(path).relative_to(folder)) for path in store.paths], []
        return names

    at_first = ["spark", "spark/offsets", "spark/offsets/3"]
    of_sources = [f"spark/sources/{name}" for name in ("0", "0/2", "0/3", "1", "1/8", "1/9.compact")]
    assert synced(3) == at_first + of_sources
    (folder / "spark/offsets/4").write_bytes(offsets(4))
    assert synced(4) == ["spark/offsets/4"], "no source had new files"
    (folder / "spark/offsets/5").write_bytes(offsets(5))
    for name in ("0/4", "1/10", "1/11"):
        (sources / name).write_bytes(b"")
    assert synced(5) == ["spark/offsets/5", *(f"spark/sources/{name}" for name in ("0/4", "1/10", "1/11"))]


def test_a_store_that_keeps_what_it_acknowledged_is_not_asked(folder):
    class Asked(RenamingFiles):
        def look(self, *_, **__):
            raise AssertionError("nothing has to be looked for")

        sync = look

    SparkHalf(Storage(str(folder), store=Asked(pyarrow.fs.LocalFileSystem()))).sync(3)
