"""Runs tables and figures one after the other, keeps each result as it comes, and shows how far it is."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from equipoise.errors import InvalidArgumentError
from equipoise_lab.reproduce import records
from equipoise_lab.reproduce.exhibit import Exhibit
from equipoise_lab.reproduce.records import Record, RunRequest
from equipoise_lab.reproduce.sources import digest


class Failure(NamedTuple):
    """A table or figure that could not be run, and why."""

    exhibit: str
    error: Exception


def reproduce(
    exhibits: Sequence[Exhibit],
    folder: Path,
    request: RunRequest,
    *,
    again: bool = False,
    console: Console | None = None,
) -> Iterator[Record | Failure]:
    """Result of each exhibit: kept in the folder from an earlier run, or run now and then kept; a failure is reported.

    Parameters
    ----------
    exhibits
        What is run.
    folder
        Where raw results are kept.
    order
        Scale, seed and data.
    again
        Run also what has a result.
    console
        Where progress is shown; default: standard error.
    """
    _refuse_useless_data(exhibits, request)
    for exhibit in exhibits:
        digest(exhibit.module)  # remembered from now on: the code that is run is the code of this moment
    columns = TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console or Console(stderr=True), transient=True) as progress:
        overall = progress.add_task("tables and figures", total=len(exhibits))
        for exhibit in exhibits:
            record = None if again else records.load(folder, exhibit)
            found: Record | Failure | None = record
            if record is None or not records.answers(record, exhibit, request):
                try:
                    found = _run(exhibit, folder, request, progress)
                except Exception as error:  # noqa: BLE001 - whatever it is, the others go on, and the report names it
                    found = Failure(exhibit.name, error)
            progress.advance(overall)
            assert found is not None  # noqa: S101 - this tells the type checker
            yield found


def _run(exhibit: Exhibit, folder: Path, request: RunRequest, progress: Progress) -> Record:
    task = progress.add_task(exhibit.name, total=None)

    def tell(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total)

    try:
        record = records.run(exhibit, request, replace(request.context(exhibit), tell=tell))
    finally:
        progress.remove_task(task)
    records.save(folder, exhibit, record)
    return record


def _refuse_useless_data(exhibits: Sequence[Exhibit], request: RunRequest) -> None:
    usable = sorted({name for exhibit in exhibits for name in exhibit.files})
    if request.data is not None and usable and not any(request.files(exhibit) for exhibit in exhibits):
        raise InvalidArgumentError(
            f"{request.data} has none of {', '.join(usable)}; name their folder with --data, "
            "or leave it out to run on generated data"
        )
