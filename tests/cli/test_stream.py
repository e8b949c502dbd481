"""Jobs from a file, from their start to their end, and on from there."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from equipoise import InvalidArgument, SparkFailed
from equipoise.state.log import CommitLog
from equipoise.storage import Storage

ROOT = Path(__file__).parents[2]
STATEFUL = """
[source]
format = "parquet"
path = "{folder}/in"
schema = "host string, ms long"
options = {{ maxFilesPerTrigger = 1 }}
select = ["lower(host) AS host", "ms"]
where = "ms >= 0"
[query]
kind = "stateful"
key = "host"
{code}
numPartitions = 2
tailGroups = 8
checkpoint = "{folder}/cp"
[policy]
mode = "observe"
[conf]
"spark.sql.shuffle.partitions" = 2
[sink]
{sink}
"""
MODULE = """
from equipoise.spark import Aggregator

class Slowest(Aggregator):
    bufferSchema = "slowest long"
    def zero(self):
        return (-1,)
    def reduce(self, buffer, rows):
        if (rows["ms"] == 13).any():
            raise ValueError("thirteen")
        return (max(buffer[0], int(rows["ms"].max())),)
    def merge(self, one, other):
        return (max(one[0], other[0]),)
    def finish(self, key, buffer):
        return (*key, *buffer)

def keep(df, batch):
    df.toPandas().to_json(f"{folder}/out-{batch}.json", orient="records")
"""


@pytest.fixture
def add(tmp_path, spark):  # noqa: ARG001 - the commands use this session
    """Function that adds files of rows, one for each batch."""
    (tmp_path / "in").mkdir()

    def write(*files):
        for rows in files:
            number = len(list((tmp_path / "in").glob("*.parquet")))
            path = tmp_path / "in" / f"{number}.parquet"
            pd.DataFrame(rows, columns=["host", "ms"]).to_parquet(path)
            os.utime(path, (1_700_000_000 + number,) * 2)

    return write


@pytest.fixture
def job(tmp_path):
    def write(code, sink):
        path = tmp_path / "job.toml"
        path.write_text(STATEFUL.format(folder=tmp_path, code=code, sink=sink), encoding="utf-8")
        return path

    return write


def test_a_job_without_code_runs_to_its_end_and_goes_on(tmp_path, add, job, told, spark):
    add([("A", 5), ("b", 1), ("b", -1)], [("a", 7)])
    aggregate = 'aggregate = ["count", "max(ms) AS slowest", "mean(ms)"]'
    path = job(aggregate, f'format = "parquet"\npath = "{tmp_path}/out"')
    assert "would begin with batch 0" in told("stream", path, "--check")
    assert not (tmp_path / "cp").exists()
    ran = json.loads(told("stream", path, "--available-now", "--json", "-"))
    assert (ran["count"], ran["rows"], ran["interrupted"]) == (2, 3, False)
    assert [each["batch"] for each in ran["batches"]] == [0, 1]
    assert json.loads(told("stream", path, "--check", "--json", "-"))["last_batch"] == 1
    add([("b", 3)])
    text = told("stream", path, "--available-now")
    assert "go on after batch 2" in text
    rows = spark.read.parquet(f"{tmp_path}/out").orderBy("_metadata.file_name", "host").collect()
    assert [(row.host, row["count"], row.slowest, row.mean_ms) for row in rows] == [
        ("a", 1, 5, 5.0),
        ("b", 1, 1, 1.0),
        ("a", 2, 7, 6.0),
        ("b", 2, 3, 2.0),
    ]


def test_code_beside_the_file_is_used_by_tasks_and_its_failure_is_told(tmp_path, add, job, told, refused):
    add([("a", 5), ("b", 1)])
    (tmp_path / "job_of_slowest.py").write_text(MODULE.replace("{folder}", str(tmp_path)), encoding="utf-8")
    code = 'aggregator = "job_of_slowest:Slowest"\noutputSchema = "host string, slowest long"'
    path = job(code, 'format = "python"\nfunction = "job_of_slowest:keep"')
    told("stream", path, "--available-now")
    assert pd.read_json(tmp_path / "out-0.json").set_index("host")["slowest"].to_dict() == {"a": 5, "b": 1}
    add([("c", 13)])
    message = refused(SparkFailed, "stream", path, "--available-now")
    assert "thirteen" in message
    assert "run the same command again to go on after batch 0" in message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ('aggregate = ["sum(milliseconds)"]', "there is no column 'milliseconds'; there are host, ms"),
        ('aggregate = ["sum(host)"]', "is string, not a number"),
        ('aggregate = ["median(ms)"]', "is none of count, sum, min, max, mean"),
        ('aggregate = ["sum"]', "needs a column"),
        ('aggregate = ["count", "count(ms) AS count"]', "two results are called 'count'"),
        ("aggregate = []", "nothing to aggregate"),
        ('aggregate = ["count"]\ntimeMode = "often"', "timeMode"),
        ('aggregate = ["count"]\nbounds = [1, 2]', "bounds are for"),
    ],
)
def test_what_only_spark_can_find_is_found_by_check(add, job, refused, code, message):
    add([("a", 5)])
    told = refused(InvalidArgument, "stream", job(code, 'format = "console"'), "--check")
    assert message in told
    assert "job.toml" in told


def test_an_option_of_the_policy_that_is_not_there_is_told(tmp_path, add, job, refused):
    add([("a", 5)])
    path = job('aggregate = ["count"]', 'format = "console"')
    path.write_text(path.read_text().replace('mode = "observe"', "minimum_gian = 1"), encoding="utf-8")
    assert "minimum_gian" in refused(InvalidArgument, "stream", path, "--check")
    path.write_text(path.read_text().replace("minimum_gian = 1", "").replace("lower(host)", "lower(hst)"))
    assert "hst" in refused(InvalidArgument, "stream", path, "--check")
    assert not (tmp_path / "cp").exists()


@pytest.mark.long
def test_the_example_of_planned_micro_batches_ends_after_the_batches_asked_for(tmp_path, told, spark, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "examples" / "jobs" / "trending.toml").read_text(encoding="utf-8")
    quick = text.replace('"6 seconds"', '"2 seconds"').replace('"2 seconds"', '"1 second"')
    path = tmp_path / "trending.toml"
    path.write_text(quick.replace('"trending-job', f'"{tmp_path}/job'), encoding="utf-8")
    ran = json.loads(told("stream", path, "--batches", "3", "--json", "-"))
    assert ran["count"] >= 3
    assert spark.read.parquet(f"{tmp_path}/job/windows").columns == ["key", "hits", "total"]


@pytest.mark.usefixtures("spark")  # asks for Java in the same words
def test_ctrl_c_ends_the_example_after_a_batch_and_says_how_to_go_on(tmp_path):
    command = [sys.executable, "-m", "equipoise", "stream", str(ROOT / "examples" / "jobs" / "visits.toml")]
    short = ["--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2"]
    log = tmp_path / "log.txt"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*command, *short], cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
        )
    end = time.monotonic() + 240
    while "batch      1" not in log.read_text() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, log.read_text()[-3000:]
    assert "interrupted" in out
    assert not [line for line in log.read_text().splitlines() if "Exception" in line], log.read_text()[-3000:]
    last = CommitLog(Storage(str(tmp_path / "visits-job" / "checkpoint"))).head() - 1
    assert f"go on after batch {last};" in out
    assert list((tmp_path / "visits-job" / "slowest").glob(f"part-{1:020d}-*.parquet"))
