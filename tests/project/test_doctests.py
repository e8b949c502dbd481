"""The examples in docstrings give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import equipoise
import equipoise_lab

MODULES = sorted(
    module.name
    for package in (equipoise, equipoise_lab)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
