"""The table of Spark's tests names cases that exist."""

import pytest

from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.table import FORMS_OF_SPARK, PANDAS_ONLY, SPARK_TESTS

NAMED = {name for tests in SPARK_TESTS.values() for cases in tests.values() for name in cases}


def test_every_test_of_spark_is_listed_once():
    assert [len(tests) for tests in SPARK_TESTS.values()] == [20, 18, 8, 5]


@pytest.mark.parametrize("of", SPARK_TESTS)
def test_every_test_of_spark_has_cases_in_its_forms(of):
    for test, names in SPARK_TESTS[of].items():
        forms = ("pandas",) if test in PANDAS_ONLY else FORMS_OF_SPARK[of]
        assert {form for name in names for form in CASES[name].forms} >= set(forms), test


def test_every_case_that_a_test_of_spark_names_exists():
    assert set(CASES) >= NAMED
