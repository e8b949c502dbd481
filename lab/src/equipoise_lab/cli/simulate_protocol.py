"""``equipoise-lab simulate-protocol``: the commit protocol under schedules of faults."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from equipoise.cli.output import Json, require_folder, write_json
from equipoise.errors import InvalidArgumentError
from equipoise.requirements import require_pyspark

_REACHES_ALL = 2_000  # schedules that must take every path; fewer may miss some


def command(
    *,
    seeds: Annotated[str, typer.Option(help="Seeds A:B, from A up to B - 1; one schedule each.")] = "0:2000",
    progress: Annotated[
        Path | None, typer.Option(help="File that keeps the progress; an interrupted run continues from it.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes; default one for each core.")] = None,
    json: Json = None,
) -> None:
    """Run the real commit protocol over simulated stores, drivers and time; exits with 1 if a guarantee does not hold.

    A run of at least 2,000 schedules exits with 1 as well if it has not taken every path. A schedule that violates a
    guarantee is shortened as far as possible and printed. Its seed replays it.
    """
    require_folder(json)
    wanted = _range(seeds)
    require_pyspark()
    from equipoise_lab.bench.protocol.many import many
    from equipoise_lab.bench.protocol.paths import PATHS, unreached

    columns = TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(wanted))
        for done in many(wanted, progress, processes):
            bar.update(task, completed=done.schedules)
    missing = unreached(done.counts)
    if json is not None:
        write_json(done, json)
    else:
        table = Table("path", "times", title=f"Paths taken by {done.schedules:,} schedules", title_justify="left")
        for path in PATHS:
            table.add_row(path, f"{done.counts.get(path, 0):,}")
        Console().print(table)
        for story in done.stories.values():
            typer.echo(story + "\n")
        rate = done.schedules / done.seconds if done.seconds else 0.0
        typer.echo(f"{done.schedules:,} schedules, {len(done.stories)} violations, {rate:.1f} schedules a second")
    if missing:
        typer.echo(f"not reached: {', '.join(missing)}; {_REACHES_ALL:,} schedules must reach them", err=True)
    if done.stories or (missing and done.schedules >= _REACHES_ALL):
        raise typer.Exit(1)


def _range(text: str) -> range:
    first, found, end = text.partition(":")
    if not (found and first.isdigit() and end.isdigit() and int(first) < int(end)):
        raise InvalidArgumentError(f"--seeds must be two whole numbers A:B with A below B, got {text!r}")
    return range(int(first), int(end))
