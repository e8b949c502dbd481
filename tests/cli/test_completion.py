"""The shell completes names."""

import pytest
from typer.testing import CliRunner

from equipoise.cli.commands import app
from equipoise.plan import PLANNERS


def completed(words):
    """What bash would be offered; typer looks for the name of the program in the variable's name."""
    environment = {
        "_ROOT_COMPLETE": "complete_bash",
        "COMP_WORDS": f"root {words}",
        "COMP_CWORD": str(len(words.split(" "))),
    }
    return CliRunner().invoke(app, [], env=environment, prog_name="root").stdout.split()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("balance a b --planner k", [name for name in PLANNERS if name.startswith("k")]),
        ("advise a --operation apply", ["applyInPandas", "applyInArrow"]),
        ("balance a b --mode o", ["overwrite"]),
        ("state com", ["compact"]),
    ],
)
def test_names_are_completed(words, names):
    assert completed(words) == names
