# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""The log and Spark's half of a checkpoint after a power cut or a partial restore: refused, or exactly right."""

import os
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor

from equipoise.errors import LogBrokenError
from equipoise.failpoints import FailpointError
from equipoise.spark import balance, read_state
from equipoise.spark.stream import engine
from equipoise.state.log import CommitLog
from equipoise.storage import Storage
from equipoise.storage.local_disk import LocalDisk

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

BATCHES, ROWS = 3, 40
LAST = BATCHES - 1
WAY_OUT = "restore the whole checkpoint, both halves, from one copy"


class Count(StatefulProcessor):
    def init(self, handle):
        self.n = handle.getValueState("n", "n long")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.n.get() or (0,))[0] + sum(len(frame) for frame in rows)
        self.n.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    def close(self):
        pass


def add(folder, number):
    path = folder / "in" / f"{number}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({"k": [f"key {row % 4}" for row in range(ROWS)]}).to_parquet(path)
    os.utime(path, (number + 1, number + 1))  # Spark reads the oldest file first


def run(spark, folder):
    """Run the query to the end of its input."""
    source = (folder / "in").resolve()  # where the files are that the checkpoint knows
    stream = spark.readStream.schema("k string").option("maxFilesPerTrigger", 1).parquet(str(source))
    groups = balance(stream, "k", numPartitions=2, tailGroups=8)
    made = groups.transformWithStateInPandas(Count(), "k string, n long", "update", "none")
    writer = made.writeStream.format("parquet").option("checkpointLocation", str(folder / "cp"))
    writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()


