"""What the commands share: a result as a table for people or as JSON for programs."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from equipoise.errors import InvalidArgument

Json = Annotated[str | None, typer.Option("--json", help="Write the result as JSON to a file or, -, stdout.")]
"""The option that every command has."""


def require_folder(json: str | None) -> None:
    """Refuse a file in a folder that is not there before any work is done, so that no result is lost."""
    if json not in {None, "-"} and not Path(str(json)).parent.is_dir():
        raise InvalidArgument(f"the folder of {json} does not exist; make it first, so that no result is lost")


def write_json(content: object, where: str) -> None:
    """Write a result to a file, or to the standard output."""
    text = msgspec.json.format(msgspec.json.encode(content, enc_hook=_plain), indent=2).decode() + "\n"
    if where == "-":
        sys.stdout.write(text)
    else:
        Path(where).write_text(text, encoding="utf-8")


def _plain(value: object) -> object:
    """Arrays as lists, and what has no JSON form as text."""
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
        Where the user wants JSON; ``None`` for a table.
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
    table = Table(*names, title=title or None, title_justify="left")
    for row in found:
        table.add_row(*(_text(row.get(name)) for name in names))
    Console().print(table)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return "" if value is None else str(value)
