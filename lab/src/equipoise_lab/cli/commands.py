"""The commands of ``equipoise-lab``."""

from typing import Annotated

import typer

from equipoise_lab import __version__
from equipoise_lab.cli import bench, demo, reproduce, simulate, simulate_protocol

app = typer.Typer(
    help="The laboratory of equipoise: benchmarks, the papers' experiments, simulation and the demo.",
    no_args_is_help=True,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command("bench")(bench.command)
app.command("reproduce")(reproduce.command)
app.command("simulate")(simulate.command)
app.command("simulate-protocol")(simulate_protocol.command)
app.command("demo")(demo.command)
