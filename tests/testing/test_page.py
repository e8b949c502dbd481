"""The page about tests describes the failpoints that there are."""

import re
from pathlib import Path

from equipoise.failpoints import POINTS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-a-processor.md"


def test_the_page_describes_failpoints_in_the_words_of_their_table():
    text = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `((?:task|driver)\.[\w-]+)` \| (.*) \|$", text, re.MULTILINE))
    assert len(rows) > 8
    assert rows == {point: POINTS[point] for point in rows}
