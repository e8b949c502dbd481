import json

import pytest
from typer.testing import CliRunner

from equipoise import InvalidArgumentError
from equipoise_lab.bench.protocol.many import Progress
from equipoise_lab.bench.protocol.paths import PATHS
from equipoise_lab.cli.commands import app

RUNNER = CliRunner()


def test_the_protocol_is_simulated_and_a_run_goes_on_from_its_progress(tmp_path):
    file = tmp_path / "progress.json"
    arguments = ("simulate-protocol", "--seeds", "0:4", "--progress", str(file), "--processes", "1")
    assert "4 schedules, 0 violations" in RUNNER.invoke(app, arguments).stdout
    assert json.loads(RUNNER.invoke(app, [*arguments, "--json", "-"]).stdout)["next"] == 4


def played(monkeypatch, seeds, counts):
    """Result of the command for schedules that have taken some paths and violated nothing."""
    done = Progress(0, seeds, seeds, 1.0, counts, {})
    monkeypatch.setattr("equipoise_lab.bench.protocol.many.many", lambda *_: iter([done]))
    return RUNNER.invoke(app, ["simulate-protocol", "--seeds", f"0:{seeds}"])


def test_a_long_run_that_misses_a_path_fails(monkeypatch):
    counts = dict.fromkeys(PATHS, 1)
    assert played(monkeypatch, 2000, counts).exit_code == 0
    del counts["stopped"]
    short, long = played(monkeypatch, 1999, counts), played(monkeypatch, 2000, counts)
    assert "not reached: stopped; 2,000 schedules must reach them" in short.output
    assert (short.exit_code, long.exit_code) == (0, 1)


@pytest.mark.parametrize("seeds", ["", "5", "5:5", "9:3", "a:b", "-1:3"])
def test_seeds_that_are_not_a_range_are_refused(seeds):
    result = RUNNER.invoke(app, ["simulate-protocol", f"--seeds={seeds}"])
    assert isinstance(result.exception, InvalidArgumentError)
    assert "two whole numbers A:B" in str(result.exception)
