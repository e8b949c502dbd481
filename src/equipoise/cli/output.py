"""Output that the commands share: tables for people, JSON for programs, pictures and progress."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from equipoise.errors import InvalidArgumentError, StorageError
from equipoise.pictures import require_picture, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Json = Annotated[
    str | None, typer.Option("--json", help="Write the result as JSON to a file, or to the standard output with -.")
]
"""The option ``--json`` of every command."""

Plot = Annotated[str | None, typer.Option("--plot", metavar="FILE", help="Draw a picture: .png, .svg or .pdf.")]
"""The option ``--plot`` of commands that draw a picture."""


def add_version(app: typer.Typer, version: str) -> None:
    """Add the option ``--version`` to the commands of an application."""

    def print_version(wanted: bool) -> None:
        if wanted:
            typer.echo(version)
            raise typer.Exit

    @app.callback()
    def options(
        *,
        version: Annotated[
            bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
        ] = False,
    ) -> None:
        pass


def require_folder(json: str | None) -> None:
    """Raise ``InvalidArgumentError`` before any work is done if the result could not be written to a file."""
    if json is None or json == "-":
        return
    path = Path(json)
    if not path.parent.is_dir():
        raise InvalidArgumentError(f"the folder of {json} does not exist; create it first")
    if path.is_dir():
        raise InvalidArgumentError(f"{json} is a folder; name a file in it")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidArgumentError(f"{json} cannot be written; name another file, or change its permissions")


def write_json(content: object, where: str) -> None:
    """Write a result as JSON to a file, or to the standard output."""
    text = msgspec.json.format(msgspec.json.encode(content, enc_hook=_plain), indent=2).decode() + "\n"
    if where == "-":
        sys.stdout.write(text)
    else:
        try:
            Path(where).write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"{where} was not written: {error}; name another file with --json") from error


def _plain(value: object) -> object:
    """Convert arrays to lists, and other values without a JSON form to text."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def show(
    rows: Iterable[dict[str, Any]], json: str | None, *, title: str = "", columns: Sequence[str] | None = None
) -> None:
    """Show rows as a table, or write them as JSON.

    Parameters
    ----------
    rows
        The result.
    json
        File for JSON, or ``-``; ``None`` for a table.
    title
        Of the table.
    columns
        Columns of the table; default those of the first row.
    """
    found = list(rows)
    if json is not None:
        write_json(found, json)
        return
    names = columns or list(found[0] if found else ())
    table = Table(*map(escape, names), title=escape(title) or None, title_justify="left")
    for row in found:
        table.add_row(*(escape(_text(row.get(name))) for name in names))
    Console().print(table)


def require_plot(plot: str | None) -> None:
    """Raise before any work is done if the picture could not be drawn."""
    if plot is not None:
        require_picture(plot)


def draw(figure: Callable[[], "Figure"], plot: str | None) -> None:
    """Draw a picture to ``plot`` if it is given, and print its path."""
    if plot is not None:
        save(figure(), plot)
        Console(stderr=True).print(f"picture: {escape(plot)}", highlight=False, soft_wrap=True)


class Working:
    """A spinner that shows the current step."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    def __call__(self, text: str) -> None:
        """Show the current step."""
        self._progress.update(self._task, description=escape(text))


@contextmanager
def working(first: str) -> Iterator[Working]:
    """Show a spinner with the elapsed time on the standard error while the block runs."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Working(progress, progress.add_task(escape(first), total=None))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return "" if value is None else str(value)
