import subprocess
import sys

import pytest
from typer.testing import CliRunner

from equipoise import __version__
from equipoise.cli import main
from equipoise.cli.commands import app
from equipoise.requirements import missing_text


def test_the_version_is_printed():
    assert CliRunner().invoke(app, ["--version"]).stdout.strip() == __version__


def test_an_error_of_ours_ends_with_exit_code_1_and_no_traceback(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["equipoise", "state", "log", str(tmp_path / "[/x] equipoise[plot]")])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("INVALID_ARGUMENT ")
    assert "[/x] equipoise[plot]" in said, "brackets are no markup"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_packages_of_the_command_line_it_says_what_to_install(missing):
    code = f"import sys; sys.modules[{missing!r}] = None; from equipoise.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == f"MISSING_PACKAGE {missing_text('this', missing, 'cli')}\n"
