"""The commands of ``equipoise``."""

import typer

from equipoise import __version__
from equipoise.cli import advise, balance, dashboard, plans, profile, state
from equipoise.cli.output import add_version

app = typer.Typer(help="Keeps keyed work in balance on Apache Spark.", no_args_is_help=True)
add_version(app, __version__)
app.command("dashboard")(dashboard.command)
app.command("profile")(profile.command)
app.command("advise")(advise.command)
app.command("balance")(balance.command)
app.add_typer(plans.app, name="plan")
app.add_typer(state.app, name="state")
