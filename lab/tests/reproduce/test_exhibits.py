"""Every table and figure at its tiny scale: it runs, its claims are judged, and it is drawn."""

import re
import subprocess
import sys

import pytest

from equipoise.web_page import as_svg
from equipoise_lab.reproduce import PAPERS, chosen, exhibits
from equipoise_lab.reproduce.exhibit import SCALES
from equipoise_lab.reproduce.records import RunRequest, run
from equipoise_lab.reproduce.report import judge
from equipoise_lab.reproduce.rows import Rows

EXHIBITS = exhibits()


@pytest.mark.parametrize("name", [name for name, each in EXHIBITS.items() if not each.spark])
def test_an_exhibit_runs_is_judged_and_drawn(name):
    exhibit, request = EXHIBITS[name], RunRequest("tiny")
    reported = []
    context = request.context(exhibit)
    object.__setattr__(context, "tell", lambda done, total: reported.append((done, total)))
    record = run(exhibit, request, context)
    assert record.rows
    assert reported[0][0] == 0
    assert reported[-1][0] == reported[-1][1] > 0
    for _, finding in judge(exhibit, record).findings:
        assert finding.ours
        assert re.match(r"(so it is|not so): .", finding.reason)
        assert "nan" not in finding.ours
    assert as_svg(exhibit.draw(Rows(record.rows))).startswith("<figure><svg")


@pytest.mark.parametrize("name", EXHIBITS)
def test_an_exhibit_says_what_it_is(name):
    exhibit = EXHIBITS[name]
    assert exhibit.paper in PAPERS
    assert exhibit.title
    assert exhibit.section
    for claim in exhibit.claims:
        assert claim.says
        assert claim.paper
    for setting in exhibit.settings.values():
        assert setting.paper
        assert all(setting.at(scale) is not None for scale in SCALES)


ON_SPARK = """
from equipoise_lab.reproduce import exhibits
from equipoise_lab.reproduce.records import RunRequest, run
from equipoise_lab.reproduce.report import judge

exhibit, order = exhibits()["{name}"], RunRequest("tiny")
print("judged", len(judge(exhibit, run(exhibit, order, order.context(exhibit))).findings))
"""


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, each in EXHIBITS.items() if each.spark])
def test_an_exhibit_on_spark_runs_and_is_judged(name, request):
    request.getfixturevalue("spark")  # asks for Java in the same words; the exhibit stops a Spark of its own
    code = ON_SPARK.format(name=name)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert result.stdout.startswith("judged"), result.stderr[-3000:]


def test_exhibits_are_chosen_by_paper_or_by_name():
    assert [each.name for each in chosen(["pkg/table-2", "pkg/table-2"])] == ["pkg/table-2"]
    assert {each.paper for each in chosen(["dkg"])} == {"dkg"}
    assert len(chosen([])) == len(EXHIBITS)
