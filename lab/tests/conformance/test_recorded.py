"""The record of Spark, the committed results and the page agree with the cases."""

import re
from collections import Counter
from pathlib import Path

import pytest

from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.recorded import recorded
from equipoise_lab.conformance.section import committed_outcomes, with_section
from equipoise_lab.conformance.verdict import CLIENTS, allowed

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "keyed-streams.md"


def test_every_case_was_recorded_in_all_its_forms():
    assert {name: tuple(traces) for name, traces in recorded().items()} == {
        name: case.forms for name, case in CASES.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_what_was_recorded_of_spark_shows_what_the_case_is_for(name):
    refusal = CASES[name].refusal
    for trace in recorded()[name].values():
        if refusal is not None:
            assert trace.failures[-1]
            assert re.search(refusal, trace.failures[-1])
        else:
            assert trace.failures[-1] is None
            assert trace.batches


def test_both_forms_of_a_case_do_the_same_on_spark():
    """A case whose forms differ, for example in the types of a key, says so here."""
    different = {
        name
        for name, traces in recorded().items()
        if len({tuple(map(tuple, trace.batches)) for trace in traces.values()}) > 1
    }
    assert different == {"null-key-int", "null-key-bigint", "null-key-double", "null-key-twice"}, (
        "nan for NULL in frames"
    )


def test_the_page_shows_the_committed_results():
    outcomes = committed_outcomes()
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_section(page, outcomes)


def test_the_committed_results_are_complete():
    assert Counter((each.case, each.form, each.client) for each in committed_outcomes()) == Counter(
        (name, form, client) for name, case in CASES.items() for form in case.forms for client in CLIENTS
    )


def test_the_committed_results_are_those_that_are_allowed():
    assert not [each for each in committed_outcomes() if each.verdict != allowed(each.case, each.form)]
