"""Pictures of rows: a panel for each part, a line or group of bars for each method."""

from typing import TYPE_CHECKING, Any

from equipoise.pictures import Panel, bar_panels, line_panels
from equipoise_lab.reproduce.rows import Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def lines(
    rows: Rows,
    x: str,
    measures: dict[str, str],
    *,
    line: str,
    panel: str | None = None,
    log_x: bool = False,
    log_y: bool = False,
    limit: float | None = None,
) -> "Figure":
    """Lines over ``x``, one for each value of ``line``.

    Parameters
    ----------
    rows
        The numbers.
    x
        Name of what is varied.
    measures
        What is measured: name in the rows, and in words for the axis.
    line, panel
        Names whose values make the lines and the panels; there is a panel for each value and measure.
    log_x, log_y
        Logarithmic axes.
    limit
        Draw a level to stay below.
    """
    return line_panels(
        [
            Panel(heading, words, {str(each): part.line(x, y, **{line: each}) for each in part.distinct(line)})
            for heading, part in _parts(rows, panel)
            for y, words in measures.items()
        ],
        x,
        log_x=log_x,
        log_y=log_y,
        limit=limit,
    )


def bars(
    rows: Rows, x: str, measures: dict[str, str], *, line: str, panel: str | None = None, log_y: bool = False
) -> "Figure":
    """Bars in a group for each value of ``x``, one for each value of ``line``; see :func:`lines`."""
    return bar_panels(
        [
            Panel(heading, words, {str(each): _group(part, x, y, line, each) for each in part.distinct(line)})
            for heading, part in _parts(rows, panel)
            for y, words in measures.items()
        ],
        log_y=log_y,
    )


def _group(rows: Rows, x: str, y: str, line: str, value: Any) -> tuple[list[Any], list[float]]:
    """Places in the order of the rows, not sorted, as names are."""
    places = rows.distinct(x, **{line: value})
    return places, [rows.mean(y, **{line: value, x: place}) for place in places]


def _parts(rows: Rows, panel: str | None) -> list[tuple[str, Rows]]:
    if panel is None:
        return [("", rows)]
    parts = [(each, rows.where(**{panel: each})) for each in rows.distinct(panel)]
    return [(each if isinstance(each, str) else f"{panel} {each:,}", part) for each, part in parts]