def require_exact(spark, folder, batches):
    """Every row of every file was counted once, and every count was delivered once."""
    counts = {row.k: row.n.n for row in read_state(str(folder / "cp"), spark=spark).collect()}
    assert counts == {f"key {key}": ROWS // 4 * batches for key in range(4)}
    delivered = sorted(map(tuple, spark.read.parquet(str(folder / "out")).collect()))
    assert delivered == sorted((f"key {key}", ROWS // 4 * n) for key in range(4) for n in range(1, batches + 1))


def halves(folder, batch, *names):
    """Files of a batch in Spark's half, with their checksums."""
    places = [folder / "cp/spark" / name for name in names]
    return [path for place in places for path in (place / str(batch), place / f".{batch}.crc") if path.exists()]


@pytest.fixture(scope="module")
def lived(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("halves")
    for number in range(BATCHES):
        add(folder, number)
    run(spark, folder)
    return folder


@pytest.fixture
def folder(lived, tmp_path):
    """A copy of the query's folder after its batches; the input is at the same place, as Spark asks for."""
    for name in ("cp", "out"):
        shutil.copytree(lived / name, tmp_path / name)
    (tmp_path / "in").symlink_to(lived / "in")
    return tmp_path


def test_a_true_replay_keeps_the_bytes_of_the_offsets(spark, folder):
    offsets = folder / f"cp/spark/offsets/{LAST}"
    before = offsets.read_bytes(), offsets.stat().st_mtime_ns
    for path in halves(folder, LAST, "commits"):  # Spark died before it knew that the batch was done
        path.unlink()
    run(spark, folder)
    assert (offsets.read_bytes(), offsets.stat().st_mtime_ns) == before
    assert (folder / f"cp/spark/commits/{LAST}").exists()
    require_exact(spark, folder, BATCHES)


def test_a_log_one_batch_ahead_of_spark_is_refused_and_nothing_is_lost_after_the_right_copy_is_restored(
    spark, tmp_path
):
    for number in range(BATCHES):
        add(tmp_path, number)
    run(spark, tmp_path)
    shutil.copytree(tmp_path / "cp", tmp_path / "copy")
    log = sorted(path.name for path in (tmp_path / "cp/log").iterdir())
    for path in halves(tmp_path, LAST, "offsets", "commits", "sources/0"):
        path.unlink()
    add(tmp_path, BATCHES)
    add(tmp_path, BATCHES + 1)
    said = rf"Spark's half is older than the log: .* ends with batch {LAST}, .*after {LAST - 1}; .*{WAY_OUT}"
    for _ in range(2):
        with pytest.raises(LogBrokenError, match=said):
            run(spark, tmp_path)
    assert sorted(path.name for path in (tmp_path / "cp/log").iterdir()) == log
    shutil.rmtree(tmp_path / "cp")
    (tmp_path / "copy").rename(tmp_path / "cp")
    run(spark, tmp_path)
    require_exact(spark, tmp_path, BATCHES + 2)


def test_offsets_of_another_batch_under_the_same_number_are_refused(spark, folder):
    [offsets, *checksums] = halves(folder, LAST, "offsets")
    sound = offsets.read_bytes()
    for path in checksums:
        path.unlink()
    time = int(sound.partition(b'"batchTimestampMs":')[2].split(b",")[0])
    offsets.write_bytes(sound.replace(str(time).encode(), str(time + 1).encode()))
    with pytest.raises(LogBrokenError, match=rf"Spark's half is foreign: batch {LAST} of .*{WAY_OUT}"):
        run(spark, folder)
    offsets.write_bytes(sound)
    run(spark, folder)
    require_exact(spark, folder, BATCHES)


def test_a_power_cut_after_the_commit_that_takes_sparks_files_of_the_batch_is_refused(spark, folder):
    """Played by hand: the files are synced before the commit, so only a disk that lies comes to this."""
    for path in halves(folder, LAST, "commits", "offsets", "sources/0"):
        path.write_bytes(b"") if "offsets" in path.parts and not path.name.startswith(".") else path.unlink()
    with pytest.raises(LogBrokenError, match=rf"Spark's half is foreign: batch {LAST} of .*{WAY_OUT}"):
        run(spark, folder)
    for path in halves(folder, LAST, "offsets"):
        path.unlink()
    with pytest.raises(LogBrokenError, match=rf"Spark's half is older than the log: .*{WAY_OUT}"):
        run(spark, folder)


def test_a_power_cut_before_the_commit_runs_the_batch_again_from_synced_offsets(spark, tmp_path, monkeypatch):
    for number in range(BATCHES):
        add(tmp_path, number)
    events, real_sync, real_failpoint = [], LocalDisk.sync, engine.failpoint

    def synced(store, path):
        real_sync(store, path)
        events.append(str(Path(path).relative_to(tmp_path / "cp")))

    def cut(point):
        if point == "driver.before-commit":
            events.append(point)
            if events.count(point) == BATCHES + 1:  # the initial state is the first
                raise FailpointError(point)
        real_failpoint(point)

    with monkeypatch.context() as patch:
        patch.setattr(LocalDisk, "sync", synced)
        patch.setattr(engine, "failpoint", cut)
        with pytest.raises(Exception, match=r"driver\.before-commit"):
            run(spark, tmp_path)
    per_batch = [f"spark/{name}" for batch in range(BATCHES) for name in (f"offsets/{batch}", f"sources/0/{batch}")]
    folders = ["spark", "spark/offsets", "spark/sources/0"]  # once, when Spark has made them
    assert [event for event in events if event.startswith("spark") and event not in folders] == per_batch
    assert [event for event in events if event in folders] == folders
    assert events[-3:] == [*per_batch[-2:], "driver.before-commit"]
    assert CommitLog(Storage(str(tmp_path / "cp"))).head() == BATCHES - 1
    run(spark, tmp_path)
    require_exact(spark, tmp_path, BATCHES)


@pytest.mark.parametrize("age", [-1, BATCHES], ids=["older", "newer"])
def test_a_source_without_the_list_of_files_of_a_committed_batch_is_refused(spark, tmp_path, age):
    """Listed anew under the same number, other files would be taken for processed."""
    for number in range(BATCHES):
        add(tmp_path, number)
    run(spark, tmp_path)
    lost = {path: path.read_bytes() for path in halves(tmp_path, LAST, "sources/0")}
    for path in lost:
        path.unlink()
    add(tmp_path, age)
    with pytest.raises(LogBrokenError, match=rf"lacks the list of files .*batch {LAST} doesn't exist.*{WAY_OUT}"):
        run(spark, tmp_path)
    for path, data in lost.items():
        path.write_bytes(data)
    run(spark, tmp_path)
    require_exact(spark, tmp_path, BATCHES + 1)
