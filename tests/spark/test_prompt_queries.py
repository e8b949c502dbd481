"""The queries of the Prompt paper give what Spark alone gives, each row in as many windows as cover it."""

import importlib.util
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

EXAMPLE = Path(__file__).parents[2] / "examples" / "prompt_queries.py"
QUICK = ("tpch-6",)


def example():
    spec = importlib.util.spec_from_file_location("prompt_queries", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["prompt_queries"] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


QUERIES = example().QUERIES


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.long]) for name in QUERIES]
)
def test_a_query_of_the_paper(spark, tmp_path, name):
    module = example()
    assert module.run(spark, name, tmp_path, rows=3000, rate=3000, slides=2, interval=0.5)
