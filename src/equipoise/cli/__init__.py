"""The command line: ``equipoise``.

Exit codes: 0 done, 1 an error of equipoise (its message says what to do), 2 wrong usage, 130 interrupted.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from equipoise import __version__, bench
from equipoise.cli import (
    advise,
    balance,
    completion,
    dashboard,
    demo,
    plans,
    profile,
    reproduce,
    simulate,
    simulate_protocol,
    state,
)
from equipoise.cli.output import Json, require_folder, write_json
from equipoise.errors import EquipoiseError, MissingPackage

app = typer.Typer(help="Keeps keyed work in balance on Apache Spark.", no_args_is_help=True)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except EquipoiseError as error:
        message = f"[bold red]{error.code}[/] {escape(str(error))}"
        Console(stderr=True).print(message, highlight=False, soft_wrap=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        missing = MissingPackage(f"this needs {package}; install it with: pip install '{_EXTRAS[package]}'")
        Console(stderr=True).print(f"{missing.code} {missing}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


_EXTRAS = {
    "pyarrow": "equipoise[dashboard]",
    "matplotlib": "equipoise[plot]",
    **dict.fromkeys(("pyspark", "pandas", "lmdb", "grpc"), "equipoise[spark]"),
}
"""Packages that not every install has, and what brings them."""


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


@app.command("bench")
def bench_command(
    name: Annotated[str, typer.Argument(help="A benchmark, `all`, or `list`.", autocompletion=completion.benchmarks)],
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller inputs: each ends within a minute, `peers` takes a few.")
    ] = False,
    json: Json = None,
    page: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write the results as a page in Markdown (`peers` only).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Folder with real data sets to measure on as well."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 1,
) -> None:
    """Run a benchmark: every performance claim of equipoise is one of them."""
    require_folder(json)
    if name == "list":
        _list_benchmarks(json)
        return
    require_folder(None if page is None else str(page))
    write = None if page is None else bench.page(name)
    context = bench.Context(quick=quick, seed=seed, data=data)
    reports: list[bench.Report] = []
    try:
        for each in _runnable(context) if name == "all" else [name]:
            reports.append(bench.run(each, context))
            if json is None:
                _print_report(reports[-1])
    finally:  # what has ended is kept also where a later one fails or is interrupted
        if json is not None and reports:
            write_json(reports if name == "all" else reports[0], json)
    if page is not None and write is not None:
        page.write_text(write(reports[0]), encoding="utf-8")


def _runnable(context: bench.Context) -> list[str]:
    """All benchmarks but those that need data which were not given."""
    left_out = [name for name in bench.BENCHMARKS if name in bench.NEED_DATA and context.data is None]
    if left_out:
        context.console.print(f"left out, since they need --data: {', '.join(left_out)}")
    return [name for name in bench.BENCHMARKS if name not in left_out]


def _list_benchmarks(json: str | None) -> None:
    summaries = {name: bench.summary(name) for name in bench.BENCHMARKS}
    if json is not None:
        write_json(summaries, json)
        return
    table = Table("benchmark", "what it measures")
    for row in summaries.items():
        table.add_row(*row)
    Console().print(table)


def _print_report(report: bench.Report) -> None:
    table = Table("metric", "value", title=report.benchmark, title_justify="left")
    table.columns[1].justify = "right"
    for metric, value in report.metrics.items():
        table.add_row(metric, f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}")
    Console().print(table)


app.command("dashboard")(dashboard.command)
app.command("demo")(demo.command)
app.command("reproduce")(reproduce.command)
app.command("profile")(profile.command)
app.command("advise")(advise.command)
app.command("balance")(balance.command)
app.command("simulate")(simulate.command)
app.command("simulate-protocol")(simulate_protocol.command)
app.add_typer(plans.app, name="plan")
app.add_typer(state.app, name="state")
