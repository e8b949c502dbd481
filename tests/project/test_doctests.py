"""The examples in docstrings give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import equipoise

MODULES = sorted(module.name for module in pkgutil.walk_packages(equipoise.__path__, "equipoise."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
