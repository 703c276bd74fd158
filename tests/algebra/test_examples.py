"""The examples in the operators' docstrings."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["operators", "filters"])
def test_docstring(name):
    module = importlib.import_module(f"oocbe.algebra.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 1
    assert result.failed == 0
