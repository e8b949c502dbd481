import http.client
import json
import os
import re
import subprocess
import sys
import time
import urllib.request

import pytest
from typer.testing import CliRunner

from equipoise import InvalidArgumentError
from equipoise import __version__ as library_version
from equipoise_lab import __version__, bench
from equipoise_lab.cli import main
from equipoise_lab.cli.commands import app
from equipoise_lab.conformance.verdict import Outcome

RUNNER = CliRunner()


def test_the_version_is_printed():
    assert RUNNER.invoke(app, ["--version"]).stdout.strip() == __version__


def test_benchmarks_are_listed_with_what_they_measure():
    listed = json.loads(RUNNER.invoke(app, ["bench", "list", "--json", "-"]).stdout)
    assert listed == {name: bench.summary(name) for name in bench.BENCHMARKS}


@pytest.fixture
def quick_benchmark(monkeypatch):
    def run(context):
        return bench.Result({"answer": 42.0}, {"seed": context.seed})

    monkeypatch.setattr(bench.benchmark("assign"), "run", run)


@pytest.mark.usefixtures("quick_benchmark")
def test_a_result_is_written_as_json_with_its_environment(tmp_path):
    path = tmp_path / "result.json"
    answer = RUNNER.invoke(app, ["bench", "assign", "--quick", "--seed", "7", "--json", str(path)])
    assert answer.exit_code == 0
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["benchmark"] == "assign"
    assert report["metrics"] == {"answer": 42.0}
    assert report["samples"] == {"quick": True, "seed": 7}
    assert set(report["env"]) == {"commit", "dirty", "versions", "cores", "seed"}
    assert report["env"]["versions"]["equipoise"] == library_version


@pytest.mark.usefixtures("quick_benchmark")
def test_standard_output_holds_the_json_and_nothing_else():
    answer = RUNNER.invoke(app, ["bench", "assign", "--json", "-"])
    assert json.loads(answer.stdout)["metrics"] == {"answer": 42.0}


@pytest.mark.usefixtures("quick_benchmark")
def test_without_json_a_table_is_printed():
    answer = RUNNER.invoke(app, ["bench", "assign"])
    assert "answer" in answer.stdout
    assert "42" in answer.stdout


def test_all_leaves_out_what_needs_data(monkeypatch):
    ran = []

    def run(name, context):
        ran.append(name)
        return bench.Report(name, {"answer": 1.0}, {}, bench.harness.environment(context.seed))

    monkeypatch.setattr(bench, "run", run)
    answer = RUNNER.invoke(app, ["bench", "all", "--json", "-"])
    assert ran == [name for name in bench.BENCHMARKS if name not in bench.NEED_DATA]
    assert [report["benchmark"] for report in json.loads(answer.stdout)] == ran


OLD_NAMES = {
    "assign", "sketch", "planners", "routing", "batch-groups", "batch-even", "batch-real", "splitters", "split-sim",
    "dkg-sim", "split-agg", "skew-join", "prompt-core", "prompt-throughput", "prompt-latency", "prompt-elastic",
    "prompt-overhead", "fuzz-feed", "stream-throughput", "stream-drift", "stream-real", "state-growth", "stream-even",
    "peers", "simulate-protocol", "sink-cost",
}  # fmt: skip


def test_the_benchmarks_keep_their_names():
    assert set(bench.BENCHMARKS) >= OLD_NAMES


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["conformance", "--quick", "--page", "a.md"], "--page was given with --quick, and the page shows all cases"),
        (["assign", "--progress", "a.jsonl"], "benchmark 'assign' does not go on from a file; leave --progress out"),
        (["conformance", "--accept", "c1"], "--accept was given without --progress"),
    ],
)
def test_options_that_do_not_fit_a_benchmark_are_refused(arguments, said):
    answer = RUNNER.invoke(app, ["bench", *arguments])
    assert isinstance(answer.exception, InvalidArgumentError)
    assert said in str(answer.exception)


def test_a_run_of_conformance_goes_on_from_its_file_and_names_what_is_not_the_same(tmp_path, monkeypatch):
    ran = []

    class Worker:
        def __init__(self, client):
            self.client = client

        def __enter__(self):
            return self

        def __exit__(self, *failure):
            pass

        def outcomes(self, name):
            ran.append(name)
            verdict = "crashed" if name == "list" else "same"
            return [Outcome(name, "row", self.client, verdict, "no result within 9 s" if name == "list" else "")]

    monkeypatch.setattr(bench.benchmark("conformance"), "Worker", Worker)
    command = ["bench", "conformance", "--quick", "--progress", str(tmp_path / "progress.jsonl")]
    first, second = (RUNNER.invoke(app, command, env={"COLUMNS": "200"}) for _ in range(2))
    assert ran == ["value", "list", "map", "event-timer", "group-state", "float-for-int"]
    for answer in (first, second):
        [line] = [line for line in answer.stdout.splitlines() if "within 9 s" in line]
        assert [each.strip() for each in line.strip("│").split("│")] == [
            "list", "row", "classic", "crashed", "no result within 9 s",
        ]  # fmt: skip


def test_an_unknown_benchmark_names_those_there_are():
    answer = RUNNER.invoke(app, ["bench", "nothing"])
    assert isinstance(answer.exception, InvalidArgumentError)
    assert "planners" in str(answer.exception)


def test_an_error_of_ours_ends_with_exit_code_1_and_no_traceback(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["equipoise-lab", "bench", "nothing"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert "INVALID_ARGUMENT" in capsys.readouterr().err


def test_a_result_that_could_not_be_written_is_reported_before_the_run(tmp_path):
    answer = RUNNER.invoke(app, ["bench", "assign", "--json", str(tmp_path / "no" / "result.json")])
    assert isinstance(answer.exception, InvalidArgumentError)


def test_a_folder_that_cannot_be_made_is_reported_before_the_run(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    answer = RUNNER.invoke(app, ["demo", "--out", str(tmp_path / "file" / "x")])
    assert isinstance(answer.exception, InvalidArgumentError)
    assert "--out" in str(answer.exception)


@pytest.mark.usefixtures("spark")  # asks for Java in the same words
def test_the_demo_checks_results_prints_a_table_leaves_a_report_and_shows_the_balanced_run_live(tmp_path):
    small = ["--batches", "4", "--rows", "400", "--partitions", "4", "--slots", "2", "--ideal", "0.3", "--dashboard"]
    command = [sys.executable, "-m", "equipoise_lab", "demo", "--out", str(tmp_path / "report"), *small]
    environment = {name: value for name, value in os.environ.items() if "DISPLAY" not in name} | {"COLUMNS": "160"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        before = []
        while not (found := re.search(r"Dashboard: (http://\S+)", line := process.stdout.readline())):
            assert line, process.stderr.read()[-3000:]
            before.append(line)
        seen = list(statuses(f"{found[1]}data"))
        after, stderr = process.communicate()
    assert process.returncode == 0, stderr[-3000:]
    assert stderr == "", "Spark and the JVM are silent"
    assert before[0].startswith("A stream of 4 batches of 400 rows"), "it says first what it shows"
    assert "totals of both runs equal those computed without Spark" in " ".join(after.split())
    assert "bound" in after
    assert after.rstrip().endswith('.start("totals")'), "it ends with the lines that do it"
    assert any(status == "running" and count for status, count in seen)
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "Decisions and their reasons" in page
    assert not re.search(r"(src|href)=.https?:", page)


def statuses(url):
    """Status and number of batches, as long as the server is there."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=120) as answer:  # noqa: S310 - our own server
                said = json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            return
        yield said["status"], len(said["batches"])
        time.sleep(0.1)
