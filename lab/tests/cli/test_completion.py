"""The shell completes names."""

import pytest
from typer.testing import CliRunner

from equipoise_lab.bench import BENCHMARKS
from equipoise_lab.cli.commands import app


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
        ("bench pro", [name for name in BENCHMARKS if name.startswith("pro")]),
        ("simulate --workload z", ["zipf"]),
        ("simulate --splitters shuffle,d-", ["shuffle,d-choices"]),
    ],
)
def test_names_are_completed(words, names):
    assert completed(words) == names
