"""What the build of the documentation does beside mkdocs: it draws the figures, and puts drawings into their pages.

A drawing that is part of the page takes its colours from it, in light and in dark.
"""

import html
import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

import figures

_PICTURE = re.compile(r'<img alt="([^"]*)" src="([^"]*\.svg)"\s*/?>')
_ROLE = re.compile(r":(?:class|func|meth|mod):<code>~?(?:\w+\.)*(\w+)</code>")
_drawn: dict[str, str] = {}


def on_files(files: Files, config: Any) -> Files:
    """Add the computed figures to the files of the site."""
    for name in figures.FIGURES:
        _drawn[name] = _drawn.get(name) or figures.svg(name)
        files.append(File.generated(config, f"figures/{name}.svg", content=_drawn[name]))
    return files


def on_page_content(content: str, page: Any, files: Files, **_: Any) -> str:
    """Put every SVG picture of a page into the page itself, and take off the roles of numpydoc."""

    def inlined(found: re.Match[str]) -> str:
        url = PurePosixPath(page.url) / html.unescape(found[2])
        parts: list[str] = []
        for part in url.parts:
            parts = parts[:-1] if part == ".." else [*parts, part]
        file = next(each for each in files if each.url == "/".join(parts))
        drawing = re.sub(r"^.*?(?=<svg)", "", file.content_string, count=1, flags=re.DOTALL)
        return f'<figure class="drawing" role="img" aria-label="{found[1]}">{drawing}</figure>'

    return _ROLE.sub(r"<code>\1</code>", _PICTURE.sub(inlined, content))
