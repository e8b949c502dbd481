"""The commands of ``equipoise-lab``."""

import typer

from equipoise.cli.output import add_version
from equipoise_lab import __version__
from equipoise_lab.cli import bench, demo, reproduce, simulate, simulate_protocol

app = typer.Typer(
    help="The laboratory of equipoise: benchmarks, the papers' experiments, simulation and the demo.",
    no_args_is_help=True,
)
add_version(app, __version__)
app.command("bench")(bench.command)
app.command("reproduce")(reproduce.command)
app.command("simulate")(simulate.command)
app.command("simulate-protocol")(simulate_protocol.command)
app.command("demo")(demo.command)
