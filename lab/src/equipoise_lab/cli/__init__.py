"""The command line of the laboratory: ``equipoise-lab``. Exit codes are those of ``equipoise``."""

from equipoise.cli import run


def main() -> None:
    """Run the command line."""
    run("equipoise_lab.cli.commands")
