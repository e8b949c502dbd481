"""Text directly after an example, in pages whose examples need no Spark, is what the example prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
REFERENCE = [DOCS / "reference" / f"{name}.md" for name in ("adapt", "checks", "plan")]
TESTING = DOCS / "how-to" / "test-a-processor.md"
PAGES = [
    path
    for path in sorted([*(DOCS / "algorithms").rglob("*.md"), *(DOCS / "lab").glob("*.md"), *REFERENCE, TESTING])
    if EXAMPLE.search(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("page", PAGES, ids=[path.relative_to(DOCS).as_posix() for path in PAGES])
def test_an_example_prints_the_text_below_it(page):
    namespace: dict[str, object] = {}
    for code, expected in EXAMPLE.findall(page.read_text(encoding="utf-8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), namespace)  # noqa: S102 - our own documentation
        assert printed.getvalue() == expected


def test_every_overview_has_an_example_with_its_output():
    overviews = [*(DOCS / "algorithms").rglob("index.md"), DOCS / "algorithms" / "shards.md", *REFERENCE]
    assert not [page for page in overviews if "\n```text\n" not in page.read_text(encoding="utf-8")]
