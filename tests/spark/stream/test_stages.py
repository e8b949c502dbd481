"""The protocol of a query with two operators, without Spark: faults in either one, and logs of different times."""

import shutil
from pathlib import Path

import msgspec
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from typer.testing import CliRunner

from equipoise import FencedError, LogBrokenError, MismatchError, UserFunctionError, failpoints
from equipoise.cli.commands import app
from equipoise.spark import Aggregator, LocalOperator, LocalQuery
from equipoise.state.compaction import compact
from equipoise.state.fencing import claim
from equipoise.state.log import CommitLog
from equipoise.state.stages import commit_digest, half_of, later_stages, undelivered_batch
from equipoise.storage import Storage

ROWS = pa.schema({"k": pa.string(), "v": pa.int64()})
TOTALS = pa.schema({"k": pa.string(), "total": pa.int64(), "odd": pa.bool_()})
COUNTS = pa.schema({"odd": pa.bool_(), "n": pa.int64()})
BUFFER = StructType([StructField("n", LongType())])


class Total(Aggregator):
    bufferSchema = BUFFER  # noqa: N815 - as Spark names schemas

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + int(rows["v"].sum()),)

    def merge(self, one, other):
        return (one[0] + other[0],)

    def finish(self, key, buffer):
        return (*key, buffer[0], buffer[0] % 2 == 1)


class Count(Total):
    """Counts rows; fails as long as a file is there."""

    def __init__(self, trouble):
        self.trouble = trouble

    def reduce(self, buffer, rows):
        if self.trouble.exists():
            raise ValueError("trouble")
        return (buffer[0] + len(rows),)

    def finish(self, key, buffer):
        return (*key, *buffer)


@pytest.fixture
def open_both(tmp_path):
    """Open the query; the second operator counts the changes of totals by parity."""

    def opened(**options):
        then = [
            LocalOperator(processor=Count(tmp_path / "trouble"), key="odd", outputStructType=COUNTS, numPartitions=3)
        ]
        checkpoint = str(tmp_path / "cp")
        return LocalQuery(Total(), "k", ROWS, TOTALS, checkpoint, numPartitions=2, tailGroups=8, then=then, **options)

    return opened


@pytest.fixture
def stages(tmp_path):
    return Storage(str(tmp_path / "cp")), Storage(str(tmp_path / "cp/stages/2"))


BATCHES = [{"k": ["a", "b"], "v": [1, 2]}, {"k": ["a", "c"], "v": [2, 1]}, {"k": ["b"], "v": [5]}]
EXPECTED = [[[False, 1], [True, 1]], [[True, 3]], [[True, 4]]]


def given(batch):
    return pd.DataFrame(BATCHES[batch])


def found(output):
    return sorted(output.to_numpy().tolist())


def test_rows_pass_both_operators(open_both):
    with open_both() as query:
        assert [found(query.process(given(batch))) for batch in range(3)] == EXPECTED
        assert query.state() == {("a",): {"buffer": (3,)}, ("b",): {"buffer": (7,)}, ("c",): {"buffer": (1,)}}
        assert query.state(stage=2) == {(False,): {"buffer": (1,)}, (True,): {"buffer": (4,)}}
        assert query.state(2, stage=2) == {(False,): {"buffer": (1,)}, (True,): {"buffer": (3,)}}


def test_a_second_operator_that_fails_runs_the_batch_when_it_is_corrected(open_both, stages, tmp_path):
    with open_both() as query:
        query.process(given(0))
        (tmp_path / "trouble").touch()
        with pytest.raises(UserFunctionError, match=r"ValueError in Count \(.*, in reduce\): trouble"):
            query.process(given(1))
        assert [CommitLog(stage).head() for stage in stages] == [2, 1]
        assert [undelivered_batch(stage, CommitLog(stage).head()) for stage in stages] == [1, None]
    (tmp_path / "trouble").unlink()
    with open_both() as query:
        assert [found(query.process(given(batch))) for batch in (1, 2)] == EXPECTED[1:]
        assert query.state()["a",] == {"buffer": (3,)}
    assert [undelivered_batch(stage, 3) for stage in stages] == [None, None]


def test_a_batch_that_is_delivered_on_stop_counts_as_delivered_in_both(open_both, stages, tmp_path):
    with open_both() as query:
        (tmp_path / "trouble").touch()
        with pytest.raises(UserFunctionError):
            query.process(given(0))
        (tmp_path / "trouble").unlink()
        assert query._engine.deliver_last(ROWS.empty_table())
        assert [undelivered_batch(stage, 1) for stage in stages] == [None, None]
        assert CommitLog(stages[1]).head() == 1


@pytest.mark.parametrize("stage", [0, 1])
def test_a_stop_right_after_a_commit_delivers_the_committed_batch(open_both, stages, stage, monkeypatch):
    reached = []

    def stop(point):
        reached.append(point)
        if point == "driver.after-commit" and reached.count(point) == stage + 1:
            raise KeyboardInterrupt

    with open_both() as query:
        engine = query._engine
        monkeypatch.setattr(failpoints, "watchers", [stop])
        with pytest.raises(KeyboardInterrupt):
            query.process(given(0))
        assert [CommitLog(each).head() for each in stages] == [1, stage]
        assert engine.deliver_last(ROWS.empty_table())
        assert [CommitLog(each).head() for each in stages] == [1, 1]
        assert [undelivered_batch(each, 1) for each in stages] == [None, None]
        [(batch, output)] = query._delivered
        assert (batch, found(output.to_pandas())) == (0, EXPECTED[0])


