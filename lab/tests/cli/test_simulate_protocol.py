import json

import pytest
from typer.testing import CliRunner

from equipoise import InvalidArgumentError
from equipoise_lab.cli.commands import app

RUNNER = CliRunner()


def test_the_protocol_is_simulated_and_a_run_goes_on_from_its_progress(tmp_path):
    file = tmp_path / "progress.json"
    arguments = ("simulate-protocol", "--seeds", "0:4", "--progress", str(file), "--processes", "1")
    assert "4 schedules, 0 violations" in RUNNER.invoke(app, arguments).stdout
    assert json.loads(RUNNER.invoke(app, [*arguments, "--json", "-"]).stdout)["next"] == 4


@pytest.mark.parametrize("seeds", ["", "5", "5:5", "9:3", "a:b", "-1:3"])
def test_seeds_that_are_not_a_range_are_refused(seeds):
    result = RUNNER.invoke(app, ["simulate-protocol", f"--seeds={seeds}"])
    assert isinstance(result.exception, InvalidArgumentError)
    assert "two whole numbers A:B" in str(result.exception)
