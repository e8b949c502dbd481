"""The page as one file, and the Content-Security-Policy that allows its own styles and scripts only."""

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

_STYLES = ("style.css",)
_SCRIPTS = ("format.js", "charts.js", "app.js")


class Page(NamedTuple):
    """The page, and its Content-Security-Policy."""

    html: bytes
    policy: str


@cache
def page() -> Page:
    """Put the page together; the same at every call."""
    styles, scripts = ([_part(name) for name in names] for names in (_STYLES, _SCRIPTS))
    html = (
        _part("index.html")
        .replace("<!-- styles -->", "".join(f"<style>{text}</style>" for text in styles))
        .replace("<!-- scripts -->", "".join(f"<script>{text}</script>" for text in scripts))
    )
    policy = (
        f"default-src 'none'; style-src {_hashes(styles)}; script-src {_hashes(scripts)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(html.encode(), policy)


def grafana_dashboard() -> str:
    """Return a Grafana dashboard over ``/metrics``, as JSON to import."""
    return resources.files(__package__).joinpath("grafana.json").read_text(encoding="utf-8")


def _part(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def _hashes(texts: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