@pytest.mark.parametrize("stage", [0, 1])
def test_a_query_that_is_taken_over_in_either_operator_ends_fenced(open_both, stages, stage):
    with open_both() as query:
        query.process(given(0))
        claim(stages[stage], lambda _: False)
        with pytest.raises(FencedError, match="another query has taken over"):
            query.process(given(1))
        assert CommitLog(stages[1]).head() <= 2
        assert query._delivered == []


def test_a_query_with_another_number_of_operators_claims_nothing(open_both, stages):
    with open_both() as query:
        epochs = stages[1].names("epochs")
        with pytest.raises(MismatchError, match="has 2 keyed operators"):
            LocalQuery(Total(), "k", ROWS, TOTALS, stages[0].location, numPartitions=2, tailGroups=8)
        assert stages[1].names("epochs") == epochs
        assert found(query.process(given(0))) == EXPECTED[0]


def without(folder, *versions):
    for version in versions:
        (Path(folder.location) / f"log/{version:020d}.commit").unlink()


def test_operators_of_different_times_are_refused_by_name(open_both, stages, tmp_path):
    with open_both() as query:
        for batch in range(3):
            query.process(given(batch))
    shutil.copytree(tmp_path / "cp", tmp_path / "copy")
    way_out = r"restore the whole checkpoint, all stages, from one copy"

    def refused(said):
        with pytest.raises(LogBrokenError, match=rf"{said}.*{way_out}"):
            open_both()
        shutil.rmtree(tmp_path / "cp")
        shutil.copytree(tmp_path / "copy", tmp_path / "cp")

    without(stages[1], 3)
    refused(r"stage 2 is older than the stage before: stage 2 in .* ends with batch 1, but stage 1 .* batch 2")
    without(stages[1], 0, 1, 2, 3)
    refused(r"stage 2 is older than the stage before: stage 2 in .* is empty")
    without(stages[0], 2, 3)
    shutil.rmtree(tmp_path / "cp/spark")
    for name in ("offsets/0", "commits/0"):
        (tmp_path / "cp/spark" / name).parent.mkdir(parents=True)
        shutil.copy(tmp_path / "copy/spark" / name, tmp_path / "cp/spark" / name)
    refused(r"stage 2 is newer than the stage before")


def test_the_rows_of_another_batch_are_refused(open_both, stages):
    with open_both() as query:
        query.process(given(0))
    half = half_of(stages[1], 2)
    commit = CommitLog(stages[1]).read(1)
    half.require(1, commit.offsets)
    with pytest.raises(LogBrokenError, match=r"stage 1 is foreign: batch 0 of .*/stages/2 was committed for"):
        half.require(1, "0" * 64)


def test_the_digest_of_a_commit_covers_what_a_later_operator_takes(open_both, stages):
    with open_both() as query:
        query.process(given(0))
    commit = CommitLog(stages[0]).read(1)
    [file, *_] = commit.outputs
    assert commit_digest(msgspec.structs.replace(commit, epoch=7, time_ms=1)) == commit_digest(commit)
    others = [
        {"version": 2},
        {"offsets": "other"},
        {"outputs": []},
        {"outputs": [msgspec.structs.replace(file, sha256="other")]},
        {"watermark_ms": 1},
        {"next_watermark_ms": 1},
    ]
    digests = {commit_digest(msgspec.structs.replace(commit, **other)) for other in others}
    assert len(digests) == len(others)
    assert commit_digest(commit) not in digests


def test_the_folder_of_an_operator_belongs_below_its_checkpoint(open_both, stages, tmp_path):
    with open_both() as query:
        query.process(given(0))
    assert list(later_stages(stages[0])) == [2]
    shutil.copytree(stages[1].location, tmp_path / "moved")
    with pytest.raises(MismatchError, match="holds stage 2 of a query, and expected is a folder stages/2 below"):
        undelivered_batch(Storage(str(tmp_path / "moved")), 1)


def test_verify_checks_both_operators(open_both, stages, tmp_path):
    with open_both() as query:
        for batch in range(3):
            query.process(given(batch))
    verify = ["state", "verify", str(tmp_path / "cp")]
    sound = CliRunner().invoke(app, verify)
    assert sound.exit_code == 0, sound.output
    [changes] = [path for path in (Path(stages[1].location) / "changes").rglob("*") if path.is_file()][-1:]
    changes.write_bytes(changes.read_bytes()[:-1] + b"?")
    damaged = CliRunner().invoke(app, [*verify, "--json", str(tmp_path / "found.json")])
    assert damaged.exit_code == 1
    problems = [each["file"] for each in msgspec.json.decode((tmp_path / "found.json").read_bytes()) if each["problem"]]
    assert problems
    assert all(each.startswith("stage 2: ") for each in problems)


def test_each_operator_can_be_compacted(open_both, stages):
    with open_both() as query:
        for batch in range(2):
            query.process(given(batch))
    for stage in stages:
        assert compact(stage).version == 2
    with open_both() as query:
        assert found(query.process(given(2))) == EXPECTED[2]
