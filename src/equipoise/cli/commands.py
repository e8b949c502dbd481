"""The commands of ``equipoise``."""

from typing import Annotated

import typer

from equipoise import __version__
from equipoise.cli import advise, balance, dashboard, plans, profile, state

app = typer.Typer(help="Keeps keyed work in balance on Apache Spark.", no_args_is_help=True)


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


app.command("dashboard")(dashboard.command)
app.command("profile")(profile.command)
app.command("advise")(advise.command)
app.command("balance")(balance.command)
app.add_typer(plans.app, name="plan")
app.add_typer(state.app, name="state")
