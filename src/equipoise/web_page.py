"""HTML pages in one file, without scripts, fonts or pictures from other places."""

import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
figure { margin: 0; overflow-x: auto; background: #fff; border-radius: .5rem; padding: .5rem; }
svg { width: 100%; height: auto; }
.wide { overflow-x: auto; }
"""


class PageSection(NamedTuple):
    """Section of a page: heading, content as HTML, and anchor for links."""

    heading: str
    content: str
    anchor: str = ""


def as_page(title: str, introduction: str, sections: Iterable[PageSection]) -> str:
    """Return a complete HTML page.

    Parameters
    ----------
    title, introduction
        Heading and first paragraph, as plain text.
    sections
        Sections in their order.
    """
    body = "".join(f"<h2{_identity(each)}>{html.escape(each.heading)}</h2>\n{each.content}\n" for each in sections)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>\n"
        f"<h1>{html.escape(title)}</h1>\n<p>{html.escape(introduction)}</p>\n{body}</main></body></html>\n"
    )


def _identity(section: PageSection) -> str:
    return f' id="{html.escape(section.anchor)}"' if section.anchor else ""


def as_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as an HTML table; values are escaped.

    Examples
    --------
    >>> as_table([{"who": "<b>", "n": 1}])
    '<div class="wide"><table><tr><th>who</th><th>n</th></tr><tr><td>&lt;b&gt;</td><td>1</td></tr></table></div>'
    """
    if not rows:
        return "<p>No rows.</p>"
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    lines = ("".join(f"<td>{html.escape(str(value))}</td>" for value in row.values()) for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>'


def as_svg(figure: "Figure") -> str:
    """Return a figure as an HTML ``figure`` element with inline SVG."""
    buffer = io.StringIO()
    layout = figure.get_layout_engine()
    if layout is not None:  # lay out now: saving would draw the figure a second time for it
        layout.execute(figure)
        figure.set_layout_engine("none")
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    drawn = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), count=1, flags=re.DOTALL)
    return f"<figure>{drawn}</figure>"
