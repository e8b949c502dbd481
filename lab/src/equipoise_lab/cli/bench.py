"""Run benchmarks: ``equipoise-lab bench``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from equipoise.cli.output import Json, require_folder, write_json
from equipoise.errors import InvalidArgumentError
from equipoise_lab import bench
from equipoise_lab.cli import completion


def command(
    name: Annotated[str, typer.Argument(help="A benchmark, `all`, or `list`.", autocompletion=completion.benchmarks)],
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller inputs: each ends within a minute, `peers` takes a few.")
    ] = False,
    json: Json = None,
    page: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Write the results as a page in Markdown (`peers`, `conformance`)."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Folder with real data sets to measure on as well."),
    ] = None,
    progress: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Keep in this file what has run, and go on from it (`conformance`)."),
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(
            metavar="COMMIT",
            help="Let what has run at this commit count in `--progress`, as far as it is as it must be. To run a case "
            "again, delete its lines from the file.",
        ),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of a Kafka broker to measure on as well (`look-cost`); Spark needs its connector."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 1,
) -> None:
    """Run a benchmark. Every performance claim of equipoise is one of them."""
    require_folder(json)
    if name == "list":
        _list_benchmarks(json)
        return
    require_folder(None if page is None else str(page))
    write = None if page is None else bench.page(name)
    _require_fitting(name, quick=quick, page=page, progress=progress, accept=accept)
    context = bench.Context(quick=quick, seed=seed, data=data, progress=progress, accept=accept, kafka=kafka)
    reports: list[bench.Report] = []
    try:
        for each in _runnable(context) if name == "all" else [name]:
            reports.append(bench.run(each, context))
            if json is None:
                _print_report(reports[-1])
    finally:  # finished reports are written even if a later benchmark fails or is interrupted
        if json is not None and reports:
            write_json(reports if name == "all" else reports[0], json)
    if page is not None and write is not None:
        page.write_text(write(reports[0]), encoding="utf-8")


def _require_fitting(name: str, *, quick: bool, page: Path | None, progress: Path | None, accept: str | None) -> None:
    if quick and page is not None and name == "conformance":
        raise InvalidArgumentError("--page was given with --quick, and the page shows all cases; leave one of them out")
    if progress is not None and name not in bench.RESUMABLE:
        raise InvalidArgumentError(
            f"benchmark {name!r} does not go on from a file; leave --progress out, or run {', '.join(bench.RESUMABLE)}"
        )
    if accept is not None and progress is None:
        raise InvalidArgumentError("--accept was given without --progress, the file with the results to accept; add it")


def _runnable(context: bench.Context) -> list[str]:
    """All benchmarks, without those that need ``--data`` if it was not given."""
    left_out = [name for name in bench.BENCHMARKS if name in bench.NEED_DATA and context.data is None]
    if left_out:
        context.console.print(f"skipped, because they need --data: {', '.join(left_out)}")
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
        table.add_row(metric, f"{value:,.0f}" if value % 1 == 0 or abs(value) >= 1000 else f"{value:.4g}")
    Console().print(table)
    heading, *rows = bench.details(report) or [()]
    if rows:
        behind = Table(*heading)
        for row in rows:
            behind.add_row(*map(escape, row))
        Console().print(behind)
