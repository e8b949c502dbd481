"""``equipoise-lab reproduce``: the tables and figures of the papers, run again."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from equipoise.cli.output import Json, require_folder, show, write_json
from equipoise.errors import InvalidArgumentError, SparkUnavailableError
from equipoise.pictures import require_matplotlib
from equipoise.requirements import require_java, require_pyspark


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="A paper, or one of its figures as PAPER/FIGURE; `list` shows them. Default: all."),
    ] = None,
    *,
    data: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Folder with recorded data sets to run on as well."),
    ] = None,
    full: Annotated[bool, typer.Option("--full/--quick", help="Take at most 90 minutes, or about 10.")] = False,
    output: Annotated[Path, typer.Option(help="Folder for the report and the raw results.")] = Path("reproduced"),
    again: Annotated[bool, typer.Option("--again", help="Run again also what has a result in the folder.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 1,
    json: Json = None,
) -> None:
    """Run tables and figures of the papers again: one verdict for each claim, in a report.

    What has a result in the folder, made with the same code, seed and data, is not run again. A claim that does not
    hold is a result, not an error.
    """
    from equipoise_lab.reproduce import chosen
    from equipoise_lab.reproduce.records import RunRequest
    from equipoise_lab.reproduce.runner import Failure, reproduce

    require_folder(json)
    wanted = chosen([] if names == ["list"] else names or [])
    if names == ["list"]:
        rows = [{"name": e.name, "shows": e.title, "claims": len(e.claims), "paper": e.section} for e in wanted]
        show(rows, json, columns=("name", "shows", "claims"))
        return
    require_matplotlib()
    try:
        (output / "raw").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(
            f"the folder {output} cannot be created ({error}); name another one with --output"
        ) from error
    wanted = _runnable(wanted, named=bool(names))
    request = RunRequest("full" if full else "quick", seed, data)
    done, failures = 0, []
    try:
        with _one_spark(wanted):
            for found in reproduce(wanted, output, request, again=again):
                done += 1
                if isinstance(found, Failure):
                    failures.append(found)
    except KeyboardInterrupt:
        _report(output, json)
        Console(stderr=True).print(
            f"Interrupted after {done} of {len(wanted)}. Their results are kept; the same command continues from there."
        )
        raise typer.Exit(130) from None
    _report(output, json)
    for failed in failures:
        Console(stderr=True).print(f"{failed.exhibit} failed: {failed.error}", markup=False, soft_wrap=True)
    if failures:
        raise typer.Exit(1)


def _runnable(wanted: list[Any], *, named: bool) -> list[Any]:
    """Without Spark, drop the exhibits that need it; raise if they were asked for by name."""
    on_spark = [exhibit.name for exhibit in wanted if exhibit.spark]
    try:
        if on_spark:
            require_pyspark()
            require_java()
    except SparkUnavailableError as error:
        if named:
            raise
        Console(stderr=True).print(f"skipped {', '.join(on_spark)}: {error}", soft_wrap=True, markup=False)
        return [exhibit for exhibit in wanted if not exhibit.spark]
    return wanted


def _one_spark(wanted: list[Any]) -> AbstractContextManager[None]:
    """Share one Spark session among exhibits with the same number of slots."""
    if not any(exhibit.spark for exhibit in wanted):
        return nullcontext()
    from equipoise_lab.bench.local_spark import kept_sessions

    return kept_sessions()


def _report(output: Path, json: str | None) -> None:
    """Write the report of all results in the folder, and print the verdicts."""
    from equipoise_lab.reproduce import exhibits
    from equipoise_lab.reproduce.records import load
    from equipoise_lab.reproduce.report import as_html, as_json, as_markdown, counted, judge

    found = [(exhibit, load(output, exhibit)) for exhibit in exhibits().values()]
    results = [judge(exhibit, record) for exhibit, record in found if record is not None]
    (output / "report.html").write_text(as_html(results), encoding="utf-8")
    (output / "report.md").write_text(as_markdown(results), encoding="utf-8")
    if json is not None:
        write_json(as_json(results), json)
    table = Table("", *counted([]), title="Claims", title_justify="left")
    for result in results:
        table.add_row(result.exhibit.name, *(str(count or "") for count in counted([result]).values()))
    table.add_section()
    table.add_row("all", *(str(count) for count in counted(results).values()))
    console = Console(stderr=json == "-")
    console.print(table)
    console.print(f"Report: [bold]{escape(str((output / 'report.html').resolve()))}[/]", soft_wrap=True)
