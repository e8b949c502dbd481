"""Every case through Spark and equipoise; ``make test-conformance`` runs them, ``make test`` the two quick ones."""

import pytest

from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.connect import outcomes_on_connect
from equipoise_lab.conformance.verdict import outcomes

QUICK = ("late-rows-time-mode-none", "group-state")


def allowed(name):
    """Everything is the same, but for values that are refused for a reason and reads by Spark's own sources."""
    case = CASES[name]
    return "stricter" if case.stricter else "refused" if case.spark_reads else "same"


def not_as_allowed(found):
    return [each for each in found if each.verdict != allowed(each.case)]


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_case_is_the_same(spark, name):
    assert [each.verdict for each in outcomes(spark, name, "classic", fresh=True)] == ["same"] * len(CASES[name].forms)


@pytest.mark.conformance
@pytest.mark.parametrize("name", CASES)
def test_a_case_is_the_same_on_classic(spark, name):
    assert not not_as_allowed(outcomes(spark, name, "classic", fresh=True))


@pytest.mark.conformance
@pytest.mark.usefixtures("spark")  # asks for Java in the same words
def test_every_case_is_the_same_on_connect():
    assert not [wrong for found in outcomes_on_connect(list(CASES)) for wrong in not_as_allowed(found)]
