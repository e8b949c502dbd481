import json

import pytest
from typer.testing import CliRunner

from equipoise import InvalidArgumentError, SparkUnavailableError, requirements
from equipoise_lab import reproduce
from equipoise_lab.cli.commands import app
from equipoise_lab.reproduce import exhibits, records, runner

RUNNER = CliRunner()
SOME = ("dkg/table-1", "pkg/figure-10-spark")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    """All that is run at the scale of tests."""
    plain = records.RunRequest
    monkeypatch.setattr(records, "RunRequest", lambda _scale, seed, data: plain("tiny", seed, data))


def invoke(*arguments):
    return RUNNER.invoke(app, ["reproduce", *arguments])


def test_the_list_names_every_exhibit():
    answer = invoke("list", "--json", "-")
    listed = json.loads(answer.stdout)
    assert {"pkg/table-2", "gedik/figure-3", "dkg/table-3"} <= {each["name"] for each in listed}
    assert "pkg/table-2" in invoke("list").stdout


def test_an_unknown_name_is_reported_with_what_exists():
    answer = invoke("pkg/table-9")
    assert isinstance(answer.exception, InvalidArgumentError)
    assert "pkg/table-2" in str(answer.exception)


def test_a_report_a_table_and_raw_results_are_written(tmp_path):
    answer = invoke("dkg/table-1", "--output", str(tmp_path), "--json", str(tmp_path / "result.json"))
    assert answer.exit_code == 0, answer.output
    assert {path.name for path in tmp_path.iterdir()} == {"raw", "report.html", "report.md", "result.json"}
    assert [path.name for path in (tmp_path / "raw").iterdir()] == ["dkg-table-1.json"]
    assert "dkg/table-1" in answer.stdout
    (result,) = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert result["claims"][0]["verdict"] == "holds"
    assert "| dkg/table-1 |" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_an_interrupt_leaves_a_report_of_what_is_done(tmp_path, monkeypatch):
    invoke("dkg/table-1", "--output", str(tmp_path))
    (tmp_path / "report.md").unlink()

    def stop(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_run", stop)
    answer = invoke("dkg/table-1", "--output", str(tmp_path), "--again")
    assert answer.exit_code == 130
    assert "Interrupted after 0 of 1" in answer.stderr
    assert "dkg/table-1" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_without_java_what_needs_spark_is_left_out_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(requirements, "java_version", lambda: None)
    monkeypatch.setattr(reproduce, "chosen", lambda names: [exhibits()[n] for n in names or SOME])
    answer = invoke("--output", str(tmp_path))
    assert answer.exit_code == 0, answer.output
    assert "skipped pkg/figure-10-spark" in answer.stderr
    assert isinstance(invoke("pkg/figure-10-spark", "--output", str(tmp_path)).exception, SparkUnavailableError)


def test_what_cannot_be_written_is_reported_before_the_run(tmp_path):
    (tmp_path / "file").touch()
    assert isinstance(invoke("dkg/table-1", "--output", str(tmp_path / "file" / "x")).exception, InvalidArgumentError)
    wrong = invoke("dkg/table-1", "--output", str(tmp_path), "--json", str(tmp_path / "no" / "file"))
    assert isinstance(wrong.exception, InvalidArgumentError)
