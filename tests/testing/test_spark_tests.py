"""Every test that Spark has of its tester has one of ours."""

import ast
import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("equipoise_spark_tests", HERE / "spark_tests.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SPARK_TESTS


def test_every_test_of_the_table_exists(table):
    tree = ast.parse((HERE / "test_tws_tester.py").read_text(encoding="utf-8"))
    ours = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    assert set(table.values()) <= ours


def test_the_table_names_all_of_the_58_tests_of_spark(table):
    assert len(table) == 58
    assert all(name.startswith("test_") for name in table)
