"""The help of every command shows its texts in full: brackets are not eaten as markup."""

import pytest
import typer
from typer.testing import CliRunner

from equipoise.cli.commands import app as library
from equipoise_lab.cli.commands import app as laboratory


def commands(app, command, path=()):
    yield pytest.param(app, path, command, id=" ".join([app.info.help.split()[0], *path]))
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(app, child, (*path, name))


def words(text):
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("app", "path", "command"),
    [case for app in (library, laboratory) for case in commands(app, typer.main.get_command(app))],
)
def test_every_help_text_is_shown_in_full(app, path, command):
    answer = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "500", "TERMINAL_WIDTH": "500"})
    assert answer.exit_code == 0
    shown = words(answer.output)
    texts = [command.help, *(getattr(each, "help", None) for each in command.params)]
    for text in filter(None, texts):
        for paragraph in text.split("\n\n"):
            assert words(paragraph) in shown
