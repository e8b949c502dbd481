"""Every case through Spark and equipoise; ``make test-conformance`` runs them, ``make test`` the two quick ones."""

import pytest

from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.verdict import allowed, outcomes
from equipoise_lab.conformance.worker import Worker

QUICK = ("late-rows-time-mode-none", "group-state")


@pytest.fixture(scope="session")
def connect(spark):  # noqa: ARG001 - asks for Java in the same words
    with Worker("connect") as worker:
        yield worker


def not_as_allowed(found):
    return [each for each in found if each.verdict != allowed(each.case, each.form)]


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_case_is_the_same(spark, name):
    assert [each.verdict for each in outcomes(spark, name, "classic")] == ["same"] * len(CASES[name].forms)


@pytest.mark.conformance
@pytest.mark.parametrize("name", CASES)
def test_a_case_is_the_same_on_classic(spark, name):
    assert not not_as_allowed(outcomes(spark, name, "classic"))


@pytest.mark.conformance
@pytest.mark.parametrize("name", CASES)
def test_a_case_is_the_same_on_connect(connect, name):
    assert not not_as_allowed(connect.outcomes(name))
